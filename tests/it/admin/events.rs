//! The activity of the process: `/v1/events`, `/v1/history` and `/v1/keys/history` of the admin interface.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::{Value, json};

use super::interface::{LIMITED, with_admin};
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get, patience};

/// An open event stream.
pub struct EventStream {
    client: Client,
    text: String,
}

impl EventStream {
    /// Opens a stream; `headers` are whole lines.
    #[track_caller]
    pub fn open(admin: SocketAddr, headers: &[&str]) -> Self {
        let mut client = Client::connect(admin);
        let lines = [&["GET /v1/events HTTP/1.1", "Host: localhost"], headers, &["", ""]].concat();
        client.send(lines.join("\r\n"));
        let head = client.read_head().unwrap().unwrap();
        assert_eq!((head.status(), head.header("content-type")), (200, Some("text/event-stream")));
        Self { client, text: String::new() }
    }

    /// The next event and its data; none at the end of the stream.
    #[track_caller]
    pub fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
                }
                assert_eq!(event, "retry: 2000\n\n");
            }
            let chunk = self.client.read_chunk().unwrap();
            if chunk.is_empty() {
                return None;
            }
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The data of the next event, which has this name.
    #[track_caller]
    pub fn expect(&mut self, name: &str) -> Value {
        let (event, data) = self.next().expect("the stream goes on");
        assert_eq!(event, name);
        data
    }

    /// The next frame that meets a condition.
    #[track_caller]
    fn frame_with(&mut self, condition: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + patience();
        loop {
            let frame = self.expect("frame");
            if is_met(&frame) {
                return frame;
            }
            assert!(Instant::now() < deadline, "no frame with {condition}: {frame}");
        }
    }
}

/// The frames until they have this many requests together.
#[track_caller]
fn frames_of(stream: &mut EventStream, requests: u64) -> Vec<Value> {
    let (mut frames, deadline) = (Vec::new(), Instant::now() + patience());
    while sum(&frames, |frame| &frame["requests"]) < requests {
        assert!(Instant::now() < deadline, "{frames:?}");
        frames.push(stream.expect("frame"));
    }
    assert_eq!(sum(&frames, |frame| &frame["requests"]), requests);
    frames
}

/// The sum of a number that is absent where it is 0.
fn sum<'v>(all: &'v [Value], number: impl Fn(&'v Value) -> &'v Value) -> u64 {
    all.iter().map(|value| number(value).as_u64().unwrap_or_default()).sum()
}

/// The entries with this name in a list of all frames.
fn named(frames: &[Value], list: &str, name: &str) -> Vec<Value> {
    let entries = frames.iter().flat_map(|frame| frame[list].as_array().unwrap());
    entries.filter(|entry| entry["name"] == name).cloned().collect()
}

#[track_caller]
fn read(proxy: &Tidegate, path: &str) -> Value {
    let response = get(proxy.admin(), path, &[]);
    assert_eq!(response.status(), 200, "{path}: {}", response.text());
    serde_json::from_str(response.text()).unwrap()
}

/// Five requests with a limit of three, and two that get 503.
fn send_requests(proxy: &Tidegate) {
    let statuses = [(); 5].map(|()| get(proxy.addr(), "/limited", &[]).status());
    assert_eq!(statuses, [204, 204, 204, 429, 429]);
    assert_eq!([(); 2].map(|()| get(proxy.addr(), "/free", &[]).status()), [503, 503]);
}

#[test]
fn frames_show_what_has_happened_since_the_last() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let mut stream = EventStream::open(proxy.admin(), &[]);
    let hello = stream.expect("hello");
    assert_eq!(
        (&hello["routes"], &hello["interval"], &hello["can_change"]),
        (&json!(2), &json!(1), &json!(true))
    );
    let three = json!({
        "name": "three", "algorithm": "token_bucket", "mode": "enforce", "numbers": "3/hour",
        "limit": 3, "quota": 3, "window": 3600,
    });
    assert_eq!(hello["limits"][0], three);
    // The first frame comes at once, and shows what the history does not show yet.
    let first = stream.expect("frame");
    assert_eq!((&first["requests"], &first["limits"], &first["routes"]), (&json!(0), &json!([]), &json!([])));
    send_requests(&proxy);
    let frames = frames_of(&mut stream, 7);
    let responses = |class: &'static str| sum(&frames, move |frame| &frame["responses"][class]);
    assert_eq!(["2xx", "4xx", "429", "5xx", "none"].map(responses), [3, 0, 2, 2, 0]);
    let decisions = |outcome: &'static str| sum(&frames, move |frame| &frame["decisions"][outcome]);
    assert_eq!(["allowed", "near_limit", "denied", "banned"].map(decisions), [7, 1, 2, 0]);
    let limited = named(&frames, "limits", "three");
    let of_three = |outcome: &'static str| sum(&limited, move |limit| &limit["decisions"][outcome]);
    assert_eq!(["allowed", "near_limit", "denied"].map(of_three), [2, 1, 2]);
    let of_route =
        |name, number: &'static str| sum(&named(&frames, "routes", name), move |route| &route[number]);
    assert_eq!((of_route("limited", "requests"), of_route("limited", "429")), (5, 2));
    assert_eq!((of_route("free", "requests"), of_route("free", "5xx")), (2, 2));
    let busy = frames.iter().find(|frame| frame["latency"].is_object()).unwrap();
    assert!(busy["latency"]["p50"].as_f64().unwrap() <= busy["latency"]["p99"].as_f64().unwrap(), "{busy}");
    for pair in frames.windows(2) {
        let time = |frame: &Value| frame["time"].as_f64().unwrap();
        assert!(time(&pair[0]) < time(&pair[1]), "{pair:?}");
    }
}

#[test]
fn frames_show_the_store_and_the_upstreams() {
    let (mut redis, server) = (RedisServer::start(), Upstream::echo());
    let config = format!(
        "[limits.wide]\nrate = \"1000/hour\"\n\
         [upstreams.api]\nservers = [\"{}\"]\n\
         [[routes]]\nname = \"api\"\npath = \"/*\"\nlimits = [\"wide\"]\nupstream = \"api\"\n",
        server.url()
    );
    let proxy = Tidegate::start_with(&redis, &with_admin(&config));
    proxy.wait_ready();
    let mut stream = EventStream::open(proxy.admin(), &[]);
    stream.expect("hello");
    assert_eq!(stream.expect("frame")["store"]["state"], "up");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let frame = stream.frame_with("a request", |frame| frame["requests"] == 1);
    let store = &frame["store"];
    assert_eq!((&store["kind"], &store["errors"]), (&json!("redis"), &json!(0)));
    assert!(store["requests"].as_u64() >= Some(1) && store["latency"].is_object(), "{frame}");
    let api = &frame["upstreams"][0];
    let shown = &api["servers"][0];
    assert_eq!(
        (&api["name"], &shown["server"], &shown["state"]),
        (&json!("api"), &json!(server.url()), &json!("healthy"))
    );
    assert_eq!((&shown["requests"], &shown["failures"]), (&json!(1), &json!(0)));
    redis.kill();
    let _ = get(proxy.addr(), "/", &[]);
    stream.frame_with("a store that is unreachable", |frame| frame["store"]["state"] == "unreachable");
}

#[test]
fn streams_are_for_clients_with_a_token() {
    let tokens = "token = \"s3cret-admin-t0ken\"\nread_token = \"s3cret-read-t0ken\"\n";
    let config = format!("{}{tokens}{LIMITED}", with_admin(""));
    let proxy = Tidegate::start(&config);
    for path in ["/v1/events", "/v1/history", "/v1/keys/history"] {
        assert_eq!(get(proxy.admin(), path, &[]).status(), 401, "{path}");
    }
    let open = |token: &str| EventStream::open(proxy.admin(), &[&format!("Authorization: Bearer {token}")]);
    let (mut admin, mut reader) = (open("s3cret-admin-t0ken"), open("s3cret-read-t0ken"));
    assert_eq!(admin.expect("hello")["can_change"], true);
    assert_eq!(reader.expect("hello")["can_change"], false);
    // A reload that keeps the tokens keeps the streams, and shows its limits.
    proxy.reload(&config.replace("limits.wide", "limits.open").replace("\"wide\"", "\"open\""));
    let hello = loop {
        match reader.next().unwrap() {
            (event, hello) if event == "hello" => break hello,
            _ => {}
        }
    };
    let limits = hello["limits"].as_array().unwrap().iter();
    let limits: Vec<&str> = limits.map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!((limits, &hello["can_change"]), (vec!["three", "open"], &json!(false)));
    proxy.reload(&config.replace("read-t0ken", "other-t0ken"));
    while reader.next().is_some() {}
    while admin.next().is_some() {}
}

#[test]
fn streams_are_bounded() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let mut streams: Vec<EventStream> = (0..16).map(|_| EventStream::open(proxy.admin(), &[])).collect();
    let refused = get(proxy.admin(), "/v1/events", &[]);
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("16 event streams are open already"), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    // Other requests have their own capacity, and clients that do not read delay no frames of others.
    for _ in 0..40 {
        assert_eq!(get(proxy.admin(), "/v1/limits", &[]).status(), 200);
    }
    let last = streams.last_mut().unwrap();
    last.expect("hello");
    (0..3).for_each(|_| drop(last.expect("frame")));
    streams.truncate(15);
    eventually("a stream that was closed makes room", || {
        let mut client = Client::connect(proxy.admin());
        client.send("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.read_head().unwrap().unwrap().status() == 200
    });
}

#[test]
fn streams_end_when_the_process_drains() {
    let (server, answer) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let config = format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let proxy = Tidegate::start(&with_admin(&config));
    let mut stream = EventStream::open(proxy.admin(), &[]);
    stream.expect("hello");
    stream.expect("frame");
    // This request keeps the process from ending before the stream does.
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    eventually("the request is forwarded", || server.received() == 1);
    proxy.signal("TERM");
    while stream.next().is_some() {}
    let refused = get(proxy.admin(), "/v1/events", &[]);
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("the process is stopping"), "{}", refused.text());
    answer.send(()).unwrap();
    assert_eq!(client.read().status(), 200);
}

#[test]
fn the_history_is_kept_over_reloads() {
    let config = with_admin(LIMITED);
    let proxy = Tidegate::start(&config);
    assert_eq!(read(&proxy, "/v1/history"), json!({"seconds": 10, "frames": []}));
    send_requests(&proxy);
    proxy.reload(&config.replace("name = \"free\"", "name = \"other\""));
    // The first frame ends after ten seconds.
    let deadline = Instant::now() + 2 * patience();
    let mut stream = EventStream::open(proxy.admin(), &[]);
    stream.expect("hello");
    let mut history = read(&proxy, "/v1/history");
    while history["frames"] == json!([]) {
        assert!(Instant::now() < deadline);
        stream.expect("frame");
        history = read(&proxy, "/v1/history");
    }
    let frames = history["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 1);
    assert!(frames[0]["seconds"].as_f64().unwrap() > 9.0, "{history}");
    assert_eq!(
        (&named(frames, "limits", "three")[0]["decisions"]["denied"], &frames[0]["responses"]["429"]),
        (&json!(2), &json!(2))
    );
    // The counters of a route that was removed are lost with it.
    assert_eq!((frames[0]["requests"].as_u64(), named(frames, "routes", "free").len()), (Some(5), 0));
    proxy.reload(&config);
    assert_eq!(read(&proxy, "/v1/history")["frames"][0], frames[0]);
}

#[test]
fn the_history_of_a_key_shows_its_denials() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let history = |query: &str| read(&proxy, &format!("/v1/keys/history?limit=three&{query}"));
    let total = |history: &Value| {
        let slots = history["slots"].as_array().unwrap();
        (sum(slots, |slot| &slot["requests"]), sum(slots, |slot| &slot["denials"]))
    };
    assert_eq!(total(&history("key=127.0.0.1")), (0, 0));
    send_requests(&proxy);
    let of_key = history("key=127.0.0.1");
    assert_eq!(
        (total(&of_key), &of_key["max_error"], &of_key["mode"]),
        ((5, 2), &json!(0), &json!("enforce"))
    );
    let tag = of_key["key"].as_str().unwrap();
    assert_eq!(total(&history(&format!("key={tag}"))), (5, 2));
    assert_eq!(total(&history("key=127.0.0.2")), (0, 0));
    let status = |query: &str| get(proxy.admin(), &format!("/v1/keys/history?{query}"), &[]).status();
    assert_eq!(
        [
            "limit=thre&key=127.0.0.1",
            "limit=three",
            "limit=three&key=x",
            "key=127.0.0.1",
            "limit=three&key=127.0.0.1&max=1"
        ]
        .map(status),
        [404, 400, 400, 400, 400]
    );
}

#[test]
fn frames_are_bounded_however_many_routes_there_are() {
    let mut config = with_admin("");
    for number in 0..10_000 {
        let _ = write!(
            config,
            "[[routes]]\nname = \"r{number}\"\npath = \"/{number}\"\nrespond = {{ status = 204 }}\n"
        );
    }
    let proxy = Tidegate::start(&config);
    let mut client = Client::connect(proxy.addr());
    for number in 0..150 {
        assert_eq!(client.get(&format!("/{}", number * 60), &[]).status(), 204);
    }
    // One route has failed, so it is shown whatever others do.
    assert_eq!(client.get("/none", &[]).status(), 404);
    let mut stream = EventStream::open(proxy.admin(), &[]);
    assert_eq!(stream.expect("hello")["routes"], 10_000);
    let frame = stream.expect("frame");
    let listed = frame["routes"].as_array().unwrap().len();
    assert!(listed <= 100 && frame.to_string().len() < 32 * 1024, "{listed}: {}", frame.to_string().len());
    // If starting has taken long, the history has some of them.
    assert!(
        frame["routes_left_out"] == listed + 51 - 100 || frame["seconds"].as_f64() < Some(9.5),
        "{frame}"
    );
}

#[test]
fn pages_of_other_sites_open_no_stream() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        let mut client = Client::connect(proxy.admin());
        client.send(format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}\r\n\r\n"));
        assert_eq!(client.read_head().unwrap().unwrap().status(), status, "{site}");
    }
}
