//! Tests of counters.

use super::*;

#[test]
fn labels_are_in_the_order_of_the_types() {
    assert!(Outcome::ALL.iter().enumerate().all(|(index, (outcome, _))| *outcome as usize == index));
    assert!(StoreCall::ALL.iter().enumerate().all(|(index, (call, _))| *call as usize == index));
}

#[test]
fn workers_have_separate_counters_that_are_summed() {
    let workers = Workers::default();
    let counts: Vec<Counts> =
        (0..3).map(|worker| workers.counts(worker, &[], ["a", "b"].into_iter())).collect();
    assert!(!Arc::ptr_eq(&counts[0].routes[0], &counts[1].routes[0]));
    for worker in &counts {
        worker.record_response(Some(1), StatusCode::NO_CONTENT);
        worker.record_response(None, StatusCode::NOT_FOUND);
        worker.record_duration(Duration::from_millis(1));
        worker.record_duration(Duration::from_mins(1));
    }
    let sums = workers.sums();
    assert_eq!((sums.routes["a"], sums.routes["b"]), ([0; 6], [0, 3, 0, 0, 0, 0]));
    assert_eq!(sums.unrouted, [0, 0, 0, 3, 0, 0]);
    assert_eq!((sums.durations[2], sums.durations[DURATIONS.len()]), (3, 3));
    assert_eq!(sums.durations[DURATION_CELLS - 1], 3 * 60_001_000);
}

#[test]
fn a_name_keeps_its_counters_when_its_index_changes() {
    let workers = Workers::default();
    workers.counts(0, &[], ["a", "b"].into_iter()).record_response(Some(1), StatusCode::OK);
    workers.counts(0, &[], ["b"].into_iter()).record_response(Some(0), StatusCode::OK);
    workers.retain(&[], ["b"].into_iter(), [].into_iter());
    let sums = workers.sums();
    assert_eq!((sums.routes.len(), sums.routes["b"]), (1, [0, 2, 0, 0, 0, 0]));
}

#[test]
fn unknown_limits_routes_and_classes_are_ignored() {
    let counts = Counts::default();
    counts.record_decision(PolicyId(7), Outcome::Denied);
    counts.record_response(Some(7), StatusCode::OK);
    counts.record_response(None, StatusCode::from_u16(999).unwrap());
}
