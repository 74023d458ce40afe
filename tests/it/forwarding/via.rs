//! Via, request loops and Max-Forwards (RFC 9110 §7.6.2, §7.6.3).

use std::net::SocketAddr;
use std::time::Instant;

use crate::support::{Client, Http2, Message, Tidegate, Upstream, free_address, get, patience};

const OPTIONS: &str = "OPTIONS / HTTP/1.1\r\nHost: a\r\n";

/// A proxy whose routes can contain its own URL.
fn with_own_url(routes: impl Fn(&str) -> String) -> Tidegate {
    let address = free_address();
    let routes = routes(&format!("http://{address}"));
    Tidegate::start(&format!("listen = \"{address}\"\n[log]\naccess = \"json\"\n{routes}"))
}

/// The version and the pseudonym of the last proxy in Via.
fn last_hop(message: &Message) -> (String, String) {
    let via = message.all("via");
    let [via] = via[..] else { panic!("one Via: {via:?}") };
    let (version, name) = via.rsplit(", ").next().unwrap().split_once(' ').unwrap();
    (version.to_owned(), name.to_owned())
}

#[test]
fn the_proxy_adds_itself_to_via() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let (version, name) = last_hop(&get(proxy.addr(), "/", &[]).echoed());
    assert_eq!(version, "1.1");
    let rest = name.strip_prefix("tidegate-").unwrap();
    assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{name}");
    let old = Client::connect(proxy.addr()).ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").echoed();
    assert_eq!(last_hop(&old), ("1.0".to_owned(), name.clone()));
    let request = http::Request::get("http://a/").body(()).unwrap();
    let response = Http2::connect(proxy.addr()).ask(request, b"");
    assert_eq!(last_hop(&Message::parse(response.text().as_bytes())), ("2".to_owned(), name.clone()));
    // Earlier entries are kept, in their order.
    let chained = get(proxy.addr(), "/", &["Via: 1.0 fred", "Via: 1.1 p.example.net (x, y)"]).echoed();
    let via = chained.header("via").unwrap();
    assert!(via.starts_with(&format!("1.0 fred, 1.1 p.example.net (x, y), 1.1 {name}")), "{via}");
    // Every process has its own pseudonym.
    let other = Tidegate::forwarding_to(&server.url());
    assert_ne!(last_hop(&get(other.addr(), "/", &[]).echoed()).1, name);
}

#[test]
fn via_is_not_added_to_responses_and_routes_may_remove_it() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/*\"\nupstream = \"{}\"\nrequest_headers = {{ remove = [\"via\"] }}\n",
        server.url()
    ));
    let response = get(proxy.addr(), "/", &["Via: 1.0 fred"]);
    assert_eq!((response.header("via"), response.echoed().header("via")), (None, None));
}

#[test]
fn a_loop_through_one_proxy_is_508() {
    let proxy = with_own_url(|own| {
        format!(
            "[limits.some]\nrate = \"100/hour\"\n\
             [[routes]]\npath = \"/limited\"\nlimits = [\"some\"]\nupstream = \"{own}\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"{own}\"\n"
        )
    });
    let begun = Instant::now();
    let mut client = Client::connect(proxy.addr());
    for _ in 0..3 {
        let response = client.get("/", &["Via: 1.1 tidegate-0123456789abcdef.1"]);
        assert_eq!(response.start, "HTTP/1.1 508 Loop Detected");
        assert!(response.text().contains("this proxy has forwarded it before"), "{}", response.text());
    }
    assert!(begun.elapsed() < patience());
    // Each request has passed the proxy three times: once from the client, and twice from itself.
    let lines = proxy.accesses(9);
    assert_eq!(lines.iter().filter(|line| line.contains("\"error\":\"request_loop\"")).count(), 3);
    // The limit has counted all passes.
    let looped = client.get("/limited", &[]);
    assert_eq!((looped.status(), looped.header("x-ratelimit-remaining")), (508, Some("97")));
    assert_eq!(proxy.accesses(12).len(), 12);
}

#[test]
fn a_loop_through_two_proxies_is_508() {
    let first = free_address();
    let second = Tidegate::forwarding_to(&format!("http://{first}"));
    let config =
        format!("listen = \"{first}\"\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", second.url(""));
    let first = Tidegate::start(&config);
    for proxy in [&first, &second] {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 508);
    }
}

#[test]
fn a_request_may_pass_through_several_routes_of_one_proxy() {
    let server = Upstream::echo();
    let proxy = with_own_url(|own| {
        format!(
            "[[routes]]\npath = \"/outer/*\"\nupstream = \"{own}\"\nrewrite = {{ strip_prefix = \"/outer\" }}\n\
             [[routes]]\npath = \"/inner/*\"\nupstream = \"{}\"\n",
            server.url()
        )
    });
    let received = get(proxy.addr(), "/outer/inner/x", &[]).echoed();
    assert_eq!(received.start, "GET /inner/x HTTP/1.1");
    let names: Vec<&str> = received.header("via").unwrap().split(", ").collect();
    assert!(names.len() == 2 && names[0] != names[1], "{names:?}");
}

/// A server that sends each request for which `next` has a target to the proxy again, with that target and all of its headers,
/// and responds with the status of that.
fn calling(proxy: SocketAddr, next: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Upstream {
    Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            let path = request.start.split(' ').nth(1).unwrap();
            let status = next(path).map_or(200, |target| {
                let headers = request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
                let call = format!("GET {target} HTTP/1.1\r\n{}\r\n", headers.collect::<String>());
                Client::connect(proxy).ask(&call).status()
            });
            let _ = caller.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"));
        }
    })
}

#[test]
fn a_server_that_copies_headers_may_call_other_targets_through_the_proxy() {
    let address = free_address();
    let server = calling(address, |path| match path {
        "/same-route" => Some("/inner".to_owned()),
        "/query?a" => Some("/query?b".to_owned()),
        "/other-route" => Some("/other/inner".to_owned()),
        "/again" => Some("/again".to_owned()),
        _ => None,
    });
    let proxy = Tidegate::start(&format!(
        "listen = \"{address}\"\n[[routes]]\npath = \"/other/*\"\nupstream = \"{0}\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{0}\"\n",
        server.url()
    ));
    for (path, status, requests) in
        [("/same-route", 200, 2), ("/query?a", 200, 4), ("/other-route", 200, 6), ("/again", 508, 8)]
    {
        assert_eq!(get(proxy.addr(), path, &[]).status(), status, "{path}");
        assert_eq!(server.requests().len(), requests, "{path}");
    }
}

#[test]
fn a_request_passes_a_proxy_five_times() {
    let address = free_address();
    // /1 calls /2, and so on.
    let server =
        calling(address, |path| path[1..].parse::<u32>().ok().map(|number| format!("/{}", number + 1)));
    let config =
        format!("listen = \"{address}\"\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let proxy = Tidegate::start(&config);
    assert_eq!(get(proxy.addr(), "/1", &[]).status(), 508);
    let targets: Vec<String> = server.requests().iter().map(|request| request.start.clone()).collect();
    assert_eq!(targets, [1, 2, 3, 4, 5].map(|number| format!("GET /{number} HTTP/1.1")));
    // Names of other processes do not count.
    let others = ["Via: 1.1 tidegate-0123456789abcdef.1.00000000"; 9];
    assert_eq!(get(proxy.addr(), "/x", &others).status(), 200);
}

#[test]
fn a_loop_whose_target_grows_is_508() {
    let proxy = with_own_url(|own| format!("[[routes]]\npath = \"/*\"\nupstream = \"{own}/base\"\n"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 508);
    assert_eq!(proxy.accesses(6).len(), 6);
}

#[test]
fn max_forwards_is_decremented() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for (sent, received) in [
        ("7", "6"),
        ("1", "0"),
        ("010", "9"),
        ("4294967295", "4294967294"),
        ("99999999999999999999999", "4294967295"),
    ] {
        for method in ["OPTIONS", "TRACE"] {
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nMax-Forwards: {sent}\r\n\r\n");
            let seen = client.ask(&request).echoed();
            assert_eq!(
                (seen.all("max-forwards"), &seen.start[..1]),
                (vec![received], &method[..1]),
                "{sent}"
            );
        }
    }
    // Max-Forwards does not apply to other methods.
    assert_eq!(client.get("/", &["Max-Forwards: 0"]).echoed().header("max-forwards"), Some("0"));
    assert_eq!(client.ask(&format!("{OPTIONS}\r\n")).echoed().header("max-forwards"), None);
}

#[test]
fn max_forwards_zero_is_answered_locally() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[limits.few]\nrate = \"3/hour\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"few\"]\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    let last =
        |method: &str| format!("{method} / HTTP/1.1\r\nHost: a\r\nCookie: secret\r\nMax-Forwards: 0\r\n\r\n");
    let response = client.ask(&last("OPTIONS"));
    assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (204, Some("2")));
    // TRACE echoes nothing, since scripts could read cookies and tokens.
    let response = client.ask(&last("TRACE"));
    assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (405, Some("1")));
    assert!(response.header("allow").is_some_and(|allow| !allow.contains("TRACE")), "{response:?}");
    assert!(!response.text().contains("secret"));
    // An invalid number is rejected.
    let response = client.ask(&format!("{OPTIONS}Max-Forwards: x\r\n\r\n"));
    assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (400, Some("0")));
    // Limits apply first.
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask(&last("OPTIONS")).status(), 429);
    assert_eq!(server.requests().len(), 0);
    for odd in ["-1", "1 2", "", "+1", "1, 2"] {
        let proxy = Tidegate::forwarding_to(&server.url());
        let response = Client::connect(proxy.addr()).ask(&format!("{OPTIONS}Max-Forwards: {odd}\r\n\r\n"));
        assert_eq!(response.status(), 400, "{odd:?}");
    }
    let proxy = Tidegate::forwarding_to(&server.url());
    let twice = format!("{OPTIONS}Max-Forwards: 1\r\nMax-Forwards: 2\r\n\r\n");
    assert_eq!(Client::connect(proxy.addr()).ask(&twice).status(), 400);
}
