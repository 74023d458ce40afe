//! Fixed demands: how often processes call, and how much is admitted.

use super::load::Phase;
use super::process::Place;
use super::simulation::{Setup, Totals};
use crate::limit::{Ahead, Align, Policy, Quota, Rate};
use crate::time::Micros;

fn millis(count: u64) -> Micros {
    Micros(count * 1_000)
}

fn rate(units: u64, period: Micros) -> Rate {
    Rate::new(units, period).unwrap()
}

fn with_span(name: &str, quota: Quota, span: Micros) -> Policy {
    Policy::new(name, quota).with_ahead(Ahead { span, share: Ahead::DEFAULT_SHARE })
}

/// A limit of 1000 units per second by each algorithm, with grants of a second.
fn policies() -> [Policy; 7] {
    let per_second = rate(1_000, Micros::SECOND);
    [
        ("token_bucket", Quota::token_bucket(per_second, 1_000)),
        ("gcra", Quota::gcra(per_second, 999)),
        ("interval", Quota::interval_bucket(rate(250, millis(250)), 1_000)),
        ("fixed_window", Quota::fixed_window(per_second, Align::Clock)),
        ("first_request", Quota::fixed_window(per_second, Align::FirstRequest)),
        ("sliding_log", Quota::sliding_log(&[per_second])),
        ("sliding_window", Quota::sliding_window(per_second, 10)),
    ]
    .map(|(name, quota)| with_span(name, quota.unwrap(), Micros::SECOND))
}

/// So many requests in each of these seconds.
fn steady(requests: u64, seconds: usize) -> Vec<Phase> {
    vec![Phase::new(Micros::SECOND, requests); seconds]
}

/// Runs a simulation with at most so many calls for each request, which admits at least this share of what the limit
/// allows, and no more than it allows.
fn assert_bounds(setup: &Setup, (most_calls, least_admitted): (f64, f64)) -> Totals {
    let (totals, name) = (setup.run(), &setup.policy.name);
    let (calls, admitted) = (totals.calls_per_request(), totals.admitted_of_oracle());
    println!("{name}: {calls:.4} calls for each request, {admitted:.4} of the limit admitted");
    assert_eq!(totals.over, 0, "{name}");
    assert!(calls <= most_calls, "{name}: {calls} calls for each request");
    assert!(admitted >= least_admitted, "{name}: {admitted} of the limit admitted");
    totals
}

#[test]
fn a_hot_key_with_room_seldom_calls() {
    for policy in policies() {
        assert_bounds(&Setup::new(policy, steady(500, 10)), (0.05, 0.999));
    }
}

#[test]
fn a_hot_denied_bucket_seldom_calls() {
    for policy in policies().into_iter().take(2) {
        assert_bounds(&Setup::new(policy, steady(3_000, 5)), (0.05, 0.97));
    }
}

/// Processes get grants by a steady demand and keep them while the limit fills up; then all of its units and the granted ones
/// are asked for at once. A limit whose units come back one by one denies for shorter times, so that it is asked more often.
#[test]
fn demands_made_to_measure_admit_no_more_than_the_limit() {
    let silence = |length| Phase::new(millis(length), 0);
    let round = [Phase::new(millis(500), 500), silence(800), Phase::new(millis(30), 3_000), silence(1_670)];
    for policy in policies() {
        let most_calls = match &*policy.name {
            "token_bucket" | "gcra" => 0.15,
            "sliding_window" => 0.45,
            _ => 0.2,
        };
        assert_bounds(&Setup::new(policy, round.repeat(3)), (most_calls, 0.78));
    }
}

#[test]
fn a_distant_process_serves_a_hot_key_without_waiting() {
    let quota = Quota::token_bucket(rate(60_000, Micros(60_000_000)), 60_000).unwrap();
    let span = Ahead::automatic_span(&quota).unwrap();
    let mut setup = Setup::new(with_span("distant", quota, span), steady(500, 30));
    setup.places.push(Place { travel: millis(100), drift: -500 });
    let totals = assert_bounds(&setup, (0.02, 0.999));
    let at_once = totals.at_once_of_last();
    println!("{at_once:.4} of the requests to the distant process at once");
    assert!(at_once >= 0.95, "{at_once}");
}
