//! Names of response headers with capitals, for clients that compare them with regard to case.

use crate::support::{Client, Http2, Tidegate, Upstream, get};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nX-own-NAME: Kept-value\r\nContent-Length: 2\r\n\r\nok";

fn config(listener: &str, upstream: &Upstream) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [limits.few]\nrate = \"9/day\"\n\
         [[routes]]\npath = \"/own\"\nlimits = [\"few\"]\nrespond = {{ body = \"own\" }}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"few\"]\nupstream = \"{}\"\n",
        upstream.url()
    )
}

#[test]
fn names_have_capitals_over_http1_alone() {
    let upstream = Upstream::answering(ANSWER);
    let proxy = Tidegate::start(&config("header_case = \"title\"", &upstream));
    let names = |target: &str| {
        let response = get(proxy.addr(), target, &[]);
        response.headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    let has = |lines: &[String], start: &str| lines.iter().any(|line| line.starts_with(start));
    let forwarded = names("/");
    for line in
        ["X-Own-Name: Kept-value", "Content-Length: 2", "X-Ratelimit-Limit: 9", "X-Request-Id: ", "Date: "]
    {
        assert!(has(&forwarded, line), "{line}: {forwarded:?}");
    }
    let own = names("/own");
    for line in ["Content-Type: text/plain", "Content-Length: 3", "X-Ratelimit-Remaining: 7"] {
        assert!(has(&own, line), "{line}: {own:?}");
    }
    // A head that is malformed, and a second response over one connection.
    let mut client = Client::connect(proxy.addr());
    client.get("/", &[]);
    let second = client.get("/own", &[]);
    assert!(second.headers.iter().any(|(name, _)| name == "Content-Type"), "{second:?}");
    let refused = Client::connect(proxy.addr()).ask("GET / HTTP/1.1\r\nbad header\r\n\r\n");
    assert_eq!(refused.status(), 400);
    assert!(refused.headers.iter().all(|(name, _)| name.starts_with(char::is_uppercase)), "{refused:?}");
    // Over HTTP/2 a name with a capital would be an error (RFC 9113 §8.2.1).
    let answer = Http2::connect(proxy.addr()).ask(http::Request::get("http://a/own").body(()).unwrap(), b"");
    assert_eq!((answer.status(), answer.text()), (200, "own"));
}

#[test]
fn names_are_in_lower_case_by_default() {
    let upstream = Upstream::answering(ANSWER);
    let proxy = Tidegate::start(&config("", &upstream));
    for target in ["/", "/own"] {
        let response = get(proxy.addr(), target, &[]);
        assert!(response.headers.iter().all(|(name, _)| *name == name.to_lowercase()), "{response:?}");
    }
}
