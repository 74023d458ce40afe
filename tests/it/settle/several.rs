//! Several limits in one decision, and one call that settles them.

use serde_json::Value;

use super::setup::{ok, until_charged};
use crate::support::{Client, Cluster, RedisServer, Tidegate, Upstream, eventually, get, steady};

/// Requests, tokens by minute and by day, and slots, each by the header `x-key`.
fn config(upstream: &Upstream, day_key: &str) -> String {
    let settled = "cost = { reserve = 100, settle = \"header:x-cost\" }";
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n\
         [limits.requests]\nalgorithm = \"sliding_window\"\nrate = \"50/365d\"\nkey = \"header:x-key\"\n\
         [limits.minute]\nrate = \"1000/365d\"\nkey = \"header:x-key\"\n{settled}\n\
         [limits.day]\nalgorithm = \"fixed_window\"\nalign = \"first_request\"\nrate = \"1500/365d\"\nkey = {day_key}\n\
         cost = {{ reserve = 90, settle = \"json:/usage/cost\" }}\n\
         [limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 3\nkey = \"header:x-key\"\n\
         [[routes]]\npath = \"/own\"\nlimits = [\"requests\", \"minute\", \"day\", \"slots\"]\nrespond = \"limits\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"requests\", \"minute\", \"day\", \"slots\"]\nupstream = \"{}\"\n",
        upstream.url()
    )
}

/// What remains of each limit, and what the two that settle have reserved.
#[track_caller]
fn own(proxy: &Tidegate, key: &str) -> ([u64; 4], [u64; 2]) {
    let response = get(proxy.addr(), "/own", &[&format!("X-Key: {key}")]);
    let body: Value = serde_json::from_str(response.text()).unwrap();
    let limit = |name: &str| {
        body["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap().clone()
    };
    let left = ["requests", "minute", "day", "slots"].map(|name| limit(name)["remaining"].as_u64().unwrap());
    (left, ["minute", "day"].map(|name| limit(name)["reserved"].as_u64().unwrap()))
}

fn server() -> (Upstream, std::sync::mpsc::Sender<()>) {
    Upstream::gated(ok("X-Cost: 7\r\nContent-Type: application/json\r\n", r#"{"usage": {"cost": 250}}"#))
}

fn post(proxy: &Tidegate, key: &str) -> Client {
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST /a HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\nContent-Length: 2\r\n\r\n{{}}"));
    client
}

/// Each limit is charged by its own source, and a denial by one takes nothing of the others.
fn requests_are_charged_by_each_limit(
    proxy: &Tidegate,
    (server, release): (&Upstream, &std::sync::mpsc::Sender<()>),
) {
    let before = server.received();
    let mut clients: Vec<Client> = (0..3).map(|_| post(proxy, "k")).collect();
    eventually("all are at the server", || server.received() == before + 3);
    assert_eq!(own(proxy, "k"), ([47, 700, 1_230, 0], [300, 270]));
    // The slots are taken: nothing else is.
    assert_eq!(post(proxy, "k").read().status(), 429);
    assert_eq!(own(proxy, "k"), ([47, 700, 1_230, 0], [300, 270]));
    for _ in &clients {
        release.send(()).unwrap();
    }
    for client in &mut clients {
        let response = client.read();
        assert_eq!((response.status(), response.header("x-cost")), (200, None));
    }
    eventually("all are settled", || own(proxy, "k") == ([47, 979, 750, 3], [0, 0]));
    // Three more leave nothing of the day.
    for _ in 0..3 {
        release.send(()).unwrap();
        assert_eq!(post(proxy, "k").read().status(), 200);
    }
    eventually("the day is used up", || own(proxy, "k") == ([44, 958, 0, 3], [0, 0]));
    assert_eq!(post(proxy, "k").read().status(), 429);
    assert_eq!(own(proxy, "k"), ([44, 958, 0, 3], [0, 0]));
}

#[test]
fn each_limit_is_charged_by_its_source() {
    let (server, release) = server();
    let config = config(&server, "\"header:x-key\"");
    requests_are_charged_by_each_limit(&Tidegate::start(&config), (&server, &release));
    let redis = RedisServer::start();
    requests_are_charged_by_each_limit(&Tidegate::start_with(&redis, &config), (&server, &release));
}

/// One call takes units and the slot, and one settles all limits and releases the slot. A cost in a header is settled with the
/// head of the response, so that takes one more.
#[test]
fn a_request_needs_two_calls_to_redis() {
    let (server, release) = server();
    let with_header = config(&server, "\"header:x-key\"");
    let without = with_header.replace("settle = \"header:x-cost\"", "settle = \"json:/usage/cost\"");
    for (config, most, left) in [(without, 2, 2_000 - 5 * 250), (with_header, 3, 2_000 - 5 * 7)] {
        let config = config.replace("rate = \"1000/365d\"", "rate = \"2000/365d\"");
        let redis = RedisServer::start();
        let proxy = Tidegate::start_with(&redis, &config);
        let calls = || redis.calls("evalsha") + redis.calls("eval") + redis.calls("fcall");
        // Scripts are loaded with their first call.
        for _ in 0..2 {
            release.send(()).unwrap();
            assert_eq!(post(&proxy, "first").read().status(), 200);
        }
        let before = steady(calls);
        for _ in 0..5 {
            release.send(()).unwrap();
            assert_eq!(post(&proxy, "k").read().status(), 200);
        }
        let after = steady(calls);
        eventually("all is settled", || own(&proxy, "k") == ([45, left, 250, 3], [0, 0]));
        println!("{} calls for five requests", after - before);
        assert!(after - before <= 5 * most, "{} calls for five requests", after - before);
    }
}

/// On a cluster each key has its own call.
#[test]
fn limits_on_several_nodes_of_a_cluster() {
    let (server, release) = server();
    let cluster = Cluster::start();
    let proxy = Tidegate::builder(&config(&server, "\"global\""))
        .store_at(&cluster.url(), "timeout = \"20s\"")
        .start();
    requests_are_charged_by_each_limit(&proxy, (&server, &release));
}

/// Tokens of input and of output are limited apart, from the same usage.
#[test]
fn input_and_output_are_charged_apart() {
    let usage = r#"{"usage": {"prompt_tokens": 40, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 10}}}"#;
    let server = Upstream::answering(ok("Content-Type: application/json\r\n", usage));
    let config = super::setup::config_with(
        "cost = { llm = { output = 1 } }",
        &format!("upstream = \"{}\"", server.url()),
        "[limits.input]\nrate = \"1000/365d\"\nkey = \"header:x-key\"\ncost = { llm = { input = 1, cached_input = 0.5 } }\n",
    )
    .replace("limits = [\"units\"]\nupstream", "limits = [\"units\", \"input\"]\nupstream");
    crate::support::over_both_stores(&config, |proxy| {
        assert_eq!(post(proxy, "k").read().status(), 200);
        until_charged(proxy, "k", 30);
        let line = super::setup::logged(proxy, "/a");
        assert_eq!((&line["cost"]["units"], &line["cost"]["input"]), (&30.into(), &35.into()), "{line}");
    });
}
