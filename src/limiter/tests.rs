//! Decisions with and without the store.

mod outage;
mod settled;

use std::num::NonZeroU64;

use super::pending_admission::PendingAdmission;
use super::server_limiter::ServerLimiter;
use super::*;
use crate::limit::{Key, Policy, PolicyId, Quota, Rate};
use crate::store::Memory;
use crate::time::{Clock, Micros, Timestamp};

fn limits(on_failure: &[OnStoreFailure], instances: u64) -> Limits {
    let rate = Rate::new(4, Micros::SECOND).unwrap();
    let policy = |name: &str| Policy::new(name, Quota::token_bucket(rate, 4).unwrap());
    let named = on_failure.iter().enumerate().map(|(n, f)| (policy(&n.to_string()), *f)).collect();
    Limits::new(named, NonZeroU64::new(instances).unwrap())
}

fn limiter() -> ServerLimiter {
    let memory = Arc::new(Memory::new(100, Clock::manual(Timestamp(1))));
    ServerLimiter::new(Store::Memory(Arc::clone(&memory)), SharedState::new(memory, NonZeroU64::MIN))
}

fn charges(count: u32, cost: u64) -> Vec<Charge> {
    (0..count).map(|policy| Charge::take(PolicyId(policy), Key([1; 16]), cost)).collect()
}

#[tokio::test]
async fn a_request_without_limits_passes() {
    let admission = limiter().decide(&limits(&[], 1), &[]).await;
    assert!(admission.verdict.is_ok() && admission.statuses.is_empty());
}

#[tokio::test]
async fn a_cost_above_the_limit_is_denied_and_spends_nothing() {
    let (limiter, limits) = (limiter(), limits(&[OnStoreFailure::Local], 1));
    let admission = limiter.decide(&limits, &charges(1, 5)).await;
    assert_eq!(admission.verdict.unwrap_err(), Denial::Limited);
    assert_eq!(admission.statuses[0].decision.retry_after, None);
    assert!(limiter.decide(&limits, &charges(1, 4)).await.verdict.is_ok());
    assert!(limiter.decide(&limits, &charges(1, 1)).await.verdict.is_err());
}

#[test]
fn without_the_store_each_limit_follows_its_on_store_failure() {
    use OnStoreFailure::{Allow, Deny, Local};
    let limiter = limiter();
    let denied = PendingAdmission::new(&limiter, &limits(&[Local, Allow, Deny], 1), None)
        .fail(&charges(3, 1), None)
        .verdict;
    assert_eq!(denied.unwrap_err(), Denial::Unavailable { retry_after: Micros::SECOND });
    let mixed = limits(&[Local, Allow], 2);
    for _ in 0..2 {
        let admission = PendingAdmission::new(&limiter, &mixed, None).fail(&charges(2, 1), None);
        assert!(admission.verdict.is_ok());
        assert_eq!(admission.statuses.len(), 1);
        assert_eq!(admission.statuses[0].decision.limit, 2);
    }
    let denied = PendingAdmission::new(&limiter, &mixed, None).fail(&charges(2, 1), None).verdict;
    assert_eq!(denied.unwrap_err(), Denial::Limited);
}

#[test]
fn a_cost_above_the_share_takes_all_of_it() {
    let (limiter, limits) = (limiter(), limits(&[OnStoreFailure::Local], 4));
    let first = PendingAdmission::new(&limiter, &limits, None).fail(&charges(1, 3), None);
    assert!(first.verdict.is_ok());
    let second = PendingAdmission::new(&limiter, &limits, None).fail(&charges(1, 3), None);
    assert_eq!(second.verdict.unwrap_err(), Denial::Limited);
    assert!(second.statuses[0].decision.retry_after.is_some());
}
