//! Pays the debts of an outage: late charges to the store for what was admitted without it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::outage_ledger::{DebtEntry, OutageLedger};
use crate::limit::{Charge, Policy};
use crate::store::{Memory, Redis, StoreError};
use crate::telemetry::ChargeBack;
use crate::time::{Timestamp, monotonic};

/// How many keys are paid at once, and how many charges one call has: it must not block the server for long.
const MAX_CHARGES: usize = 128;
/// The most calls in flight at once: on a cluster each key has its own.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The longest that a worker pays debts before it serves requests from the store again.
const MAX_DURATION: Duration = Duration::from_secs(2);
/// After so many keys with error replies a worker tries the others later: one node of a cluster may fail for all of its
/// keys.
const MAX_FAILED: usize = 1_024;
/// A debt is dropped after so many error replies, which takes minutes.
const MAX_ATTEMPTS: u16 = 1_000;

/// The late charges of one call, and the debts that they pay.
pub(super) struct Payment {
    pub policies: Arc<[Policy]>,
    pub debts: Vec<DebtEntry>,
    pub charges: Vec<Charge>,
}

/// How a payment ended.
enum Paid {
    /// The store has replied; with an error for these debts.
    Replied(Vec<DebtEntry>),
    /// There was no reply.
    Unavailable,
}

/// Pays debts for two seconds at most; returns whether the store replied. Debts that get an error reply are kept, and do
/// not prevent the others from being paid.
pub(super) async fn pay(redis: &Redis, ledger: &OutageLedger, shares: &Memory) -> bool {
    let end = monotonic() + MAX_DURATION;
    let (mut guards, mut failed) = (Vec::new(), Vec::new());
    let replied = loop {
        let (debts, guard) = ledger.take(MAX_CHARGES);
        if debts.is_empty() {
            break true;
        }
        guards.push(guard);
        let mut replied = true;
        let mut payments =
            payments(debts, redis.has_several_nodes(), shares.clock().now()).into_iter().peekable();
        while replied && payments.peek().is_some() {
            let batch: Vec<Payment> = payments.by_ref().take(MAX_CONCURRENT_CALLS).collect();
            for paid in join_all(batch.into_iter().map(|payment| send(redis, ledger, shares, payment))).await
            {
                match paid {
                    Paid::Replied(debts) => failed.extend(debts),
                    Paid::Unavailable => replied = false,
                }
            }
        }
        payments.flat_map(|payment| payment.debts).for_each(|debt| ledger.restore(debt));
        if !replied || failed.len() >= MAX_FAILED || monotonic() >= end {
            break replied;
        }
    };
    for debt in failed {
        ledger.restore(debt);
    }
    replied
}

/// Groups debts by the call that pays them: one for each key if they are on `several_nodes`.
pub(super) fn payments(debts: Vec<DebtEntry>, several_nodes: bool, now: Timestamp) -> Vec<Payment> {
    let mut payments: Vec<Payment> = Vec::new();
    for debt in debts {
        let charges: Vec<Charge> = debt.charges(now).collect();
        let fits = |payment: &&mut Payment| {
            !several_nodes
                && Arc::ptr_eq(&payment.policies, &debt.policies)
                && payment.charges.len() + charges.len() <= MAX_CHARGES
        };
        match payments.last_mut().filter(fits) {
            // All of it has come back by now.
            _ if charges.is_empty() => {}
            Some(payment) => {
                payment.charges.extend(charges);
                payment.debts.push(debt);
            }
            None => {
                let policies = Arc::clone(&debt.policies);
                payments.push(Payment { policies, debts: vec![debt], charges });
            }
        }
    }
    payments
}

/// Sends a payment. If its reply is lost it is not sent again, since it may have been charged.
async fn send(redis: &Redis, ledger: &OutageLedger, shares: &Memory, payment: Payment) -> Paid {
    let Payment { policies, mut debts, charges } = payment;
    let units = charges.iter().map(|charge| charge.cost).sum();
    match redis.apply(&policies, &charges).await {
        Ok(decisions) => {
            ledger.count(ChargeBack::Paid, units);
            for debt in &debts {
                let own = |charge: &Charge| (charge.policy, charge.key) == (debt.policy, debt.key);
                // The last decision on a key counts all of its charges.
                if let Some(decision) = charges.iter().rposition(own).and_then(|last| decisions.get(last)) {
                    debt.seed_share(shares, decision);
                }
            }
            Paid::Replied(Vec::new())
        }
        Err(StoreError::ErrorReply(_)) => {
            for debt in &mut debts {
                debt.error_replies += 1;
            }
            let (given_up, kept): (Vec<DebtEntry>, Vec<DebtEntry>) =
                debts.into_iter().partition(|debt| debt.error_replies >= MAX_ATTEMPTS);
            ledger.count(ChargeBack::Dropped, given_up.iter().map(DebtEntry::units).sum());
            Paid::Replied(kept)
        }
        Err(error) if error.is_uncharged() => {
            for debt in debts {
                ledger.restore(debt);
            }
            Paid::Unavailable
        }
        Err(_) => {
            ledger.count(ChargeBack::Lost, units);
            Paid::Unavailable
        }
    }
}
