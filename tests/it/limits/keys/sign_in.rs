//! The sign-in of docs/configuration/key-parts.md that takes JSON and forms.

use super::body::post;
use crate::support::{Client, Tidegate, Upstream};

const PAGE: &str = include_str!("../../../../docs/configuration/key-parts.md");

/// The configuration on the page, with this server.
fn documented(server: &Upstream) -> String {
    let blocks = PAGE.split("```toml\n").skip(1);
    let mut blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    let block = blocks.find(|block| block.starts_with("[limits.per-user-in-json]")).unwrap();
    block.replace("http://127.0.0.1:9000", &server.url())
}

#[test]
fn a_sign_in_takes_json_and_forms() {
    let server = Upstream::answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let proxy = Tidegate::start(&documented(&server));
    let mut client = Client::connect(proxy.addr());
    for (media_type, body) in [
        ("application/json", "{\"username\":\"eve\"}"),
        ("Application/JSON; charset=utf-8", "{\"username\":\"adam\"}"),
        ("text/json", "{\"username\":\"abel\"}"),
        ("application/x-www-form-urlencoded", "username=eve"),
    ] {
        let statuses: Vec<u16> =
            (0..6).map(|_| client.ask(&post("/login", media_type, body)).status()).collect();
        assert_eq!(statuses, [401, 401, 401, 401, 401, 429], "{media_type}");
    }
    assert_eq!(server.received(), 20);
    for (media_type, body) in [
        ("application/json", "username=cain"),
        ("application/x-www-form-urlencoded", "{\"username\":\"cain\"}"),
        ("application/x-www-form-urlencoded; a=json", "username=cain"),
        ("text/plain", "username=cain"),
        ("multipart/form-data; boundary=x", "username=cain"),
    ] {
        let response = client.ask(&post("/login", media_type, body));
        assert_eq!(response.status(), 400, "{media_type}");
    }
    assert_eq!(server.received(), 20);
}
