//! The breaker in virtual time.

use super::*;
use crate::store::Memory;
use crate::time::Clock;

fn not_connected() -> StoreError {
    StoreError::NotConnected("connection refused".to_owned())
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    let _ = monotonic();
}

/// A store in this process is always available.
fn store() -> Store {
    Store::Memory(Arc::new(Memory::new(1, Clock::System)))
}

#[tokio::test(start_paused = true)]
async fn consecutive_failures_open_the_breaker_and_single_ones_do_not() {
    let breaker = Breaker::default();
    let fails = |error| {
        breaker.record_failure(&error);
        breaker.is_open()
    };
    for _ in 0..3 {
        for _ in 1..FAILURES {
            assert!(!fails(StoreError::Deadline));
            pass(SPAN / 4).await;
        }
        breaker.record_success();
    }
    // One hiccup, however many requests it fails.
    for _ in 0..5 * FAILURES {
        assert!(!fails(StoreError::Deadline));
    }
    pass(SPAN).await;
    assert!(!fails(StoreError::QueueFull));
    assert!(fails(StoreError::Deadline));
    assert!(breaker.until_probe() > Micros::ZERO);
    assert!(fails(StoreError::Deadline));
    assert_eq!((breaker.all.open(), breaker.all.openings()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_opens_the_breaker_unless_it_is_replaced_soon() {
    let breaker = Breaker::default();
    (0..5 * FAILURES).for_each(|_| breaker.record_failure(&not_connected()));
    assert!(!breaker.is_open());
    breaker.record_success();
    breaker.record_failure(&not_connected());
    pass(SPAN).await;
    breaker.record_failure(&not_connected());
    assert!(breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_breaker_closes_on_trial() {
    let breaker = Breaker::default();
    breaker.open(&not_connected());
    for _ in 0..3 {
        breaker.wait_until_recovered(&store()).await;
        assert!(breaker.is_open());
        breaker.close();
        assert!(!breaker.is_open());
        // On trial it still counts as open.
        assert_eq!(breaker.all.open(), 1);
        pass(SPAN).await;
        breaker.record_failure(&StoreError::Deadline);
        assert!(breaker.is_open());
    }
    breaker.wait_until_recovered(&store()).await;
    breaker.close();
    breaker.record_success();
    pass(SPAN).await;
    breaker.record_failure(&StoreError::Deadline);
    assert!(!breaker.is_open());
    assert_eq!((breaker.all.open(), breaker.all.openings()), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn a_trial_lasts_as_long_as_other_proxies_may_take_to_recover() {
    let breaker = Breaker::new(&Arc::default(), 4 * SPAN, false);
    breaker.record_failure(&not_connected());
    pass(SPAN).await;
    breaker.record_failure(&not_connected());
    assert!(breaker.is_open());
    breaker.close();
    for _ in 0..4 {
        breaker.record_success();
        assert!(!breaker.is_open() && !breaker.are_all_settled());
        pass(SPAN).await;
    }
    breaker.record_success();
    assert!(breaker.are_all_settled());
}

/// Failures that do not open this breaker may have opened those of other proxies, which then owe units.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_stays_closed_waits_for_the_debts_of_other_proxies() {
    let breaker = Breaker::new(&Arc::default(), 4 * SPAN, false);
    for (length, is_outage) in [(SPAN / 2, false), (SPAN, true)] {
        breaker.record_failure(&StoreError::Deadline);
        assert!(!breaker.is_open() && !breaker.are_all_settled());
        pass(length).await;
        breaker.record_success();
        assert_eq!(breaker.are_all_settled(), !is_outage);
        assert_eq!(breaker.all.open(), 0);
    }
    // A hiccup does not end the wait.
    pass(SPAN).await;
    breaker.record_failure(&StoreError::Deadline);
    pass(SPAN / 4).await;
    breaker.record_success();
    assert!(!breaker.are_all_settled());
    pass(4 * SPAN).await;
    breaker.record_success();
    assert!(breaker.are_all_settled());
    // With a single proxy there are no debts of others.
    let single = Breaker::default();
    single.record_failure(&StoreError::Deadline);
    assert!(single.are_all_settled());
}

/// Without further requests a probe shows soon that a failure was only a hiccup.
#[tokio::test(start_paused = true)]
async fn a_probe_ends_the_wait_after_a_hiccup() {
    let breaker = Breaker::new(&Arc::default(), 4 * SPAN, false);
    breaker.record_failure(&StoreError::Deadline);
    let store = store();
    let watching = tokio::time::timeout(SPAN * 3 / 4, breaker.wait_until_open(&store));
    assert!(watching.await.is_err());
    assert!(breaker.are_all_settled());
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_not_sent_are_no_failures() {
    let breaker = Breaker::default();
    for _ in 0..5 * FAILURES {
        for error in [StoreError::SlotMoving, StoreError::Unsent, StoreError::QueueFull] {
            breaker.record_failure(&error);
        }
        pass(SPAN).await;
    }
    assert!(!breaker.is_open() && breaker.failures.get() == 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_breakers_are_not_counted() {
    let all = Arc::default();
    let (first, second) =
        (Breaker::new(&all, Duration::ZERO, false), Breaker::new(&all, Duration::ZERO, false));
    first.open(&not_connected());
    second.open(&not_connected());
    assert_eq!(all.open(), 2);
    drop(first);
    second.close();
    drop(second);
    assert_eq!(all.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_trial_without_requests_ends() {
    let breaker = Breaker::default();
    breaker.open(&not_connected());
    breaker.close();
    let store = store();
    // With a store that replies it never returns.
    let watching = tokio::time::timeout(PROBE_INTERVAL + SPAN, breaker.wait_until_open(&store));
    assert!(watching.await.is_err());
    assert_eq!(breaker.all.open(), 0);
}

/// Held grants decide most requests for keys of healthy nodes, so that the calls of a failing one may follow each other.
#[tokio::test(start_paused = true)]
async fn error_replies_of_one_node_open_no_breaker() {
    let breaker = Breaker::new(&Arc::default(), Duration::ZERO, true);
    let is_open =
        async || tokio::time::timeout(4 * PROBE_INTERVAL, breaker.wait_until_open(&store())).await.is_ok();
    for _ in 0..5 * FAILURES {
        breaker.record_failure(&StoreError::ErrorReply("OOM".to_owned()));
        pass(SPAN).await;
    }
    assert!(!breaker.is_open());
    assert!(!is_open().await);
    // The other nodes have replied to a probe.
    assert!(breaker.all.logged.lock().is_some());
    for _ in 0..FAILURES {
        breaker.record_failure(&StoreError::Deadline);
        pass(SPAN).await;
    }
    assert!(breaker.is_open());
}
