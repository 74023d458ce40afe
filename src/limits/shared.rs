//! What all clones of a limiter share, and the thread of a limiter.
//!
//! The thread has the connection to the store, which is bound to a thread, and decides what callers on other
//! threads send it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arc_swap::ArcSwap;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use super::active::{Active, Control, NextConfig};
use super::calls::{Decided, EngineCall, Fetched, Hold, MAX_WAITING, Place};
use super::client::Client;
use super::decision::Error;
use super::engine::Engine;
use crate::config::Loaded;
use crate::gate::Charges;
use crate::http1::RequestHead;
use crate::limiter::SharedState;
use crate::store::{StoreSpec, sweep_memory};
use crate::telemetry::{GaugeValues, Metrics, MetricsFormat};
use crate::time::{Clock, monotonic};

/// The state of a limiter. Dropping it ends the thread of the limiter, once nothing is held by requests.
pub(super) struct Shared {
    pub control: Arc<Control>,
    pub calls: UnboundedSender<EngineCall>,
    /// Bounds the calls that wait: each has a permit.
    places: Arc<Semaphore>,
    is_ready: watch::Receiver<bool>,
    /// Fails when the thread has ended.
    pub ended: watch::Receiver<()>,
}

impl Shared {
    /// Starts the thread of a limiter.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(loaded: Loaded) -> Result<Self, Error> {
        let metrics = Metrics::new(Clock::System.now());
        let (store, active) = NextConfig::new(loaded).into_first(&metrics);
        let control = Arc::new(Control { active: ArcSwap::from_pointee(active), metrics });
        let thread = ThreadConfig { control: Arc::clone(&control), store };
        let Started { calls, is_ready, ended } = start(thread).map_err(Error::Thread)?;
        Ok(Self { control, calls, places: Arc::new(Semaphore::new(MAX_WAITING)), is_ready, ended })
    }

    /// The configuration for a request that starts now. If that verifies tokens, this waits until their keys were fetched:
    /// without keys, tokens would count as missing.
    pub async fn active(&self) -> Arc<Active> {
        let active = self.control.active.load_full();
        if active.snapshot.gate.jwt.is_some() && !*self.is_ready.borrow() {
            // It fails only if the thread has ended by a panic.
            let _ = self.is_ready.clone().wait_for(|is_ready| *is_ready).await;
        }
        active
    }

    /// Decides charges; none if the thread has ended, or too many calls wait for it. The in-process store needs no thread of its
    /// own, unless the request would hold slots: a call to another thread takes many times as long as its decision.
    pub async fn decide(&self, active: &Arc<Active>, charges: Charges) -> Option<Decided> {
        if let Some((admission, units)) = active.decide(&charges) {
            return Some(Decided::new(&active.snapshot.gate.limits, admission, |_, _| {
                units.map(Hold::units)
            }));
        }
        let (place, active) = (self.place()?, Arc::clone(active));
        let (reply, replied) = oneshot::channel();
        self.calls.send(EngineCall::Decide { active, charges, place, reply }).ok()?;
        replied.await.ok()
    }

    /// Reads the consumer of a request from Redis, unless the charges that its head decides deny it. None if the thread has ended,
    /// or too many calls wait for it.
    pub async fn fetch_consumer(
        &self,
        active: &Arc<Active>,
        client: Client,
        head: Box<RequestHead>,
        charges: Charges,
    ) -> Option<Fetched> {
        let (place, active) = (self.place()?, Arc::clone(active));
        let (reply, replied) = oneshot::channel();
        self.calls.send(EngineCall::FetchConsumer { active, client, head, charges, place, reply }).ok()?;
        replied.await.ok()
    }

    #[cfg(test)]
    pub fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.places)
    }

    fn place(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok().map(Place)
    }

    /// Adopts another configuration.
    ///
    /// # Errors
    /// [`Error::Thread`] if the thread has ended.
    pub async fn reload(&self, loaded: Loaded) -> Result<(), Error> {
        let (reply, replied) = oneshot::channel();
        let next = Box::new(NextConfig::new(loaded));
        let ended = || Error::Thread(io::Error::other("it has panicked"));
        self.calls.send(EngineCall::Adopt { next, reply }).map_err(|_| ended())?;
        replied.await.map_err(|_| ended())
    }

    /// The decisions and the store in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let active = self.control.active.load();
        let fallback = &active.state.first().fallback;
        let gauges = GaugeValues {
            store: active.is_redis.then(|| SharedState::store_values(active.state.iter())),
            store_servers: SharedState::servers_up(active.state.iter()),
            keys: fallback.len(),
            evictions: fallback.evictions(),
            grants: SharedState::grant_values(active.state.iter()),
            ..GaugeValues::default()
        };
        let mut text = Vec::new();
        let policies = &active.snapshot.gate.limits.policies;
        // Writing to memory can't fail.
        let _ = self.control.metrics.write_limits(MetricsFormat::Prometheus, &gauges, policies, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The arguments of the thread of a limiter.
pub(super) struct ThreadConfig {
    pub control: Arc<Control>,
    pub store: StoreSpec,
}

/// A started thread. It ends when the last sender of calls is dropped.
pub(super) struct Started {
    pub calls: UnboundedSender<EngineCall>,
    /// True once the keys of tokens were fetched, or that has failed.
    pub is_ready: watch::Receiver<bool>,
    /// Fails when the thread has ended.
    pub ended: watch::Receiver<()>,
}

/// Starts the thread of a limiter.
///
/// # Errors
/// If no thread, or no runtime on it, can be created.
pub(super) fn start(config: ThreadConfig) -> io::Result<Started> {
    // Unbounded, since the release of what a request holds must not fail. Calls that wait are bounded by their places, and
    // each of the others is about something that is held.
    let (calls, received) = mpsc::unbounded_channel();
    let (ends, ended) = watch::channel(());
    let (ready, is_ready) = watch::channel(false);
    let (started, has_started) = sync_channel(1);
    let sender = calls.downgrade();
    std::thread::Builder::new().name("tidegate-limits".to_owned()).spawn(move || {
        // Dropped last, also if the thread panics.
        let _ends = ends;
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime: io::Result<LocalRuntime> = runtime;
        match runtime {
            Ok(runtime) => {
                // The caller waits for it.
                let _ = started.send(Ok(()));
                let served = catch_unwind(AssertUnwindSafe(|| {
                    runtime.block_on(async {
                        let engine = Engine::start(config.control, config.store, sender, ready).await;
                        serve(&engine, received).await;
                    });
                }));
                if served.is_err() {
                    tracing::error!("the thread of a limiter has panicked: requests that need it get 503");
                }
            }
            Err(error) => drop(started.send(Err(error))),
        }
    })?;
    has_started.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")))?;
    Ok(Started { calls, is_ready, ended })
}

async fn serve(engine: &Engine, mut received: UnboundedReceiver<EngineCall>) {
    let mut sweeper = JoinSet::new();
    sweeper.spawn_local(sweep_memory(engine.memory()));
    let mut tasks = JoinSet::new();
    while let Some(call) = received.recv().await {
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        while tasks.try_join_next().is_some() {}
        engine.answer(call, &mut tasks);
    }
    // Refunds that are on their way; each has a deadline.
    while tasks.join_next().await.is_some() {}
    engine.stop().await;
}
