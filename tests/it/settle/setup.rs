//! Proxies whose limit settles, and exchanges with what they are charged.

use std::collections::HashMap;
use std::io;

use serde_json::Value;

use crate::support::{Client, Message, Tidegate, Upstream, eventually, get, over_both_stores};

/// The units of the limit.
pub const CAPACITY: u64 = 1_000;
/// What each request reserves, unless its cost has another form.
pub const RESERVE: u64 = 100;

/// A file with the limit `units`, which has these lines, for all requests to `upstream`.
pub fn config(limit: &str, upstream: &str) -> String {
    config_with(limit, &format!("upstream = \"{upstream}\""), "")
}

/// The same with these lines in the route, and more tables.
pub fn config_with(limit: &str, route: &str, tables: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\naccess = \"json\"\n\
         [limits.units]\nalgorithm = \"fixed_window\"\nalign = \"first_request\"\nrate = \"{CAPACITY}/day\"\n\
         key = \"header:x-key\"\n{limit}\n\
         {tables}\n\
         [[routes]]\npath = \"/own\"\nlimits = [\"units\"]\nrespond = \"limits\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nlimits = [\"units\"]\n{route}\n"
    )
}

/// The `cost` of a limit that reserves [`RESERVE`] and settles by this.
pub fn settled_by(source: &str) -> String {
    format!("cost = {{ reserve = {RESERVE}, settle = \"{source}\" }}")
}

/// What remains of a key, and what is reserved for it.
#[track_caller]
pub fn own(proxy: &Tidegate, key: &str) -> (u64, u64) {
    let response = get(proxy.addr(), "/own", &[&format!("X-Key: {key}")]);
    let body: Value = serde_json::from_str(response.text()).unwrap();
    let limit = &body["limits"][0];
    (limit["remaining"].as_u64().unwrap(), limit["reserved"].as_u64().unwrap())
}

/// Waits until nothing is reserved for a key and so many units are charged.
#[track_caller]
pub fn until_charged(proxy: &Tidegate, key: &str, units: u64) {
    let mut last = (0, 0);
    let expected = (CAPACITY.saturating_sub(units), 0);
    let is_so = || {
        last = own(proxy, key);
        last == expected
    };
    let result =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually("it is settled", is_so)));
    assert!(result.is_ok(), "{key}: left and reserved are {last:?} instead of {expected:?}");
}

/// How many units of the limit `units` have had this outcome.
#[track_caller]
pub fn outcome(proxy: &Tidegate, outcome: &str) -> u64 {
    proxy.metric(&format!("tidegate_settled_units_total{{limit=\"units\",outcome=\"{outcome}\"}}"))
}

/// How many responses had no cost for this reason.
#[track_caller]
pub fn unknown(proxy: &Tidegate, reason: &str) -> u64 {
    proxy.metric(&format!("tidegate_settle_unknown_total{{limit=\"units\",reason=\"{reason}\"}}"))
}

/// The sum of all reasons.
#[track_caller]
pub fn all_unknown(proxy: &Tidegate) -> u64 {
    ["encoding", "type", "absent", "malformed"].iter().map(|reason| unknown(proxy, reason)).sum()
}

/// The access log's line about the request for a path.
#[track_caller]
pub fn logged(proxy: &Tidegate, path: &str) -> Value {
    let find = || {
        let lines = proxy.accesses(0);
        let mut lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(|line| line["target"] == path)
    };
    let mut found = None;
    eventually("the request is logged", || {
        found = find();
        found.is_some()
    });
    found.unwrap()
}

/// An exchange, and what it is charged. Its key and its path are its name.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    method: &'static str,
    /// Further lines of the request's head, an empty line and its body.
    request: Vec<u8>,
    response: Vec<u8>,
    /// Whether the server closes the connection after that.
    closes: bool,
    pub charged: u64,
    unknown: Option<&'static str>,
}

/// A GET request whose response is this, and what it is charged.
pub fn case(name: &'static str, response: impl Into<Vec<u8>>, charged: u64) -> Case {
    let response = response.into();
    Case { name, method: "GET", request: b"\r\n".into(), response, closes: false, charged, unknown: None }
}

impl Case {
    pub fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    /// The rest of the request's head, and its body.
    pub fn request(self, request: impl Into<Vec<u8>>) -> Self {
        Self { request: request.into(), ..self }
    }

    /// A POST request with this JSON body.
    pub fn post(self, body: &str) -> Self {
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.method("POST").request(head)
    }

    /// The server closes the connection after the response.
    pub fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// The response has no cost, for this reason.
    pub fn unknown(self, reason: &'static str) -> Self {
        Self { unknown: Some(reason), ..self }
    }
}

/// An upstream that plays these cases by their paths.
pub fn upstream(cases: &[Case]) -> Upstream {
    let cases: HashMap<String, Case> =
        cases.iter().map(|case| (format!("/{}", case.name), case.clone())).collect();
    Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            let path = request.start.split(' ').nth(1).unwrap();
            let case = &cases[path];
            if caller.try_send(&case.response).is_err() || case.closes {
                return;
            }
        }
    })
}

/// Sends the request of a case.
#[track_caller]
pub fn send(proxy: &Tidegate, case: &Case) -> Client {
    let mut client = Client::connect(proxy.addr());
    let head = format!("{} /{} HTTP/1.1\r\nHost: a\r\nX-Key: {}\r\n", case.method, case.name, case.name);
    client.send([head.as_bytes(), &case.request].concat());
    client
}

/// Plays an exchange, and checks what it is charged: in the store, in the access log and in the metrics. Returns the response.
#[track_caller]
pub fn play(proxy: &Tidegate, case: &Case) -> io::Result<Message> {
    let before = case.unknown.map(|reason| (unknown(proxy, reason), all_unknown(proxy)));
    let known = case.unknown.is_none().then(|| all_unknown(proxy));
    let mut client = send(proxy, case);
    let response = client.read_response(case.method);
    drop(client);
    until_charged(proxy, case.name, case.charged);
    let line = logged(proxy, &format!("/{}", case.name));
    assert_eq!(line["cost"]["units"], case.charged, "{line}");
    if let (Some(reason), Some((one, all))) = (case.unknown, before) {
        let after = (unknown(proxy, reason), all_unknown(proxy));
        assert_eq!(after, (one + 1, all + 1), "{}: a cost that is unknown for {reason}", case.name);
    }
    assert!(known.is_none_or(|known| all_unknown(proxy) == known), "{}: its cost is unknown", case.name);
    response
}

/// Plays exchanges over both stores with a limit that has these lines.
pub fn play_all(limit: &str, cases: &[Case]) {
    let upstream = upstream(cases);
    over_both_stores(&config(limit, &upstream.url()), |proxy| {
        for case in cases {
            let _ = play(proxy, case);
        }
    });
}

/// A response with these lines in its head and this body.
pub fn ok(head: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The same with JSON.
pub fn json(body: &str) -> String {
    ok("Content-Type: application/json\r\n", body)
}

/// A chunked response with these lines in its head, these parts, and these lines of trailers.
pub fn chunked(head: &str, parts: &[&str], trailers: &str) -> String {
    let chunks: String = parts.iter().map(|part| chunk(part)).collect();
    format!("HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n{trailers}\r\n")
}

/// A chunk.
pub fn chunk(part: &str) -> String {
    format!("{:x}\r\n{part}\r\n", part.len())
}

/// A response of an event stream.
pub fn events(events: &[&str]) -> String {
    let events: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    chunked("Content-Type: text/event-stream\r\n", &events, "")
}
