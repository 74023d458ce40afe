//! What changes between a reservation and its settlement: the configuration is reloaded, or a key is reset.

use super::setup::{CAPACITY, RESERVE, config, ok, own, settled_by, until_charged};
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores};

const ALGORITHMS: [&str; 6] = [
    "algorithm = \"token_bucket\"",
    "algorithm = \"token_bucket\"\nrefill = \"interval\"",
    "algorithm = \"gcra\"\nburst = 999",
    "algorithm = \"fixed_window\"\nalign = \"first_request\"",
    "algorithm = \"sliding_window\"",
    "algorithm = \"sliding_log\"",
];

/// A limit of 1,000 units a year with this algorithm.
fn with_algorithm(algorithm: &str, server: &Upstream) -> String {
    config(&settled_by("header:x-cost"), &server.url()).replace(
        "algorithm = \"fixed_window\"\nalign = \"first_request\"\nrate = \"1000/day\"",
        &format!("{algorithm}\nrate = \"1000/365d\""),
    )
}

fn send(proxy: &Tidegate, server: &Upstream) -> Client {
    let before = server.received();
    let mut client = Client::connect(proxy.addr());
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n");
    eventually("the request is at the server", || server.received() > before);
    client
}

/// Forgets the count of the key.
fn reset(proxy: &Tidegate) {
    let body = "{\"limit\": \"units\", \"key\": \"k\"}";
    let response = Client::connect(proxy.admin()).ask(&format!(
        "POST /v1/keys/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(response.status(), 200, "{}", response.text());
}

/// A server whose responses to `/now` cost what is reserved, and whose others cost nothing and are released by the test.
fn server() -> (Upstream, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            let is_slow = request.start.starts_with("GET /slow");
            if is_slow {
                let _ = released.lock().unwrap().recv();
            }
            let cost = if is_slow { 0 } else { RESERVE };
            if caller.try_send(ok(&format!("X-Cost: {cost}\r\n"), "ok")).is_err() {
                return;
            }
        }
    });
    (upstream, release)
}

/// What is given back after a reset was taken before it: no more is admitted for that.
#[test]
fn a_reset_in_between_admits_no_more() {
    let (server, release) = server();
    for algorithm in ALGORITHMS {
        over_both_stores(&with_algorithm(algorithm, &server), |proxy| {
            let mut clients: Vec<Client> = (0..3).map(|_| send(proxy, &server)).collect();
            assert_eq!(own(proxy, "k").1, 3 * RESERVE);
            reset(proxy);
            let status = || get(proxy.addr(), "/now", &["X-Key: k"]).status();
            for number in 0..CAPACITY / RESERVE {
                assert_eq!(status(), 200, "{algorithm}: {number}");
            }
            assert_eq!(status(), 429, "{algorithm}");
            for _ in &clients {
                release.send(()).unwrap();
            }
            for client in &mut clients {
                assert_eq!(client.read().status(), 200);
            }
            eventually("all are settled", || own(proxy, "k").1 == 0);
            assert_eq!((status(), own(proxy, "k")), (429, (0, 0)), "{algorithm}");
        });
    }
}

/// What is charged in addition after a reset is charged to the new count.
#[test]
fn extra_units_after_a_reset_are_charged() {
    let (server, release) = Upstream::gated(ok("X-Cost: 250\r\n", "ok"));
    for algorithm in ALGORITHMS {
        over_both_stores(&with_algorithm(algorithm, &server), |proxy| {
            let mut client = send(proxy, &server);
            reset(proxy);
            assert_eq!(own(proxy, "k"), (CAPACITY, RESERVE), "{algorithm}");
            release.send(()).unwrap();
            assert_eq!(client.read().status(), 200);
            until_charged(proxy, "k", 250 - RESERVE);
        });
    }
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
            // Its header is removed as the file said that it was admitted by.
            assert_eq!((response.status(), response.header("x-cost")), (200, None));
            eventually("it is settled", || own(proxy, "k").0 == 2_000 - charged);
            proxy.reload(&file);
            until_charged(proxy, "k", charged);
        });
    }
}

/// The limit is gone when the response comes: what it has reserved is dropped.
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
