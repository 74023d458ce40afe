//! Paths as they are sent upstream.

use crate::support::{Tidegate, Upstream, command, get};
use crate::upstream::setup::with_route;

#[test]
fn prefixes_are_stripped_by_whole_segments() {
    let server = Upstream::echo();
    let base = format!("{}/base/", server.url());
    for (upstream, lines, sent, received) in [
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1/a?b", "/a?b"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1?b", "/?b"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1/", "/"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v12/a", "/v12/a"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/x/../v1/a", "/a"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1//../v1/a", "/a"),
        (&base, "", "/a?b", "/base/a?b"),
        (&base, "", "/", "/base/"),
        (&base, "", "/../a", "/base/a"),
        (&base, "rewrite = { strip_prefix = \"/v1\" }", "/v1/a", "/base/a"),
    ] {
        let proxy = with_route(upstream, lines);
        let start = get(proxy.addr(), sent, &[]).echoed().start;
        assert_eq!(start, format!("GET {received} HTTP/1.1"), "{sent} with {lines}");
    }
}

#[test]
fn paths_are_made_of_parts_of_the_path() {
    let server = Upstream::echo();
    for (path, rewrite, sent, received) in [
        ("/old/{id}/*", "path = \"/v2/{id}/all/*\"", "/old/7/a/b?c", "/v2/7/all/a/b?c"),
        ("/old/{id}/*", "path = \"/v2/{id}/*\"", "/old/7/x/../../7/y", "/v2/7/y"),
        ("/old/{id}/*", "path = \"/v2/{id}/*\"", "/old/%3Fa%23/%25", "/v2/%3Fa%23/%25"),
        ("/old/{id}/*", "path = \"/v2/{id}/*\"", "/%6Fld/7/", "/v2/7/"),
        ("/old/{id}", "path = \"/v2\"", "/old/7?a", "/v2?a"),
        ("/*", "strip_prefix = \"/old\", add_prefix = \"/new/\"", "/old/a", "/new/a"),
        ("/*", "add_prefix = \"/new\"", "/", "/new/"),
    ] {
        let proxy = Tidegate::start(&format!(
            "[[routes]]\npath = \"{path}\"\nrewrite = {{ {rewrite} }}\nupstream = \"{}\"\n",
            server.url()
        ));
        let start = get(proxy.addr(), sent, &[]).echoed().start;
        assert_eq!(start, format!("GET {received} HTTP/1.1"), "{sent} with {rewrite}");
    }
}

/// An escaped character takes three bytes, and the path must not be forwarded without escaping.
#[test]
fn a_path_that_escaping_makes_too_long_is_rejected() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/s/*\"\nrewrite = {{ strip_prefix = \"/s\" }}\nupstream = \"{}\"\n",
        server.url()
    ));
    let quotes = |count| format!("/s/zz/..//{}", "\"".repeat(count));
    assert_eq!(get(proxy.addr(), &quotes(100), &[]).status(), 200);
    assert_eq!(get(proxy.addr(), &quotes(31_000), &[]).status(), 400);
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].start.starts_with("GET /%22%22"));
}

#[test]
fn locations_and_cookies_of_a_server_lead_clients_back_to_the_proxy() {
    // As an application does that knows its own address only: it sends clients to a login, which sets a cookie.
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let host = request.header("host").unwrap_or_default().to_owned();
            let path = request.start.split(' ').nth(1).unwrap_or_default().to_owned();
            let has_cookie = request.header("cookie") == Some("session=1");
            let head = match &*path {
                "/base/login" => format!(
                    "302 Found\r\nLocation: /base/home?a=b\r\nSet-Cookie: session=1; Domain={}; Path=/base/",
                    host.split(':').next().unwrap_or_default()
                ),
                "/base/home?a=b" if has_cookie => "200 OK".to_owned(),
                _ => format!("302 Found\r\nLocation: http://{host}/base/login"),
            };
            if caller.try_send(format!("HTTP/1.1 {head}\r\nContent-Length: 4\r\n\r\ndone")).is_err() {
                return;
            }
        }
    });
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/app/*\"\nupstream = \"{}/base\"\n\
         rewrite = {{ strip_prefix = \"/app\", host = \"upstream\", location = true }}\n",
        server.url()
    ));
    let response = get(proxy.addr(), "/app/x", &["Host: api.test"]);
    assert_eq!(response.header("location"), Some("/app/login"));
    let response = get(proxy.addr(), "/app/login", &["Host: api.test"]);
    assert_eq!(response.header("location"), Some("/app/home?a=b"));
    assert_eq!(response.header("set-cookie"), Some("session=1; Path=/app/"));
    // curl follows the locations, and sends the cookie.
    let output = command("curl")
        .args(["-q", "-s", "-L", "-b", "", "--noproxy", "*", "-w", "%{url_effective}", &proxy.url("/app/x")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("done{}", proxy.url("/app/home?a=b")));
}
