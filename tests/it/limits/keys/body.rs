//! Limits that count by a field of the request's body.

use std::fmt::Write as _;

use bytes::Bytes;
use futures_util::future::select_all;
use http::Request;

use crate::support::{Client, Http2, Message, Tidegate, Upstream, eventually};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// A proxy with a limit of one request per hour and user name in JSON and in forms, on routes of their own, and with a route
/// that has the limit in shadow mode. `more` are keys of the limits.
fn proxy_for(server: &Upstream, listener: &str, more: &str) -> Tidegate {
    let mut text = format!(
        "[log]\naccess = \"json\"\nkeys = \"plain\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n"
    );
    for (name, key, mode) in [
        ("json", "body:/user/name", "enforce"),
        ("form", "form:username", "enforce"),
        ("shadow", "body:/user/name", "shadow"),
    ] {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "[limits.{name}]\nrate = \"1/hour\"\nkey = \"{key}\"\nmode = \"{mode}\"\n{more}\n\
             [[routes]]\npath = \"/{name}\"\nlimits = [\"{name}\"]\nupstream = \"{}\"\n",
            server.url()
        );
    }
    Tidegate::start(&text)
}

/// A POST request with this body.
pub fn post(path: &str, media_type: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn user(name: &str) -> String {
    post("/json", JSON, &format!("{{\"user\":{{\"name\":{name}}},\"password\":\"x\"}}"))
}

/// The status of each request over one connection.
fn statuses(client: &mut Client, requests: &[String]) -> Vec<u16> {
    requests.iter().map(|request| client.ask(request).status()).collect()
}

#[test]
fn guesses_of_a_password_are_limited_by_user_name_whatever_their_address() {
    let server = Upstream::answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let proxy = Tidegate::start(&format!(
        "[limits.per-user]
rate = \"5/minute\"
key = \"form:username\"
on_missing = \"deny\"
missing_status = 400
[limits.per-address]
rate = \"1000/minute\"
[[routes]]
path = \"/login\"
methods = [\"POST\"]
limits = [\"per-user\", \"per-address\"]
upstream = \"{}\"
",
        server.url()
    ));
    let mut refused = 0;
    for attempt in 0..100 {
        let mut client = Client::connect_from(&format!("127.0.1.{}", attempt + 1), proxy.addr());
        let spelling = ["admin", "Admin", "+admin", "%61dmin", "ADMIN%20"][attempt % 5];
        let response = client.ask(&post("/login", FORM, &format!("username={spelling}&password={attempt}")));
        if response.status() == 429 {
            refused += 1;
            assert!(response.text().contains("the limit per-user is used up"), "{}", response.text());
            assert!(response.header("retry-after").is_some());
        } else {
            assert_eq!(response.status(), 401);
        }
    }
    assert_eq!((refused, server.received()), (95, 5));
    // Other users sign in as before, also from an address that guessed.
    let mut client = Client::connect_from("127.0.1.1", proxy.addr());
    assert_eq!(client.ask(&post("/login", FORM, "username=eve&password=x")).status(), 401);
    // A guess that hides the name is refused.
    for hidden in [
        post("/login", FORM, "password=x"),
        post("/login", "text/plain", "username=admin&password=x"),
        post("/login", JSON, "{\"username\":\"admin\"}"),
        post("/login", FORM, "username=admin").replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n"),
        "POST /login HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ] {
        let response = client.ask(&hidden);
        assert_eq!(response.status(), 400, "{hidden}");
        assert!(response.text().contains("with the field username"), "{}", response.text());
    }
    assert_eq!(client.ask(&post("/login", FORM, "username=adam&username=admin")).status(), 400);
    assert_eq!(server.received(), 6);
}

#[test]
fn values_in_json_are_counted_by_their_text() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "", "on_missing = \"skip\"");
    let mut client = Client::connect(proxy.addr());
    for (first, same) in [
        ("\"eve\"", "\"\\u0065ve\""),
        ("7", "\"7\""),
        ("1e3", "1000.0"),
        ("true", "\"TRUE\""),
        ("\"Ä|b\"", "\"ä|b\""),
    ] {
        assert_eq!(statuses(&mut client, &[user(first), user(same)]), [200, 429], "{first}");
    }
    // Without a value they are skipped.
    for missing in ["null", "\"\"", "{}", "[\"eve\"]", "{\"name\":\"eve\"}"] {
        assert_eq!(statuses(&mut client, &[user(missing), user(missing)]), [200, 200], "{missing}");
    }
    for malformed in ["{\"user\":{\"name\":\"eve\"}", "{\"user\":{\"name\":\"eve\"}} {}", "[]", ""] {
        assert_eq!(client.ask(&post("/json", JSON, malformed)).status(), 200, "{malformed}");
    }
}

#[test]
fn differing_repetitions_are_rejected_and_others_count_once() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "", "");
    let mut client = Client::connect(proxy.addr());
    let json = |members: &str| post("/json", JSON, &format!("{{{members}}}"));
    for (request, field) in [
        (json(r#""user":{"name":"x","name":"eve"}"#), "body:/user/name"),
        (json(r#""user":{"name":"x"},"user":{"name":"eve"}"#), "body:/user/name"),
        (json(r#""user":{"name":"x","NAME":"eve"}"#), "body:/user/name"),
        (json(r#""user":{"name":"x","name":["eve"]}"#), "body:/user/name"),
        (post("/form", FORM, "username=x&username=eve"), "form:username"),
        (post("/form", FORM, "username=x&+username=eve"), "form:username"),
        (post("/form", FORM, "username=x&username[]=eve"), "form:username"),
        (post("/form?username=eve", FORM, "username=x"), "form:username"),
        (post("/form?x=1&User%6eame=eve", FORM, "username=x"), "form:username"),
    ] {
        let response = Client::connect(proxy.addr()).ask(&request);
        assert_eq!(response.status(), 400, "{request}");
        let detail = format!("the request has several values for {field} that differ");
        assert!(response.text().contains(&detail), "{}", response.text());
    }
    assert_eq!(server.received(), 0);
    // The query of a request with a JSON body is something else.
    let queried = user("\"adam\"").replace("/json", "/json?name=x&user=y");
    assert_eq!(statuses(&mut client, &[queried]), [200]);
    assert_eq!(
        statuses(&mut client, &vec![post("/form?username=Adam", FORM, "username=adam"); 2]),
        [200, 429]
    );
    let repeated = json(r#""user":{"name":"eve","name":"eve"}"#);
    assert_eq!(statuses(&mut client, &[repeated, user("\"eve\"")]), [200, 429]);
    // A limit in shadow mode rejects nothing.
    let shadow = post("/shadow", JSON, r#"{"user":{"name":"x","name":"eve"}}"#);
    assert_eq!(statuses(&mut client, &[shadow.clone(), shadow]), [200, 200]);
}

/// The request that the server got has this body.
#[track_caller]
fn assert_forwarded(response: &Message, body: &str) {
    let echoed = response.echoed();
    assert_eq!((response.status(), echoed.text() == body), (200, true), "{}", response.start);
}

#[test]
fn the_body_is_forwarded_unchanged() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "", "");
    let mut client = Client::connect(proxy.addr());
    let body = "\u{feff}{ \"user\" : {\"name\":\"eve\"},\r\n \"x\":[1.0,1e2] }\n";
    let response = client.ask(&post("/json", JSON, body));
    assert_forwarded(&response, body);
    assert_eq!(response.echoed().header("content-length"), Some(&*body.len().to_string()));
    // In chunks, with trailers, and by 100-continue.
    client.send(
        "POST /json HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\
         Expect: 100-continue\r\nTrailer: X-Sum\r\n\r\n",
    );
    assert_eq!(client.read_head().unwrap().unwrap().start, "HTTP/1.1 100 Continue");
    client.send("10\r\n{\"user\":{\"name\":\r\n8\r\n\"adam\"}}\r\n0\r\nX-Sum: 7\r\n\r\n");
    assert_forwarded(&client.read(), "{\"user\":{\"name\":\"adam\"}}");
    assert_eq!(server.requests()[1].trailers, [("x-sum".to_owned(), "7".to_owned())]);
    let mut client = Client::connect(proxy.addr());
    // The same user again, whose request gets no 100.
    client.send(user("\"adam\"").replace("\r\n\r\n{", "\r\nExpect: 100-continue\r\n\r\n{"));
    assert_eq!(client.read().status(), 429);
    // Another media type is not read, so that it streams.
    assert_forwarded(&client.ask(&post("/json", "text/plain", &"x".repeat(100_000))), &"x".repeat(100_000));
    assert_eq!(client.ask(&post("/json", FORM, "user=eve")).status(), 429, "counted by the address");
}

#[test]
fn bodies_above_the_bound_are_rejected_unless_the_limit_is_in_shadow_mode() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "", "");
    let padded = |length: usize| {
        let start = "{\"user\":{\"name\":\"eve\"},\"x\":\"";
        format!("{start}{}\"}}", "x".repeat(length - start.len() - 2))
    };
    let chunked = |path: &str, body: &str| {
        let mut client = Client::connect(proxy.addr());
        let (first, second) = body.split_at(body.len() / 2);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
            first.len(),
            second.len()
        ));
        client.read()
    };
    let (fits, long) = (padded(64 * 1024), padded(64 * 1024 + 1));
    assert_forwarded(&chunked("/json", &fits), &fits);
    assert_eq!(server.received(), 1);
    for response in [chunked("/json", &long), Client::connect(proxy.addr()).ask(&post("/json", JSON, &long))]
    {
        assert_eq!(response.status(), 413);
        assert!(response.text().contains("longer than 64 KiB, the most that a limit"), "{}", response.text());
    }
    assert_eq!(server.received(), 1);
    for long in [long, padded(300_000)] {
        assert_forwarded(&chunked("/shadow", &long), &long);
        assert_forwarded(&Client::connect(proxy.addr()).ask(&post("/shadow", JSON, &long)), &long);
    }
}

#[test]
fn a_slow_or_broken_body_reaches_no_limit_and_no_server() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "body_timeout = \"200ms\"", "");
    let start = &user("\"eve\"")[..user("\"eve\"").len() - 3];
    let mut client = Client::connect(proxy.addr());
    client.send(start);
    let response = client.read();
    assert_eq!((response.status(), response.header("connection")), (408, Some("close")));
    let mut client = Client::connect(proxy.addr());
    client.send(start);
    client.finish();
    assert_eq!(client.read().status(), 400);
    let mut gone = Client::connect(proxy.addr());
    gone.send(start);
    drop(gone);
    let mut lines = Vec::new();
    eventually("all three are in the log", || {
        lines = proxy.accesses(0);
        lines.len() == 3
    });
    for error in ["request_stalled", "request_broken"] {
        let is_described = |line: &String| line.contains(error) && line.contains("\"route\":\"1\"");
        assert!(lines.iter().any(is_described), "{error}: {lines:?}");
    }
    assert_eq!(server.received(), 0);
    // Nothing was charged.
    assert_eq!(Client::connect(proxy.addr()).ask(&user("\"eve\"")).status(), 200);
    // The log names the user of a denial.
    assert_eq!(Client::connect(proxy.addr()).ask(&user("\"Eve\"")).status(), 429);
    eventually("the denial is in the log", || {
        proxy.accesses(0).iter().any(|line| line.contains("\"key\":\"eve\""))
    });
}

#[test]
fn bodies_over_http2_are_read_as_well() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "", "");
    let client = Http2::connect(proxy.addr());
    let ask = |path: &str, body: &str| {
        let uri = format!("http://a{path}");
        client.ask(Request::post(uri).header("content-type", JSON).body(()).unwrap(), body.as_bytes())
    };
    let body = "{\"user\":{\"name\":\"eve\"}}";
    let first = ask("/json", body);
    assert_eq!((first.status(), first.text().ends_with(body)), (200, true), "{}", first.text());
    assert_eq!(ask("/json", body).status(), 429);
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(200_000));
    assert_eq!(ask("/json", &long).status(), 413);
    let passed = ask("/shadow", &long);
    assert_eq!((passed.status(), passed.text().ends_with(&long)), (200, true));
    assert_eq!(ask("/json", "").status(), 200, "counted by the address");
    assert_eq!(server.received(), 3);
}

#[test]
fn slow_bodies_over_http2_are_cut_off_and_their_memory_is_bounded() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "body_timeout = \"1s\"", "");
    let client = Http2::connect(proxy.addr());
    let statuses = client.block_on(async |sender| {
        let mut streams = Vec::new();
        let mut responses = Vec::new();
        for _ in 0..9 {
            let request = Request::post("http://a/json").header("content-type", JSON).body(()).unwrap();
            let (response, mut stream) =
                sender.clone().ready().await.unwrap().send_request(request, false).unwrap();
            stream.send_data(Bytes::from(vec![b' '; 60_000]), false).unwrap();
            streams.push(stream);
            responses.push(response);
        }
        let mut statuses = Vec::new();
        while !responses.is_empty() {
            let (response, _, rest) = select_all(responses).await;
            statuses.push(response.unwrap().status().as_u16());
            responses = rest;
        }
        statuses
    });
    // Eight times 60,000 bytes fit into 512 KiB.
    assert_eq!(statuses, [503, 408, 408, 408, 408, 408, 408, 408, 408]);
    assert_eq!(server.received(), 0);
}
