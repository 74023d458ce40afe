//! An authorization server, and proxies that ask it.

use crate::support::{Caller, Message, Tidegate, Upstream};

/// An authorization server that does what the `Authorization` header of a request says.
pub fn server() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(question)) = caller.request() {
            if !answer(caller, question.header("authorization").unwrap_or("401")) {
                return;
            }
        }
    })
}

/// Sends a response; returns whether the connection stays open.
fn answer(caller: &mut Caller, word: &str) -> bool {
    let (word, user) = word.split_once(' ').unwrap_or((word, ""));
    let with = |status: &str, lines: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let response = match word {
        "ok" => with("200 OK", &format!("X-User: {user}\r\nX-Secret: 1\r\n"), "a body"),
        "private" => with("200 OK", &format!("X-User: {user}\r\nCache-Control: private, No-Store\r\n"), ""),
        "204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "401" => with(
            "401 Unauthorized",
            "WWW-Authenticate: Bearer\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: x-hop\r\nX-Hop: 1\r\n",
            "log in\n",
        ),
        "403" => with("403 Forbidden", "X-User: eve\r\n", "no\n"),
        "429" => with("429 Too Many Requests", "Retry-After: 7\r\n", ""),
        "302" => with("302 Found", "Location: https://login.test/?rd=%2F\r\n", ""),
        "nowhere" => with("302 Found", "", ""),
        "304" => "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(),
        "404" => with("404 Not Found", "", ""),
        "500" => with("500 Internal Server Error", "", "trace\n"),
        "long" => with("401 Unauthorized", "", &"x".repeat(70_000)),
        "hang" => {
            caller.expect_close();
            return false;
        }
        _ => return false,
    };
    caller.try_send(response).is_ok()
}

/// A proxy with these tables and a route with these further keys of `authorize`, which forwards to an upstream.
#[track_caller]
pub fn proxy(auth: &str, upstream: &Upstream, keys: &str, tables: &str) -> Tidegate {
    Tidegate::start(&config(auth, upstream, keys, tables))
}

/// The file of [`proxy`].
pub fn config(auth: &str, upstream: &Upstream, keys: &str, tables: &str) -> String {
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n[upstreams.auth]\nservers = [\"{auth}\"]\n{tables}\n\
         upstream = \"{}\"\nauthorize = {{ upstream = \"auth\", path = \"/verify?x=1\", {keys} }}\n",
        upstream.url()
    )
}

/// The last table of a file: the route, without limits.
pub const ROUTE: &str = "[[routes]]\nname = \"all\"\npath = \"/*\"\n";

/// The value of `Authorization` as a header line.
pub fn says(word: &str) -> String {
    format!("Authorization: {word}")
}

/// The response to a request whose authorization server says this.
#[track_caller]
pub fn ask(proxy: &Tidegate, target: &str, word: &str) -> Message {
    crate::support::get(proxy.addr(), target, &[&says(word)])
}
