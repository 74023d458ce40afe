//! Limits with `charge_on`: units are taken on arrival, and given back when the final status is not listed.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use socket2::SockRef;
use tidegate::limit::{Charge, ChargeKind, PolicyId};

use super::setup::{charges, loaded};
use crate::support::{
    Client, Http2, Http2Server, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores,
};

/// A limit of three failed requests an hour, by client address.
const LIMIT: &str =
    "[limits.logins]\nalgorithm = \"fixed_window\"\nalign = \"first_request\"\nrate = \"3/hour\"\n";

fn config(statuses: &str, upstream: &str) -> String {
    format!(
        "[log]\naccess = \"json\"\n{LIMIT}charge_on = [{statuses}]\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"logins\"]\nupstream = \"{upstream}\"\n"
    )
}

/// An upstream that sends no response until the test releases one; each message that is sent releases one response.
fn held_back(status: &'static str) -> (Upstream, Sender<()>) {
    let (release, wait) = channel();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            if wait.lock().unwrap().recv().is_err() {
                return;
            }
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    });
    (upstream, release)
}

/// An upstream that responds with 401 to paths that begin with `/wrong`, and with 200 to others.
fn login() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let is_wrong = request.start.starts_with("GET /wrong");
            let status = if is_wrong { "401 Unauthorized" } else { "200 OK" };
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_client_that_resets_before_the_response_is_charged() {
    for over_redis in [false, true] {
        let redis = over_redis.then(RedisServer::start);
        let (upstream, _release) = held_back("401 Unauthorized");
        let config = config("401", &upstream.url());
        let proxy = match &redis {
            Some(redis) => Tidegate::start_with(redis, &config),
            None => Tidegate::start(&config),
        };
        for guess in 1..=3 {
            let mut client = Client::connect(proxy.addr());
            client.send("GET /wrong HTTP/1.1\r\nHost: a\r\n\r\n");
            eventually("the request is at the upstream", || upstream.requests().len() == guess);
            SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            eventually("the proxy has given the request up", || {
                proxy.accesses(0).iter().filter(|line| line.contains("client_gone")).count() == guess
            });
        }
        let denied = get(proxy.addr(), "/wrong", &[]);
        assert_eq!((denied.status(), upstream.requests().len()), (429, 3), "over Redis: {over_redis}");
    }
}

#[test]
fn a_parallel_burst_is_bounded_by_the_limit() {
    for over_redis in [false, true] {
        let redis = over_redis.then(RedisServer::start);
        let (upstream, release) = held_back("401 Unauthorized");
        let config = config("401", &upstream.url());
        let proxy = match &redis {
            Some(redis) => Tidegate::start_with(redis, &config),
            None => Tidegate::start(&config),
        };
        let mut clients: Vec<Client> = (0..20)
            .map(|_| {
                let mut client = Client::connect(proxy.addr());
                client.send("GET /wrong HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        for _ in 0..20 {
            let _ = release.send(());
        }
        let statuses: Vec<u16> = clients.iter_mut().map(|client| client.read().status()).collect();
        let passed = statuses.iter().filter(|status| **status == 401).count();
        assert_eq!((passed, upstream.requests().len()), (3, 3), "over Redis: {over_redis}: {statuses:?}");
        assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    }
}

#[test]
fn units_are_refunded_at_once_for_other_statuses() {
    let (upstream, release) = held_back("200 OK");
    over_both_stores(&config("401", &upstream.url()), |proxy| {
        let mut clients: Vec<Client> = (0..3)
            .map(|_| {
                let mut client = Client::connect(proxy.addr());
                let before = upstream.requests().len();
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                eventually("the request is at the upstream", || upstream.requests().len() > before);
                client
            })
            .collect();
        // Requests under way hold their units.
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        for _ in 0..4 {
            release.send(()).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read().status(), 200);
        }
        // The denial a moment ago is not remembered: units have come back since.
        let last = get(proxy.addr(), "/", &[]);
        assert_eq!((last.status(), last.header("x-ratelimit-remaining")), (200, Some("3")));
    });
}

#[test]
fn statuses_of_the_proxy_itself_are_charged_too() {
    let silent = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    });
    let config = format!(
        "default_limits = [\"logins\"]\n\
         {LIMIT}charge_on = [404, 502, 504]\n\
         [upstreams.silent]\nservers = [\"{}\"]\nresponse_timeout = \"200ms\"\nretries = 0\n\
         [[routes]]\npath = \"/dead\"\nupstream = \"http://127.0.0.1:1\"\n\
         [[routes]]\npath = \"/silent\"\nupstream = \"silent\"\n\
         [[routes]]\npath = \"/own\"\nrespond = {{ status = 200 }}\n",
        silent.url()
    );
    over_both_stores(&config, |proxy| {
        let send = |path: &str| {
            let response = get(proxy.addr(), path, &[]);
            (response.status(), response.header("x-ratelimit-remaining").unwrap().to_owned())
        };
        assert_eq!(send("/own"), (200, "3".to_owned()));
        assert_eq!(send("/no-such-route"), (404, "2".to_owned()));
        assert_eq!(send("/dead"), (502, "1".to_owned()));
        assert_eq!(send("/silent"), (504, "0".to_owned()));
        assert_eq!(send("/own"), (429, "0".to_owned()));
    });
}

#[test]
fn requests_that_a_server_has_received_and_not_answered_are_charged() {
    let (silent, _release) = held_back("200 OK");
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let path = request.start.split(' ').nth(1).unwrap();
            // Closes the connection without a response to all others.
            let Ok(status) = path[1..].parse::<u16>() else { return };
            if caller.try_send(format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    });
    let config = format!(
        "[limits.logins]\nrate = \"3/365d\"\ncharge_on = [401, 403]\nkey = \"path\"\n\
         [upstreams.silent]\nservers = [\"{}\"]\nresponse_timeout = \"100ms\"\n\
         [[routes]]\npath = \"/silent\"\nlimits = [\"logins\"]\nupstream = \"silent\"\n\
         [[routes]]\npath = \"/dead\"\nlimits = [\"logins\"]\nupstream = \"http://127.0.0.1:1\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"logins\"]\nupstream = \"{}\"\n",
        silent.url(),
        server.url()
    );
    over_both_stores(&config, |proxy| {
        let statuses = |path: &str| [(); 4].map(|()| get(proxy.addr(), path, &[]).status());
        assert_eq!(statuses("/silent"), [504, 504, 504, 429]);
        assert_eq!(statuses("/closes"), [502, 502, 502, 429]);
        assert_eq!(statuses("/504"), [504, 504, 504, 429]);
        assert_eq!(statuses("/502"), [502, 502, 502, 429]);
        assert_eq!(statuses("/401"), [401, 401, 401, 429]);
        // Nothing was sent, or the server has answered.
        assert_eq!(statuses("/dead"), [502; 4]);
        assert_eq!(statuses("/503"), [503; 4]);
        assert_eq!(statuses("/500"), [500; 4]);
    });
}

/// A server that responds to paths that end in a number with that `grpc-status`: under `/trailers` in trailers, otherwise in
/// the head.
fn calls() -> Http2Server {
    Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        let path = request.uri().path().to_owned();
        let status = HeaderValue::from_str(path.rsplit('/').next().unwrap()).unwrap();
        let head = Response::builder().header("content-type", "application/grpc");
        if path.contains("/trailers/") {
            let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
            body.send_data(Bytes::from_static(b"\0\0\0\0\0"), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status);
            body.send_trailers(trailers).unwrap();
        } else {
            respond.send_response(head.header("grpc-status", status).body(()).unwrap(), true).unwrap();
        }
    })
}

#[test]
fn a_grpc_status_counts_as_its_http_equivalent() {
    let server = calls();
    let config = format!(
        "{LIMIT}charge_on = [401, 403]\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"logins\"]\nupstream = \"u\"\n",
        server.url()
    );
    over_both_stores(&config, |proxy| {
        let client = Http2::connect(proxy.addr());
        let call = |path: &str| {
            let request = Request::post(format!("http://a{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            let answer = client.ask(request.body(()).unwrap(), b"\0\0\0\0\0");
            let in_head = answer.response.headers().get("grpc-status").cloned();
            let status = in_head.or_else(|| answer.trailers.map(|trailers| trailers["grpc-status"].clone()));
            status.unwrap().to_str().unwrap().to_owned()
        };
        for path in ["/trailers/0", "/trailers/5", "/head/5", "/trailers/0", "/trailers/13"] {
            assert_eq!(call(path), path.rsplit('/').next().unwrap());
        }
        for path in ["/trailers/16", "/head/7", "/trailers/7"] {
            assert_eq!(call(path), path.rsplit('/').next().unwrap());
        }
        assert_eq!(call("/trailers/0"), "8", "the limit is used up");
    });
}

/// Starts three requests whose units will be refunded, forgets the counts, spends all units, and ends the three.
fn refund_after_a_loss(proxy: &Tidegate, upstream: &Upstream, release: &Sender<()>, lose: impl Fn()) {
    let send = |path: &str| get(proxy.addr(), path, &[]).status();
    let mut clients: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = Client::connect(proxy.addr());
            let before = upstream.requests().len();
            client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
            eventually("the request is at the upstream", || upstream.requests().len() > before);
            client
        })
        .collect();
    lose();
    let statuses: Vec<u16> = (0..6).map(|_| send("/wrong")).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    for client in &mut clients {
        release.send(()).unwrap();
        assert_eq!(client.read().status(), 200);
    }
    assert_eq!(send("/wrong"), 429, "what was taken before is refunded to what was taken since");
}

#[test]
fn units_taken_before_a_reset_or_a_loss_are_not_refunded_to_those_taken_since() {
    let (release, wait) = channel();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            let is_slow = request.start.starts_with("GET /slow");
            if is_slow && wait.lock().unwrap().recv().is_err() {
                return;
            }
            let status = if is_slow { "200 OK" } else { "401 Unauthorized" };
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    });
    let algorithms = [
        "algorithm = \"token_bucket\"",
        "algorithm = \"token_bucket\"\nrefill = \"interval\"",
        "algorithm = \"fixed_window\"\nalign = \"clock\"",
        "algorithm = \"fixed_window\"\nalign = \"first_request\"",
        "algorithm = \"sliding_window\"",
        "algorithm = \"sliding_log\"",
    ];
    for algorithm in algorithms {
        // A year, so that the clock's window does not end meanwhile, nor is anything refilled.
        let config = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[limits.logins]\n{algorithm}\nrate = \"5/365d\"\nkey = \"global\"\ncharge_on = [401]\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"logins\"]\nupstream = \"{}\"\n",
            upstream.url()
        );
        let redis = RedisServer::start();
        let over_redis = Tidegate::start_with(&redis, &config);
        for proxy in [&Tidegate::start(&config), &over_redis] {
            let reset = || {
                let body = "{\"limit\": \"logins\", \"key\": \"global\"}";
                let response = Client::connect(proxy.admin()).ask(&format!(
                    "POST /v1/keys/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\n\r\n{body}",
                    body.len()
                ));
                assert_eq!(response.status(), 200, "{}", response.text());
            };
            refund_after_a_loss(proxy, &upstream, &release, reset);
        }
        redis.cli(&["flushall"]);
        // A denial is remembered for a moment.
        eventually("a request is allowed", || get(over_redis.addr(), "/wrong", &[]).status() == 401);
        redis.cli(&["flushall"]);
        refund_after_a_loss(&over_redis, &upstream, &release, || drop(redis.cli(&["flushall"])));
    }
}

#[test]
fn charges_by_status_continue_through_an_outage() {
    let mut redis = RedisServer::start();
    let upstream = login();
    let proxy = Tidegate::start_with(&redis, &config("401", &upstream.url()));
    let send = |path: &str| get(proxy.addr(), path, &[]).status();
    assert_eq!((send("/right"), send("/wrong")), (200, 401));
    redis.kill();
    for _ in 0..5 {
        assert_eq!(send("/right"), 200);
    }
    assert_eq!((send("/wrong"), send("/right")), (401, 200));
    redis.restart();
    proxy.wait_ready();
    // One of the three was charged in Redis, which forgot it; the one of the outage is charged afterwards.
    let left = |answer: crate::support::Message| answer.header("x-ratelimit-remaining").map(str::to_owned);
    eventually("what was charged in the outage is charged in Redis", || {
        left(get(proxy.addr(), "/right", &[])).is_some_and(|left| left == "1" || left == "2")
    });
}

#[test]
fn units_held_when_the_store_comes_back_are_not_admitted_again() {
    let mut redis = RedisServer::start();
    let (upstream, release) = held_back("401 Unauthorized");
    let proxy = Tidegate::start_with(&redis, &config("401", &upstream.url()));
    redis.kill();
    let mut clients: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = Client::connect(proxy.addr());
            let before = upstream.requests().len();
            client.send("GET /wrong HTTP/1.1\r\nHost: a\r\n\r\n");
            eventually("the request is at the upstream", || upstream.requests().len() > before);
            client
        })
        .collect();
    redis.restart();
    proxy.wait_ready();
    // Redis has lost the charges of the three requests under way.
    assert_eq!(get(proxy.addr(), "/wrong", &[]).status(), 429);
    for client in &mut clients {
        release.send(()).unwrap();
        assert_eq!(client.read().status(), 401);
    }
    assert_eq!((get(proxy.addr(), "/wrong", &[]).status(), upstream.requests().len()), (429, 3));
}

#[test]
fn refunds_after_an_outage_reach_the_local_share() {
    let mut redis = RedisServer::start();
    let upstream = login();
    // The share of each proxy is one unit.
    let store = "timeout = \"5s\"\ninstances = 3";
    let proxy = Tidegate::builder(&config("401", &upstream.url())).store(&redis, store).start();
    redis.kill();
    assert_eq!(get(proxy.addr(), "/right", &[]).status(), 200);
    redis.restart();
    proxy.wait_ready();
    // Until the other proxies have had time to pay, a request has to fit the share as well as Redis.
    for _ in 0..4 {
        assert_eq!(get(proxy.addr(), "/right", &[]).status(), 200);
    }
}

#[test]
fn failed_logins_are_charged_and_others_are_not() {
    let upstream = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let status = if request.start.starts_with("GET /wrong") { "401 Unauthorized" } else { "200 OK" };
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    });
    let config = format!(
        r#"
        [limits.logins]
        algorithm = "fixed_window"
        align = "first_request"
        rate = "3/hour"
        charge_on = [401]
        [[routes]]
        path = "/*"
        limits = ["logins"]
        upstream = "{}"
        "#,
        upstream.url()
    );
    over_both_stores(&config, |proxy| {
        let send = |path: &str| {
            let answer = get(proxy.addr(), path, &[]);
            (answer.status(), answer.header("x-ratelimit-remaining").unwrap().to_owned())
        };
        for _ in 0..5 {
            assert_eq!(send("/right"), (200, "3".to_owned()));
        }
        for left in ["2", "1", "0"] {
            assert_eq!(send("/wrong"), (401, left.to_owned()));
        }
        let before = upstream.requests().len();
        assert_eq!(send("/wrong"), (429, "0".to_owned()));
        assert_eq!(send("/right"), (429, "0".to_owned()));
        assert_eq!(upstream.requests().len(), before);
    });
}

#[test]
fn limits_that_charge_by_status_charge_on_arrival() {
    let loaded = loaded(
        "rate = \"20/hour\"\ncharge_on = [401, 403]\ncost = \"header:x-cost\"\n\
         overrides = { \"127.0.0.9\" = { rate = \"30/hour\" } }",
    );
    let gate = &loaded.config.snapshot.gate;
    let charges = charges(gate, &[("x-cost", "3")]);
    let [Charge { policy, cost: 3, kind: ChargeKind::Take, .. }] = charges[..] else { panic!("{charges:?}") };
    assert_eq!((policy, gate.limit_of(policy)), (PolicyId(1), PolicyId(0)));
    // An override has numbers of its own, and charges by the same statuses.
    assert_eq!(gate.limits.policies[policy.0 as usize].charge_on(), [401, 403]);
}
