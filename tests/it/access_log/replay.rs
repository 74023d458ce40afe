//! A replay of the log of a proxy makes the decisions that the proxy has made, request for request.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use serde_json::Value;
use tidegate::config;
use tidegate::limit::PolicyId;
use tidegate::proxy::ConfigSnapshot;
use tidegate::replay::{Arrivals, PartSources, Player, ReadOptions, ReplayVerdict};

use crate::limits::setup::{held_back, in_flight};
use crate::support::{Client, Tidegate, get};

/// What was decided on a request: its status, and the limits in shadow mode that would have denied it.
type Decision = (u16, Option<String>, Vec<String>);

const LIMITS: &str = r#"
[client_ip]
trusted_proxies = ["127.0.0.1"]
[limits.bucket]
rate = "60/hour"
burst = 7
[limits.key]
algorithm = "gcra"
rate = "30/hour"
burst = 3
key = ["header:x-api-key", "path"]
on_missing = "skip"
[limits.tried]
algorithm = "sliding_log"
rate = "4/hour"
mode = "shadow"
[limits.failures]
rate = "2/hour"
charge_on = [404]
[limits.flight]
algorithm = "concurrency"
max_in_flight = 1
key = "global"
[[routes]]
path = "/login/*"
limits = ["failures"]
respond = { status = 404 }
[[routes]]
path = "/welcome"
limits = ["failures"]
respond = { status = 200 }
"#;

fn config(access: &str, upstream: &str) -> String {
    format!(
        "[log]\naccess = \"{access}\"\nheaders = [\"x-api-key\"]\n{LIMITS}\n\
         [[routes]]\npath = \"/\"\nlimits = [\"flight\"]\nupstream = \"{upstream}\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"bucket\", \"key\", \"tried\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// Requests of several clients at the same time. Each client sends one after another, so the order of the requests of a key
/// is certain.
fn send(proxy: &Tidegate) {
    let clients: Vec<_> = (0..6_u8)
        .map(|client| {
            let mut connection = Client::connect(proxy.addr());
            thread::spawn(move || {
                let address = format!("X-Forwarded-For: 192.0.2.{client}");
                let key = format!("X-Api-Key: k{}", client / 2);
                for round in 0..12 {
                    let path = ["a", "b?c=d", "login/x", "welcome", "a"][round % 5];
                    let headers = [&*address, &*key];
                    // Clients share keys, but no path: one after another is certain for each count.
                    let path = format!("/{path}").replace("/a", &format!("/a/{client}"));
                    connection.get(&path, if path.starts_with("/a") { &headers } else { &headers[..1] });
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

fn logged(line: &Value) -> Decision {
    let status = u16::try_from(line["status"].as_u64().unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let shadow = line["shadow_denied_by"].as_array().map(|limits| limits.iter().map(text).collect());
    (status, line.get("denied_by").map(text), shadow.unwrap_or_default())
}

/// What a replay of the log decides, by the ids of the requests.
fn replayed(snapshot: &ConfigSnapshot, log: &Path) -> HashMap<String, Decision> {
    let options = ReadOptions { fields: vec!["request_id".to_owned()], ..ReadOptions::default() };
    let sources = PartSources::default();
    let mut player = Player::new(snapshot, &sources, 1_000);
    let gate = &snapshot.gate;
    let mut decisions = HashMap::new();
    for entry in Arrivals::open(&[log.to_owned()], &options).unwrap() {
        let id = String::from_utf8(entry.field("request_id").unwrap().to_vec()).unwrap();
        let decision = player.play(&entry, |played, _| {
            let name = |limit: PolicyId| gate.limits.policies[limit].name.to_string();
            let denied_in_shadow = played
                .decisions
                .iter()
                .filter(|(limit, _, decision)| gate.limits.policies[*limit].shadow && !decision.allowed);
            let shadow = denied_in_shadow.map(|(limit, ..)| name(*limit)).collect();
            match &played.verdict {
                ReplayVerdict::Denied(limit) => (429, Some(name(*limit)), shadow),
                ReplayVerdict::Forwarded(_) => (entry.status.unwrap(), None, shadow),
                other => panic!("{other:?}"),
            }
        });
        decisions.insert(id, decision);
    }
    decisions
}

#[test]
fn a_replay_decides_as_the_proxy_did() {
    let (upstream, release) = held_back();
    let config = config("json", &upstream.url());
    let proxy = Tidegate::start(&config);
    send(&proxy);
    // A request that arrives while another one holds the only slot, and one after its end.
    let sent = 6 * 12;
    let mut first = in_flight(proxy.addr()).unwrap();
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
    release.send(()).unwrap();
    first.take(4).unwrap();
    proxy.accesses(sent + 2);
    let mut second = in_flight(proxy.addr()).unwrap();
    release.send(()).unwrap();
    second.take(4).unwrap();
    let lines = proxy.accesses(sent + 3);

    let expected: HashMap<String, Decision> = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["request_id"].as_str().unwrap().to_owned(), logged(&line)))
        .collect();
    let log = proxy.directory().join("access.log");
    std::fs::write(&log, lines.join("\n")).unwrap();
    let snapshot = config::load(&proxy.directory().join("tidegate.toml")).unwrap().config.snapshot;
    let decided = replayed(&snapshot, &log);
    let denials = expected.values().filter(|(_, limit, _)| limit.is_some()).count();
    let in_shadow = expected.values().filter(|(.., limits)| !limits.is_empty()).count();
    assert!(denials > 10 && in_shadow > 5, "{denials}, {in_shadow}");
    assert_eq!(decided, expected);
}
