//! Checks the limits of requests: charges in, a [`Permit`] or a [`Denial`] out, never an error.

mod across_servers;
mod admission;
mod breaker;
mod denial_cache;
mod early_denial;
mod grants;
mod in_process;
mod kept_slots;
mod limits;
mod local_fallback;
mod outage_ledger;
mod peek;
mod pending_admission;
mod raises;
mod reservation;
mod reserved_units;
mod server_limiter;
mod settlement;
mod shared_state;
mod simulated_proxy;
mod slots;
mod spent_units;
mod status;
mod store_client;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::task::JoinSet;

pub use self::admission::{Admission, Denial, HeldSlots, Permit};
pub use self::breaker::Breakers;
pub use self::denial_cache::DenialCache;
pub use self::grants::GrantTable;
pub use self::in_process::{InProcessUnits, decide_in_process};
pub use self::kept_slots::KeptSlots;
pub use self::limits::{Limits, OnStoreFailure, SentLimits};
pub use self::outage_ledger::OutageLedger;
pub use self::raises::{ActiveRaise, Raises};
pub use self::reservation::{Delivery, Reservation, SettledUnits, is_unanswered};
pub use self::reserved_units::ReservedUnits;
use self::server_limiter::ServerLimiter;
pub use self::shared_state::{SharedState, keep_raises};
pub use self::simulated_proxy::{ProxyCall, ProxyDecision, SimulatedProxy, SimulatedReply};
pub use self::status::{LimitStatus, LimitStatuses, StatusSource, limit_notes};
use crate::limit::{Charge, Key, Policy, PolicyId};
use crate::store::{Servers, Store, StoreError};
use crate::telemetry::Counts;

/// One worker's limiter: checks limits in the store, and applies `on_store_failure` while the store is unavailable. A clone
/// uses the same connections.
///
/// Each server of the store has a limiter of its own, with its circuit breaker, its debts and its raises. Nearly all stores have
/// one server. If there are several, a request whose limits are on one of them is decided by its limiter alone, and others by
/// `across_servers`.
#[derive(Clone, Debug)]
pub struct Limiter {
    servers: Rc<Servers<ServerLimiter>>,
}

impl Limiter {
    /// One worker's limiter over its connections to the servers of the store, and the state of each server.
    #[must_use]
    pub fn new(stores: &Servers<Store>, shared: &Servers<SharedState>) -> Self {
        let servers = stores.zip(shared).map(|(store, shared)| {
            let (store, shared): (&Store, &SharedState) = (store, shared);
            ServerLimiter::new(store.clone(), shared.clone())
        });
        Self { servers: Rc::new(servers) }
    }

    /// This limiter, with `counts` as the counters of its decisions.
    #[must_use]
    pub fn with_counts(&self, counts: &Arc<Counts>) -> Self {
        Self { servers: Rc::new(self.servers.map(|server| server.with_counts(Arc::clone(counts)))) }
    }

    /// Whether the limiter uses the store that `shared` is about.
    #[must_use]
    pub fn uses_same_store(&self, shared: &Servers<SharedState>) -> bool {
        self.servers.first().uses_same_store(shared.first())
    }

    /// The fields of a consumer's record in Redis; none if there is no such record. It is named by the hash of a credential. Of
    /// several servers, all of which must have it, the first that is available is read.
    ///
    /// # Errors
    /// If the store is unavailable, or keeps nothing but counts.
    pub async fn consumer_record(&self, hash: &str) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let available = self.servers.iter().find(|server| server.is_available());
        available.unwrap_or(self.servers.first()).client.consumer_record(hash).await
    }

    /// The permit of a request that the proxy itself makes to an authorization server. No limit counts it.
    #[must_use]
    pub fn permit_authorization(&self) -> Permit {
        Permit::unlimited()
    }

    /// Decides a request: all of its charges are made, or none.
    pub async fn decide(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        match self.servers.of_all(charges) {
            Some(server) => server.decide(limits, charges).await,
            // Boxed so that it does not enlarge every request's future.
            None => Box::pin(across_servers::decide(&self.servers, limits, charges)).await,
        }
    }

    /// The denial of a request by some of its charges, as far as this process knows; none if it does not know one.
    #[must_use]
    pub fn known_denial(&self, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        match self.servers.of_all(charges) {
            Some(server) => server.known_denial(limits, charges),
            None => across_servers::known_denial(&self.servers, limits, charges),
        }
    }

    /// The denial of a request by some of its charges in Redis, after [`Self::known_denial`] had none.
    pub async fn denial_in_redis(&self, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        match self.servers.of_all(charges) {
            Some(server) => server.check_in_store(limits, charges).await.denial(),
            None => Box::pin(across_servers::denial_in_redis(&self.servers, limits, charges)).await,
        }
    }

    /// Reads the state of each limit that `charges` name, without a charge.
    pub async fn peek(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        match self.servers.of_all(charges) {
            Some(server) => server.peek(limits, charges).await,
            None => Box::pin(across_servers::read(&self.servers, (limits, charges), false)).await,
        }
    }

    /// Reads these states for clients, who may ask as often as they like: what is less than a second old is not read again.
    pub async fn show(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        match self.servers.of_all(charges) {
            Some(server) => server.show(limits, charges).await,
            None => Box::pin(across_servers::read(&self.servers, (limits, charges), true)).await,
        }
    }

    /// The units of a key that requests in flight have reserved in this process, of a limit that settles costs.
    #[must_use]
    pub fn reserved_units(&self, policy: &Policy, key: Key) -> Option<u64> {
        self.servers.of(key).reserved_units(policy, key)
    }

    /// Takes more units for a response that has cost more than was reserved, from all of these limits or from none. Returns whether
    /// they were taken.
    pub async fn take_more(&self, reservation: &mut Reservation, more: &[(PolicyId, u64)]) -> bool {
        if self.servers.are_several() {
            return Box::pin(across_servers::take_more(&self.servers, reservation, more)).await;
        }
        self.servers.first().take_more(reservation, more).await
    }

    /// Charges units whatever their limits allow: a key may owe more than its limit, if the policy has a bound for that
    /// ([`crate::limit::Policy::settled_max`]), and otherwise as much as it allows. Returns the decisions of the limits after
    /// that; none while the store is unavailable, which is then owed the units.
    pub async fn charge_spent(&self, limits: &Limits, charges: &[Charge]) -> LimitStatuses {
        match self.servers.of_all(charges) {
            Some(server) => server.charge_spent(limits, charges).await,
            None => Box::pin(across_servers::charge_spent(&self.servers, limits, charges)).await,
        }
    }

    /// Waits for the first connection to each server and probes it, for half a second at most.
    pub async fn connect(&self) {
        join_all(self.servers.iter().map(ServerLimiter::connect)).await;
    }

    /// Starts the background work, which runs for as long as the limiter has another clone or a slot: it releases slots, renews
    /// their leases, returns grants that would lapse, probes a server that does not reply or is idle, and pays debts.
    pub fn spawn_maintenance(&self, tasks: &mut JoinSet<()>) {
        for server in self.servers.iter() {
            tasks.spawn_local(server.clone().run_maintenance());
        }
    }

    /// Releases the slots of a worker's last requests in the store, returns the grants of the process, and pays debts.
    pub async fn release_slots(&self) {
        join_all(self.servers.iter().map(ServerLimiter::release_slots)).await;
    }
}

#[cfg(test)]
mod tests;
