//! The dashboard: each of its queries returns data, and its panels tell what they show.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::setup::{Traffic, board, filled, list, quick_alerts, string, text};
use crate::support::{
    Authority, Collector, Prometheus, RedisServer, Sample, Tidegate, TlsClient, Upstream, free_address, get,
};

/// Every query of panels and annotations, with its place.
fn queries(board: &Value) -> Vec<(String, String)> {
    let panels = list(&board["panels"]).iter().flat_map(|panel| {
        let place = |target: &Value| format!("{} {}", panel["title"], target["refId"]);
        list(&panel["targets"]).iter().map(move |target| (place(target), filled(string(&target["expr"]))))
    });
    let annotations = list(&board["annotations"]["list"]).iter();
    let annotations = annotations.map(|note| (note["name"].to_string(), filled(string(&note["expr"]))));
    panels.chain(annotations).collect()
}

/// The query of a variable: `label_values(SELECTOR, LABEL)`.
#[track_caller]
fn variable(variable: &Value) -> (String, String) {
    let query = string(&variable["query"]["query"]);
    let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
    let (selector, label) = inner.rsplit_once(", ").unwrap();
    (filled(selector), label.to_owned())
}

/// A file with at least one of everything that has metrics.
fn file([api, busy]: [&Upstream; 2], authority: &Authority, collector: &Collector) -> String {
    format!(
        r#"
        workers = 2
        [[listeners]]
        address = "127.0.0.1:0"
        [[listeners]]
        address = "127.0.0.1:0"
        {tls}
        [admin]
        listen = "127.0.0.1:0"
        [tracing]
        endpoint = "{collector}"
        sample = 1.0
        [limits.per-key]
        rate = "5/s"
        key = "header:x-key"
        [limits.watched]
        rate = "1/hour"
        mode = "shadow"
        ahead = "auto"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "20/s"
        queue = 2
        [limits.units]
        rate = "1000000/s"
        cost = {{ reserve = 2, settle = "header:x-units" }}
        [upstreams.api]
        servers = ["{api}", "http://{dead}"]
        max_connections = 1
        eject = {{ after = 2, for = "1h" }}
        [upstreams.busy]
        servers = ["{busy}"]
        overload = {{ limit = 1 }}
        pending_timeout = "5ms"
        [upstreams.watched]
        servers = ["{busy}"]
        overload = {{ limit = 1, mode = "shadow" }}
        [[routes]]
        path = "/busy"
        upstream = "busy"
        [[routes]]
        path = "/watched"
        upstream = "watched"
        [[routes]]
        name = "api"
        path = "/api"
        limits = ["per-key", "watched", "units"]
        upstream = "api"
        [[routes]]
        name = "even"
        path = "/even"
        limits = ["even"]
        respond = {{ status = 200 }}
        [[routes]]
        name = "broken"
        path = "/broken"
        respond = {{ status = 500 }}
        "#,
        tls = authority.listener("localhost"),
        collector = collector.url(),
        api = api.url(),
        busy = busy.url(),
        dead = free_address(),
    )
}

/// A server that takes longer for a request than another one waits, so that some are refused.
fn slow() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            std::thread::sleep(Duration::from_millis(20));
            if caller.try_send(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
                return;
            }
        }
    })
}

#[test]
fn every_query_returns_data() {
    let (redis, authority, collector) = (RedisServer::start(), Authority::new(), Collector::start());
    let (api, busy) = (Upstream::echo(), slow());
    authority.sign("localhost");
    let proxy = Tidegate::start_with(&redis, &file([&api, &busy], &authority, &collector));
    let [plain, tls] = proxy.addresses(2)[..] else { unreachable!() };
    let config = authority.client(None, rustls::ALL_VERSIONS);
    let _traffic = Traffic::start(4, move |round| {
        get(plain, "/api", &[&format!("X-Key: {}", round % 40)]);
        get(plain, "/even", &[]);
        get(plain, "/broken", &[]);
        get(plain, "/busy", &[]);
        get(plain, "/watched", &[]);
        if round % 10 == 0 {
            TlsClient::connect(&config, "localhost", tls).unwrap().get("/even").unwrap();
        }
    });
    let prometheus = Prometheus::start(&[proxy.admin()], &[&quick_alerts()]);
    let board = board();
    let is_data = |samples: &[Sample]| samples.iter().any(|sample| sample.value.is_finite());
    for (place, query) in queries(&board) {
        let found = prometheus.wait(&query, |samples| {
            // The annotation of reloads has data only after one.
            if place.contains("Reloads") {
                proxy.signal("HUP");
            }
            is_data(samples)
        });
        assert!(is_data(&found), "{place}");
    }
    let values = |name: &str| {
        let variables = list(&board["templating"]["list"]).iter();
        let (selector, label) =
            variable(variables.clone().find(|variable| variable["name"] == name).unwrap());
        prometheus.label_values(&selector, &label)
    };
    assert_eq!(values("job"), BTreeSet::from(["tidegate".to_owned()]));
    assert_eq!(values("instance"), BTreeSet::from([proxy.admin().to_string()]));
    assert!(values("limit").is_superset(&["even", "per-key", "units", "watched"].map(str::to_owned).into()));
    assert!(values("route").is_superset(&["api", "broken", "even"].map(str::to_owned).into()));
    assert_eq!(values("upstream"), ["api", "busy", "watched"].map(str::to_owned).into());
    // The diamonds of the latency panel.
    assert!(prometheus.exemplars("tidegate_request_duration_seconds_bucket{route=\"api\"}") > 0);
}

#[test]
fn panels_are_described_and_do_not_overlap() {
    let (board, runbook) = (board(), text("docs/alerts.md"));
    let panels = list(&board["panels"]);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = string(&panel["title"]);
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}");
        for cell in (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y))) {
            assert!(taken.insert(cell), "{title} overlaps at {cell:?}");
        }
        if panel["type"] == "row" {
            continue;
        }
        let description = string(&panel["description"]);
        assert!(description.ends_with('.'), "{title} has no description");
        if let Some((_, section)) = description.split_once(", section ") {
            assert!(
                runbook.contains(&format!("\n## {}\n", section.trim_end_matches('.'))),
                "{title}: {section}"
            );
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        assert!(unit.is_string() || panel["type"] == "table", "{title} has no unit");
        let targets = list(&panel["targets"]);
        assert!(!targets.is_empty(), "{title}");
        if panel["type"] == "timeseries" {
            let named = |target: &Value| !string(&target["legendFormat"]).is_empty();
            assert!(targets.iter().all(named), "{title} has a series without a name");
        }
    }
    let titles: BTreeSet<&str> = panels.iter().map(|panel| string(&panel["title"])).collect();
    let prose: String = runbook.split('`').step_by(2).collect();
    for title in prose.split('"').skip(1).step_by(2) {
        assert!(titles.contains(title.replace('\n', " ").as_str()), "the runbook names a panel {title}");
    }
    let has_exemplars =
        |panel: &&Value| list(&panel["targets"]).iter().any(|target| target["exemplar"] == true);
    let with_exemplars: Vec<&Value> = panels.iter().filter(has_exemplars).collect();
    assert_eq!(with_exemplars.iter().map(|panel| string(&panel["title"])).collect::<Vec<_>>(), ["Latency"]);
}
