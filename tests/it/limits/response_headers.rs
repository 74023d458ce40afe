//! What a client is told: of its limits, of a refusal, and of an upstream that gave no answer.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use socket2::{Domain, Socket, Type};

use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, assert_seconds, get, timed};

/// Two requests an hour, and an own answer.
const TWO_AN_HOUR: &str = r#"
[limits.few]
rate = "2/hour"
[[routes]]
path = "/*"
limits = ["few"]
respond = { status = 200, body = "ok\n" }
"#;

/// A proxy with one limit and one route, and these lines of `[answers]`.
fn answering(answers: &str) -> Tidegate {
    Tidegate::start(&format!("{TWO_AN_HOUR}[answers]\n{answers}\n"))
}

/// The body of a problem that has no type of its own.
fn problem(status: u16, title: &str, detail: &str) -> String {
    format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}"}}"#) + "\n"
}

#[track_caller]
fn assert_problem(message: &Message, status: u16, title: &str, detail: &str) {
    assert_eq!(message.start, format!("HTTP/1.1 {status} {title}"));
    assert_eq!(message.header("content-type"), Some("application/problem+json"));
    assert_eq!(message.text(), problem(status, title, detail));
}

#[test]
fn a_limit_is_told_and_its_end_is_a_problem() {
    let proxy = Tidegate::start(TWO_AN_HOUR);
    let mut client = Client::connect(proxy.addr());
    for (remaining, reset) in [("1", 1800), ("0", 3600)] {
        let answer = client.get("/", &[]);
        assert_eq!(answer.start, "HTTP/1.1 200 OK");
        let expected = [
            "content-length",
            "content-type",
            "date",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "x-request-id",
        ];
        assert_eq!(answer.names(), expected);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
        assert_seconds(answer.header("x-ratelimit-reset"), reset);
        assert_eq!(answer.text(), "ok\n");
    }
    let answer = client.get("/", &[]);
    assert_eq!(answer.start, "HTTP/1.1 429 Too Many Requests");
    let expected = [
        "cache-control",
        "content-length",
        "content-type",
        "date",
        "retry-after",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-request-id",
    ];
    assert_eq!(answer.names(), expected);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    assert_seconds(answer.header("x-ratelimit-reset"), 3600);
    assert_seconds(answer.header("retry-after"), 1800);
    let wait = answer.header("retry-after").unwrap();
    let expected = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"the limit few is used up; try again in {wait} seconds","violated-policies":["few"]}}"#
    );
    assert_eq!(answer.text(), expected + "\n");
    // The connection lives on.
    assert_eq!(client.get("/", &[]).status(), 429);
}

#[test]
fn a_head_request_is_limited_without_a_body() {
    let proxy = Tidegate::start(TWO_AN_HOUR);
    let mut client = Client::connect(proxy.addr());
    let ask = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (first, _, third) = (client.ask(ask), client.ask(ask), client.ask(ask));
    assert_eq!((first.status(), first.header("content-length")), (200, Some("3")));
    assert_eq!(third.status(), 429);
    assert!(third.body.is_empty());
    assert_ne!(third.header("content-length"), Some("0"));
    // Had the refusal brought a body, it would stand before this answer.
    assert_eq!(client.get("/", &[]).start, "HTTP/1.1 429 Too Many Requests");
}

#[test]
fn reset_may_be_a_time_of_day() {
    let proxy = answering(r#"reset = "epoch""#);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let answer = get(proxy.addr(), "/", &[]);
    let reset: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((now + 1800..=now + 1821).contains(&reset), "{reset} where it is {now}");
    let _ = get(proxy.addr(), "/", &[]);
    let denied = get(proxy.addr(), "/", &[]);
    assert_eq!(denied.status(), 429);
    assert_seconds(denied.header("retry-after"), 1800);
    let reset: u64 = denied.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((now + 3600..=now + 3621).contains(&reset), "{reset} where it is {now}");
}

/// `RateLimit` without its `t`, and `t`.
fn draft(value: &str) -> (String, u64) {
    let (front, seconds) = value.rsplit_once(";t=").unwrap();
    (front.to_owned(), seconds.parse().unwrap())
}

#[test]
fn rate_headers_are_those_that_are_wanted() {
    for (value, x, of_draft) in [
        ("x-ratelimit", true, false),
        ("draft-11", false, true),
        ("both", true, true),
        ("none", false, false),
    ] {
        let proxy = answering(&format!("rate_headers = \"{value}\""));
        for expected in [(200, "1", 1800, 1800), (200, "0", 3600, 3600), (429, "0", 3600, 1800)] {
            let (status, remaining, reset, t) = expected;
            let answer = get(proxy.addr(), "/", &[]);
            assert_eq!(answer.status(), status, "{value}");
            assert_eq!(answer.header("x-ratelimit-limit"), x.then_some("2"));
            assert_eq!(answer.header("x-ratelimit-remaining"), x.then_some(remaining));
            if x {
                assert_seconds(answer.header("x-ratelimit-reset"), reset);
            }
            assert_eq!(answer.header("x-ratelimit-reset").is_some(), x);
            assert_eq!(answer.header("ratelimit-policy"), of_draft.then_some(r#""few";q=2;w=3600"#));
            assert_eq!(answer.header("ratelimit").is_some(), of_draft);
            if let Some(value) = answer.header("ratelimit") {
                let (front, seconds) = draft(value);
                assert_eq!(front, format!(r#""few";r={remaining}"#));
                assert_seconds(Some(&seconds.to_string()), t);
            }
            // Retry-After is no rate header: a refusal has it in any case.
            assert_eq!(answer.header("retry-after").is_some(), status == 429);
        }
    }
}

#[test]
fn the_draft_names_every_limit_and_the_others_the_one_that_binds() {
    let proxy = Tidegate::start(
        r#"
        default_limits = ["wide"]
        [limits.wide]
        rate = "100/minute"
        burst = 500
        [limits.even]
        algorithm = "gcra"
        rate = "1/minute"
        burst = 3
        [[routes]]
        path = "/*"
        limits = ["even"]
        respond = { status = 200 }
        [answers]
        rate_headers = "both"
        "#,
    );
    let answer = get(proxy.addr(), "/", &[]);
    assert_eq!(answer.header("x-ratelimit-limit"), Some("4"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("3"));
    assert_eq!(answer.header("x-ratelimit-reset"), Some("60"));
    assert_eq!(answer.header("ratelimit-policy"), Some(r#""wide";q=500;w=300, "even";q=4;w=240"#));
    assert_eq!(answer.header("ratelimit"), Some(r#""wide";r=499;t=1, "even";r=3;t=60"#));
}

#[test]
fn several_limits_that_refuse_are_all_named() {
    let proxy = Tidegate::start(
        r#"
        [limits]
        short = { rate = "1/minute" }
        long = { rate = "1/day" }
        open = { rate = "9/minute" }
        [[routes]]
        path = "/*"
        limits = ["short", "open", "long"]
        respond = { status = 200 }
        "#,
    );
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let denied = get(proxy.addr(), "/", &[]);
    assert_eq!(denied.status(), 429);
    assert!(denied.text().contains("\"detail\":\"the limit long is used up; try again in 86400 seconds\""));
    assert!(denied.text().ends_with("\"violated-policies\":[\"short\",\"long\"]}\n"), "{}", denied.text());
    assert_eq!(denied.header("retry-after"), Some("86400"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("1"));
    assert_seconds(denied.header("x-ratelimit-reset"), 86_400);
}

#[test]
fn a_refusal_may_be_in_own_words() {
    let proxy = answering(
        "retry_after_max = \"10s\"\n\
         [answers.denied]\nstatus = 503\ncontent_type = \"application/json\"\n\
         body = '{\"of\": {limit}, \"left\": {remaining}, \"reset\": {reset}, \"wait\": {retry_after}, \"id\": \"{request_id}\", \"x\": {y}}'\n",
    );
    let ids = [(); 4].map(|()| {
        let answer = get(proxy.addr(), "/", &[]);
        if answer.status() == 200 {
            return String::new();
        }
        assert_eq!(answer.start, "HTTP/1.1 503 Service Unavailable");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("retry-after"), Some("10"));
        let text = answer.text();
        let reset = answer.header("x-ratelimit-reset").unwrap();
        // The header is cut, and the body says when the request will truly pass.
        let front = format!(r#"{{"of": 2, "left": 0, "reset": {reset}, "wait": "#);
        let filled = text.strip_prefix(&front).and_then(|rest| rest.strip_suffix(r#"", "x": {y}}"#));
        let (wait, id) =
            filled.and_then(|rest| rest.split_once(r#", "id": ""#)).unwrap_or_else(|| panic!("{text}"));
        assert_seconds(Some(wait), 1_800);
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        id.to_owned()
    });
    assert_eq!(&ids[..2], ["", ""]);
    assert_ne!(ids[2], ids[3]);
}

#[test]
fn retry_after_is_spread_only_upwards() {
    let proxy = answering("retry_after_jitter = 1.0\nretry_after_max = \"3000s\"");
    let waits: Vec<u64> = (0..40)
        .map(|_| get(proxy.addr(), "/", &[]))
        .filter_map(|answer| answer.header("retry-after").map(|wait| wait.parse().unwrap()))
        .collect();
    assert_eq!(waits.len(), 38);
    assert!(waits.iter().all(|wait| (1780..=3000).contains(wait)), "{waits:?}");
    assert!(waits.iter().max() > waits.iter().min());
}

#[test]
fn an_upstreams_own_rate_headers_stay_if_they_are_tighter() {
    let answer = |remaining: &str| {
        Upstream::answering(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Limit: 7\r\nx-ratelimit-Remaining: {remaining}\r\nX-RateLimit-Reset: 9\r\nRateLimit: \"theirs\";r={remaining};t=9\r\nRateLimit-Policy: \"theirs\";q=7;w=9\r\n\r\n"
        ))
    };
    let (tight, equal, loose, odd) = (answer("0"), answer("4"), answer("5"), answer("many"));
    let servers = [&tight, &equal, &loose, &odd].into_iter().enumerate();
    let route = |(number, server): (usize, &Upstream)| {
        format!("[[routes]]\npath = \"/{number}\"\nlimits = [\"few\"]\nupstream = \"{}\"\n", server.url())
    };
    let routes = servers.map(route).collect::<Vec<_>>().concat();
    let proxy = Tidegate::start(&format!(
        "[limits.few]\nrate = \"5/hour\"\nkey = \"route\"\n{routes}[answers]\nrate_headers = \"both\"\n"
    ));
    for (path, theirs) in [("/0", Some("0")), ("/1", Some("4")), ("/2", None), ("/3", None)] {
        let got = get(proxy.addr(), path, &[]);
        assert_eq!(got.header("x-ratelimit-limit"), Some(if theirs.is_some() { "7" } else { "5" }), "{path}");
        assert_eq!(got.header("x-ratelimit-remaining"), Some(theirs.unwrap_or("4")), "{path}");
        assert_seconds(got.header("x-ratelimit-reset"), if theirs.is_some() { 9 } else { 720 });
        let policy = got.header("ratelimit-policy").unwrap();
        assert_eq!(policy, if theirs.is_some() { r#""theirs";q=7;w=9"# } else { r#""few";q=5;w=3600"# });
        let (front, _) = draft(got.header("ratelimit").unwrap());
        let expected = theirs.map_or(r#""few";r=4"#.to_owned(), |left| format!(r#""theirs";r={left}"#));
        assert_eq!(front, expected, "{path}");
    }
}

#[test]
fn without_a_limit_an_upstreams_own_rate_headers_pass() {
    let server =
        Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Remaining: 99\r\n\r\n");
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let answer = get(proxy.addr(), "/", &[]);
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("99"));
    assert_eq!(answer.header("x-ratelimit-limit"), None);
}

/// A proxy with one upstream and a limit.
fn before(upstream: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.some]\nrate = \"9/hour\"\n[upstreams.one]\nservers = [\"{upstream}\"]\n{settings}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"some\"]\nupstream = \"one\"\n"
    ))
}

#[track_caller]
fn assert_tells_nothing(answer: &Message, address: std::net::SocketAddr) {
    let text = format!("{answer:?} {}", answer.text());
    for secret in [address.to_string(), address.port().to_string(), "os error".into(), "hyper".into()] {
        assert!(!text.contains(&secret), "{secret} in {text}");
    }
}

#[test]
fn an_upstream_that_refuses_is_502() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = before(&format!("http://{address}"), "");
    let mut client = Client::connect(proxy.addr());
    for remaining in ["8", "7"] {
        let answer = client.get("/", &[]);
        assert_problem(&answer, 502, "Bad Gateway", "the upstream can't be reached");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(answer.header("retry-after"), None);
        assert_tells_nothing(&answer, address);
    }
}

#[test]
fn an_upstream_that_says_nothing_sensible_is_502() {
    for said in [
        "",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{16}\u{3}\u{1}\u{2}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Len",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nabcde",
        "HTTP/9.9 200 OK\r\n\r\n",
    ] {
        let server = Upstream::scripted(move |caller| {
            let _ = caller.request();
            let _ = caller.try_send(said);
        });
        let proxy = before(&server.url(), "");
        let answer = get(proxy.addr(), "/", &[]);
        assert_problem(&answer, 502, "Bad Gateway", "the upstream gave no valid response");
        assert_tells_nothing(&answer, server.addr());
        assert_eq!(server.requests().len(), 1, "after {said:?}");
    }
}

#[test]
fn an_upstream_that_is_silent_is_504() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        // Longer than the proxy waits; ends with the connection, which the proxy closes.
        let _ = caller.request();
    });
    let proxy = before(&server.url(), "response_timeout = \"300ms\"");
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        let (answer, time) = timed(|| Client::connect(proxy.addr()).ask(request));
        assert_problem(&answer, 504, "Gateway Timeout", "the upstream did not respond in time");
        assert_tells_nothing(&answer, server.addr());
        assert!((300..5000).contains(&time.as_millis()), "{time:?}");
    }
    crate::support::eventually("the connection is closed", || server.open() == 0);
}

/// A listener whose queue is full: the kernel drops the SYN of a connection that would be made.
fn full_queue() -> (Socket, Vec<TcpStream>) {
    // A queue of no length takes one connection; others wait for ever.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
        assert!(queued.len() < 50, "the queue has no end");
    }
    (socket, queued)
}

/// The kernel sends a lost SYN again after a second: by default there is time for that.
#[test]
fn a_lost_syn_is_no_failure() {
    let (socket, queued) = full_queue();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let proxy = before(&format!("http://{address}"), "");
    let mut client = Client::connect(proxy.addr());
    let began = std::time::Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // Time for the first SYN; only then is there room in the queue.
    std::thread::sleep(Duration::from_millis(300));
    let server = Upstream::listening(socket.into(), |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    assert_eq!(client.read().status(), 200);
    assert!(began.elapsed() >= Duration::from_millis(900), "no SYN was lost: {:?}", began.elapsed());
    drop((queued, server));
}

#[test]
fn an_upstream_that_takes_no_connection_is_504() {
    let (socket, _queued) = full_queue();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let proxy = before(&format!("http://{address}"), "connect_timeout = \"300ms\"");
    let (answer, time) = timed(|| get(proxy.addr(), "/", &[]));
    assert_problem(&answer, 504, "Gateway Timeout", "the upstream could not be reached in time");
    assert_tells_nothing(&answer, address);
    assert!((300..5000).contains(&time.as_millis()), "{time:?}");
}

#[test]
fn a_response_that_breaks_off_is_never_whole() {
    for (said, kind) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "length"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "chunks"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", "a bad chunk"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", "no end of trailers"),
    ] {
        let server = Upstream::scripted(move |caller| {
            let _ = caller.request();
            let _ = caller.try_send(said);
        });
        let proxy = before(&server.url(), "");
        let mut client = Client::connect(proxy.addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let end = client.read_response("GET");
        assert!(end.is_err(), "{kind}: {end:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_response_that_stalls_is_cut_off() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        let _ = caller.request();
    });
    let proxy = before(&server.url(), "stall_timeout = \"300ms\"");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (end, time) = timed(|| client.read_response("GET"));
    let kind = end.unwrap_err().kind();
    assert!(
        matches!(kind, std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset),
        "{kind}"
    );
    assert!((250..5000).contains(&time.as_millis()), "{time:?}");
}

#[test]
fn without_redis_a_limit_that_says_deny_is_503() {
    let redis = RedisServer::absent();
    let proxy = Tidegate::start(&format!(
        "[store]\nurl = \"{}\"\n\
         [limits]\nstrict = {{ rate = \"9/hour\", on_store_failure = \"deny\" }}\nlax = {{ rate = \"9/hour\" }}\n\
         [[routes]]\npath = \"/strict\"\nlimits = [\"lax\", \"strict\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nrespond = {{ status = 200 }}\n",
        redis.url()
    ));
    let answer = get(proxy.addr(), "/strict", &[]);
    let detail = "the limits of this route can't be checked at the moment";
    assert_problem(&answer, 503, "Service Unavailable", detail);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-ratelimit-limit"), None);
    assert!(!answer.text().contains("edis"));
    assert_eq!(get(proxy.addr(), "/free", &[]).status(), 200);
}

#[test]
fn no_route_is_a_problem_and_default_limits_count_it() {
    let proxy = Tidegate::start(
        r#"
        default_limits = ["few"]
        [limits.few]
        rate = "2/hour"
        [[routes]]
        path = "/here"
        respond = { status = 200 }
        "#,
    );
    let answer = get(proxy.addr(), "/elsewhere", &[]);
    assert_problem(&answer, 404, "Not Found", "no route matches this request");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(get(proxy.addr(), "/here", &[]).header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(get(proxy.addr(), "/nowhere", &[]).status(), 429);
}
