//! Lines of the access log, and a log that is not read.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use crate::support::{Client, Frames, Tidegate, Upstream, eventually, free_address, get};

pub const LIMITED: &str = r#"
[client_ip]
trusted_proxies = ["127.0.0.1"]
[log]
access = "json"
[limits.watched]
rate = "1/hour"
mode = "shadow"
[limits.real]
rate = "2/hour"
block = ["192.0.2.0/24"]
[limits.keyed]
rate = "2/hour"
key = "header:x-key"
on_missing = "deny"
[[routes]]
name = "counted"
path = "/counted"
limits = ["watched", "real"]
respond = { status = 200 }
[[routes]]
name = "keyed"
path = "/keyed"
limits = ["keyed"]
respond = { status = 200 }
"#;

/// The logged targets of these requests, with these lines in `[log]`.
fn logged_with(settings: &str, requests: &[&str], count: usize) -> Vec<String> {
    let proxy =
        Tidegate::start(&LIMITED.replace("access = \"json\"", &format!("access = \"json\"\n{settings}")));
    for path in requests {
        get(proxy.addr(), path, &["Host: api.test", "X-Forwarded-For: 198.51.100.7"]);
    }
    let lines = proxy.accesses(count);
    lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["target"].to_string()).collect()
}

#[test]
fn access_only_denied_logs_only_denials() {
    let requests = ["/counted?1", "/counted?2", "/counted?3", "/nowhere", "/keyed?4", "/a%2Fb", "/counted?5"];
    let denied = logged_with("access_only = \"denied\"", &requests, 3);
    assert_eq!(denied, ["\"/counted?3\"", "\"/keyed?4\"", "\"/counted?5\""]);
}

#[test]
fn access_sample_logs_about_that_share() {
    let requests = vec!["/nowhere"; 400];
    let logged = logged_with("access_sample = 0.5", &requests, 100).len();
    // The probability of a deviation of more than 50 is one in two millions.
    assert!(logged <= 250, "{logged}");
    let mut none_and_one = vec!["/nowhere"; 100];
    none_and_one.push("/last");
    assert_eq!(logged_with("access_sample = 1.0", &none_and_one, 101).len(), 101);
}

#[test]
fn a_request_has_one_request_id_everywhere() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n[log]\naccess = \"json\"\n\
         [limits.one]\nrate = \"1/hour\"\n[[routes]]\npath = \"/all\"\nupstream = \"{0}\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nupstream = \"{0}\"\n\
         [answers]\ndenied = {{ body = \"{{request_id}}\" }}\n",
        server.url()
    ));
    let ids = |index: usize| {
        let line: Value = serde_json::from_str(&proxy.accesses(index + 1)[index]).unwrap();
        line["request_id"].as_str().unwrap().to_owned()
    };
    let given = get(proxy.addr(), "/", &["X-Request-Id: from-the-edge", "X-Forwarded-For: 192.0.2.1"]);
    assert_eq!(given.header("x-request-id"), Some("from-the-edge"));
    assert_eq!(given.echoed().header("x-request-id"), Some("from-the-edge"));
    assert_eq!(ids(0), "from-the-edge");
    let denied = get(proxy.addr(), "/", &["X-Forwarded-For: 192.0.2.1"]);
    let made = denied.header("x-request-id").unwrap();
    assert_eq!((denied.status(), denied.text(), &*ids(1)), (429, made, made));
    assert!(made.len() == 32 && made.bytes().all(|digit| digit.is_ascii_hexdigit()), "{made}");
    // Invalid IDs and IDs of untrusted clients are replaced.
    for odd in ["with blanks", "a\"b", "<b>", "a&b", "a;b", "a\\b", "a'b", "a,b", "{a}"] {
        let odd = [&*format!("X-Request-Id: {odd}"), "X-Forwarded-For: 192.0.2.2"];
        let made = Client::connect(proxy.addr()).get("/all", &odd).echoed();
        assert_eq!(made.header("x-request-id").map(str::len), Some(32), "{odd:?}");
    }
    let safe = "AZaz09._:/+=@-";
    let given = get(proxy.addr(), "/all", &[&*format!("X-Request-Id: {safe}")]);
    assert_eq!(given.echoed().header("x-request-id"), Some(safe));
    let mut untrusted = Client::connect_from("127.0.0.2", proxy.addr());
    let response = untrusted.get("/", &["X-Request-Id: mine", "X-Request-Id: too"]);
    assert_eq!(response.echoed().header("x-request-id"), response.header("x-request-id"));
    assert_ne!(response.header("x-request-id"), Some("mine"));
}

#[test]
fn routes_and_servers_may_replace_the_request_id() {
    let server = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Request-Id: theirs\r\n\r\n");
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/theirs\"\nupstream = \"{0}\"\n\
         [[routes]]\npath = \"/none\"\nupstream = \"{0}\"\nresponse_headers = {{ remove = [\"x-request-id\"] }}\n\
         request_headers = {{ remove = [\"x-request-id\"] }}\n",
        server.url()
    ));
    assert_eq!(get(proxy.addr(), "/theirs", &[]).header("x-request-id"), Some("theirs"));
    assert_eq!(get(proxy.addr(), "/none", &[]).header("x-request-id"), None);
    let ids: Vec<bool> = server.requests().iter().map(|it| it.header("x-request-id").is_some()).collect();
    assert_eq!(ids, [true, false]);
}

/// A field of the lines of these requests: pairs of a path and the address of the client.
fn logged(requests: &[(&str, &str)], field: &str) -> Vec<Value> {
    let proxy = Tidegate::start(LIMITED);
    for (path, client) in requests {
        get(proxy.addr(), path, &["Host: api.test", &format!("X-Forwarded-For: {client}")]);
    }
    let lines = proxy.accesses(requests.len());
    lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()[field].take()).collect()
}

#[test]
fn rejected_requests_are_logged_with_all_fields() {
    let requests = [
        ("/counted", "198.51.100.7"),
        ("/counted", "192.0.2.7"),
        ("/keyed", "198.51.100.7"),
        ("/a%2Fb", "198.51.100.7"),
    ];
    let clients = ["198.51.100.7", "192.0.2.7", "198.51.100.7", "198.51.100.7"];
    assert_eq!(logged(&requests, "client"), clients);
    assert_eq!(logged(&requests, "host"), ["api.test", "api.test", "api.test", ""]);
    let routes = [json!("counted"), json!("counted"), json!("keyed"), Value::Null];
    assert_eq!(logged(&requests, "route"), routes);
    assert_eq!(logged(&requests, "status"), [200, 403, 403, 400]);
    assert_eq!(logged(&requests, "denied_by"), [Value::Null, json!("real"), json!("keyed"), Value::Null]);
}

#[test]
fn shadow_denials_are_logged() {
    let requests = [("/counted", "198.51.100.7"); 3];
    assert_eq!(logged(&requests, "denied_by"), [Value::Null, Value::Null, json!("real")]);
    let watched = json!(["watched"]);
    assert_eq!(logged(&requests, "shadow_denied_by"), [Value::Null, watched.clone(), watched]);
}

/// A server whose response, or failure, depends on the path.
pub fn faulty() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(Some(request)) = caller.read_head() else { return };
        let response = match request.start.split(' ').nth(1) {
            Some("/lost" | "/late") => "",
            Some("/invalid") => "SSH-2.0-OpenSSH_9.2\r\n",
            Some("/ambiguous") => {
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
            }
            Some("/switched") => "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            Some("/broken" | "/half" | "/gone") => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            Some("/chunks") => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Some("/trailers") => {
                "HTTP/1.1 200 OK\r\nTrailer: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"
            }
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        };
        let _ = caller.try_send(response);
        // Keeps the connection open without a response, or after half of one.
        if request.start.contains("/late")
            || request.start.contains("/half")
            || request.start.contains("/gone")
        {
            let _ = caller.request();
        }
    })
}

#[test]
fn failed_and_truncated_responses_are_logged_with_their_cause() {
    let server = faulty();
    let refusing = free_address();
    for form in ["json", "text"] {
        let proxy = Tidegate::start(&format!(
            "[log]\naccess = \"{form}\"\n\
             [upstreams.late]\nservers = [\"{0}\"]\nresponse_timeout = \"300ms\"\n\
             [upstreams.stalled]\nservers = [\"{0}\"]\nstall_timeout = \"300ms\"\n\
             [[routes]]\npath = \"/refusing\"\nupstream = \"http://{refusing}\"\n\
             [[routes]]\npath = \"/late\"\nupstream = \"late\"\n\
             [[routes]]\npath = \"/half\"\nupstream = \"stalled\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"{0}\"\n",
            server.url()
        ));
        for (method, path, error) in [
            ("GET", "/good", None),
            ("GET", "/chunks", None),
            ("GET", "/trailers", None),
            ("HEAD", "/good", None),
            ("GET", "/refusing", Some("connect_failed")),
            ("GET", "/late", Some("response_timeout")),
            ("GET", "/lost", Some("connection_lost")),
            ("GET", "/invalid", Some("invalid_response")),
            ("GET", "/ambiguous", Some("ambiguous_response")),
            ("GET", "/switched", Some("switched_protocols")),
            ("GET", "/broken", Some("response_broken")),
            ("GET", "/half", Some("response_stalled")),
            ("POST", "/chunked", Some("request_broken")),
        ] {
            let before = proxy.accesses(0).len();
            let mut client = Client::connect(proxy.addr());
            let body = if method == "POST" {
                "Transfer-Encoding: chunked\r\n\r\nx\r\n"
            } else {
                "TE: trailers\r\n\r\n"
            };
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{body}"));
            let _ = client.read_response(method);
            assert_eq!(
                error_of(&proxy.accesses(before + 1)[before]),
                error.map(str::to_owned),
                "{path} in {form}"
            );
        }
    }
}

#[test]
fn a_client_disconnect_during_the_response_is_logged() {
    let server = faulty();
    let proxy = Tidegate::start(&format!(
        "[log]\naccess = \"json\"\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    client.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head().unwrap().unwrap();
    drop(client);
    assert_eq!(error_of(&proxy.accesses(1)[0]).as_deref(), Some("client_gone"));
}

#[test]
fn a_client_disconnect_before_the_response_is_counted_and_logged() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/queued") {
                let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let proxy = Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n\
         [limits.slow]\nalgorithm = \"leaky_bucket\"\nrate = \"1/hour\"\nqueue = 3\n\
         [[routes]]\nname = \"late\"\npath = \"/late\"\nupstream = \"{0}\"\n\
         [[routes]]\nname = \"queued\"\npath = \"/queued\"\nlimits = [\"slow\"]\nupstream = \"{0}\"\n",
        server.url()
    ));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/late");
    eventually("the server has the request", || server.received() == 1);
    frames.cancel(1);
    let line: Value = serde_json::from_str(&proxy.accesses(1)[0]).unwrap();
    assert_eq!(
        (&line["status"], &line["error"], &line["bytes"]),
        (&json!(499), &json!("client_gone"), &json!(0))
    );
    assert_eq!((&line["route"], &line["target"]), (&json!("late"), &json!("/late")));
    // EOF cancels a request that is delayed.
    assert_eq!(get(proxy.addr(), "/queued", &[]).status(), 200);
    let mut client = Client::connect(proxy.addr());
    client.send("GET /queued HTTP/1.1\r\nHost: a\r\n\r\n");
    // It does not matter whether the request is delayed already.
    client.finish();
    let line: Value = serde_json::from_str(&proxy.accesses(3)[2]).unwrap();
    assert_eq!(
        (&line["status"], &line["error"], &line["route"]),
        (&json!(499), &json!("client_gone"), &json!("queued"))
    );
    let metrics = get(proxy.admin(), "/metrics", &[]);
    for (route, none) in [("late", 1), ("queued", 1), ("", 0)] {
        let row = format!("tidegate_requests_total{{route=\"{route}\",status=\"none\"}} {none}\n");
        assert!(metrics.text().contains(&row), "{row}{}", metrics.text());
    }
}

/// The error in a line of either form.
fn error_of(line: &str) -> Option<String> {
    match serde_json::from_str::<Value>(line) {
        Ok(line) => line["error"].as_str().map(str::to_owned),
        Err(_) => line.split(" error=\"").nth(1)?.split('"').next().map(str::to_owned),
    }
}

/// The dropped lines are logged, and the exit does not wait for the reader.
#[test]
fn a_blocked_reader_loses_lines_but_delays_no_request() {
    let (reader, writer) = std::io::pipe().unwrap();
    let config = "[log]\naccess = \"json\"\n[[routes]]\npath = \"/*\"\nrespond = { status = 200 }";
    let mut proxy = Tidegate::builder(config).stdout(writer).start();
    let mut client = Client::connect(proxy.addr());
    // More than the pipe and the queue hold.
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(1_500));
    for _ in 0..90 {
        client.send(request.repeat(100));
        for _ in 0..100 {
            assert_eq!(client.read().status(), 200);
        }
    }
    proxy.wait_log("lines of the access log were dropped: its output is blocked or too slow");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.wait_log("the last lines of the access log are lost");
    drop(reader);
}

#[test]
fn unread_lines_use_bounded_memory() {
    let (reader, writer) = std::io::pipe().unwrap();
    let config = "[log]\naccess = \"json\"\n[[routes]]\npath = \"/*\"\nrespond = { status = 200 }";
    let proxy = Tidegate::builder(config).stdout(writer).start();
    let mut client = Client::connect(proxy.addr());
    client.get("/", &[]);
    let before = proxy.memory();
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(30_000));
    for _ in 0..800 {
        client.send(&request);
        assert_eq!(client.read().status(), 200);
    }
    let grown = proxy.memory().saturating_sub(before);
    assert!(grown < 12 * 1024, "{grown} KiB");
    drop(reader);
}

#[test]
fn long_and_unprintable_targets_are_truncated_and_escaped() {
    let long = format!("/{}", "a".repeat(20_000));
    let odd = "/?\u{85}\u{9b}31m\u{2028}\u{202e}\u{2066}ü";
    for format in ["json", "text"] {
        let proxy = Tidegate::start(&LIMITED.replace("access = \"json\"", &format!("access = \"{format}\"")));
        for target in [&*long, odd] {
            get(proxy.addr(), target, &["X-Forwarded-For: 192.0.2.1"]);
        }
        let lines = proxy.accesses(2);
        assert!(lines[0].len() < 2_500, "{} bytes", lines[0].len());
        assert!(lines[0].contains(&format!("{}…(20001 bytes)", "a".repeat(2_047))), "{}", lines[0]);
        let escaped = "/?\\u0085\\u009b31m\\u2028\\u202e\\u2066ü";
        assert!(lines[1].contains(escaped), "{}", lines[1]);
    }
}

#[test]
fn a_blocked_reader_of_standard_error_delays_no_request() {
    let (reader, writer) = std::io::pipe().unwrap();
    let config = "[log]\nlevel = \"debug\"\naccess = \"off\"\n\
                  [[routes]]\npath = \"/*\"\nrespond = { status = 200 }\n";
    let mut proxy = Tidegate::builder(config).stderr(writer, free_address()).start();
    // More lines than the pipe holds.
    for _ in 0..2_000 {
        assert_eq!(Client::connect(proxy.addr()).ask("? / HTTP/1.1\r\n\r\n").status(), 400);
    }
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    let read = BufReader::new(reader).lines().map_while(Result::ok).count();
    assert!((100..2_000).contains(&read), "{read}");
}

#[test]
fn a_full_disk_is_logged_and_requests_are_served() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let config = "[log]\naccess = \"json\"\n[[routes]]\npath = \"/*\"\nrespond = { status = 200 }";
    let proxy = Tidegate::builder(config).stdout(full).start();
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    proxy.wait_log("can't write the access log: No space left on device");
    proxy.wait_log("1 line of the access log was dropped");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    assert_eq!(proxy.stop().code(), Some(0));
}
