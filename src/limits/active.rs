//! A configuration of a limiter and the counters of its limits, and how one that was read replaces an earlier one. A request
//! keeps the one with which it began.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::{ConfigPart, Fingerprint, Loaded};
use crate::gate::Charges;
use crate::limiter::{Admission, InProcessUnits, SharedState, decide_in_process};
use crate::proxy::ConfigSnapshot;
use crate::store::{Memory, Servers, StoreSpec};
use crate::telemetry::{Counts, Metrics};
use crate::time::Clock;

/// The most threads of callers that have counters of their own.
const MAX_SHARDS: usize = 16;

/// What a limiter and its thread share.
pub(super) struct Control {
    /// For requests that start now.
    pub active: ArcSwap<Active>,
    pub metrics: Metrics,
}

/// A configuration of a limiter.
pub(super) struct Active {
    pub snapshot: Arc<ConfigSnapshot>,
    pub counts: CallerCounts,
    /// The counters of the thread of the limiter.
    pub thread_counts: Arc<Counts>,
    /// The state of each server of the store.
    pub state: Servers<SharedState>,
    pub is_redis: bool,
    /// The most keys that this process counts itself.
    pub max_keys: usize,
    /// A hash of each part of the file.
    pub fingerprint: Fingerprint,
}

impl Control {
    /// Serves requests that start afterwards with this configuration.
    pub fn adopt(&self, next: &Arc<Active>) {
        self.active.store(Arc::clone(next));
        // Drop cached denials: they were decided under the old limits.
        let policies = &next.snapshot.gate.limits.policies;
        for state in next.state.iter() {
            state.denials.clear();
            state.grants.adopt(policies);
        }
        let none = std::iter::empty;
        self.metrics.record_reload(Clock::System.now(), policies, none(), none());
    }
}

impl Active {
    /// The counters of callers and of the thread for these limits.
    pub fn counters(
        snapshot: &ConfigSnapshot,
        metrics: &Metrics,
        writers: Arc<Writers>,
    ) -> (CallerCounts, Arc<Counts>) {
        let counts = |worker| metrics.counts(worker, &snapshot.gate.limits.policies, std::iter::empty());
        let of_callers = (1..=writers.0.len()).map(counts).collect();
        (CallerCounts { writers, counts: of_callers }, Arc::new(counts(0)))
    }

    /// Decides charges on the caller's thread, which needs no call to another one; none if only the thread of the limiter can: with
    /// Redis, and if the request would hold slots.
    pub fn decide(&self, charges: &Charges) -> Option<(Admission, Option<Box<InProcessUnits>>)> {
        if self.is_redis {
            return None;
        }
        let limits = &self.snapshot.gate.limits;
        self.counts.with(|counts| decide_in_process(&self.state.first().fallback, limits, charges, counts))
    }
}

/// The locks of the counters that threads of callers write: each has one writer at a time, over all configurations, and each
/// thread has its own as long as there are no more threads than CPUs.
pub(super) struct Writers(Box<[Mutex<()>]>);

impl Default for Writers {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_SHARDS);
        Self((0..threads).map(|_| Mutex::new(())).collect())
    }
}

/// Counters that the threads of callers write.
pub(super) struct CallerCounts {
    writers: Arc<Writers>,
    counts: Box<[Counts]>,
}

thread_local! {
    /// The number of this thread.
    static THREAD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl CallerCounts {
    /// Records something in the counters of this thread.
    pub fn with<T>(&self, record: impl FnOnce(&Counts) -> T) -> T {
        let index = THREAD.with(|thread| *thread) % self.counts.len();
        let _writes = self.writers.0[index].lock();
        record(&self.counts[index])
    }

    /// The locks, for the next configuration.
    pub fn writers(&self) -> Arc<Writers> {
        Arc::clone(&self.writers)
    }
}

/// A valid configuration that is not in use yet.
pub(super) struct NextConfig {
    snapshot: ConfigSnapshot,
    store: StoreSpec,
    max_keys: usize,
    fingerprint: Fingerprint,
}

/// The sections that have changed, of those with a state of their own.
#[derive(Clone, Copy)]
pub(super) struct Changed {
    pub store: bool,
    pub jwt: bool,
}

impl NextConfig {
    /// The configuration of a file; its warnings are logged.
    pub fn new(loaded: Loaded) -> Self {
        for warning in loaded.warnings.lines() {
            tracing::warn!("{warning}");
        }
        let Loaded { config, fingerprint, .. } = loaded;
        Self { snapshot: config.snapshot, store: config.store, max_keys: config.max_keys, fingerprint }
    }

    /// The first configuration of a limiter, and its store.
    pub fn into_first(self, metrics: &Metrics) -> (StoreSpec, Active) {
        let memory = Arc::new(Memory::new(self.max_keys, Clock::Monotonic));
        let state = SharedState::of_servers(&self.store, &memory, self.instances());
        self.with_state(state, metrics, Arc::default())
    }

    /// What has changed since an earlier configuration.
    pub fn changes_since(&self, earlier: &Active) -> Changed {
        let changes = self.fingerprint.changes_since(&earlier.fingerprint);
        let has_changed = |table: &str| {
            changes.iter().any(|(part, _)| matches!(part, ConfigPart::Table(it) if it == table))
        };
        Changed { store: has_changed("store"), jwt: has_changed("jwt") }
    }

    /// The configuration after an earlier one, with the state of what has not changed, and its store.
    pub fn into_active(
        mut self,
        earlier: &Active,
        changed: Changed,
        metrics: &Metrics,
    ) -> (StoreSpec, Active) {
        if self.max_keys != earlier.max_keys {
            tracing::warn!("`max_keys` of [store] has changed: this takes effect in a new limiter only");
            self.max_keys = earlier.max_keys;
        }
        let (gate, last) = (&mut self.snapshot.gate, &earlier.snapshot.gate);
        if !changed.jwt {
            // The same verifier, with the keys that it has fetched and the tokens that it has verified.
            gate.jwt.clone_from(&last.jwt);
        }
        let last = last.consumers.as_deref().filter(|_| !changed.store);
        gate.consumers.iter_mut().for_each(|rules| rules.inherit_stored(last));
        let state = if changed.store {
            SharedState::of_next(&earlier.state, &self.store, self.instances())
        } else {
            earlier.state.clone()
        };
        self.with_state(state, metrics, earlier.counts.writers())
    }

    fn with_state(
        self,
        state: Servers<SharedState>,
        metrics: &Metrics,
        writers: Arc<Writers>,
    ) -> (StoreSpec, Active) {
        let Self { snapshot, store, max_keys, fingerprint } = self;
        let (counts, thread_counts) = Active::counters(&snapshot, metrics, writers);
        let is_redis = matches!(store, StoreSpec::Redis(_));
        (
            store,
            Active {
                snapshot: Arc::new(snapshot),
                counts,
                thread_counts,
                state,
                is_redis,
                max_keys,
                fingerprint,
            },
        )
    }

    fn instances(&self) -> NonZeroU64 {
        self.snapshot.gate.limits.instances
    }
}
