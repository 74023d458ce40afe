//! Tests of the limit of connections.

use super::*;
use crate::time::cached_now;

fn client(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

#[test]
fn permits_are_bounded_and_go_to_the_first_waiter() {
    let (limit, worker) = (ConnectionLimit::new(2), WorkerWaker::default());
    let one = limit.try_acquire().unwrap();
    let _two = limit.try_acquire().unwrap();
    assert!(limit.try_acquire().is_none() && !limit.has_free() && !limit.has_waiters());
    let (_, mut first) = limit.enqueue(&worker, client(1));
    let (number, second) = limit.enqueue(&worker, client(1));
    let (_, mut third) = limit.enqueue(&worker, client(1));
    // A waiter whose receiver is gone is skipped, even before it leaves the queue.
    drop(second);
    drop(one);
    let Ok(WaitResult::Permit(permit)) = first.try_recv() else { panic!() };
    assert!(third.try_recv().is_err());
    drop(permit);
    assert!(matches!(third.try_recv(), Ok(WaitResult::Permit(_))));
    limit.dequeue(client(1), number);
    assert!(!limit.has_waiters());
    assert_eq!(limit.open_connections(), 1);
    drop(limit.enqueue(&worker, client(1)));
    assert_eq!(limit.open_connections(), 1);
}

#[test]
fn a_released_permit_belongs_to_the_waiter() {
    let (limit, worker) = (ConnectionLimit::new(1), WorkerWaker::default());
    let permit = limit.try_acquire().unwrap();
    let (number, _granted) = limit.enqueue(&worker, client(1));
    assert!(limit.has_waiters());
    drop(permit);
    // Even before the waiter has received it.
    assert!(limit.try_acquire().is_none());
    limit.dequeue(client(1), number);
}

#[test]
fn connections_stay_on_their_worker_and_permits_go_to_any() {
    let (limit, here, there) = (ConnectionLimit::new(1), WorkerWaker::default(), WorkerWaker::default());
    let permit = limit.try_acquire().unwrap();
    assert!(matches!(limit.next_waiter(&here), NextWaiter::None));
    let (_, mut first) = limit.enqueue(&there, client(1));
    let (number, mut second) = limit.enqueue(&here, client(1));
    assert!(matches!(limit.next_waiter(&here), NextWaiter::Remote));
    drop(permit);
    let Ok(WaitResult::Permit(_permit)) = first.try_recv() else { panic!() };
    let NextWaiter::Local(waiter) = limit.next_waiter(&here) else { panic!() };
    assert_eq!(waiter.number, number);
    assert!(waiter.grant(WaitResult::Connection));
    assert!(matches!(second.try_recv(), Ok(WaitResult::Connection)));
}

#[test]
fn waiting_clients_take_turns() {
    let (limit, worker) = (ConnectionLimit::new(1), WorkerWaker::default());
    let mut permit = limit.try_acquire();
    let mut granted: Vec<_> =
        [1, 1, 1, 2].map(|number| limit.enqueue(&worker, client(number)).1).into_iter().collect();
    for next in [0, 3, 1, 2] {
        drop(permit.take());
        let Ok(WaitResult::Permit(next_permit)) = granted[next].try_recv() else { panic!("{next}") };
        permit = Some(next_permit);
    }
}

#[test]
fn connections_are_reclaimed_from_slow_clients_with_more_than_a_quarter() {
    let limit = ConnectionLimit::new(8);
    let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| limit.try_acquire()).collect();
    for (number, permit) in [1, 1, 2, 3, 3, 3, 3, 3].into_iter().zip(&permits) {
        permit.connection_use().start(client(number), false);
    }
    let later = cached_now() + Duration::from_mins(1);
    // Each call is late enough not to be skipped after a search without a result.
    let mut calls = 0;
    let mut next_time = || {
        calls += 1;
        later + calls * RECLAIM_PAUSE
    };
    let reclaimed = || permits.iter().position(|permit| permit.connection_use().is_reclaimed());
    // At first no client is slow, and then only clients that hold at most a quarter.
    assert!(!limit.reclaim(client(4), next_time()));
    let make_slow = |permit: &ConnectionPermit| {
        permit.connection_use().wait_for_client(Some(Duration::from_secs(1)));
    };
    permits[..3].iter().for_each(make_slow);
    assert!(!limit.reclaim(client(4), next_time()));
    make_slow(&permits[6]);
    assert!(!limit.reclaim(client(3), next_time()), "the client has too many itself");
    assert!(!limit.reclaim(client(4), cached_now()), "the connection is not slow yet");
    assert!(limit.reclaim(client(4), next_time()) && reclaimed() == Some(6));
    assert!(!limit.reclaim(client(4), next_time()));
    let share = limit.share(client(3));
    assert_eq!((share.held, share.max, share.others_wait), (5, 8, false));
}

#[test]
fn lasting_and_unanswered_requests_give_way_to_waiting_ones() {
    let limit = ConnectionLimit::new(8);
    let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| limit.try_acquire()).collect();
    for (number, permit) in [1, 1, 2, 2, 2, 3, 3, 3].into_iter().zip(&permits) {
        permit.connection_use().start(client(number), false);
    }
    let reclaimed = || permits.iter().filter(|permit| permit.connection_use().is_reclaimed()).count();
    let begin = cached_now() + Duration::from_secs(1);
    let at = |millis| begin + Duration::from_millis(millis);
    permits[6].connection_use().record_lasting();
    assert!(!limit.reclaim(client(4), at(0)) && reclaimed() == 0);
    // Tunnels and open-ended responses come first.
    assert!(limit.reclaim(client(4), at(250)) && permits[6].connection_use().is_reclaimed());
    // Then requests whose servers have sent nothing for longer, but not for a client with almost as many.
    assert!(!limit.reclaim(client(4), at(300)) && !limit.reclaim(client(1), at(3_000)));
    assert!(limit.reclaim(client(4), at(3_100)) && reclaimed() == 2);
}

#[test]
fn a_reclaimed_connection_goes_to_the_request_that_needed_it() {
    let (limit, worker) = (ConnectionLimit::new(4), WorkerWaker::default());
    let mut permits: Vec<ConnectionPermit> = std::iter::from_fn(|| limit.try_acquire()).collect();
    for permit in &permits {
        permit.connection_use().start(client(1), false);
        permit.connection_use().record_lasting();
    }
    let (_, mut own) = limit.enqueue(&worker, client(1));
    let (_, mut other) = limit.enqueue(&worker, client(2));
    let now = cached_now();
    assert!(!limit.reclaim(client(2), now) && limit.reclaim(client(2), now + CONTENDED_AFTER));
    permits.retain(|permit| !permit.connection_use().is_reclaimed());
    let grants = [other.try_recv(), own.try_recv()];
    assert_eq!(grants.each_ref().map(Result::is_ok), [true, false]);
}

#[test]
fn a_raised_limit_serves_waiting_requests() {
    let (limit, worker) = (ConnectionLimit::new(0), WorkerWaker::default());
    let mut granted = [(); 3].map(|()| limit.enqueue(&worker, client(1)).1);
    limit.set_max(2);
    let grants = granted.each_mut().map(oneshot::Receiver::try_recv);
    assert_eq!(grants.each_ref().map(Result::is_ok), [true, true, false]);
}
