//! Fields of the access log about the upstream.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::lines::{LIMITED, faulty};
use crate::support::{Caller, Client, Frames, Http2, Http2Server, Tidegate, Upstream, eventually, get};

/// A proxy with a JSON access log, one worker, and these lines.
fn logging(lines: &str) -> Tidegate {
    Tidegate::start(&format!("workers = 1\n[log]\naccess = \"json\"\n{lines}"))
}

/// Upstreams with these names, servers and lines, each with a route of the same name.
fn upstreams(all: &[(&str, &[&str], &str)]) -> String {
    let one = |(name, servers, lines): &(&str, &[&str], &str)| {
        let servers = servers.join("\", \"");
        format!(
            "[upstreams.{name}]\nservers = [\"{servers}\"]\n{lines}\n\
             [[routes]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
        )
    };
    all.iter().map(one).collect()
}

/// The line with this number, from 0.
fn line(proxy: &Tidegate, number: usize) -> Value {
    serde_json::from_str(&proxy.accesses(number + 1)[number]).unwrap()
}

/// The upstream, the server and the number of attempts in a line.
fn upstream_of(line: &Value) -> [Option<Value>; 3] {
    ["upstream", "server", "attempts"].map(|name| line.get(name).cloned())
}

/// The expected upstream, server and number of attempts.
fn expected(upstream: &str, server: Option<&str>, attempts: Option<u64>) -> [Option<Value>; 3] {
    [Some(json!(upstream)), server.map(|url| json!(url)), attempts.map(|count| json!(count))]
}

fn held(caller: &mut Caller) {
    let _ = caller.request();
    let _ = caller.request();
}

#[test]
fn the_server_and_the_clients_protocol_are_logged() {
    let (server, multiplexed) = (Upstream::echo(), Http2Server::echo());
    let route = format!("[[routes]]\npath = \"/by-url\"\nupstream = \"{}/base\"\n", server.url());
    let proxy = logging(&format!(
        "{}{route}",
        upstreams(&[
            ("named", &[&server.url()], ""),
            ("multiplexed", &[&multiplexed.url()], "protocol = \"h2\""),
        ])
    ));
    // The path of the server is not logged, since it may be a secret.
    let url = server.url();
    for (number, (path, protocol, expected)) in [
        ("/named", "HTTP/1.0", expected("named", Some(&server.url()), None)),
        ("/named", "HTTP/1.1", expected("named", Some(&server.url()), None)),
        ("/named", "HTTP/2", expected("named", Some(&server.url()), None)),
        ("/by-url", "HTTP/1.1", expected(&url, Some(&url), None)),
        ("/multiplexed", "HTTP/1.1", expected("multiplexed", Some(&multiplexed.url()), None)),
        ("/multiplexed", "HTTP/2", expected("multiplexed", Some(&multiplexed.url()), None)),
    ]
    .into_iter()
    .enumerate()
    {
        let status = if protocol == "HTTP/2" {
            let request = http::Request::get(format!("http://a{path}")).body(()).unwrap();
            Http2::connect(proxy.addr()).ask(request, b"").status()
        } else {
            let request = format!("GET {path} {protocol}\r\nHost: a\r\nConnection: close\r\n\r\n");
            Client::connect(proxy.addr()).ask(&request).status()
        };
        let line = line(&proxy, number);
        assert_eq!(
            (status, &line["protocol"], upstream_of(&line)),
            (200, &json!(protocol), expected),
            "{line}"
        );
        assert!(line["upstream_us"].as_u64() <= line["took_us"].as_u64(), "{line}");
        assert!(line["upstream_us"].is_u64(), "{line}");
    }
}

#[test]
fn local_replies_have_no_upstream_fields() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "{LIMITED}[[routes]]\npath = \"/forwarded\"\nlimits = [\"real\"]\nupstream = \"{}\"\n",
        server.url()
    ));
    let blocked = "X-Forwarded-For: 192.0.2.7";
    let requests =
        [("/counted", 200), ("/nowhere", 404), ("/a%2Fb", 400), ("/keyed", 403), ("/forwarded", 403)];
    for (number, (path, status)) in requests.into_iter().enumerate() {
        let headers = if path == "/forwarded" { &[blocked][..] } else { &[] };
        assert_eq!(get(proxy.addr(), path, headers).status(), status);
        let line = line(&proxy, number);
        assert_eq!(
            (&line["protocol"], upstream_of(&line)),
            (&json!("HTTP/1.1"), [None, None, None]),
            "{line}"
        );
        assert_eq!(line.get("upstream_us"), None, "{line}");
    }
}

#[test]
fn upstream_us_is_the_time_to_the_response_head() {
    let wait = Duration::from_millis(60);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            // Real time is tested: the log has this duration.
            std::thread::sleep(wait);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            // The log does not include this one, since the client has the head by then.
            std::thread::sleep(wait);
            let _ = caller.try_send("ok");
        }
    });
    let proxy = logging(&upstreams(&[("u", &[&server.url()], "")]));
    // Over a new connection to the server, and over a reused one.
    for number in 0..2 {
        let mut client = Client::connect(proxy.addr());
        let began = Instant::now();
        client.send("GET /u HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.read_head().unwrap().unwrap();
        let received = began.elapsed();
        assert_eq!(client.read_to_close(), b"ok");
        let line = line(&proxy, number);
        let [head, whole] =
            ["upstream_us", "took_us"].map(|name| Duration::from_micros(line[name].as_u64().unwrap()));
        assert!(wait <= head && head <= received, "{wait:?}, {received:?}: {line}");
        assert!(2 * wait <= whole, "{line}");
    }
}

#[test]
fn a_failed_server_is_logged() {
    // The first server keeps its connections, so that no request to it is retried.
    let (good, server) = (Upstream::echo(), faulty());
    // These servers refuse connections.
    let (refusing, other) = ("http://127.0.0.1:1", "http://127.0.0.2:1");
    let url = server.url();
    let proxy = logging(&format!(
        "{}[[routes]]\npath = \"/*\"\nupstream = \"{url}\"\n",
        upstreams(&[
            ("refused", &[refusing], ""),
            ("again", &[refusing, &good.url()], ""),
            ("neither", &[refusing, other], ""),
            ("unresolved", &["http://nowhere.invalid"], ""),
        ])
    ));
    let ask = |number: usize, path: &str| {
        get(proxy.addr(), path, &[]);
        line(&proxy, number)
    };
    assert_eq!(upstream_of(&ask(0, "/refused")), expected("refused", Some(refusing), None));
    // Round robin: each server is the first once.
    let tries = [ask(1, "/again"), ask(2, "/again")];
    assert!(tries.iter().all(|line| line["status"] == 200 && line["server"] == good.url()), "{tries:?}");
    assert_eq!(tries.iter().filter(|line| line["attempts"] == 2).count(), 1, "{tries:?}");
    let neither = ask(3, "/neither");
    assert_eq!((&neither["attempts"], &neither["error"]), (&json!(2), &json!("connect_failed")));
    assert!(neither["server"] == refusing || neither["server"] == other, "{neither}");
    assert_eq!(upstream_of(&ask(4, "/unresolved")), expected("unresolved", None, None));
    // An invalid head has been received, too.
    for (number, (path, has_head)) in
        [("/lost", false), ("/invalid", false), ("/ambiguous", true), ("/switched", true), ("/broken", true)]
            .into_iter()
            .enumerate()
    {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let _ = client.read_response("GET");
        let line = line(&proxy, 5 + number);
        assert_eq!(
            (upstream_of(&line), line["upstream_us"].is_u64()),
            (expected(&url, Some(&url), None), has_head),
            "{path}"
        );
    }
}

#[test]
fn a_server_without_a_free_connection_is_logged() {
    let server = Upstream::scripted(held);
    let settings = "max_connections = 1\npending_timeout = \"100ms\"";
    let (one, two) = ([&*server.url()], [&*server.url(), &*format!("{}/too", server.url())]);
    let proxy = logging(&upstreams(&[("one", &one, settings), ("two", &two, settings)]));
    let mut waiting = Vec::new();
    for (path, count) in [("/one", 1), ("/two", 2), ("/two", 3)] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        waiting.push(client);
        eventually("the server has the request", || server.requests().len() == count);
    }
    for (number, (path, servers)) in [("one", &one[..]), ("two", &two[..])].into_iter().enumerate() {
        assert_eq!(get(proxy.addr(), &format!("/{path}"), &[]).status(), 503);
        let line = line(&proxy, number);
        assert_eq!(
            (&line["error"], &line["upstream"]),
            (&json!("no_free_connection"), &json!(path)),
            "{line}"
        );
        assert!(servers.iter().any(|url| line["server"] == *url), "{line}");
        assert_eq!(line.get("upstream_us"), None, "{line}");
    }
}

#[test]
fn the_server_of_a_cancelled_request_is_logged() {
    let server = Upstream::scripted(held);
    let proxy = logging(&upstreams(&[("u", &[&server.url()], "")]));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/u");
    eventually("the server has the request", || server.requests().len() == 1);
    frames.cancel(1);
    let line = line(&proxy, 0);
    assert_eq!(
        (&line["status"], upstream_of(&line)),
        (&json!(499), expected("u", Some(&server.url()), None)),
        "{line}"
    );
    assert_eq!(line.get("upstream_us"), None, "{line}");
}

#[test]
fn text_lines_end_with_the_upstream_fields() {
    let server = Upstream::echo();
    let upstream = upstreams(&[("u", &[&server.url()], "")]);
    let proxy = Tidegate::start(&format!("[log]\naccess = \"text\"\n{upstream}"));
    get(proxy.addr(), "/u", &[]);
    let line = proxy.accesses(1).remove(0);
    let expected = format!(r#" protocol="HTTP/1.1" upstream="u" server="{}" upstream_us=""#, server.url());
    let (_, number) = line.split_once(&expected).unwrap_or_else(|| panic!("no {expected:?} in {line:?}"));
    assert!(number.trim_end_matches('"').parse::<u64>().is_ok(), "{line}");
}
