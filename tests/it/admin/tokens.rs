//! The tokens of the admin interface for changes and for reading, and what the log says of changes.

use std::net::SocketAddr;

use super::interface::LIMITED;
use crate::support::{Client, Tidegate, eventually, get};

const TOKENS: &str = "token = \"s3cret-admin-t0ken\"\nread_token = \"s3cret-read-t0ken\"\n";
const CHANGES: [(&str, &str, &str); 5] = [
    ("block", r#", "for": "10m""#, "blocked by 127.0.0.1"),
    ("unblock", "", "unblocked by 127.0.0.1"),
    ("raise", r#", "by": "2x", "for": "1h""#, "by 127.0.0.1"),
    ("end-raise", "", "no longer raised by 127.0.0.1"),
    ("reset", "", "reset by 127.0.0.1"),
];

fn config(tokens: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{tokens}{LIMITED}")
}

/// The status of a change with this token.
fn change(admin: SocketAddr, (name, rest, _): (&str, &str, &str), token: &str) -> u16 {
    let body = format!(r#"{{"limit": "three", "key": "192.0.2.7"{rest}}}"#);
    let request = format!(
        "POST /v1/keys/{name} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Client::connect(admin).ask(&request).status()
}

#[test]
fn a_read_token_reads_and_changes_nothing() {
    let proxy = Tidegate::start(&config(TOKENS));
    let admin = proxy.admin();
    let read =
        |path: &str, token: &str| get(admin, path, &[&format!("Authorization: Bearer {token}")]).status();
    for path in [
        "/metrics",
        "/openapi.json",
        "/v1/limits",
        "/v1/top",
        "/v1/keys",
        "/v1/keys/denied",
        "/v1/keys/raises",
    ] {
        assert_eq!(read(path, "s3cret-read-t0ken"), 200, "{path}");
        assert_eq!(read(path, "s3cret-admin-t0ken"), 200, "{path}");
    }
    assert_eq!(read("/v1/limits", "s3cret-rEad-t0ken"), 401);
    for this in CHANGES {
        assert_eq!(change(admin, this, "s3cret-read-t0ken"), 403, "{this:?}");
    }
    assert_eq!(proxy.logged(" of limit three "), 0);
    for this in CHANGES {
        assert_eq!(change(admin, this, "s3cret-admin-t0ken"), 200, "{this:?}");
    }
    eventually("the changes are logged", || proxy.logged(" of limit three ") == CHANGES.len());
    // A refused change is no wrong token.
    assert_eq!(read("/v1/limits", "s3cret-read-t0ken"), 200);
    assert!(!proxy.lines().iter().any(|line| line.contains("s3cret")), "{:?}", proxy.lines());
}

#[test]
fn every_change_is_logged_with_who_and_what() {
    let proxy = Tidegate::start(&config(""));
    for this in CHANGES {
        assert_eq!(change(proxy.admin(), this, "any"), 200, "{this:?}");
    }
    eventually("all changes are logged", || proxy.logged("admin: key ") == CHANGES.len());
    let lines = proxy.lines();
    let changes: Vec<&String> = lines.iter().filter(|line| line.contains("admin: key ")).collect();
    for (line, (_, _, said)) in changes.iter().zip(CHANGES) {
        assert!(line.contains(" INFO ") && line.contains(" of limit three "), "{line}");
        assert!(line.ends_with(said), "{line}");
    }
}

#[test]
fn a_reload_changes_the_tokens() {
    let proxy = Tidegate::start(&config(TOKENS));
    let admin = proxy.admin();
    let read = |token: &str| get(admin, "/v1/limits", &[&format!("Authorization: Bearer {token}")]).status();
    proxy.reload(&config(&TOKENS.replace("s3cret-read-t0ken", "another-read-t0ken")));
    assert_eq!(["s3cret-read-t0ken", "another-read-t0ken"].map(read), [401, 200]);
    proxy.reload(&config("token = \"s3cret-admin-t0ken\"\n"));
    assert_eq!(["another-read-t0ken", "s3cret-admin-t0ken"].map(read), [401, 200]);
}

#[test]
fn probes_need_no_token() {
    let proxy = Tidegate::start(&config(TOKENS));
    let text = |path: &str| {
        let response = get(proxy.admin(), path, &["Host: gate.internal"]);
        (response.status(), response.text().to_owned())
    };
    assert_eq!(text("/live"), (200, "live\n".to_owned()));
    assert_eq!(text("/ready"), (200, "ready\nstore: in this process\n".to_owned()));
}
