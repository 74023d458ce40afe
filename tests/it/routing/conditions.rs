//! Conditions of routes on headers, query parameters and cookies.

use super::matching::{matched, routes};
use crate::support::{Client, Tidegate};

#[test]
fn values_match_patterns() {
    let proxy = routes(&[
        ("bot", "path = \"/*\"\nheaders = { user-agent = [\"*GPTBot*\", \"*ClaudeBot*\", \"curl/*\"] }"),
        ("json", "path = \"/*\"\nheaders = { content-type = \"application/json*\" }"),
        ("tagged", "path = \"/*\"\nheaders = { x-tag = \"v*-*-beta\" }"),
        ("star", "path = \"/*\"\nheaders = { x-star = '\\*' }"),
        ("search", "path = \"/*\"\nquery = { q = \"*rust*\" }"),
        ("group", "path = \"/*\"\ncookies = { group = [\"a\", \"b*\"] }"),
    ]);
    let mut client = Client::connect(proxy.addr());
    for (target, header, name) in [
        ("/", "User-Agent: Mozilla/5.0 (compatible; GPTBot/1.2)", "bot"),
        ("/", "User-Agent: x gptbot", "bot"),
        ("/", "User-Agent: CURL/8", "bot"),
        ("/", "User-Agent: not-curl/8", "404"),
        ("/", "Content-Type: Application/JSON; charset=utf-8", "json"),
        ("/", "X-Tag: v1-2-beta", "tagged"),
        ("/", "X-Tag: v-beta", "404"),
        ("/", "X-Tag: V1-2-beta", "404"),
        ("/", "X-Star: *", "star"),
        ("/", "X-Star: a", "404"),
        ("/?q=in%20rust+lang", "A: b", "search"),
        ("/?q=Rust", "A: b", "404"),
        ("/", "Cookie: x=1; group=a", "group"),
        ("/", "Cookie: group=\"b%31\"", "group"),
        ("/", "Cookie: group=c; agroup=a", "404"),
    ] {
        assert_eq!(matched(&client.get(target, &[header])), name, "{target} {header}");
    }
}

#[test]
fn presence_absence_and_not_are_conditions() {
    let proxy = routes(&[
        ("present", "path = \"/h\"\nheaders = { x-beta = true, x-off = false }"),
        ("not", "path = \"/h\"\nheaders = { x-plan = { not = [\"pro\", \"team-*\"] } }"),
        ("flag", "path = \"/q\"\nquery = { flag = true }"),
        ("no-flag", "path = \"/q\"\nquery = { page = { not = \"1\" } }"),
        ("signed-in", "path = \"/c\"\ncookies = { sid = true }"),
        ("free", "path = \"/c\"\ncookies = { plan = { not = \"pro\" } }"),
    ]);
    let mut client = Client::connect(proxy.addr());
    for (target, headers, name) in [
        ("/h", &["X-Beta: "][..], "present"),
        ("/h", &["X-Beta: 1", "X-Off: 1"], "not"),
        ("/h", &[], "not"),
        ("/h", &["X-Plan: free"], "not"),
        ("/h", &["X-Plan: pro"], "404"),
        ("/h", &["X-Plan: free", "X-Plan: team-7"], "404"),
        ("/q?flag", &[], "flag"),
        ("/q", &[], "no-flag"),
        ("/q?page=1&page=2", &[], "404"),
        ("/c", &["Cookie: sid="], "signed-in"),
        ("/c", &["Cookie: a=b"], "free"),
        ("/c", &["Cookie: plan=pr%6f"], "404"),
    ] {
        assert_eq!(matched(&client.get(target, headers)), name, "{target} {headers:?}");
    }
}

#[test]
fn a_list_of_exact_values_keeps_the_order_of_routes() {
    let proxy = routes(&[
        ("one", "path = \"/*\"\nheaders = { x-tenant = [\"a\", \"b\"], x-more = \"1\" }"),
        ("two", "path = \"/*\"\nheaders = { x-tenant = [\"b\", \"c\"] }"),
        ("three", "path = \"/*\"\nheaders = { user-agent = \"Probe\" }"),
        ("four", "path = \"/*\"\nheaders = { x-tenant = \"*\" }"),
        ("five", "path = \"/*\"\ncookies = { t = \"1\" }"),
    ]);
    let mut client = Client::connect(proxy.addr());
    for (headers, name) in [
        (&["X-Tenant: b", "X-More: 1"][..], "one"),
        (&["X-Tenant: b"], "two"),
        (&["X-Tenant: c", "User-Agent: pROBE"], "two"),
        (&["X-Tenant: a", "User-Agent: pROBE"], "three"),
        (&["X-Tenant: a"], "four"),
        (&["Cookie: t=2; t=1"], "five"),
    ] {
        assert_eq!(matched(&client.get("/", headers)), name, "{headers:?}");
    }
}

#[test]
fn a_route_can_block_its_requests() {
    let proxy = Tidegate::start(
        "[limits.two]\nrate = \"2/hour\"\n\
         [[routes]]\npath = \"/*\"\nheaders = { user-agent = \"*GPTBot*\" }\nlimits = [\"two\"]\nblock = true\n\
         [[routes]]\npath = \"/*\"\nblock = false\nrespond = { body = \"welcome\" }\n",
    );
    let mut client = Client::connect(proxy.addr());
    for remaining in ["1", "0"] {
        let response = client.get("/", &["User-Agent: GPTBot/1.2"]);
        assert_eq!(response.start, "HTTP/1.1 403 Forbidden");
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        assert_eq!(response.header("x-ratelimit-remaining"), Some(remaining), "limits apply");
        let body =
            r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"such requests are blocked"}"#;
        assert_eq!(response.text(), body.to_owned() + "\n");
    }
    assert_eq!(client.get("/", &["User-Agent: GPTBot/1.2"]).status(), 429);
    assert_eq!(client.get("/", &["User-Agent: curl/8"]).text(), "welcome");
}
