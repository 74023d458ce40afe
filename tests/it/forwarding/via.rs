//! Via, request loops and Max-Forwards (RFC 9110 §7.6).

use std::time::Instant;

use crate::support::{Client, Http2, Message, PATIENCE, Tidegate, Upstream, free_address, get};

const OPTIONS: &str = "OPTIONS / HTTP/1.1\r\nHost: a\r\n";

fn before(server: &str) -> Tidegate {
    Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{server}\"\n"))
}

/// A proxy on this address with these routes, which knows where it listens itself.
fn on_a_known_address(routes: impl Fn(&str) -> String) -> Tidegate {
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
    let proxy = before(&server.url());
    let (version, name) = last_hop(&get(proxy.addr(), "/", &[]).echoed());
    assert_eq!(version, "1.1");
    let rest = name.strip_prefix("tidegate-").unwrap();
    assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{name}");
    let old = Client::connect(proxy.addr()).ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").echoed();
    assert_eq!(last_hop(&old), ("1.0".to_owned(), name.clone()));
    let request = http::Request::get("http://a/").body(()).unwrap();
    let answer = Http2::connect(proxy.addr()).ask(request, b"");
    assert_eq!(last_hop(&Message::parse(answer.text().as_bytes())), ("2".to_owned(), name.clone()));
    // Those before it stay, in their order.
    let chained = get(proxy.addr(), "/", &["Via: 1.0 fred", "Via: 1.1 p.example.net (x, y)"]).echoed();
    assert_eq!(chained.all("via"), [format!("1.0 fred, 1.1 p.example.net (x, y), 1.1 {name}")]);
    // Every process has a name of its own.
    let other = before(&server.url());
    assert_ne!(last_hop(&get(other.addr(), "/", &[]).echoed()).1, name);
}

#[test]
fn responses_have_no_via_of_ours_and_a_route_may_remove_it() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/*\"\nupstream = \"{}\"\nrequest_headers = {{ remove = [\"via\"] }}\n",
        server.url()
    ));
    let answer = get(proxy.addr(), "/", &["Via: 1.0 fred"]);
    assert_eq!((answer.header("via"), answer.echoed().header("via")), (None, None));
}

#[test]
fn a_proxy_that_is_its_own_upstream_stops_at_once() {
    let proxy = on_a_known_address(|own| {
        format!(
            "[limits.some]\nrate = \"100/hour\"\n\
             [[routes]]\npath = \"/limited\"\nlimits = [\"some\"]\nupstream = \"{own}\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"{own}\"\n"
        )
    });
    let begun = Instant::now();
    let mut client = Client::connect(proxy.addr());
    for _ in 0..3 {
        let answer = client.get("/", &["Via: 1.1 tidegate-0123456789abcdef.1"]);
        assert_eq!(answer.start, "HTTP/1.1 508 Loop Detected");
        assert!(answer.text().contains("came back to this proxy"), "{}", answer.text());
    }
    assert!(begun.elapsed() < PATIENCE);
    // Each request has passed the proxy twice: once from the client, and once from itself.
    let lines = proxy.accesses(6);
    assert_eq!(lines.iter().filter(|line| line.contains("\"error\":\"request_loop\"")).count(), 3);
    // Its limits have counted it each time.
    let looped = client.get("/limited", &[]);
    assert_eq!((looped.status(), looped.header("x-ratelimit-remaining")), (508, Some("98")));
    assert_eq!(proxy.accesses(8).len(), 8);
}

#[test]
fn two_proxies_that_lead_to_each_other_stop() {
    let first = free_address();
    let second = before(&format!("http://{first}"));
    let config =
        format!("listen = \"{first}\"\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", second.url(""));
    let first = Tidegate::start(&config);
    for proxy in [&first, &second] {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 508);
    }
}

#[test]
fn a_request_may_pass_a_proxy_by_several_routes() {
    let server = Upstream::echo();
    let proxy = on_a_known_address(|own| {
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

#[test]
fn max_forwards_is_counted_down() {
    let server = Upstream::echo();
    let proxy = before(&server.url());
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
            assert_eq!((seen.all("max-forwards"), &seen.start[..1]), (vec![received], &method[..1]));
        }
    }
    // For other methods it means nothing.
    assert_eq!(client.get("/", &["Max-Forwards: 0"]).echoed().header("max-forwards"), Some("0"));
    assert_eq!(client.ask(&format!("{OPTIONS}\r\n")).echoed().header("max-forwards"), None);
}

#[test]
fn the_last_hop_answers_by_itself() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[limits.few]\nrate = \"3/hour\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"few\"]\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    let last =
        |method: &str| format!("{method} / HTTP/1.1\r\nHost: a\r\nCookie: secret\r\nMax-Forwards: 0\r\n\r\n");
    let answer = client.ask(&last("OPTIONS"));
    assert_eq!((answer.status(), answer.header("x-ratelimit-remaining")), (204, Some("2")));
    // Nothing is echoed: scripts could read cookies and tokens that way.
    let answer = client.ask(&last("TRACE"));
    assert_eq!((answer.status(), answer.header("x-ratelimit-remaining")), (405, Some("1")));
    assert!(answer.header("allow").is_some_and(|allow| !allow.contains("TRACE")), "{answer:?}");
    assert!(!answer.text().contains("secret"));
    // A number that is none can't be counted down.
    let answer = client.ask(&format!("{OPTIONS}Max-Forwards: x\r\n\r\n"));
    assert_eq!((answer.status(), answer.header("x-ratelimit-remaining")), (400, Some("0")));
    // Limits come first.
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask(&last("OPTIONS")).status(), 429);
    assert_eq!(server.requests().len(), 0);
    for odd in ["-1", "1 2", "", "+1", "1, 2"] {
        let proxy = before(&server.url());
        let answer = Client::connect(proxy.addr()).ask(&format!("{OPTIONS}Max-Forwards: {odd}\r\n\r\n"));
        assert_eq!(answer.status(), 400, "{odd:?}");
    }
    let proxy = before(&server.url());
    let twice = format!("{OPTIONS}Max-Forwards: 1\r\nMax-Forwards: 2\r\n\r\n");
    assert_eq!(Client::connect(proxy.addr()).ask(&twice).status(), 400);
}
