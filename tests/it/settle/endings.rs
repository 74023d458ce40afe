//! What a request is charged, by how its exchange with the server has ended.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use socket2::SockRef;

use super::setup::{
    CAPACITY, RESERVE, all_unknown, case, chunk, config, config_with, logged, ok, own, play_all, send,
    settled_by, until_charged,
};
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores, patience};

const JSON: &str = "json:/usage/cost";

/// Nothing is charged for a request that no server has received.
#[test]
fn nothing_was_sent() {
    let dead = "http://127.0.0.1:1";
    let tables = format!(
        "[limits.never]\nrate = \"1/365d\"\nkey = \"global\"\n\
         [upstreams.dead]\nservers = [\"{dead}\"]\nretries = 2\n\
         [[routes]]\npath = \"/never\"\nlimits = [\"units\", \"never\"]\nupstream = \"dead\"\n\
         [[routes]]\npath = \"/respond\"\nlimits = [\"units\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/redirect\"\nlimits = [\"units\"]\nrespond = {{ redirect = \"https://example.com/\" }}\n\
         [[routes]]\npath = \"/authorized\"\nlimits = [\"units\"]\nauthorize = {{ upstream = \"dead\", path = \"/\" }}\nupstream = \"dead\"\n"
    );
    for source in [JSON, "header:x-cost", "seconds"] {
        let limit = format!("{}\ncharge_on = [200, 301, 308, 502, 503, 504]", settled_by(source));
        over_both_stores(&config_with(&limit, "upstream = \"dead\"", &tables), |proxy| {
            for (path, status) in
                [("/dead", 502), ("/never", 502), ("/never", 429), ("/respond", 200), ("/authorized", 503)]
            {
                assert_eq!(get(proxy.addr(), path, &["X-Key: a"]).status(), status, "{path}");
                until_charged(proxy, "a", 0);
            }
            assert!(get(proxy.addr(), "/redirect", &["X-Key: a"]).status() < 400);
            until_charged(proxy, "a", 0);
            let mut client = Client::connect(proxy.addr());
            client.send("OPTIONS /dead HTTP/1.1\r\nHost: a\r\nX-Key: a\r\nMax-Forwards: 0\r\n\r\n");
            assert_eq!(client.read().status(), 204);
            until_charged(proxy, "a", 0);
            assert_eq!(all_unknown(proxy), 0);
        });
    }
}

/// The estimate stays when a request was sent and no complete head of a response has come, whatever statuses are charged.
#[test]
fn the_head_of_the_response_is_missing() {
    let server = Upstream::scripted(|caller| {
        let Ok(Some(request)) = caller.request() else { return };
        match request.start.split(' ').nth(1).unwrap() {
            "/silent" => {
                let _ = caller.read_to_close();
            }
            "/reset" => SockRef::from(caller.stream()).set_linger(Some(Duration::ZERO)).unwrap(),
            "/half" => drop(caller.try_send("HTTP/1.1 200 OK\r\nX-Cost: 7\r\nContent-")),
            "/garbage" => drop(caller.try_send("SIP/2.0 200 OK\r\nX-Cost: 7\r\n\r\n")),
            "/interim" => drop(caller.try_send("HTTP/1.1 103 Early Hints\r\nX-Cost: 7\r\n\r\n")),
            _ => {}
        }
    });
    let tables = format!(
        "[upstreams.u]\nservers = [\"{}\"]\nresponse_timeout = \"200ms\"\nretries = 0\n",
        server.url()
    );
    for source in [JSON, "header:x-cost", "response_bytes", "seconds"] {
        over_both_stores(&config_with(&settled_by(source), "upstream = \"u\"", &tables), |proxy| {
            for (key, path) in
                ["/silent", "/reset", "/half", "/garbage", "/interim", "/close"].iter().enumerate()
            {
                let key = key.to_string();
                let status = get(proxy.addr(), path, &[&format!("X-Key: {key}")]).status();
                assert!([502, 504].contains(&status), "{path}: {status}");
                until_charged(proxy, &key, RESERVE);
                assert_eq!(logged(proxy, path)["cost"]["units"], RESERVE, "{path}");
            }
        });
    }
}

/// A status that is not charged gives all units back, unless the response has a cost.
#[test]
fn the_status_is_not_charged() {
    let error = |status: &str, head: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let of_json = |status: &str, body: &str| error(status, "Content-Type: application/json\r\n", body);
    play_all(
        &settled_by(JSON),
        &[
            case("404", of_json("404 Not Found", r#"{"error": 1}"#), 0).post("{}"),
            case("429", error("429 Too Many Requests", "", ""), 0).post("{}"),
            case("500", error("500 Oops", "", "oops"), 0).post("{}"),
            case("cost", of_json("500 Oops", r#"{"usage": {"cost": 7}}"#), 7).post("{}"),
            case("more", of_json("404 Not Found", r#"{"usage": {"cost": 250}}"#), 250).post("{}"),
            case("malformed", of_json("500 Oops", r#"{"usage": {"cost": -7}}"#), 0).post("{}"),
            case("301", of_json("301 Moved", "{}"), RESERVE).post("{}").unknown("absent"),
        ],
    );
    play_all(
        &settled_by("header:x-cost"),
        &[
            case("404", error("404 Not Found", "", ""), 0),
            case("cost", error("404 Not Found", "X-Cost: 7\r\n", ""), 7),
            case("zero", error("500 Oops", "X-Cost: 0\r\n", ""), 0),
            case("malformed", error("500 Oops", "X-Cost: a\r\n", ""), 0),
        ],
    );
    play_all(
        &format!("{}\ncharge_on = [404]", settled_by("header:x-cost")),
        &[
            case("404", error("404 Not Found", "", ""), RESERVE).unknown("absent"),
            case("200", ok("", ""), 0),
            case("cost", ok("X-Cost: 7\r\n", ""), 7),
        ],
    );
    // A number that is measured is there for every response.
    for (source, charged) in [("response_bytes", 2), ("seconds", 1)] {
        play_all(
            &settled_by(source),
            &[case("200", ok("", "ok"), charged), case("404", error("404 Not Found", "", "no"), 0)],
        );
    }
}

#[test]
fn responses_without_a_body_by_definition() {
    let bare = |status: &str| format!("HTTP/1.1 {status}\r\n\r\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n";
    let limits = [settled_by(JSON), "cost = \"llm_tokens\"\ndefault_output = 99".to_owned()];
    for limit in &limits {
        play_all(
            limit,
            &[
                case("204", bare("204 No Content"), 0).post("{}"),
                case("304", bare("304 Not Modified"), 0),
                case("head", head, 0).method("HEAD"),
            ],
        );
    }
    play_all(
        &settled_by("header:x-cost"),
        &[
            case("204", bare("204 No Content\r\nX-Cost: 7"), 7),
            case("304", bare("304 Not Modified"), RESERVE).unknown("absent"),
            case("head", "HTTP/1.1 200 OK\r\nX-Cost: 8\r\nContent-Length: 12\r\n\r\n", 8).method("HEAD"),
        ],
    );
}

/// The upstream ends the response before its end.
#[test]
fn the_server_cuts_the_response() {
    let cut_json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"usage\": {\"cost\": 7}";
    let cut_stream = |event: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            chunk(&format!("data: {event}\n\n"))
        )
    };
    play_all(
        &settled_by(JSON),
        &[
            case("json", cut_json, RESERVE).post("{}").closing(),
            case("seen", cut_stream(r#"{"usage": {"cost": 7}}"#), 7).post("{}").closing(),
            case("unseen", cut_stream("{}"), RESERVE).post("{}").closing(),
        ],
    );
    play_all(
        &settled_by("response_bytes"),
        &[case("length", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nfive!", 5).closing()],
    );
    play_all(
        &settled_by("header:x-cost"),
        &[case("length", "HTTP/1.1 200 OK\r\nX-Cost: 7\r\nContent-Length: 99\r\n\r\nfive!", 7).closing()],
    );
    play_all(
        &settled_by("trailer:x-cost"),
        &[case(
            "trailer",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Cost: 7\r\n",
            RESERVE,
        )
        .closing()],
    );
}

/// An upstream that sends this, and the rest once the test says so or the connection is closed.
fn held(first: String, rest: String) -> (Upstream, Sender<()>) {
    let (release, released) = channel();
    let released = Mutex::new(released);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            if caller.try_send(&first).is_err() {
                return;
            }
            let _ = released.lock().unwrap().recv_timeout(patience());
            if caller.try_send(&rest).is_err() {
                return;
            }
        }
    });
    (server, release)
}

/// Sends a request, reads this much of the body of its response, and resets the connection.
fn hang_up(proxy: &Tidegate, key: &str, bytes: &str) {
    let mut client = Client::connect(proxy.addr());
    client.send(format!(
        "POST /{key} HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    ));
    let head = client.read_head().unwrap().unwrap();
    assert_eq!(head.status(), 200);
    let mut body = String::new();
    while !body.contains(bytes) {
        body.push_str(&String::from_utf8(client.take(1).unwrap()).unwrap());
    }
    SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn the_client_hangs_up() {
    let stream = |first: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nX-Cost: 9\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            chunk(&format!("data: {first}\n\n"))
        )
    };
    let json = "HTTP/1.1 200 OK\r\nX-Cost: 9\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n{\"usage\": {\"cost\": 7}".to_owned();
    let end = format!("{}0\r\n\r\n", chunk("data: {\"usage\": {\"cost\": 77}}\n\n"));
    let json_end = "             ".to_owned();
    for (source, response, marker, charged) in [
        (JSON, stream(r#"{"usage": {"cost": 7}}"#), "7}}", 7),
        (JSON, stream(r#"{"a": 7}"#), "7}", RESERVE),
        (JSON, json.clone(), "7}", RESERVE),
        ("header:x-cost", json.clone(), "7}", 9),
        ("response_bytes", json.clone(), "7}", 21),
        ("trailer:x-cost", stream("{}"), "{}", RESERVE),
        ("seconds", json, "7}", 1),
    ] {
        let is_json = response.contains("Content-Length");
        let (server, release) = held(response, if is_json { json_end.clone() } else { end.clone() });
        over_both_stores(&config(&settled_by(source), &server.url()), |proxy| {
            hang_up(proxy, "gone", marker);
            until_charged(proxy, "gone", charged);
            assert_eq!(logged(proxy, "/gone")["cost"]["units"], charged, "{source}");
            assert_eq!(all_unknown(proxy), 0, "{source}");
            let _ = release.send(());
        });
    }
}

#[test]
fn a_response_is_read_on_after_its_client_has_gone() {
    let first = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
    let end = format!("{}0\r\n\r\n", chunk("data: {\"usage\": {\"cost\": 77}}\n\n"));
    let (server, release) = held(first.to_owned(), end);
    let limit = format!("{}\nfinish_abandoned = \"60s\"", settled_by(JSON));
    over_both_stores(&config(&limit, &server.url()), |proxy| {
        hang_up(proxy, "gone", "data: 1");
        logged(proxy, "/gone");
        assert_eq!(own(proxy, "gone"), (CAPACITY - RESERVE, RESERVE));
        release.send(()).unwrap();
        until_charged(proxy, "gone", 77);
    });
}

/// The client goes before the head of the response: the estimate stays.
#[test]
fn the_client_goes_before_the_response() {
    let (server, _release) = Upstream::gated(ok("X-Cost: 7\r\n", "ok"));
    over_both_stores(&config(&settled_by("header:x-cost"), &server.url()), |proxy| {
        let before = server.received();
        let client = send(proxy, &case("gone", "", RESERVE));
        eventually("the request is at the upstream", || server.received() > before);
        assert_eq!(own(proxy, "gone"), (CAPACITY - RESERVE, RESERVE));
        SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        until_charged(proxy, "gone", RESERVE);
        assert_eq!(logged(proxy, "/gone")["cost"]["units"], RESERVE);
    });
}

/// Attempts that were sent and not answered add nothing: a request is charged once.
#[test]
fn a_request_that_is_sent_again_is_charged_once() {
    for (is_answered, charged) in [(true, 7), (false, RESERVE)] {
        let proxy = |redis: Option<&RedisServer>| {
            // The connection is lost with the second request, and with others of those that follow.
            let server = Upstream::scripted(move |caller| {
                let answers = match caller.number() {
                    0 => 1,
                    _ if is_answered => 100,
                    _ => 0,
                };
                for _ in 0..answers {
                    let Ok(Some(_)) = caller.request() else { return };
                    let _ = caller.try_send(ok("X-Cost: 7\r\n", "ok"));
                }
                let _ = caller.request();
            });
            let config = config(&settled_by("header:x-cost"), &server.url());
            let proxy = match redis {
                Some(redis) => Tidegate::start_with(redis, &config),
                None => Tidegate::start(&config),
            };
            assert_eq!(get(proxy.addr(), "/first", &["X-Key: first"]).status(), 200);
            let status = get(proxy.addr(), "/again", &["X-Key: again"]).status();
            assert_eq!((status, server.received()), (if is_answered { 200 } else { 502 }, 3));
            until_charged(&proxy, "again", charged);
            assert_eq!(logged(&proxy, "/again")["cost"]["units"], charged);
        };
        proxy(None);
        proxy(Some(&RedisServer::start()));
    }
}

/// What was reserved is charged when the server ends its response with a malformed body.
#[test]
fn a_malformed_body_leaves_the_estimate() {
    let malformed =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    play_all(&settled_by(JSON), &[case("malformed", malformed, RESERVE).post("{}").closing()]);
}
