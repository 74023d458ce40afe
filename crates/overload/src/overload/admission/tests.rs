//! The admission with a fixed limit and a learned one, step by step.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_limit::time::{Micros, Nanos};

use super::super::samples::Outcome;
use super::*;

fn fixed(limit: u32) -> OverloadSpec {
    OverloadSpec {
        limit: LimitSpec::Fixed(limit),
        reserved_share: [0.0; 4],
        max_pending: 4,
        ..OverloadSpec::default()
    }
}

fn of(class: Class, key: u64) -> Arrival {
    Arrival { class, key }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(1_000_000_000 + 1000 * ms)
}

/// The items that were admitted, with their places, and those that were refused.
type Taken = (Vec<(u32, Place)>, Vec<(u32, Reason)>);

fn sorted(released: &mut Vec<Released<u32>>) -> Taken {
    let mut taken = Taken::default();
    for released in released.drain(..) {
        match released {
            Released::Admitted(item, place) => taken.0.push((item, place)),
            Released::Refused(item, refusal) => taken.1.push((item, refusal.reason)),
        }
    }
    taken
}

#[test]
fn a_request_waits_for_the_place_of_another() {
    let admission = Admission::new(&fixed(1), None, at(0));
    let mut released = Vec::new();
    let place = admission.try_admit(of(Class::Normal, 1)).unwrap();
    assert!(admission.try_admit(of(Class::Critical, 1)).is_none());
    assert!(matches!(admission.arrive(of(Class::Normal, 1), 7, at(0), &mut released), Arrived::Queued(_)));
    assert_eq!(admission.counts().waiting, [0, 0, 1, 0]);
    admission.finish(place, at(5), &mut released);
    let (mut admitted, refused) = sorted(&mut released);
    assert!(refused.is_empty());
    let (item, place) = admitted.pop().unwrap();
    assert_eq!((item, place.class()), (7, Class::Normal));
    assert_eq!((admission.counts().in_flight_total(), admission.counts().waiting_total()), (1, 0));
    admission.finish(place, at(6), &mut released);
    assert_eq!(admission.counts().in_flight_total(), 0);
}

#[test]
fn refusals_have_their_reasons_and_are_counted() {
    let admission = Admission::new(&fixed(1), None, at(0));
    let mut released = Vec::new();
    let place = admission.try_admit(of(Class::Normal, 1)).unwrap();
    for item in 0..2 {
        assert!(matches!(
            admission.arrive(of(Class::Low, 1), item, at(0), &mut released),
            Arrived::Queued(_)
        ));
    }
    // A class holds half of four.
    assert!(matches!(
        admission.refuse_at_once(of(Class::Low, 1)),
        Some(Refusal { class: Class::Low, reason: Reason::Full })
    ));
    assert!(matches!(admission.arrive(of(Class::Low, 1), 2, at(0), &mut released), Arrived::Refused(2, _)));
    assert!(admission.refuse_at_once(of(Class::Normal, 1)).is_none());
    for item in 3..5 {
        assert!(matches!(
            admission.arrive(of(Class::Normal, 1), item, at(0), &mut released),
            Arrived::Queued(_)
        ));
    }
    assert!(matches!(admission.arrive(of(Class::High, 1), 5, at(0), &mut released), Arrived::Queued(_)));
    assert_eq!(sorted(&mut released).1, [(1, Reason::Displaced)]);
    admission.expire(at(100), &mut released);
    assert_eq!(sorted(&mut released).1.len(), 4);
    let refused = admission.counts().refused;
    assert_eq!(refused, [[0; 3], [0, 0, 1], [0, 0, 2], [2, 1, 1]]);
    assert_eq!(admission.deadline(), None);
    admission.finish(place, at(101), &mut released);
}

#[test]
fn a_request_that_has_left_is_not_admitted() {
    let admission = Admission::new(&fixed(1), None, at(0));
    let mut released = Vec::new();
    let place = admission.try_admit(of(Class::Normal, 1)).unwrap();
    let Arrived::Queued(ticket) = admission.arrive(of(Class::Normal, 1), 7, at(0), &mut released) else {
        panic!()
    };
    assert_eq!(admission.leave(ticket), Some(7));
    assert_eq!(admission.leave(ticket), None);
    admission.finish(place, at(1), &mut released);
    assert!(released.is_empty());
    assert!(admission.try_admit(of(Class::Low, 1)).is_some());
}

#[test]
fn a_reserved_place_waits_for_its_class() {
    let spec = OverloadSpec { reserved_share: [0.5, 0.0, 0.0, 0.0], ..fixed(2) };
    let admission = Admission::new(&spec, None, at(0));
    let mut released = Vec::new();
    let place = admission.try_admit(of(Class::Normal, 1)).unwrap();
    assert!(matches!(admission.arrive(of(Class::Normal, 1), 1, at(0), &mut released), Arrived::Queued(_)));
    assert!(matches!(
        admission.arrive(of(Class::Critical, 1), 2, at(0), &mut released),
        Arrived::Admitted(2, _)
    ));
    assert!(released.is_empty());
    admission.finish(place, at(1), &mut released);
    assert_eq!(sorted(&mut released).0.len(), 1);
}

#[test]
fn shadow_mode_admits_all_and_counts() {
    let spec = OverloadSpec { mode: Mode::Shadow, ..fixed(1) };
    let admission = Admission::new(&spec, None, at(0));
    let mut released = Vec::new();
    let mut places = Vec::new();
    for item in 0..20 {
        assert!(admission.refuse_at_once(of(Class::Low, 1)).is_none());
        match admission.arrive(of(Class::Low, 1), item, at(0), &mut released) {
            Arrived::Admitted(_, place) => places.push(place),
            other => panic!("{other:?}"),
        }
    }
    let counts = admission.counts();
    assert_eq!(
        (counts.in_flight_total(), counts.above_limit, counts.refused),
        (20, [0, 0, 0, 19], [[0; 3]; 4])
    );
    for place in places {
        admission.finish(place, at(1), &mut released);
    }
    assert_eq!(admission.counts().in_flight_total(), 0);
}

#[test]
fn a_successor_starts_from_what_was_learned() {
    let spec = OverloadSpec { servers: 2, ..OverloadSpec::default() };
    let first: Admission<u32> = Admission::new(&spec, None, at(0));
    assert_eq!(first.counts().limit, 16);
    let learned = Learned { limit: 77.0, calm: vec![None, Some(Nanos(20_000_000))] };
    let second: Admission<u32> = Admission::new(&spec, Some(&learned), at(0));
    assert_eq!(second.counts().limit, 77);
    let again = second.learned().unwrap();
    assert!((again.limit - 77.0).abs() < 1e-9 && again.calm[0].is_none());
    assert!(again.calm[1].unwrap().0.abs_diff(20_000_000) < 10);
}

#[test]
fn samples_reach_the_limit_without_calls_of_others() {
    let admission: Admission<u32> = Admission::new(&OverloadSpec::default(), None, at(0));
    let mut samples = Samples::new();
    for ms in 0..1000 {
        let sample = Sample { route: 0, key: ms, latency: Nanos(5_000_000), outcome: Outcome::Response };
        admission.record(&mut samples, sample, at(ms));
    }
    let calm = admission.learned().unwrap().calm;
    assert!(calm[0].unwrap().0.abs_diff(5_000_000) < 50_000, "{calm:?}");
}

/// Threads take and give back places as workers do. None is lost, the limit holds, and all who wait are released.
#[test]
fn workers_exceed_no_limit_and_leave_nobody_waiting() {
    const LIMIT: u32 = 3;
    let spec = OverloadSpec { max_pending: 1000, pending_timeout: Micros(u64::MAX / 4), ..fixed(LIMIT) };
    let admission: Admission<u32> = Admission::new(&spec, None, at(0));
    let (flying, most, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let ready: Mutex<Vec<Place>> = Mutex::new(Vec::new());
    let admit = |place: Place| {
        most.fetch_max(flying.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        ready.lock().unwrap().push(place);
    };
    let finish = || {
        let Some(place) = ready.lock().unwrap().pop() else { return };
        let mut released = Vec::new();
        flying.fetch_sub(1, Ordering::SeqCst);
        done.fetch_add(1, Ordering::SeqCst);
        // The time stands still, so that none waits for too long.
        admission.finish(place, at(0), &mut released);
        sorted(&mut released).0.into_iter().for_each(|(_, place)| admit(place));
    };
    std::thread::scope(|scope| {
        for key in 0..4 {
            let (admission, admit, finish) = (&admission, &admit, &finish);
            scope.spawn(move || {
                for item in 0..2000 {
                    let mut released = Vec::new();
                    if let Arrived::Admitted(_, place) =
                        admission.arrive(of(Class::Normal, key), item, at(0), &mut released)
                    {
                        admit(place);
                    }
                    let (admitted, refused) = sorted(&mut released);
                    assert!(refused.is_empty());
                    for (_, place) in admitted {
                        admit(place);
                    }
                    finish();
                    finish();
                }
            });
        }
    });
    while !ready.lock().unwrap().is_empty() {
        finish();
    }
    let refused: u64 = admission.counts().refused.iter().flatten().sum();
    assert_eq!(u64::from(done.load(Ordering::SeqCst)) + refused, 8000);
    assert!(most.load(Ordering::SeqCst) <= LIMIT, "{most:?}");
    assert_eq!((admission.counts().waiting_total(), admission.counts().in_flight_total()), (0, 0));
}

#[test]
fn without_a_queue_requests_are_refused_at_once() {
    let admission = Admission::new(&OverloadSpec { max_pending: 0, ..fixed(1) }, None, at(0));
    let (mut released, newcomer) = (Vec::new(), of(Class::Critical, 1));
    assert_eq!(admission.refuse_at_once(newcomer), None);
    let place = admission.try_admit(of(Class::Low, 1)).unwrap();
    let refusal = Refusal { class: Class::Critical, reason: Reason::Full };
    assert_eq!(admission.refuse_at_once(newcomer), Some(refusal));
    assert!(matches!(admission.arrive(newcomer, 1, at(1), &mut released), Arrived::Refused(1, _)));
    admission.finish(place, at(2), &mut released);
    assert_eq!((admission.refuse_at_once(newcomer), released.len()), (None, 0));
}

#[test]
fn from_half_of_the_limit_on_requests_may_have_to_wait() {
    let admission = Admission::<()>::new(&fixed(4), None, at(0));
    let first = admission.try_admit(of(Class::Normal, 1)).unwrap();
    assert!(!admission.may_have_to_wait(Class::Normal));
    let second = admission.try_admit(of(Class::Normal, 1)).unwrap();
    assert!(admission.may_have_to_wait(Class::Normal));
    for place in [first, second] {
        admission.finish(place, at(1), &mut Vec::new());
    }
    assert!(!admission.may_have_to_wait(Class::Normal));
}

#[test]
fn a_class_with_room_of_its_own_does_not_wait_for_others() {
    // Two of ten places are for the lowest class.
    let spec = OverloadSpec { reserved_share: [0.0, 0.0, 0.0, 0.2], ..fixed(10) };
    let (admission, mut released) = (Admission::new(&spec, None, at(0)), Vec::new());
    let places: Vec<Place> =
        (10..18).map(|key| admission.try_admit(of(Class::Normal, key)).unwrap()).collect();
    for (class, key) in [(Class::High, 1), (Class::High, 2), (Class::Normal, 3), (Class::Normal, 4)] {
        assert!(matches!(admission.arrive(of(class, key), 0, at(0), &mut released), Arrived::Queued(_)));
    }
    let low = of(Class::Low, 5);
    assert!(admission.refuse_at_once(low).is_none());
    assert!(matches!(admission.arrive(low, 9, at(0), &mut released), Arrived::Admitted(9, _)));
    assert!(released.is_empty() && places.len() == 8);
}

/// A lower limit is tested, and the least one is 1.
#[test]
fn a_limit_of_one_goes_on_admitting() {
    let spec = OverloadSpec {
        limit: LimitSpec::Adaptive { min: 1, max: 1 },
        reserved_share: [0.0; 4],
        ..OverloadSpec::default()
    };
    let (admission, mut released) = (Admission::new(&spec, None, at(0)), Vec::new());
    let (mut samples, mut held, mut served) = (Samples::new(), Vec::new(), 0);
    for round in 0..4_000 {
        let now = 10 * round;
        for key in 0..2 {
            if let Arrived::Admitted(_, place) =
                admission.arrive(of(Class::Normal, key), 0, at(now), &mut released)
            {
                held.push(place);
            }
        }
        for place in std::mem::take(&mut held) {
            let sample =
                Sample { route: 0, key: round, latency: Nanos(5_000_000), outcome: Outcome::Response };
            admission.record(&mut samples, sample, at(now + 5));
            admission.finish(place, at(now + 5), &mut released);
            served = round;
        }
        admission.expire(at(now + 5), &mut released);
        held.extend(sorted(&mut released).0.into_iter().map(|(_, place)| place));
        assert!(admission.counts().limit >= 1, "in round {round}");
    }
    assert!(served > 3_990, "the last request was served in round {served}");
}

#[test]
fn extra_places_use_up_neither_the_limit_nor_a_share() {
    let spec = OverloadSpec { max_pending: 0, reserved_share: [0.2, 0.0, 0.0, 0.0], ..fixed(8) };
    let admission = Admission::new(&spec, None, at(0));
    let held: Vec<Place> = std::iter::from_fn(|| admission.try_admit(of(Class::Normal, 1))).collect();
    assert_eq!(held.len(), 7);
    let newcomer = of(Class::Normal, 2);
    assert!(admission.refuse_at_once(newcomer).is_none() && admission.try_admit(newcomer).is_none());
    let mut released = Vec::new();
    let Arrived::Admitted(_, extra) = admission.arrive(newcomer, 1, at(1), &mut released) else { panic!() };
    // The eighth is used, and the share of the highest class is free.
    assert!(admission.refuse_at_once(of(Class::Normal, 3)).is_some());
    let vital = admission.try_admit(of(Class::Critical, 1)).unwrap();
    assert_eq!(admission.counts().in_flight, [1, 0, 8, 0]);
    for place in held.into_iter().chain([extra, vital]) {
        admission.finish(place, at(2), &mut released);
    }
    assert_eq!(admission.counts().in_flight_total(), 0);
}

#[test]
fn a_client_whose_requests_hold_all_places_does_not_keep_out_others() {
    let admission = Admission::new(&fixed(8), None, at(0));
    let mut released = Vec::new();
    let held: Vec<Place> = (0..8).map(|_| admission.try_admit(of(Class::Normal, 1)).unwrap()).collect();
    // Its own requests wait, and time out.
    assert!(matches!(admission.arrive(of(Class::Normal, 1), 1, at(0), &mut released), Arrived::Queued(_)));
    for item in 2..20 {
        let now = at(u64::from(item));
        assert!(admission.refuse_at_once(of(Class::Normal, 2)).is_none());
        let Arrived::Admitted(_, place) = admission.arrive(of(Class::Normal, 2), item, now, &mut released)
        else {
            panic!()
        };
        // One at a time: an eighth of the limit.
        assert!(matches!(admission.arrive(of(Class::Low, 3), 100, now, &mut released), Arrived::Queued(_)));
        // Those that wait come before the next one.
        admission.finish(place, now, &mut released);
        let (mut admitted, refused) = sorted(&mut released);
        let (item, waited) = admitted.pop().unwrap();
        assert_eq!((item, admitted.len(), refused.len()), (100, 0, 0));
        admission.finish(waited, now, &mut released);
    }
    admission.expire(at(1_000), &mut released);
    assert_eq!(sorted(&mut released).1, [(1, Reason::TimedOut)]);
    for place in held {
        admission.finish(place, at(0), &mut released);
    }
    assert_eq!(admission.counts().in_flight_total(), 0);
}

#[test]
fn a_freed_extra_place_goes_to_the_first_client_without_requests() {
    let (admission, mut released) = (Admission::new(&fixed(8), None, at(0)), Vec::new());
    let held: Vec<Place> = (0..8).map(|_| admission.try_admit(of(Class::Normal, 1)).unwrap()).collect();
    let Arrived::Admitted(_, extra) = admission.arrive(of(Class::Normal, 3), 0, at(0), &mut released) else {
        panic!()
    };
    // The first one that waits is of the client with all places.
    for (item, key) in [(1, 1), (2, 2)] {
        let arrived = admission.arrive(of(Class::Normal, key), item, at(1), &mut released);
        assert!(matches!(arrived, Arrived::Queued(_)));
    }
    admission.finish(extra, at(2), &mut released);
    let (mut admitted, refused) = sorted(&mut released);
    assert_eq!((admitted.len(), admitted[0].0, refused), (1, 2, vec![]));
    // One that comes later has no turn before it.
    let Arrived::Queued(_) = admission.arrive(of(Class::Normal, 4), 4, at(3), &mut released) else {
        panic!()
    };
    for (_, place) in admitted.drain(..) {
        admission.finish(place, at(4), &mut released);
    }
    assert_eq!(sorted(&mut released).0.remove(0).0, 4);
    assert_eq!((held.len(), admission.counts().waiting), (8, [0, 0, 1, 0]));
}

#[test]
fn a_request_without_time_left_takes_room_of_its_own_or_is_refused() {
    let spec = OverloadSpec { reserved_share: [0.5, 0.0, 0.0, 0.0], ..fixed(2) };
    let (admission, mut released) = (Admission::new(&spec, None, at(0)), Vec::new());
    let place = admission.try_admit(of(Class::Normal, 1)).unwrap();
    assert!(matches!(admission.arrive(of(Class::Normal, 1), 1, at(0), &mut released), Arrived::Queued(_)));
    let refusal = Refusal { class: Class::Normal, reason: Reason::TimedOut };
    assert_eq!(admission.arrive_late(of(Class::Normal, 2), &mut released).unwrap_err(), refusal);
    let vital = admission.arrive_late(of(Class::Critical, 3), &mut released).unwrap();
    assert!(admission.arrive_late(of(Class::Critical, 3), &mut released).is_err());
    let counts = admission.counts();
    assert_eq!((counts.waiting, counts.in_flight), ([0, 0, 1, 0], [1, 0, 1, 0]));
    for place in [place, vital] {
        admission.finish(place, at(1), &mut released);
    }
    let shadow = Admission::<()>::new(&OverloadSpec { mode: Mode::Shadow, ..fixed(1) }, None, at(0));
    assert!((0..3).all(|_| shadow.arrive_late(of(Class::Low, 1), &mut Vec::new()).is_ok()));
}
