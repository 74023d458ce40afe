//! What the access log says of where a request went.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::lines::{LIMITED, troubled};
use crate::support::{
    Caller, Client, Frames, Http2, Http2Server, Tidegate, Upstream, eventually, frames, get,
};

/// A proxy that logs as JSON, with one worker, and these lines.
fn logging(lines: &str) -> Tidegate {
    Tidegate::start(&format!("workers = 1\n[log]\naccess = \"json\"\n{lines}"))
}

/// Upstreams, each with a route of the same name, its servers and other lines.
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

/// The line of this number; the first is 0.
fn line(proxy: &Tidegate, number: usize) -> Value {
    serde_json::from_str(&proxy.accesses(number + 1)[number]).unwrap()
}

/// The upstream, the server and the number of attempts in a line.
fn way(line: &Value) -> [Option<Value>; 3] {
    ["upstream", "server", "attempts"].map(|name| line.get(name).cloned())
}

/// The same as they should be.
fn went(upstream: &str, server: Option<&str>, attempts: Option<u64>) -> [Option<Value>; 3] {
    [Some(json!(upstream)), server.map(|url| json!(url)), attempts.map(|count| json!(count))]
}

fn held(caller: &mut Caller) {
    let _ = caller.request();
    let _ = caller.request();
}

#[test]
fn the_log_says_which_server_answered_and_what_the_client_spoke() {
    let (server, multiplexed) = (Upstream::echo(), Http2Server::echo());
    let route = format!("[[routes]]\npath = \"/by-url\"\nupstream = \"{}/base\"\n", server.url());
    let proxy = logging(&format!(
        "{}{route}",
        upstreams(&[
            ("named", &[&server.url()], ""),
            ("multiplexed", &[&multiplexed.url()], "protocol = \"h2\""),
        ])
    ));
    // Without the path of the server, which may be a secret.
    let url = server.url();
    for (number, (path, protocol, expected)) in [
        ("/named", "HTTP/1.0", went("named", Some(&server.url()), None)),
        ("/named", "HTTP/1.1", went("named", Some(&server.url()), None)),
        ("/named", "HTTP/2", went("named", Some(&server.url()), None)),
        ("/by-url", "HTTP/1.1", went(&url, Some(&url), None)),
        ("/multiplexed", "HTTP/1.1", went("multiplexed", Some(&multiplexed.url()), None)),
        ("/multiplexed", "HTTP/2", went("multiplexed", Some(&multiplexed.url()), None)),
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
        assert_eq!((status, &line["protocol"], way(&line)), (200, &json!(protocol), expected), "{line}");
        assert!(line["upstream_us"].as_u64() <= line["took_us"].as_u64(), "{line}");
        assert!(line["upstream_us"].is_u64(), "{line}");
    }
}

#[test]
fn nothing_is_said_of_servers_where_none_was_wanted() {
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
        assert_eq!((&line["protocol"], way(&line)), (&json!("HTTP/1.1"), [None, None, None]), "{line}");
        assert_eq!(line.get("upstream_us"), None, "{line}");
    }
}

#[test]
fn the_log_says_how_long_a_server_took_for_the_head_alone() {
    let wait = Duration::from_millis(60);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            // This is what is to be seen in the log.
            std::thread::sleep(wait);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            // And this is not, since the client has the head by then.
            std::thread::sleep(wait);
            let _ = caller.try_send("ok");
        }
    });
    let proxy = logging(&upstreams(&[("u", &[&server.url()], "")]));
    // Over a new connection to the server, and over one that was kept.
    for number in 0..2 {
        let mut client = Client::connect(proxy.addr());
        let asked = Instant::now();
        client.send("GET /u HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.read_head().unwrap().unwrap();
        let headed = asked.elapsed();
        assert_eq!(client.read_to_close(), b"ok");
        let line = line(&proxy, number);
        let [head, whole] =
            ["upstream_us", "took_us"].map(|name| Duration::from_micros(line[name].as_u64().unwrap()));
        assert!(wait <= head && head <= headed, "{wait:?}, {headed:?}: {line}");
        assert!(2 * wait <= whole, "{line}");
    }
}

#[test]
fn a_server_that_gave_no_answer_is_named() {
    // One that keeps its connections, so that a request goes there once, and one that does not.
    let (good, server) = (Upstream::echo(), troubled());
    // Nobody listens there.
    let (nobody, no_one) = ("http://127.0.0.1:1", "http://127.0.0.2:1");
    let url = server.url();
    let proxy = logging(&format!(
        "{}[[routes]]\npath = \"/*\"\nupstream = \"{url}\"\n",
        upstreams(&[
            ("refused", &[nobody], ""),
            ("again", &[nobody, &good.url()], ""),
            ("neither", &[nobody, no_one], ""),
            ("unresolved", &["http://nowhere.invalid"], ""),
        ])
    ));
    let ask = |number: usize, path: &str| {
        get(proxy.addr(), path, &[]);
        line(&proxy, number)
    };
    assert_eq!(way(&ask(0, "/refused")), went("refused", Some(nobody), None));
    // Each is the first in its turn.
    let tries = [ask(1, "/again"), ask(2, "/again")];
    assert!(tries.iter().all(|line| line["status"] == 200 && line["server"] == good.url()), "{tries:?}");
    assert_eq!(tries.iter().filter(|line| line["attempts"] == 2).count(), 1, "{tries:?}");
    let neither = ask(3, "/neither");
    assert_eq!((&neither["attempts"], &neither["error"]), (&json!(2), &json!("connect_failed")));
    assert!(neither["server"] == nobody || neither["server"] == no_one, "{neither}");
    assert_eq!(way(&ask(4, "/unresolved")), went("unresolved", None, None));
    // A head that nobody can use has come nevertheless.
    for (number, (path, has_head)) in
        [("/lost", false), ("/invalid", false), ("/ambiguous", true), ("/switched", true), ("/broken", true)]
            .into_iter()
            .enumerate()
    {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let _ = client.read_response("GET");
        let line = line(&proxy, 5 + number);
        assert_eq!((way(&line), line["upstream_us"].is_u64()), (went(&url, Some(&url), None), has_head));
    }
}

#[test]
fn a_server_that_had_no_connection_to_give_is_named() {
    let server = Upstream::scripted(held);
    let settings = "max_connections = 1\npending_timeout = \"100ms\"";
    let (one, two) = ([&*server.url()], [&*server.url(), &*format!("{}/too", server.url())]);
    let proxy = logging(&upstreams(&[("one", &one, settings), ("two", &two, settings)]));
    let mut waiting = Vec::new();
    for (path, count) in [("/one", 1), ("/two", 2), ("/two", 3)] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        waiting.push(client);
        eventually("it is there", || server.requests().len() == count);
    }
    for (number, (path, servers)) in [("one", &one[..]), ("two", &two[..])].into_iter().enumerate() {
        assert_eq!(get(proxy.addr(), &format!("/{path}"), &[]).status(), 503);
        let line = line(&proxy, number);
        assert_eq!((&line["error"], &line["upstream"]), (&json!("no_free_connection"), &json!(path)));
        assert!(servers.iter().any(|url| line["server"] == *url), "{line}");
        assert_eq!(line.get("upstream_us"), None, "{line}");
    }
}

#[test]
fn a_server_that_was_not_waited_for_is_named() {
    let server = Upstream::scripted(held);
    let proxy = logging(&upstreams(&[("u", &[&server.url()], "")]));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/u");
    eventually("it is asked", || server.requests().len() == 1);
    frames.send(frames::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    let line = line(&proxy, 0);
    assert_eq!((&line["status"], way(&line)), (&json!(499), went("u", Some(&server.url()), None)), "{line}");
    assert_eq!(line.get("upstream_us"), None, "{line}");
}

#[test]
fn text_has_it_behind_all_that_was_there() {
    let server = Upstream::echo();
    let upstream = upstreams(&[("u", &[&server.url()], "")]);
    let proxy = Tidegate::start(&format!("[log]\naccess = \"text\"\n{upstream}"));
    get(proxy.addr(), "/u", &[]);
    let line = proxy.accesses(1).remove(0);
    let expected = format!(" protocol=HTTP/1.1 upstream=u server={} upstream_us=", server.url());
    let (_, number) = line.split_once(&expected).unwrap_or_else(|| panic!("no {expected:?} in {line:?}"));
    assert!(number.parse::<u64>().is_ok(), "{line}");
}
