//! The thread of a limiter: it has the connection to the store, which is bound to a thread, and decides what callers on other
//! threads send it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender, WeakUnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::calls::{Call, Decided, Hold, HoldId};
use crate::gate::{Charges, ClientIdentity};
use crate::jwt::Refresher;
use crate::limiter::{self, Admission, Limiter, Permit, Reservation, SharedState};
use crate::proxy::ConfigSnapshot;
use crate::store::{Store, StoreSpec, sweep_memory};
use crate::telemetry::Counts;
use crate::time::monotonic;

/// What the thread of a limiter is started with.
pub(super) struct ThreadConfig {
    pub snapshot: Arc<ConfigSnapshot>,
    pub store: StoreSpec,
    pub shared: SharedState,
    pub counts: Arc<Counts>,
}

/// A started thread. It ends when the last sender of calls is dropped.
pub(super) struct Started {
    pub calls: UnboundedSender<Call>,
    /// Fails when the thread has ended.
    pub ended: watch::Receiver<()>,
}

/// Starts the thread of a limiter.
///
/// # Errors
/// If no thread, or no runtime on it, can be created.
pub(super) fn start(config: ThreadConfig) -> io::Result<Started> {
    // It has at most one call for each request of the program: the store bounds how many of them wait for it.
    let (calls, received) = mpsc::unbounded_channel();
    let (ends, ended) = watch::channel(());
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
                runtime.block_on(serve(config, received, sender));
            }
            Err(error) => drop(started.send(Err(error))),
        }
    })?;
    has_started.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")))?;
    Ok(Started { calls, ended })
}

async fn serve(
    config: ThreadConfig,
    mut received: UnboundedReceiver<Call>,
    sender: WeakUnboundedSender<Call>,
) {
    let store = Store::open(&config.store, &config.shared.fallback, config.counts.store());
    let limiter = Limiter::new(store.clone(), config.shared.clone()).with_counts(Arc::clone(&config.counts));
    limiter.connect().await;
    let mut background = JoinSet::new();
    background.spawn_local(limiter.clone().run_maintenance());
    background.spawn_local(sweep_memory(Arc::clone(&config.shared.fallback)));
    if let StoreSpec::Redis(_) = config.store {
        let shared = config.shared.clone();
        background.spawn_local(async move { limiter::keep_raises(&store, &shared).await });
    }
    if let Some(mut refresher) = config.snapshot.gate.jwt.as_ref().and_then(Refresher::new) {
        // Without keys, tokens would count as missing.
        refresher.fetch().await;
        background.spawn_local(refresher.run());
    }
    let engine = Rc::new(Engine { snapshot: config.snapshot, limiter, holds: RefCell::default(), sender });
    let mut tasks = JoinSet::new();
    while let Some(call) = received.recv().await {
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        while tasks.try_join_next().is_some() {}
        engine.start(call, &mut tasks);
    }
    // Refunds that are on their way; each has a deadline.
    while tasks.join_next().await.is_some() {}
    engine.holds.take();
    engine.limiter.release_slots().await;
}

/// The state of the thread.
struct Engine {
    snapshot: Arc<ConfigSnapshot>,
    limiter: Limiter,
    holds: RefCell<Holds>,
    sender: WeakUnboundedSender<Call>,
}

/// What requests hold.
#[derive(Default)]
struct Holds {
    next: u64,
    held: HashMap<HoldId, Held>,
}

/// What one request holds: the slots of its permit, and units until its final status is known.
struct Held {
    _permit: Permit,
    reservation: Option<Box<Reservation>>,
}

impl Engine {
    fn start(self: &Rc<Self>, call: Call, tasks: &mut JoinSet<()>) {
        let engine = Rc::clone(self);
        match call {
            Call::Decide { charges, reply } => {
                tasks.spawn_local(async move { engine.decide(charges, reply).await });
            }
            Call::FetchConsumer { client, head, reply } => {
                tasks.spawn_local(async move {
                    let identity =
                        ClientIdentity { address: client.address(), tls_subject: client.tls_subject() };
                    engine.snapshot.gate.fetch_consumer(identity, &head, &engine.limiter).await;
                    let _ = reply.send(());
                });
            }
            Call::Settle { id, status, reply } => {
                let mut holds = self.holds.borrow_mut();
                let Some(reservation) = holds.held.get_mut(&id).and_then(|held| held.reservation.take())
                else {
                    return;
                };
                tasks.spawn_local(async move {
                    let _ = reply.send(reservation.finish(status).await);
                });
            }
            Call::Release { id } => {
                let released = self.holds.borrow_mut().held.remove(&id);
                drop(released);
            }
        }
    }

    async fn decide(&self, charges: Charges, reply: oneshot::Sender<Decided>) {
        if reply.is_closed() {
            // The request was cancelled while it waited for this thread.
            return;
        }
        let admission = self.limiter.decide(&self.snapshot.gate.limits, &charges).await;
        let Admission { verdict, reservation, delay, statuses, .. } = admission;
        let (verdict, hold) = match verdict {
            Ok(permit) => (Ok(()), self.hold(permit, reservation)),
            Err(denial) => (Err(denial), None),
        };
        // If the request was cancelled, its hold is dropped, which releases it.
        let _ = reply.send(Decided { verdict, delay, statuses, hold });
    }

    /// Keeps what a request holds until it is released; none if it holds nothing, as most requests do.
    fn hold(&self, permit: Permit, reservation: Option<Box<Reservation>>) -> Option<Hold> {
        if permit.slots().is_none() && reservation.is_none() {
            return None;
        }
        // It fails only if the request was cancelled.
        let calls = self.sender.upgrade()?;
        let mut holds = self.holds.borrow_mut();
        let id = HoldId(holds.next);
        holds.next += 1;
        holds.held.insert(id, Held { _permit: permit, reservation });
        Some(Hold::new(id, calls))
    }
}
