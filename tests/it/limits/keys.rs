//! Keys of limits.

pub(super) mod body;
mod sign_in;

use std::net::SocketAddr;

use super::counting::{status, status_from};
use crate::support::{Client, RedisServer, Tidegate, get, over_both_stores};

/// A limit of one request by this key.
fn once_by(key: &str) -> String {
    format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.9\"]\n\
         [limits.once]\nrate = \"1/hour\"\nkey = {key}\n\
         [[routes]]\nname = \"user\"\npath = \"/users/{{id}}/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\nname = \"group\"\npath = \"/groups/{{id}}/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// Method, target and headers of a request.
type Target = (&'static str, &'static str, &'static [&'static str]);

fn status_of(address: SocketAddr, (method, target, headers): Target) -> u16 {
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    let has_host = headers.iter().any(|line| line.starts_with("Host:"));
    for line in headers.iter().chain((!has_host).then_some(&"Host: localhost")) {
        request.push_str(line);
        request.push_str("\r\n");
    }
    Client::connect(address).ask(&(request + "\r\n")).status()
}

#[test]
fn requests_with_different_keys_are_counted_separately() {
    const PLAIN: Target = ("GET", "/users/7/a", &[]);
    // A key, requests that share one count, and requests with a count of their own each.
    let cases: [(&str, &[Target], &[Target]); 11] = [
        ("\"client_ip\"", &[PLAIN, ("POST", "/groups/8/b?c", &["X-Api-Key: k", "Cookie: a=b"])], &[]),
        (
            "\"header:x-api-key\"",
            &[
                ("GET", "/users/7/a", &["X-Api-Key: alpha"]),
                ("GET", "/users/8/a", &["x-api-key:   alpha  "]),
                ("GET", "/users/8/a", &["x-api-key: alpha", "x-api-key: alpha"]),
            ],
            &[
                ("GET", "/users/7/a", &[]),
                ("GET", "/users/7/a", &["X-Api-Key: beta"]),
                ("GET", "/users/7/a", &["X-Api-Key: ALPHA"]),
            ],
        ),
        (
            "\"query:key\"",
            &[
                ("GET", "/users/7/a?key=al+pha", &[]),
                ("GET", "/users/7/a?x=1&key=al%20pha", &[]),
                ("GET", "/users/7/a?%6bey=%61l+pha&key=al+pha", &[]),
            ],
            &[
                ("GET", "/users/7/a?key=beta", &[]),
                ("GET", "/users/7/a?key=al%2Bpha", &[]),
                ("GET", "/users/7/a?key=beta&key=gamma", &[]),
            ],
        ),
        (
            "\"cookie:sid\"",
            &[
                ("GET", "/users/7/a", &["Cookie: sid=1"]),
                ("GET", "/users/7/a", &["Cookie: other=2; sid=1; more=3"]),
                ("GET", "/users/7/a", &["Cookie: other=2", "Cookie: sid=1"]),
            ],
            &[("GET", "/users/7/a", &["Cookie: sid=2"]), ("GET", "/users/7/a", &["Cookie: sid=10"])],
        ),
        (
            "\"path\"",
            &[PLAIN, ("GET", "/users/7//a?x", &[]), ("GET", "/users/./x/../7/%61", &[])],
            &[("GET", "/users/7/b", &[]), ("GET", "/users/7/a/", &[])],
        ),
        (
            "\"path_param:id\"",
            &[PLAIN, ("GET", "/users/7/b", &[]), ("GET", "/groups/7/c", &[]), ("GET", "/users/%37/d", &[])],
            &[("GET", "/users/8/a", &[])],
        ),
        (
            "\"host\"",
            &[
                ("GET", "/users/7/a", &["Host: one.test"]),
                ("GET", "/users/7/a", &["Host: ONE.test.:8080"]),
                ("GET", "http://one.test/users/7/a", &["Host: two.test"]),
            ],
            &[("GET", "/users/7/a", &["Host: two.test"])],
        ),
        (
            "\"method\"",
            &[PLAIN, ("GET", "/groups/8/b", &[])],
            &[("POST", "/users/7/a", &[]), ("HEAD", "/users/7/a", &[])],
        ),
        ("\"route\"", &[PLAIN, ("POST", "/users/8/b", &[])], &[("GET", "/groups/7/a", &[])]),
        ("\"global\"", &[PLAIN, ("POST", "/groups/8/b", &["Host: x", "X-Api-Key: k"])], &[]),
        (
            "[\"header:x-api-key\", \"method\"]",
            &[("GET", "/users/7/a", &["X-Api-Key: alpha"]), ("GET", "/users/8/b", &["X-Api-Key: alpha"])],
            &[
                ("POST", "/users/7/a", &["X-Api-Key: alpha"]),
                ("GET", "/users/7/a", &["X-Api-Key: beta"]),
                ("POST", "/users/7/a", &["X-Api-Key: beta"]),
            ],
        ),
    ];
    let redis = RedisServer::start();
    for (key, same, others) in cases {
        // Redis still has the counts of the previous case.
        redis.cli(&["FLUSHALL"]);
        for proxy in [Tidegate::start(&once_by(key)), Tidegate::start_with(&redis, &once_by(key))] {
            for (index, request) in same.iter().enumerate() {
                let expected = if index == 0 { 200 } else { 429 };
                assert_eq!(status_of(proxy.addr(), *request), expected, "{key}: {request:?}");
            }
            for request in others {
                assert_eq!(status_of(proxy.addr(), *request), 200, "{key}: {request:?}");
                assert_eq!(status_of(proxy.addr(), *request), 429, "{key}: {request:?} again");
            }
        }
    }
}

#[test]
fn address_keys_are_separate_and_a_global_key_is_shared() {
    let by_address = Tidegate::start(&once_by("\"client_ip\""));
    let global = Tidegate::start(&once_by("\"global\""));
    let status_of = |proxy: &Tidegate, source| status_from(source, proxy.addr(), "/users/7/a", &[]);
    assert_eq!(status_of(&by_address, "127.0.0.1"), 200);
    assert_eq!(status_of(&by_address, "127.0.0.2"), 200);
    assert_eq!(status_of(&by_address, "127.0.0.2"), 429);
    assert_eq!(status_of(&by_address, "127.0.0.1"), 429);
    assert_eq!(status_of(&global, "127.0.0.1"), 200);
    assert_eq!(status_of(&global, "127.0.0.2"), 429);
}

#[test]
fn on_missing_decides_about_requests_without_the_key() {
    let limit = |on_missing: &str| {
        format!(
            "[limits.once]\nrate = \"1/hour\"\nkey = \"header:x-api-key\"\n{on_missing}\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
        )
    };
    for by_address in ["", "on_missing = \"client_ip\""] {
        over_both_stores(&limit(by_address), |proxy| {
            assert_eq!(status(proxy.addr(), "/", &[]), 200);
            assert_eq!(status(proxy.addr(), "/", &[]), 429);
            assert_eq!(status(proxy.addr(), "/", &["X-Api-Key:  "]), 429);
            assert_eq!(status_from("127.0.0.2", proxy.addr(), "/", &[]), 200);
            // A header that names an address does not share the count of that address.
            assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: 127.0.0.1"]), 200);
        });
    }
    over_both_stores(&limit("on_missing = \"skip\""), |proxy| {
        for _ in 0..3 {
            let response = get(proxy.addr(), "/", &[]);
            assert_eq!((response.status(), response.header("x-ratelimit-limit")), (200, None));
        }
        assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: k"]), 200);
        assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: k"]), 429);
    });
    over_both_stores(&limit("on_missing = \"deny\""), |proxy| {
        let response = get(proxy.addr(), "/", &[]);
        assert_eq!(response.start, "HTTP/1.1 403 Forbidden");
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        let expected = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"the request must have exactly one x-api-key header"}"#;
        assert_eq!(response.text(), format!("{expected}\n"));
        assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: k"]), 200);
    });
}

#[test]
fn forwarding_headers_of_untrusted_clients_are_ignored() {
    let proxy = Tidegate::start(&once_by("\"client_ip\""));
    let target = "/users/7/a";
    assert_eq!(status(proxy.addr(), target, &["X-Forwarded-For: 203.0.113.1"]), 200);
    for spoofed in [
        &["X-Forwarded-For: 203.0.113.2"][..],
        &["X-Forwarded-For: 127.0.0.9"],
        &["X-Forwarded-For: 203.0.113.3", "X-Forwarded-For: 203.0.113.4"],
        &["Forwarded: for=203.0.113.5", "X-Real-IP: 203.0.113.6"],
    ] {
        assert_eq!(status(proxy.addr(), target, spoofed), 429, "{spoofed:?}");
    }
}

#[test]
fn forwarding_headers_of_trusted_proxies_are_read_from_the_right() {
    let config = |header: &str| {
        format!(
            "[client_ip]\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\nheader = \"{header}\"\n\
             ipv4_prefix = 24\nipv6_prefix = 56\n\
             [limits.once]\nrate = \"1/hour\"\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
        )
    };
    over_both_stores(&config("x-forwarded-for"), |proxy| {
        let forwarded = |lines: &[&str]| status(proxy.addr(), "/", lines);
        assert_eq!(forwarded(&["X-Forwarded-For: 203.0.113.1"]), 200);
        // Entries to the left are claims of the client itself.
        assert_eq!(forwarded(&["X-Forwarded-For: 6.6.6.6, 203.0.113.1"]), 429);
        assert_eq!(forwarded(&["X-Forwarded-For: 6.6.6.6, 203.0.113.1, 10.1.2.3"]), 429);
        assert_eq!(forwarded(&["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 203.0.113.1"]), 429);
        assert_eq!(forwarded(&["X-Forwarded-For: ::ffff:203.0.113.1"]), 429);
        assert_eq!(forwarded(&["X-Forwarded-For: 203.0.113.99:4711"]), 429, "the same network of 24 bits");
        assert_eq!(forwarded(&["X-Forwarded-For: 203.0.114.1"]), 200);
        assert_eq!(forwarded(&["X-Forwarded-For: 2001:db8:0:aa::1"]), 200);
        assert_eq!(
            forwarded(&["X-Forwarded-For: [2001:db8:0:ff::2]:80"]),
            429,
            "the same network of 56 bits"
        );
        assert_eq!(forwarded(&["X-Forwarded-For: 2001:db8:0:1aa::1"]), 200);
        // If an entry is not an address, the hop that added it is the client.
        assert_eq!(forwarded(&["X-Forwarded-For: 6.6.6.6, unknown, 10.1.2.3"]), 200);
        assert_eq!(forwarded(&["X-Forwarded-For: 7.7.7.7, unknown, 10.1.2.3"]), 429);
        // An untrusted client's header is ignored.
        let untrusted = |lines: &[&str]| status_from("127.0.0.2", proxy.addr(), "/", lines);
        assert_eq!(untrusted(&["X-Forwarded-For: 198.51.100.1"]), 200);
        assert_eq!(untrusted(&["X-Forwarded-For: 198.51.100.2"]), 429);
        assert_eq!(forwarded(&["X-Forwarded-For: 198.51.100.1"]), 200);
    });
    let proxy = Tidegate::start(&config("forwarded"));
    let forwarded = |lines: &[&str]| status(proxy.addr(), "/", lines);
    assert_eq!(forwarded(&["Forwarded: for=203.0.113.1;proto=https"]), 200);
    assert_eq!(forwarded(&["Forwarded: for=6.6.6.6, For=\"203.0.113.1:80\";by=10.0.0.1, for=10.1.2.3"]), 429);
    assert_eq!(forwarded(&["Forwarded: for=6.6.6.6", "Forwarded: proto=http;for=203.0.113.1"]), 429);
    assert_eq!(forwarded(&["Forwarded: for=\"[2001:db8:0:aa::1]:80\""]), 200);
    assert_eq!(forwarded(&["Forwarded: for=\"[2001:db8:0:aa::2]\""]), 429);
    assert_eq!(forwarded(&["Forwarded: for=_hidden", "X-Forwarded-For: 198.51.100.1"]), 200);
    assert_eq!(forwarded(&["Forwarded: for=_other", "X-Forwarded-For: 198.51.100.2"]), 429);
}
