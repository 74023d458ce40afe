//! Which keys a limit denies and counts most, over the last minutes.
//!
//! With an admin interface each worker counts which keys are frequent, in a sketch of bounded size for
//! each limit and under a lock of its own. Every ten seconds, and for each `GET /v1/top`, the sketches are taken and added to
//! the history of the limit, by its name. So a request reads no clock for them, and costs the same with any number of keys.

mod history;
mod sketch;
mod summary;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::history::TopWindow;
pub use self::sketch::{Sketch, TopBy};
pub use self::summary::{Counter, KeyConsumer, KeyLabel, Summary};

use self::history::{KeyCounts, TICK_SECONDS, Tick, WindowHistory, WindowSlot};
use self::sketch::DeniedAndAll;
use super::log::LogKeys;
use crate::id_vec::IdVec;
use crate::limit::{Key, Policy, PolicyId};

/// The longest name of a key that is kept, in bytes: a longer one is shown as a tag.
const MAX_NAME: usize = 128;

/// The most frequent keys of all limits. A limit keeps them across reloads as long as the configuration has its name.
#[derive(Debug)]
pub struct TopKeys {
    /// What each worker has counted since its sketches were last taken.
    workers: Mutex<BTreeMap<usize, Sketches>>,
    past: Mutex<Past>,
}

type Sketches = BTreeMap<Box<str>, Arc<Mutex<DeniedAndAll<Sketch>>>>;

/// The sketches that were taken from the workers.
#[derive(Debug)]
struct Past {
    started: Instant,
    /// When the sketches of the workers were last taken.
    taken: Instant,
    limits: BTreeMap<Box<str>, WindowHistory>,
}

/// Counts the keys of one worker's requests, by the limits of one configuration.
#[derive(Debug)]
pub struct TopRecorder {
    limits: IdVec<PolicyId, Arc<Mutex<DeniedAndAll<Sketch>>>>,
    keeps_names: bool,
    /// Shared by all keys of which nothing is known.
    unknown: Arc<KeyLabel>,
}

/// The requests of a key over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHistory {
    /// In ascending order of their time, without gaps.
    pub slots: Vec<KeySlot>,
    /// By how much a count may be too high, or too low for a key that is not among the most frequent ones of a slot: such a
    /// key has 0.
    pub max_error: u64,
}

/// The requests of a key in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySlot {
    /// The start of the span.
    pub start: Instant,
    /// Its length.
    pub length: Duration,
    /// Requests that the limit decided.
    pub traffic: u64,
    /// Requests that the limit denied, or in shadow mode would have denied.
    pub denials: u64,
}

/// A request that a limit decided.
#[derive(Clone, Copy, Debug)]
pub struct KeyEvent<'a> {
    /// The key under which the limit counts it.
    pub key: Key,
    /// The name of its consumer.
    pub consumer: Option<&'a str>,
    /// Whether the limit denied it, or in shadow mode would have denied it.
    pub is_denied: bool,
}

impl TopKeys {
    /// How often the sketches of the workers should be taken.
    pub const INTERVAL: Duration = Duration::from_secs(TICK_SECONDS);

    /// Starts counting.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let past = Past { started: now, taken: now, limits: BTreeMap::new() };
        Self { workers: Mutex::default(), past: Mutex::new(past) }
    }

    /// Counts the keys of a worker. Policies of the same name, such as the tiers of a limit, are counted together.
    pub fn recorder(&self, worker: usize, policies: &[Policy], keys: LogKeys) -> TopRecorder {
        let mut workers = self.workers.lock();
        let sketches = workers.entry(worker).or_default();
        let limit = |policy: &Policy| Arc::clone(sketches.entry(policy.name.clone()).or_default());
        let limits = policies.iter().map(limit).collect();
        TopRecorder { limits, keeps_names: keys == LogKeys::Plain, unknown: Arc::default() }
    }

    /// Removes what was counted for all other limits.
    pub fn retain(&self, policies: &[Policy]) {
        let names: HashSet<&str> = policies.iter().map(|policy| &*policy.name).collect();
        for sketches in self.workers.lock().values_mut() {
            sketches.retain(|name, _| names.contains(&**name));
        }
        self.past.lock().limits.retain(|name, _| names.contains(&**name));
    }

    /// Takes what the workers have counted.
    pub fn take(&self, now: Instant) {
        let mut past = self.past.lock();
        // What is taken was counted from the last time on.
        let tick = past.tick(past.taken);
        past.taken = past.taken.max(now);
        let mut all: BTreeMap<Box<str>, DeniedAndAll<Summary>> = BTreeMap::new();
        for sketches in self.workers.lock().values() {
            for (name, counted) in sketches {
                let counted = std::mem::take(&mut *counted.lock());
                if !counted.traffic.is_empty() {
                    all.entry(name.clone()).or_default().merge(&counted.into());
                }
            }
        }
        for (name, counted) in all {
            past.limits.entry(name).or_default().add(tick, &counted);
        }
    }

    /// The most frequent keys of each of these limits, in a window that ends now.
    pub fn summaries<'a>(
        &self,
        limits: impl IntoIterator<Item = &'a str>,
        (window, by): (TopWindow, TopBy),
        now: Instant,
    ) -> Vec<Summary> {
        self.take(now);
        let past = self.past.lock();
        let tick = past.tick(now);
        let summary = |history: &WindowHistory| history.summary(window, by, tick);
        limits.into_iter().map(|limit| past.limits.get(limit).map(summary).unwrap_or_default()).collect()
    }

    /// How many keys each limit denied in the last minute, or in shadow mode would have denied; none for limits without
    /// denials. A limit that denies more than 100 keys in ten seconds may have denied more.
    pub fn denied_keys(&self, now: Instant) -> BTreeMap<Box<str>, usize> {
        self.take(now);
        let limits: Vec<Box<str>> = self.past.lock().limits.keys().cloned().collect();
        // The lock is taken for each limit, so that `take` on the main thread does not wait for all of them.
        let denied = limits.into_iter().map(|limit| {
            let past = self.past.lock();
            let tick = past.tick(now);
            let keys = past.limits.get(&limit).map(|history| history.denied_keys(TopWindow::Minute, tick));
            (limit, keys.unwrap_or_default())
        });
        denied.filter(|(_, keys)| *keys > 0).collect()
    }

    /// The requests of a key of a limit in the last hour.
    #[must_use]
    pub fn key_history(&self, limit: &str, key: Key, now: Instant) -> KeyHistory {
        self.take(now);
        let past = self.past.lock();
        let history = past.limits.get(limit);
        let spans = WindowSlot::last_hour(past.tick(now));
        let ends = spans.iter().skip(1).map(|span| past.start_of(span.start())).chain([now]);
        let mut max_error = 0;
        let slot = |(span, end): (&WindowSlot, Instant)| {
            let KeyCounts { traffic, denials, max_error: error } =
                history.map(|history| history.of_key(key, *span)).unwrap_or_default();
            max_error = max_error.max(error);
            let start = past.start_of(span.start());
            KeySlot { start, length: end.saturating_duration_since(start), traffic, denials }
        };
        let slots = spans.iter().zip(ends).map(slot).collect();
        KeyHistory { slots, max_error }
    }

    /// How much time a window that ends now covers: it starts with a slot, and not before the process.
    pub fn covered(&self, window: TopWindow, now: Instant) -> Duration {
        let past = self.past.lock();
        now.saturating_duration_since(past.start_of(window.first_tick(past.tick(now))))
    }
}

impl Past {
    fn start_of(&self, tick: Tick) -> Instant {
        self.started + TopKeys::INTERVAL * u32::try_from(tick).unwrap_or(u32::MAX)
    }

    fn tick(&self, time: Instant) -> Tick {
        time.saturating_duration_since(self.started).as_secs() / TICK_SECONDS
    }
}

impl TopRecorder {
    /// Counts a request for the limit of a policy. `name` is called for frequent keys, if names are shown.
    #[inline]
    pub fn record(&self, policy: PolicyId, event: KeyEvent<'_>, name: impl Fn() -> Option<String>) {
        let Some(limit) = self.limits.get(policy) else { return };
        let KeyEvent { key, consumer, is_denied } = event;
        let label = || {
            let name = if self.keeps_names { name() } else { None };
            self.label(consumer, name.filter(|name| name.len() <= MAX_NAME))
        };
        let mut limit = limit.lock();
        limit.traffic.add(key, consumer, label);
        if is_denied {
            limit.denials.add(key, consumer, label);
        }
    }

    fn label(&self, consumer: Option<&str>, name: Option<String>) -> Arc<KeyLabel> {
        if consumer.is_none() && name.is_none() {
            return Arc::clone(&self.unknown);
        }
        Arc::new(KeyLabel { consumer: KeyConsumer::of(consumer), name: name.map(Into::into) })
    }
}

#[cfg(test)]
mod tests;
