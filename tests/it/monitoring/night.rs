//! A night on call: a client loops, a crawler comes, Redis stalls and a server dies. Alerts, dashboard and page tell which it
//! is.
//!
//! The rules are those of config/prometheus/alerts.yaml with shorter times (`quick_alerts`), and their thresholds.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};

use super::setup::{Traffic, panel_query, quick_alerts};
use crate::support::{Browser, Caller, Prometheus, RedisServer, Sample, Tidegate, Upstream, eventually, get};

/// The alert that names what has happened, for each event of the night.
const CAUSES: [&str; 4] = [
    "TidegateClientLoops",
    "TidegateManyKeysDenied",
    "TidegateStoreUnavailable",
    "TidegateUpstreamServerDown",
];

/// Panels of the dashboard.
const DENIED_SHARE: u64 = 102;
const ERROR_SHARE: u64 = 103;
const DENIALS_BY_LIMIT: u64 = 111;
const DENIED_KEYS: u64 = 204;
const DECISIONS_BY_SOURCE: u64 = 207;
const ADDRESSES_OUT: u64 = 405;

fn file(servers: &[String; 2]) -> String {
    format!(
        r#"
        listen = "127.0.0.1:0"
        workers = 2
        [admin]
        listen = "127.0.0.1:0"
        [limits.per-key]
        rate = "5/s"
        key = "header:x-key"
        [limits.per-page]
        rate = "1/minute"
        burst = 2
        key = "header:x-key"
        [upstreams.api]
        servers = {servers:?}
        health = {{ path = "/", interval = "100ms", timeout = "1s" }}
        [[routes]]
        name = "api"
        path = "/api"
        limits = ["per-key"]
        upstream = "api"
        [[routes]]
        name = "pages"
        path = "/pages"
        limits = ["per-page"]
        upstream = "api"
        "#
    )
}

/// The causes that fire, with the label that names the culprit.
fn causes(prometheus: &Prometheus) -> BTreeMap<String, String> {
    let alerts = prometheus.query("ALERTS{alertstate=\"firing\"}").into_iter();
    let alerts = alerts.filter(|alert| CAUSES.contains(&alert.label("alertname")));
    let culprit = |alert: &Sample| {
        let name = ["limit", "server", "instance"].into_iter().find(|name| !alert.label(name).is_empty());
        alert.label(name.unwrap_or_default()).to_owned()
    };
    alerts.map(|alert| (alert.label("alertname").to_owned(), culprit(&alert))).collect()
}

/// Waits until this is the only cause that fires.
#[track_caller]
fn wait_cause(prometheus: &Prometheus, alert: &str, culprit: &str) {
    let only = BTreeMap::from([(alert.to_owned(), culprit.to_owned())]);
    // Each event also ends the one before: an alert resolves when its window has passed.
    prometheus.wait("ALERTS{alertstate=\"firing\"}", |_| causes(prometheus) == only);
}

/// Responds to every request.
fn respond(caller: &mut Caller) {
    while let Ok(Some(_)) = caller.request() {
        if caller.try_send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// Starts a server at this address, which may be in use for another moment.
#[track_caller]
fn start_server(address: SocketAddr) -> Upstream {
    let mut server = None;
    eventually("the address is free", || {
        server = TcpListener::bind(address).ok().map(|listener| Upstream::listening(listener, respond));
        server.is_some()
    });
    server.unwrap()
}

/// Waits until the series of a panel with the largest value has this label, and a value with the property.
#[track_caller]
fn wait_panel(prometheus: &Prometheus, panel: u64, (label, expected): (&str, &str), holds: fn(f64) -> bool) {
    prometheus.wait(&panel_query(panel), |found| {
        let largest = found.iter().max_by(|a, b| a.value.total_cmp(&b.value));
        largest.is_some_and(|largest| largest.label(label) == expected && holds(largest.value))
    });
}

#[test]
fn alerts_dashboard_and_page_tell_the_events_of_a_night_apart() {
    let redis = RedisServer::start();
    let [first, second] = [(); 2].map(|()| Upstream::scripted(respond));
    let (dying, config) = (second.addr(), file(&[first.url(), second.url()]));
    // A stalled Redis makes each client wait for this long until the circuit breakers open; a busy machine takes less.
    let proxy = Tidegate::builder(&config).store(&redis, "timeout = \"500ms\"").start();
    let (address, instance) = (proxy.addr(), proxy.admin().to_string());
    let mut page = Browser::start();
    page.open(&format!("http://{instance}/"));
    let prometheus = Prometheus::start(&[proxy.admin()], &[&quick_alerts()]);
    // Clients within their limits, all night.
    let _calm = Traffic::start(4, move |round| {
        get(address, "/api", &[&format!("X-Key: calm-{}", round % 100)]);
    });
    // A jump is one from earlier figures.
    let earlier = "avg_over_time(job:tidegate_denied:ratio_rate5m[30s] offset 4s)";
    prometheus.wait(earlier, |found| !found.is_empty());
    assert_eq!(causes(&prometheus), BTreeMap::new());
    let is_small: fn(f64) -> bool = |value| value < 0.01;

    let looping = Traffic::start(2, move |_| {
        get(address, "/api", &["X-Key: loop"]);
    });
    wait_cause(&prometheus, "TidegateClientLoops", "per-key");
    let jumped = "ALERTS{alertname=\"TidegateDenialShareJumped\", alertstate=\"firing\"}";
    prometheus.wait(jumped, |found| found.len() == 1);
    wait_panel(&prometheus, DENIALS_BY_LIMIT, ("limit", "per-key"), |rate| rate > 1.0);
    wait_panel(&prometheus, DENIED_KEYS, ("limit", "per-key"), |keys| keys <= 3.0);
    page.wait_text("#findings", "Limit per-key denies");
    drop(looping);

    redis.pause();
    wait_cause(&prometheus, "TidegateStoreUnavailable", &instance);
    wait_panel(&prometheus, DECISIONS_BY_SOURCE, ("source", "fallback"), |rate| rate > 1.0);
    // Clients get no errors.
    wait_panel(&prometheus, ERROR_SHARE, ("route", ""), is_small);
    page.wait_text("#findings", "Redis is unreachable");
    redis.resume();

    drop(second);
    let server = format!("http://{dying}");
    wait_cause(&prometheus, "TidegateUpstreamServerDown", &server);
    wait_panel(&prometheus, ADDRESSES_OUT, ("server", &server), |out| out > 0.0);
    wait_panel(&prometheus, DENIED_SHARE, ("route", ""), is_small);
    page.wait_text("#findings", &format!("1 of 2 servers not healthy: {server}"));
    let _second = start_server(dying);

    // Last, since the denied keys are those of a minute.
    let _crawler = Traffic::start(2, move |round| {
        get(address, "/pages", &[&format!("X-Key: crawler-{}", round % 60)]);
    });
    wait_cause(&prometheus, "TidegateManyKeysDenied", "per-page");
    wait_panel(&prometheus, DENIALS_BY_LIMIT, ("limit", "per-page"), |rate| rate > 1.0);
    wait_panel(&prometheus, DENIED_KEYS, ("limit", "per-page"), |keys| keys > 20.0);
    page.wait_text("#findings", "Limit per-page denies");
    page.wait("!document.querySelector('#findings').innerText.match(/unreachable|not healthy/)");
    assert_eq!(prometheus.broken_annotations(), Vec::<String>::new());
}
