//! What all clones of a limiter share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

use super::calls::{Call, Decided};
use super::error::Error;
use super::thread::{Started, ThreadConfig, start};
use crate::config::Loaded;
use crate::gate::Charges;
use crate::limiter::{Admission, SharedState, decide_in_process};
use crate::proxy::ConfigSnapshot;
use crate::store::{Memory, StoreSpec};
use crate::telemetry::{Counts, Format, GaugeValues, Metrics, StoreValues};
use crate::time::Clock;

/// The most threads of callers that have counters of their own.
const MAX_SHARDS: usize = 16;

/// The state of a limiter. Dropping it ends the thread of the limiter, once nothing is held by requests.
pub(super) struct Shared {
    pub snapshot: Arc<ConfigSnapshot>,
    pub calls: UnboundedSender<Call>,
    pub counts: CallerCounts,
    /// Fails when the thread has ended.
    pub ended: watch::Receiver<()>,
    metrics: Metrics,
    state: SharedState,
    is_redis: bool,
}

impl Shared {
    /// Starts the thread of a limiter.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(loaded: Loaded) -> Result<Self, Error> {
        for warning in loaded.warnings.lines() {
            tracing::warn!("{warning}");
        }
        let config = loaded.config;
        let snapshot = Arc::new(config.snapshot);
        let memory = Arc::new(Memory::new(config.max_keys, Clock::Monotonic));
        let state = SharedState::new(memory, snapshot.gate.limits.instances);
        let metrics = Metrics::new(Clock::System.now());
        let counts = |worker| metrics.counts(worker, &snapshot.gate.limits.policies, std::iter::empty());
        let is_redis = matches!(config.store, StoreSpec::Redis(_));
        let thread = ThreadConfig {
            snapshot: Arc::clone(&snapshot),
            store: config.store,
            shared: state.clone(),
            counts: Arc::new(counts(0)),
        };
        let Started { calls, ended } = start(thread).map_err(Error::Thread)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_SHARDS);
        let counts = CallerCounts((1..=threads).map(counts).map(Mutex::new).collect());
        Ok(Self { snapshot, calls, counts, ended, metrics, state, is_redis })
    }

    /// Decides charges; none if the thread has ended. The in-process store needs no thread of its own, unless the request would hold
    /// something: a call to another thread takes many times as long as its decision.
    pub async fn decide(&self, charges: Charges) -> Option<Decided> {
        if !self.is_redis
            && let Some(decided) = self.decide_in_process(&charges)
        {
            return Some(decided);
        }
        let (reply, replied) = oneshot::channel();
        self.calls.send(Call::Decide { charges, reply }).ok()?;
        replied.await.ok()
    }

    fn decide_in_process(&self, charges: &Charges) -> Option<Decided> {
        let limits = &self.snapshot.gate.limits;
        let admission =
            self.counts.with(|counts| decide_in_process(&self.state.fallback, limits, charges, counts))?;
        let Admission { verdict, delay, statuses, .. } = admission;
        Some(Decided { verdict: verdict.map(drop), delay, statuses, hold: None })
    }

    /// The decisions and the store in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let SharedState { fallback, breakers, ledger, grants, .. } = &self.state;
        let store = StoreValues {
            breakers_open: breakers.open(),
            breaker_openings: breakers.openings(),
            owed_keys: ledger.len(),
            charge_back: ledger.units(),
        };
        let gauges = GaugeValues {
            store: self.is_redis.then_some(store),
            keys: fallback.len(),
            evictions: fallback.evictions(),
            grants: grants.values(),
            ..GaugeValues::default()
        };
        let mut text = Vec::new();
        let policies = &self.snapshot.gate.limits.policies;
        // Writing to memory can't fail.
        let _ = self.metrics.write_limits(Format::Prometheus, &gauges, policies, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Counters that the threads of callers write. Counters have one writer at a time, so each is behind a lock, and each thread has
/// its own as long as there are no more threads than CPUs.
pub(super) struct CallerCounts(Box<[Mutex<Counts>]>);

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
        record(&self.0[THREAD.with(|thread| *thread) % self.0.len()].lock())
    }
}
