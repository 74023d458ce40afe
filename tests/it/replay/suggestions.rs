//! Limits suggested for a trace of which the clients are known.

use tidegate::limit::{Key, KeyHasher, PartKind, Parts, Quota, Rate};
use tidegate::replay::suggest::{
    Arrival, Histories, History, Role, ShapeKind, ShareOf, SuggestSettings, Suggestion, SuggestionSubject,
    suggest,
};
use tidegate::time::{Micros, Timestamp};

use crate::support::trace::{ClientKind, Trace, TraceSettings};

const DAY: u64 = 86_400_000_000;

fn subject() -> SuggestionSubject {
    SuggestionSubject {
        name: "api".into(),
        route: Some("api".into()),
        key: vec!["client_ip".into()],
        ..SuggestionSubject::default()
    }
}

fn key(name: &str) -> Key {
    let mut parts = Parts::default();
    parts.push(PartKind::ClientIp, name.as_bytes());
    KeyHasher::new(None).key(&parts)
}

/// The history of a trace, and the keys of its clients by their positions.
fn recorded(trace: &Trace) -> (Histories, Vec<Key>) {
    let keys: Vec<Key> = trace.clients.iter().map(|client| key(&client.address.to_string())).collect();
    let mut histories = Histories::new(1, 64 << 20);
    for request in &trace.requests {
        let client = request.client as usize;
        let arrival = Arrival { at: request.at, cost: 1 };
        let name = || Some(trace.clients[client].address.to_string().into());
        histories.record(0, keys[client], arrival, name);
    }
    (histories, keys)
}

/// The share of the requests of a client that these limits deny on the last day.
fn denied_share(trace: &Trace, kind: ClientKind, suggestion: &Suggestion) -> f64 {
    let mut one = History::default();
    let is_of = |client: u32| trace.clients[client as usize].kind == kind;
    for request in trace.requests.iter().filter(|request| is_of(request.client)) {
        let arrival = Arrival { at: request.at, cost: 1 };
        one.record(key(&request.client.to_string()), arrival, usize::MAX, || None);
    }
    let quotas: Vec<Quota> = suggestion.limits.iter().map(|limit| limit.numbers.quota.clone()).collect();
    let suggestion = suggest(&one, subject(), &SuggestSettings::default(), &quotas).unwrap();
    suggestion.current.unwrap().request_share()
}

#[test]
fn limits_from_six_days_deny_few_clients_on_the_seventh_and_stop_the_crawler() {
    let trace = Trace::generate(&TraceSettings::default());
    let (histories, _) = recorded(&trace);
    let suggestion = suggest(&histories.all()[0], subject(), &SuggestSettings::default(), &[]).unwrap();
    let held_back = suggestion.held_back.as_ref().unwrap();
    let six_days = Timestamp(TraceSettings::default().start.0 + 6 * DAY);
    let off = held_back.part.from.since(six_days).max(six_days.since(held_back.part.from));
    assert!(off < Micros(DAY / 100), "{off:?}: a part in a thousand of the time, and where the log begins");
    let crawler = denied_share(&trace, ClientKind::Crawler, &suggestion);
    println!(
        "{} requests; {:?}; day 7: {} of {} clients ({:.3} %, at most {:.3} %), {} of {} requests; crawler {:.1} %",
        suggestion.requests,
        suggestion.limits.iter().map(|limit| (&limit.rate, limit.burst, limit.least)).collect::<Vec<_>>(),
        held_back.denied_clients,
        held_back.clients,
        100.0 * held_back.client_share(),
        100.0 * held_back.clients_upper_bound,
        held_back.denied_requests,
        held_back.requests,
        100.0 * crawler
    );
    assert!(suggestion.fit.client_share() <= 0.001, "{:?}", suggestion.fit);
    assert!(held_back.client_share() <= 0.002, "{held_back:?}");
    assert!(crawler > 0.5, "{crawler}");
    assert!(denied_share(&trace, ClientKind::Office, &suggestion) < 0.001);
}

fn small_trace() -> Trace {
    let clients = vec![(ClientKind::Browser, 60), (ClientKind::Poller, 20), (ClientKind::RetryStorm, 1)];
    Trace::generate(&TraceSettings { clients, days: 3, ..TraceSettings::default() })
}

#[test]
fn a_share_of_requests_can_be_chosen() {
    let trace = small_trace();
    let (histories, _) = recorded(&trace);
    let at_most = |share| {
        let settings =
            SuggestSettings { deny_at_most: share, of: ShareOf::Requests, ..SuggestSettings::default() };
        suggest(&histories.all()[0], subject(), &settings, &[]).unwrap()
    };
    let (none, some, many) = (at_most(0.0), at_most(0.05), at_most(0.5));
    assert_eq!(none.fit.denied_requests, 0);
    assert!(some.fit.request_share() <= 0.05 && many.fit.request_share() <= 0.5);
    let denied = [&none, &some, &many].map(|suggestion| suggestion.fit.denied_requests);
    assert!(denied.is_sorted() && denied[2] > 0, "{denied:?}");
}

#[test]
fn a_client_of_which_most_is_denied_is_shown_with_its_shape() {
    let trace = small_trace();
    let (histories, _) = recorded(&trace);
    let settings = SuggestSettings { deny_at_most: 0.02, ..SuggestSettings::default() };
    let suggestion = suggest(&histories.all()[0], subject(), &settings, &[]).unwrap();
    let storm = trace.clients.iter().find(|client| client.kind == ClientKind::RetryStorm).unwrap();
    assert_eq!(suggestion.listed[0].name, storm.address.to_string());
    assert!(suggestion.listed[0].peaks[2] > 500 && suggestion.listed[0].denied > 0);
    assert_eq!(suggestion.listed[0].shape.kind, ShapeKind::Bursty);
    assert_eq!(suggestion.listed.len(), 10);
}

#[test]
fn little_data_is_said() {
    let trace = small_trace();
    let (histories, _) = recorded(&trace);
    let suggestion = suggest(&histories.all()[0], subject(), &SuggestSettings::default(), &[]).unwrap();
    let warnings: Vec<String> = suggestion.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].starts_with("only ") && warnings[0].contains("fewer than 100"), "{warnings:?}");
    assert!(warnings[1].starts_with("the requests cover 7"), "{warnings:?}");
    // The client that retries without a pause.
    assert!(warnings[2].starts_with("few clients set the numbers: without the 1 "), "{warnings:?}");
}

#[test]
fn a_log_of_an_hour_gets_no_limit_by_the_day() {
    let mut history = History::default();
    for second in 0..3_600 {
        let arrival = Arrival { at: Timestamp(1_767_571_200_000_000 + second * 1_000_000), cost: 1 };
        history.record(key(&(second % 7).to_string()), arrival, usize::MAX, || None);
    }
    let current = Quota::token_bucket(Rate::new(1, Micros(60_000_000)).unwrap(), 2).unwrap();
    let suggestion = suggest(&history, subject(), &SuggestSettings::default(), &[current]).unwrap();
    assert!(suggestion.limits.iter().all(|limit| limit.role != Role::Day));
    assert_eq!(suggestion.held_back.unwrap().denied_requests, 0);
    assert_eq!(suggestion.current.unwrap().denied_clients, 7);
}

#[test]
fn no_arrivals_give_no_suggestion() {
    assert!(suggest(&History::default(), subject(), &SuggestSettings::default(), &[]).is_none());
}

#[test]
fn the_snippet_has_a_table_for_each_limit() {
    let trace = small_trace();
    let (histories, _) = recorded(&trace);
    let suggestion = suggest(&histories.all()[0], subject(), &SuggestSettings::default(), &[]).unwrap();
    let text = &suggestion.toml;
    for limit in &suggestion.limits {
        assert!(
            text.contains(&format!("[limits.{}]\nrate = \"{}\"\n", limit.name, limit.rate))
                || limit.role == Role::Day
        );
    }
    assert!(text.contains("key = \"client_ip\"\n") && text.contains("# In the route \"api\":\n"), "{text}");
    assert!(serde_json::to_string(&suggestion).unwrap().contains("\"curve\""));
}
