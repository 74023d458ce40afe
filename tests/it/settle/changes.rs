//! Changes between a reservation and its settlement: the configuration is reloaded, the key is reset, or the proxy stops.

use super::setup::{CAPACITY, RESERVE, config, logged, ok, own, settled_by, until_charged};
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, over_both_stores};

fn send(proxy: &Tidegate, server: &Upstream) -> Client {
    let before = server.received();
    let mut client = Client::connect(proxy.addr());
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n");
    eventually("the request is at the server", || server.received() > before);
    client
}

/// A reservation is settled by the limit that took it.
#[test]
fn the_configuration_is_reloaded_in_between() {
    for (cost, charged) in [(7, 7), (250, 250)] {
        let (server, release) = Upstream::gated(ok(&format!("X-Cost: {cost}\r\n"), "ok"));
        let before = config(&settled_by("header:x-cost"), &server.url());
        over_both_stores(&before, |proxy| {
            let file = std::fs::read_to_string(proxy.directory().join("tidegate.toml")).unwrap();
            // The limit is larger, and reserves and settles by other numbers.
            let after = file.replace("rate = \"1000/day\"", "rate = \"2000/day\"").replace(
                "reserve = 100, settle = \"header:x-cost\"",
                "reserve = 50, settle = \"header:x-other\"",
            );
            let mut client = send(proxy, &server);
            proxy.reload(&after);
            release.send(()).unwrap();
            let response = client.read();
            // The header is hidden by the configuration with which the request began.
            assert_eq!((response.status(), response.header("x-cost")), (200, None));
            eventually("it is settled", || own(proxy, "k").0 == 2_000 - charged);
            proxy.reload(&file);
            until_charged(proxy, "k", charged);
        });
    }
}

/// The limit is removed before the response arrives: its reservation is dropped.
#[test]
fn the_limit_is_removed_in_between() {
    let (server, release) = Upstream::gated(ok("X-Cost: 250\r\n", "ok"));
    let with_limit = config(&settled_by("header:x-cost"), &server.url());
    over_both_stores(&with_limit, |proxy| {
        let file = std::fs::read_to_string(proxy.directory().join("tidegate.toml")).unwrap();
        let mut client = send(proxy, &server);
        proxy.reload(&file.replace("limits.units]", "limits.others]").replace("\"units\"", "\"others\""));
        release.send(()).unwrap();
        assert_eq!(client.read().status(), 200);
        assert_eq!(own(proxy, "k"), (CAPACITY, 0));
        let mut client = send(proxy, &server);
        release.send(()).unwrap();
        assert_eq!(client.read().status(), 200);
        until_charged(proxy, "k", 250);
    });
}

/// A proxy that drains settles what is in flight before it ends.
#[test]
fn a_proxy_that_stops_settles_first() {
    let (server, release) = Upstream::gated(ok("X-Cost: 7\r\n", "ok"));
    let redis = RedisServer::start();
    let config = config(&settled_by("header:x-cost"), &server.url());
    let [mut stopped, other] = [(); 2].map(|()| Tidegate::start_with(&redis, &config));
    let mut client = send(&stopped, &server);
    stopped.signal("TERM");
    stopped.wait_log("draining");
    release.send(()).unwrap();
    assert_eq!(client.read().status(), 200);
    assert!(stopped.wait().success());
    until_charged(&other, "k", 7);
}

/// An operator resets the key before the response arrives: a refund does not change the new state, and extra units are charged.
#[test]
fn the_key_is_reset_in_between() {
    for (cost, charged) in [(7, 0), (250, 150)] {
        let (server, release) = Upstream::gated(ok(&format!("X-Cost: {cost}\r\n"), "ok"));
        over_both_stores(&config(&settled_by("header:x-cost"), &server.url()), |proxy| {
            let mut client = send(proxy, &server);
            assert_eq!(own(proxy, "k"), (CAPACITY - RESERVE, RESERVE));
            let body = r#"{"limit": "units", "key": "k"}"#;
            let response = Client::connect(proxy.admin()).ask(&format!(
                "POST /v1/keys/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            assert_eq!(response.status(), 200, "{}", response.text());
            release.send(()).unwrap();
            assert_eq!(client.read().status(), 200);
            let line = logged(proxy, "/slow");
            assert_eq!(line["cost"]["units"], cost, "{line}");
            until_charged(proxy, "k", charged);
        });
    }
}
