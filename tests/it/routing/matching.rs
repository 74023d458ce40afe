//! Which route a request matches.

use crate::support::{Client, Message, Tidegate, Upstream, get};

/// A proxy whose routes respond with their names.
pub(super) fn routes(routes: &[(&str, &str)]) -> Tidegate {
    let tables = routes.iter().map(|(name, conditions)| {
        format!("[[routes]]\nname = \"{name}\"\n{conditions}\nrespond = {{ body = \"{name}\" }}\n")
    });
    Tidegate::start(&tables.collect::<String>())
}

/// The name of the route that responded, or the status code of the error.
pub(super) fn matched(response: &Message) -> String {
    if response.status() == 200 { response.text().to_owned() } else { response.status().to_string() }
}

#[test]
fn hosts_are_compared_without_port_case_and_trailing_dot() {
    let proxy = routes(&[
        ("exact", "host = \"API.example.com\"\npath = \"/*\""),
        ("below", "host = \"*.example.com\"\npath = \"/*\""),
        ("six", "host = \"[2001:db8::1]\"\npath = \"/*\""),
        ("any", "path = \"/any\""),
    ]);
    for (host, name) in [
        ("api.example.com", "exact"),
        ("API.Example.COM", "exact"),
        ("api.example.com.", "exact"),
        ("api.example.com:8080", "exact"),
        ("api.example.com.:", "exact"),
        ("www.example.com", "below"),
        ("a.b.Example.com:1", "below"),
        ("v.api.example.com", "below"),
        ("example.com", "404"),
        ("notexample.com", "404"),
        (".example.com", "400"),
        ("api.example.com.evil.test", "404"),
        ("[2001:db8::1]:80", "six"),
        ("[2001:DB8::1]", "six"),
        ("2001:db8::1", "400"),
    ] {
        assert_eq!(matched(&get(proxy.addr(), "/", &[&format!("Host: {host}")])), name, "{host}");
    }
    assert_eq!(matched(&get(proxy.addr(), "/any", &["Host: elsewhere"])), "any");
    // The authority of an absolute target replaces Host.
    assert_eq!(matched(&get(proxy.addr(), "http://api.example.com/", &["Host: elsewhere"])), "exact");
    assert_eq!(matched(&get(proxy.addr(), "http://elsewhere/", &["Host: api.example.com"])), "404");
    // HTTP/1.0 without Host matches routes without a host.
    let response = Client::connect(proxy.addr()).ask("GET /any HTTP/1.0\r\n\r\n");
    assert_eq!(matched(&response), "any");
    let response = Client::connect(proxy.addr()).ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(matched(&response), "404");
}

#[test]
fn path_patterns_match_complete_paths() {
    let proxy = routes(&[
        ("exact", "path = \"/a\""),
        ("slash", "path = \"/b/\""),
        ("rest", "path = \"/v/*\""),
        ("dotted", "path = \"/held.*\""),
        ("one", "path = \"/users/{id}\""),
        ("two", "path = \"/users/{id}/posts/{post}\""),
        ("mixed", "path = \"/{tenant}/files/*\""),
        ("odd", "path = \"/odd%20name/caf%C3%A9\""),
    ]);
    for (path, name) in [
        ("/a", "exact"),
        ("/a?x=/v/", "exact"),
        ("/a/", "404"),
        ("/A", "404"),
        ("/b", "404"),
        ("/b/", "slash"),
        ("/b/c", "404"),
        ("/v", "404"),
        ("/v/", "rest"),
        ("/v/x/y", "rest"),
        ("/vx", "404"),
        ("/held.", "dotted"),
        ("/held.txt/x", "dotted"),
        ("/held", "404"),
        ("/users/7", "one"),
        ("/users/a:b@c", "one"),
        ("/users/", "404"),
        ("/users", "404"),
        ("/users/7/", "404"),
        ("/users/7/posts/8", "two"),
        ("/users/7/posts/", "404"),
        ("/users/files/x", "mixed"),
        ("/acme/files/", "mixed"),
        ("/acme/files", "404"),
        ("/odd%20name/caf%c3%a9", "odd"),
        ("/", "404"),
    ] {
        assert_eq!(matched(&get(proxy.addr(), path, &[])), name, "{path}");
    }
}

#[test]
fn methods_headers_and_queries_are_conditions() {
    let proxy = routes(&[
        ("get", "path = \"/m\"\nmethods = [\"GET\"]"),
        ("put", "path = \"/m\"\nmethods = [\"PUT\", \"PATCH\"]"),
        ("beta", "path = \"/h\"\nheaders = { x-beta = \"1\", x-plan = \"pro\" }"),
        ("alpha", "path = \"/h\"\nheaders = { x-alpha = \"1\" }"),
        ("second", "path = \"/q\"\nquery = { v = \"2\", \"a b\" = \"c&d\" }"),
        ("first", "path = \"/q\"\nquery = { v = \"1\" }"),
    ]);
    let mut client = Client::connect(proxy.addr());
    for (method, name) in
        [("GET", "get"), ("PUT", "put"), ("PATCH", "put"), ("POST", "404"), ("FETCH", "404")]
    {
        let response = client.ask(&format!("{method} /m HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(matched(&response), name, "{method}");
    }
    let head = client.ask("HEAD /m HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.status(), head.header("content-length"), head.text()), (200, Some("3"), ""));
    for (headers, name) in [
        (&["X-Beta: 1", "x-plan: pro"][..], "beta"),
        (&["X-Beta: 2", "X-Beta: 1", "x-plan: pro"], "beta"),
        (&["X-Beta: 1", "x-plan: Pro"], "404"),
        (&["X-Beta: 1"], "404"),
        (&["X-Beta: 1", "x-alpha: 1"], "alpha"),
        (&["x-alpha: 11"], "404"),
    ] {
        assert_eq!(matched(&client.get("/h", headers)), name, "{headers:?}");
    }
    for (target, name) in [
        ("/q?v=2&a+b=c%26d", "second"),
        ("/q?x&a%20b=c%26d&v=1&%76=2", "second"),
        ("/q?v=2", "404"),
        ("/q?v=1", "first"),
        ("/q?v=1&v=3", "first"),
        ("/q?V=1", "404"),
        ("/q", "404"),
    ] {
        assert_eq!(matched(&client.get(target, &[])), name, "{target}");
    }
}

#[test]
fn the_first_matching_route_wins() {
    let proxy = routes(&[
        ("one", "path = \"/x/{y}\"\nmethods = [\"GET\"]"),
        ("two", "path = \"/x/*\"\nheaders = { a = \"b\" }"),
        ("three", "path = \"/x/special\""),
        ("four", "host = \"h.test\"\npath = \"/*\""),
        ("five", "path = \"/*\""),
        ("six", "host = \"h.test\"\npath = \"/six\""),
    ]);
    let mut client = Client::connect(proxy.addr());
    assert_eq!(matched(&client.get("/x/special", &[])), "one");
    assert_eq!(matched(&client.ask("POST /x/special HTTP/1.1\r\nHost: a\r\n\r\n")), "three");
    assert_eq!(matched(&client.ask("POST /x/special HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n")), "two");
    assert_eq!(matched(&client.get("/x/", &[])), "five");
    assert_eq!(matched(&client.get("/six", &["Host: h.test"])), "four");
    assert_eq!(matched(&client.get("/six", &["Host: other"])), "five");
}

#[test]
fn the_matched_path_is_forwarded() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/refused/*\"\nrespond = {{ status = 403 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    for (sent, received) in [
        ("/a/../b", "/b"),
        ("/a/./b", "/a/b"),
        ("/a//b///c", "/a/b/c"),
        ("//a", "/a"),
        ("/a/%2e%2e/b", "/b"),
        ("/a/%2E%2e/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/../../b", "/b"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/.", "/a/"),
        ("/%61%7e%2D", "/a~-"),
        ("/a%3ab%20c", "/a%3Ab%20c"),
        ("/a/../b?q=/../%2e%2F//", "/b?q=/../%2e%2F//"),
        ("/a?q=%zz\\", "/a?q=%zz\\"),
        ("http://h/x/../y?z", "/y?z"),
        ("http://h", "/"),
        ("http://h?q", "/?q"),
        ("/...", "/..."),
        ("/a?", "/a?"),
    ] {
        let request = client.get(sent, &[]).echoed();
        assert_eq!(request.start, format!("GET {received} HTTP/1.1"), "{sent}");
    }
    // No equivalent path bypasses a route.
    for path in
        ["/refused/x", "//refused/x", "/a/../refused/x", "/%72efused/x", "/./refused//x", "/a/%2e./refused/"]
    {
        assert_eq!(client.get(path, &[]).status(), 403, "{path}");
    }
}

#[test]
fn ambiguous_paths_are_rejected() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[limits.two]\nrate = \"2/hour\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"two\"]\nupstream = \"{}\"\n",
        server.url()
    ));
    for (path, detail) in [
        ("/a%2Fb", "the path has an encoded slash"),
        ("/a%2fb", "the path has an encoded slash"),
        ("/a/..%2fb", "the path has an encoded slash"),
        ("/a\\b", "the path has a backslash"),
        ("/a%5cb", "the path has a backslash"),
        ("/a%00", "the path has a control character"),
        ("/a%0d%0ab", "the path has a control character"),
        ("/a%7F", "the path has a control character"),
        ("/a%", "the path has a percent sign that is not followed by two hexadecimal digits"),
        ("/a%2", "the path has a percent sign that is not followed by two hexadecimal digits"),
        ("/a%g1", "the path has a percent sign that is not followed by two hexadecimal digits"),
        ("/a%c0%afb", "the path has an overlong UTF-8 sequence"),
        ("/%C0%AE%C0%AE/a", "the path has an overlong UTF-8 sequence"),
        ("/a%e0%80%afb", "the path has an overlong UTF-8 sequence"),
        ("/a%f0%80%80%afb", "the path has an overlong UTF-8 sequence"),
    ] {
        let mut client = Client::connect(proxy.addr());
        let response = client.get(path, &[]);
        assert_eq!(response.start, "HTTP/1.1 400 Bad Request", "{path}");
        assert_eq!(response.header("content-type"), Some("application/problem+json"), "{path}");
        assert_eq!(response.header("connection"), Some("close"), "{path}");
        let body =
            format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"{detail}"}}"#);
        assert_eq!(response.text(), body + "\n", "{path}");
        client.expect_close();
    }
    for raw in ["/a\0b", "/a\u{1}b", "/a\u{7f}b", "relative", "/a b"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET {raw} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.read().start, "HTTP/1.1 400 Bad Request", "{raw:?}");
        client.expect_close();
    }
    assert!(server.requests().is_empty());
    // No rejected request was charged.
    assert_eq!(get(proxy.addr(), "/", &[]).header("x-ratelimit-remaining"), Some("1"));
}

#[test]
fn a_route_may_keep_encoded_slashes() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/files/{{name}}\"\nencoded_slash = \"keep\"\nupstream = \"{0}\"\n\
         [[routes]]\npath = \"/others/{{name}}\"\nupstream = \"{0}\"\n",
        server.url()
    ));
    let request = get(proxy.addr(), "/files/a%2fb%2F..", &[]).echoed();
    assert_eq!(request.start, "GET /files/a%2Fb%2F.. HTTP/1.1");
    assert_eq!(get(proxy.addr(), "/others/a%2Fb", &[]).status(), 400);
    assert_eq!(get(proxy.addr(), "/files/a%5Cb", &[]).status(), 400);
}

#[test]
fn a_route_may_respond_locally() {
    let proxy = Tidegate::start(
        r#"
        [limits.one]
        rate = "1/hour"
        [[routes]]
        path = "/health"
        respond = { body = "fine\n" }
        [[routes]]
        path = "/gone"
        limits = ["one"]
        respond = { status = 410, body = "no more" }
        response_headers = { set = { "content-type" = "text/html", "x-a" = "b" } }
        [[routes]]
        path = "/empty"
        respond = { status = 204 }
        "#,
    );
    let mut client = Client::connect(proxy.addr());
    let response = client.get("/health", &[]);
    assert_eq!((response.status(), response.text()), (200, "fine\n"));
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    let response = client.get("/gone", &[]);
    assert_eq!((&*response.start, response.text()), ("HTTP/1.1 410 Gone", "no more"));
    assert_eq!((response.header("content-type"), response.header("x-a")), (Some("text/html"), Some("b")));
    assert_eq!(client.get("/gone", &[]).status(), 429);
    let response = client.get("/empty", &[]);
    assert_eq!(response.start, "HTTP/1.1 204 No Content");
    assert_eq!(response.header("content-length"), None);
    assert_eq!(response.header("transfer-encoding"), None);
    // A discarded body does not disturb the next request.
    let response = client.ask("POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /");
    assert_eq!(response.text(), "fine\n");
    assert_eq!(client.get("/health", &[]).text(), "fine\n");
}

/// RFC 9110 §9.3.7.
#[test]
fn options_asterisk_is_answered_locally() {
    let proxy = routes(&[("any", "path = \"/*\"")]);
    let mut client = Client::connect(proxy.addr());
    let response = client.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(response.start, "HTTP/1.1 204 No Content");
    assert_eq!(response.header("content-length"), None);
    assert_eq!(matched(&client.ask("OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n")), "any");
    assert_eq!(matched(&client.ask("GET * HTTP/1.1\r\nHost: a\r\n\r\n")), "400");
    client.expect_close();
    let other = Tidegate::start(
        "default_limits = [\"one\"]\n[limits.one]\nrate = \"1/hour\"\n\
         [[routes]]\npath = \"*\"\nmethods = [\"OPTIONS\"]\nrespond = { status = 200, body = \"all\" }\n",
    );
    let mut client = Client::connect(other.addr());
    assert_eq!(matched(&client.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")), "all");
    assert_eq!(client.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").status(), 429);
}

#[test]
fn patterns_of_paths_are_matched_in_the_order_of_the_file() {
    let proxy = routes(&[
        ("hidden", "path = \"*/.*\""),
        ("script", "path = \"/static/*.js\""),
        ("static", "path = \"/static/*\""),
        ("php", "path = \"*.php\""),
        ("raw", "path = \"/v*/users/{id}/**/raw\""),
        ("any", "path = \"/*\""),
    ]);
    for (path, name) in [
        ("/.git/config", "hidden"),
        ("/a/.env", "hidden"),
        ("/a/%2Egit", "hidden"),
        ("/static/app.js", "script"),
        ("/static/lib/app.js", "static"),
        ("/static/x/../app.js", "script"),
        ("/index.php", "php"),
        ("/a/b/index.php", "php"),
        ("/index.php5", "any"),
        ("/index.PHP", "any"),
        ("/v1/users/7/a/b/raw", "raw"),
        ("/v1/users/7/raw", "any"),
        ("/v1/x/users/7/a/raw", "any"),
    ] {
        assert_eq!(matched(&get(proxy.addr(), path, &[])), name, "{path}");
    }
}
