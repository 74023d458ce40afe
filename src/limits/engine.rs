//! What the thread of a limiter does with a call.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinSet;

use super::active::{Active, Control, NextConfig};
use super::calls::{Decided, EngineCall, Fetched, Hold, HoldId, cost_of};
use super::client::Client;
use crate::gate::Charges;
use crate::http1::RequestHead;
use crate::jwt::{Refresher, Verifier};
use crate::limit::Charge;
use crate::limiter::{self, Admission, Delivery, Limiter, Permit, Reservation};
use crate::store::{Memory, Store, StoreSpec};

/// The state of the thread. A clone is the same one.
#[derive(Clone)]
pub(super) struct Engine(Rc<State>);

struct State {
    control: Arc<Control>,
    current: RefCell<Rc<Current>>,
    holds: RefCell<Holds>,
    sender: WeakUnboundedSender<EngineCall>,
    background: RefCell<Background>,
    /// Configurations are adopted one after the other.
    adoption: Mutex<()>,
}

/// A configuration, and the limiter over its store that counts its decisions.
struct Current {
    active: Arc<Active>,
    limiter: Limiter,
}

/// Tasks that end when they are dropped.
#[derive(Default)]
struct Background {
    /// The maintenance tasks of the limiters: of the current one, and of earlier ones until no request uses them.
    maintenance: JoinSet<()>,
    /// Reads the raises of keys in the store.
    raises: JoinSet<()>,
    /// Fetches the keys of tokens.
    keys: JoinSet<()>,
}

/// The slots and units that requests hold.
#[derive(Default)]
struct Holds {
    next: u64,
    held: HashMap<HoldId, HeldByRequest>,
}

/// The slots and units that one request holds: the slots of its permit, and units until its final status is known.
struct HeldByRequest {
    _permit: Permit,
    reservation: Option<Box<Reservation>>,
}

impl Engine {
    /// Connects to the store, for half a second at most, and starts what runs in the background. `ready` becomes true when the
    /// keys of tokens were fetched, or that has failed.
    pub async fn start(
        control: Arc<Control>,
        store: StoreSpec,
        sender: WeakUnboundedSender<EngineCall>,
        ready: watch::Sender<bool>,
    ) -> Self {
        let active = control.active.load_full();
        let mut background = Background::default();
        match active.snapshot.gate.jwt.as_ref().and_then(Refresher::new) {
            Some(mut refresher) => drop(background.keys.spawn_local(async move {
                refresher.fetch().await;
                let _ = ready.send(true);
                refresher.run().await;
            })),
            None => drop(ready.send(true)),
        }
        let limiter = background.open(&store, &active).await;
        Self(Rc::new(State {
            control,
            current: RefCell::new(Rc::new(Current { active, limiter })),
            holds: RefCell::default(),
            sender,
            background: RefCell::new(background),
            adoption: Mutex::default(),
        }))
    }

    /// The store of this process.
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.0.current.borrow().active.state.first().fallback)
    }

    /// Starts the reply to a call.
    pub fn answer(&self, call: EngineCall, tasks: &mut JoinSet<()>) {
        let engine = self.clone();
        match call {
            EngineCall::Decide { active, charges, place, reply } => {
                tasks.spawn_local(async move {
                    engine.decide(&active, charges, reply).await;
                    drop(place);
                });
            }
            EngineCall::FetchConsumer { active, client, head, charges, place, reply } => {
                tasks.spawn_local(async move {
                    let fetched = engine.fetch_consumer(&active, &client, &head, &charges).await;
                    drop(place);
                    let _ = reply.send(fetched);
                });
            }
            EngineCall::Settle { id, status, reply } => {
                let Some(mut reservation) = self.take_reservation(id) else { return };
                // The program has served the request.
                *reservation.delivery_mut() = Delivery::Answered;
                let engine = self.clone();
                tasks.spawn_local(async move {
                    let (statuses, rest) = reservation.respond(status, &[]).await;
                    if let Some(held) = engine.0.holds.borrow_mut().held.get_mut(&id) {
                        held.reservation = rest;
                    }
                    let _ = reply.send(statuses);
                });
            }
            EngineCall::SettleUnits { id, costs } => {
                if let Some(reservation) = self.take_reservation(id) {
                    let _ = reservation.settle(|policy| cost_of(&costs, policy));
                }
            }
            EngineCall::Release { id } => {
                let released = self.0.holds.borrow_mut().held.remove(&id);
                drop(released);
            }
            EngineCall::Adopt { next, reply } => {
                tasks.spawn_local(async move {
                    engine.adopt(*next).await;
                    let _ = reply.send(());
                });
            }
            #[cfg(test)]
            EngineCall::Panic => panic!("as the test wants"),
        }
    }

    /// The units that a request holds, if they were not settled yet.
    fn take_reservation(&self, id: HoldId) -> Option<Box<Reservation>> {
        self.0.holds.borrow_mut().held.get_mut(&id)?.reservation.take()
    }

    /// The limiter for a request of this configuration, which may be an earlier one.
    fn serving(&self, active: &Arc<Active>) -> Rc<Current> {
        let current = Rc::clone(&self.0.current.borrow());
        if Arc::ptr_eq(&current.active, active) {
            return current;
        }
        let limiter = current.limiter.with_counts(&active.thread_counts);
        Rc::new(Current { active: Arc::clone(active), limiter })
    }

    async fn fetch_consumer(
        &self,
        active: &Arc<Active>,
        client: &Client,
        head: &RequestHead,
        charges: &[Charge],
    ) -> Fetched {
        let (limiter, gate) = (&self.serving(active).limiter, &active.snapshot.gate);
        let denied = match limiter.known_denial(&gate.limits, charges) {
            Some(denied) => Some(denied),
            None => limiter.denial_in_redis(&gate.limits, charges).await,
        };
        if let Some(Admission { verdict: Err(denial), statuses, .. }) = denied {
            return Fetched::Denied { denial, statuses: Box::new(statuses) };
        }
        let identity = client.identity();
        Fetched::Read(gate.fetch_consumer(identity, head, limiter).await)
    }

    async fn decide(&self, active: &Arc<Active>, charges: Charges, reply: oneshot::Sender<Decided>) {
        if reply.is_closed() {
            // The request was cancelled while it waited for this thread.
            return;
        }
        let current = self.serving(active);
        let limits = &active.snapshot.gate.limits;
        let admission = current.limiter.decide(limits, &charges).await;
        let decided = Decided::new(limits, admission, |permit, reservation| self.hold(permit, reservation));
        // If the request was cancelled, its hold is dropped, which releases it.
        let _ = reply.send(decided);
    }

    /// Keeps what a request holds until it is released; none if it holds nothing, as most requests do.
    fn hold(&self, permit: Permit, reservation: Option<Box<Reservation>>) -> Option<Hold> {
        if permit.slots().is_none() && reservation.is_none() {
            return None;
        }
        // It fails only if the request was cancelled.
        let calls = self.0.sender.upgrade()?;
        let mut holds = self.0.holds.borrow_mut();
        let id = HoldId(holds.next);
        holds.next += 1;
        holds.held.insert(id, HeldByRequest { _permit: permit, reservation });
        Some(Hold::in_thread(id, calls))
    }

    /// Adopts the next configuration, for requests that start afterwards: within half a second, and five more if the keys of
    /// tokens come from another URL.
    async fn adopt(&self, next: NextConfig) {
        let _one_at_a_time = self.0.adoption.lock().await;
        let earlier = Rc::clone(&self.0.current.borrow());
        let changed = next.changes_since(&earlier.active);
        let (store, next) = next.into_active(&earlier.active, changed, &self.0.control.metrics);
        let next = Arc::new(next);
        if changed.jwt {
            self.0.background.borrow_mut().keys.abort_all();
            self.fetch_keys(next.snapshot.gate.jwt.as_ref()).await;
        }
        let limiter = if changed.store {
            let mut background = self.0.background.take();
            let limiter = background.open(&store, &next).await;
            self.0.background.replace(background);
            limiter
        } else {
            earlier.limiter.with_counts(&next.thread_counts)
        };
        self.0.current.replace(Rc::new(Current { active: Arc::clone(&next), limiter }));
        self.0.control.adopt(&next);
    }

    /// Fetches the keys of tokens, and again when they are old.
    async fn fetch_keys(&self, verifier: Option<&Arc<Verifier>>) {
        let Some(mut refresher) = verifier.and_then(Refresher::new) else { return };
        // Without keys, tokens would count as missing.
        refresher.fetch().await;
        self.0.background.borrow_mut().keys.spawn_local(refresher.run());
    }

    /// Releases what is still held, and the slots that are kept in the store.
    pub async fn stop(&self) {
        let released = self.0.holds.take();
        drop(released);
        let current = Rc::clone(&self.0.current.borrow());
        current.limiter.release_slots().await;
    }
}

impl Background {
    /// Connects to a store, for half a second at most.
    async fn open(&mut self, store: &StoreSpec, active: &Active) -> Limiter {
        let Active { state, thread_counts, .. } = active;
        let connections = Store::open(store, &state.first().fallback, &thread_counts.store());
        let limiter = Limiter::new(&connections, state).with_counts(thread_counts);
        limiter.connect().await;
        limiter.spawn_maintenance(&mut self.maintenance);
        self.raises.abort_all();
        for (connection, state) in connections.iter().zip(state.iter()).filter(|_| active.is_redis) {
            let (connection, state) = (connection.clone(), state.clone());
            self.raises.spawn_local(async move { limiter::keep_raises(&connection, &state).await });
        }
        limiter
    }
}
