//! The sums of the counters at one time, and the values of a frame that are made of two of them.

use std::cmp::{Ordering, Reverse};
use std::convert::Infallible;
use std::iter::Peekable;
use std::slice::Iter;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use tokio::time::Instant;

use crate::overload::Class;
use crate::telemetry::counts::{LimitSums, RouteSums, SettlementSums, WorkerSums, counted_since};
use crate::telemetry::histogram::DurationSums;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{DecisionSource, LimitOutcome, SettledOutcome};
use crate::telemetry::upstreams::ServerSums;

/// The sums of the counters at one time. Limits and routes that have counted nothing are left out.
#[derive(Debug)]
pub struct CounterSums {
    /// When they were read.
    pub at: Instant,
    pub(super) workers: WorkerSums,
    /// The counters of requests that no route matched.
    pub(super) unrouted: RouteSums,
    pub(super) limits: SortedByName<Arc<str>, LimitTotals>,
    pub(super) routes: SortedByName<Arc<str>, RouteSums>,
    pub(super) servers: SortedByName<ServerName, ServerSums>,
    /// What the admissions of upstreams have refused.
    pub(super) refusals: SortedByName<Arc<str>, RefusalSums>,
}

/// Refused requests, by [`Class::index`].
pub(super) type RefusalSums = [u64; Class::COUNT];

/// Decisions by their outcome, in the order of [`LimitOutcome::ALL`].
pub(super) type OutcomeSums = [u64; LimitOutcome::ALL.len()];

/// Units of a limit that settles its cost by responses, in the order of [`SettledOutcome::ALL`], and the number of responses of
/// unknown cost.
pub(super) type SettledSums = [u64; SettledOutcome::ALL.len() + 1];

/// The counters of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitTotals {
    pub decisions: OutcomeSums,
    pub settled: SettledSums,
}

/// Values in ascending order of their names.
pub(super) type SortedByName<N, T> = Vec<(N, T)>;

/// The labels of an upstream and of its server.
pub(super) type ServerName = (Arc<str>, Arc<str>);

/// Looks up names in ascending order.
pub(super) struct Cursor<'a, N, T>(Peekable<Iter<'a, (N, T)>>);

impl CounterSums {
    /// The counters of a process that has started at this time.
    #[must_use]
    pub fn zero(at: Instant) -> Self {
        Self {
            at,
            workers: WorkerSums::default(),
            unrouted: RouteSums::default(),
            limits: Vec::new(),
            routes: Vec::new(),
            servers: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Reads the counters. Names are shared with those of `earlier`, since most stay the same.
    #[must_use]
    pub fn read(metrics: &Metrics, earlier: &Self, at: Instant) -> Self {
        let registry = metrics.registry();
        let (workers, unrouted) = (registry.workers(), registry.unrouted());
        let mut sums = Self { workers, unrouted, ..Self::zero(at) };
        let mut known = Cursor::of(&earlier.limits);
        let Ok(()) = registry.each_limit(|name, limit| {
            let decisions = by_outcome(&limit);
            if decisions != OutcomeSums::default() {
                let same = known.name(|other| (**other).cmp(name));
                let totals = LimitTotals { decisions, ..LimitTotals::default() };
                sums.limits.push((same.unwrap_or_else(|| name.into()), totals));
            }
            Ok::<_, Infallible>(())
        });
        let Ok(()) = registry.each_settlement(|name, settled| {
            // Units are reserved after a decision.
            if let Ok(index) = sums.limits.binary_search_by(|(other, _)| (**other).cmp(name)) {
                sums.limits[index].1.settled = by_settled_outcome(&settled);
            }
            Ok::<_, Infallible>(())
        });
        let mut known = Cursor::of(&earlier.routes);
        let Ok(()) = registry.each_used_route(|name, route| {
            let same = known.name(|other| (**other).cmp(name));
            sums.routes.push((same.unwrap_or_else(|| name.into()), route));
            Ok::<_, Infallible>(())
        });
        let mut known = Cursor::of(&earlier.servers);
        let Ok(()) = registry.each_upstream(|upstream, counted| {
            if let Some(classes) = counted.classes {
                sums.refusals.push((upstream.into(), classes.refusals));
            }
            for (server, counted) in counted.servers {
                let same = known.name(|(own, other)| (&**own, &**other).cmp(&(upstream, &*server)));
                sums.servers.push((same.unwrap_or_else(|| (upstream.into(), server.into())), counted));
            }
            Ok::<_, Infallible>(())
        });
        sums
    }
}

/// Adds up what different sources have decided.
fn by_outcome(limit: &LimitSums) -> OutcomeSums {
    let count = |outcome: LimitOutcome| {
        DecisionSource::ALL.iter().map(|(source, _)| limit[outcome.cell(*source)]).sum()
    };
    LimitOutcome::ALL.map(|(outcome, _)| count(outcome))
}

fn by_settled_outcome(settled: &SettlementSums) -> SettledSums {
    let unknown = settled.unknown.iter().sum();
    let all = settled.units.iter().copied().chain(std::iter::once(unknown));
    let mut sums = SettledSums::default();
    sums.iter_mut().zip(all).for_each(|(sum, count)| *sum = count);
    sums
}

impl LimitTotals {
    /// What was counted since.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            decisions: counted_since(&earlier.decisions, &self.decisions),
            settled: counted_since(&earlier.settled, &self.settled),
        }
    }
}

impl<'a, N, T> Cursor<'a, N, T> {
    pub fn of(all: &'a [(N, T)]) -> Self {
        Self(all.iter().peekable())
    }

    /// The entry whose name compares as equal. Each name must be greater than that of the call before.
    pub fn find(&mut self, compare: impl Fn(&N) -> Ordering) -> Option<&'a (N, T)> {
        while self.0.next_if(|(name, _)| compare(name).is_lt()).is_some() {}
        self.0.next_if(|(name, _)| compare(name).is_eq())
    }

    /// The name that compares as equal, if it is known.
    fn name(&mut self, compare: impl Fn(&N) -> Ordering) -> Option<N>
    where
        N: Clone,
    {
        self.find(compare).map(|(name, _)| name.clone())
    }
}

impl<'a, N: Ord, T> Cursor<'a, N, T> {
    /// The value with this name. Each name must be greater than that of the call before.
    pub fn seek(&mut self, name: &N) -> Option<&'a T> {
        self.find(|other| other.cmp(name)).map(|(_, value)| value)
    }
}

/// The most limits, routes and servers of a frame, each.
pub(super) const MAX_LISTED: usize = 100;

/// A name, which many frames share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedName(pub Arc<str>);

/// Decisions by outcome. Outcomes without decisions are not serialized.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecisionSums(pub OutcomeSums);

/// What has become of units of a limit that settles its cost. What is 0 is not serialized.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SettledUnitSums(pub SettledSums);

/// Quantiles of durations, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    p50: f64,
    p99: f64,
}

impl SettledUnitSums {
    /// Whether nothing was settled.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }
}

impl DecisionSums {
    /// How many there are with one of these outcomes.
    pub fn count(&self, outcomes: &[LimitOutcome]) -> u64 {
        outcomes.iter().map(|outcome| self.0[*outcome as usize]).sum()
    }
}

impl Latency {
    /// None without durations.
    pub fn of(durations: &DurationSums) -> Option<Self> {
        Some(Self {
            p50: rounded(durations.quantile(0.5)?, 1e6),
            p99: rounded(durations.quantile(0.99)?, 1e6),
        })
    }
}

/// Rounds to a multiple of a fraction, so that the text is short.
pub(super) fn rounded(value: f64, fractions: f64) -> f64 {
    (value * fractions).round() / fractions
}

/// The entries with the largest ranks in descending order, [`MAX_LISTED`] at most, and the number of the others.
pub(super) fn largest<T, K: Ord>(mut all: Vec<T>, rank: impl Fn(&T) -> K) -> (Vec<T>, usize) {
    let left_out = all.len().saturating_sub(MAX_LISTED);
    if left_out > 0 {
        all.select_nth_unstable_by_key(MAX_LISTED, |entry| Reverse(rank(entry)));
        all.truncate(MAX_LISTED);
        // The history keeps it.
        all.shrink_to_fit();
    }
    all.sort_by_key(|entry| Reverse(rank(entry)));
    (all, left_out)
}

impl Serialize for SharedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Serialize for SettledUnitSums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let outcomes = SettledOutcome::ALL.iter().map(|(_, outcome)| *outcome).chain(["unknown"]);
        serializer.collect_map(outcomes.zip(self.0).filter(|(_, count)| *count > 0))
    }
}

impl Serialize for DecisionSums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let outcomes = LimitOutcome::ALL.iter().map(|(_, outcome)| outcome);
        serializer.collect_map(outcomes.zip(self.0).filter(|(_, count)| *count > 0))
    }
}
