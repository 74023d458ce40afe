//! External authorization with limits, the cache, and decisions for other proxies.

use super::setup::{ROUTE, ask, config, proxy, says, server};
use crate::forward_auth::setup::{PROXY, ask as ask_decision};
use crate::support::{Client, Tidegate, Upstream, get, over_both_stores};

const LIMITED: &str = "[[routes]]\nname = \"all\"\npath = \"/*\"\nlimits = [\"l\"]\n";

#[test]
fn limits_come_first_and_charge_by_the_status_of_the_refusal() {
    let (auth, upstream) = (server(), Upstream::echo());
    let tables = format!("[limits.l]\nrate = \"2/hour\"\ncharge_on = [401]\n{LIMITED}");
    over_both_stores(&config(&auth.url(), &upstream, "", &tables), |proxy| {
        let before = auth.received();
        let statuses =
            ["204", "403", "401", "204", "401", "401", "204"].map(|word| ask(proxy, "/", word).status());
        assert_eq!(statuses, [200, 403, 401, 200, 401, 429, 429]);
        assert_eq!(auth.received() - before, 5, "requests over the limit are not asked about");
    });
}

#[test]
fn a_limit_can_count_by_what_the_server_says() {
    let (auth, upstream) = (server(), Upstream::echo());
    let tables = format!(
        "[limits.l]\nrate = \"2/hour\"\nkey = \"header:x-user\"\non_missing = \"deny\"\n[limits.each]\nrate = \"8/hour\"\n\
         {}",
        LIMITED.replace("\"l\"", "\"l\", \"each\"")
    );
    let keys = "copy = [\"x-user\"], order = \"before_limits\"";
    over_both_stores(&config(&auth.url(), &upstream, keys, &tables), |proxy| {
        let status = |word: &str| get(proxy.addr(), "/", &[&says(word), "X-User: forged"]).status();
        assert_eq!(
            ["ok ann", "ok ann", "ok ann", "ok bob", "401", "204"].map(status),
            [200, 200, 429, 200, 401, 403]
        );
        let echoed =
            get(proxy.addr(), "/", &[&says("ok bob"), "X-User: forged", "Connection: x-user"]).echoed();
        assert_eq!(echoed.all("x-user"), ["bob"]);
    });
}

#[test]
fn before_the_limits_a_client_without_units_is_not_asked_about() {
    let (auth, upstream) = (server(), Upstream::echo());
    let tables = format!("[limits.l]\nrate = \"2/hour\"\n{LIMITED}");
    let proxy = proxy(&auth.url(), &upstream, "order = \"before_limits\"", &tables);
    let statuses = ["403", "204", "204", "204", "401"].map(|word| ask(&proxy, "/", word).status());
    assert_eq!(statuses, [403, 200, 200, 429, 429]);
    assert_eq!(auth.received(), 3);
    let lines = proxy.accesses(5);
    assert!(lines[0].contains("\"route\":\"all\"") && lines[3].contains("\"denied_by\":\"l\""), "{lines:?}");
}

#[test]
fn before_the_limits_the_body_waits_for_the_decision() {
    let (auth, upstream) = (server(), Upstream::echo());
    let tables = format!("[limits.l]\nrate = \"1/hour\"\nkey = \"body:/user\"\n{LIMITED}");
    let proxy = proxy(&auth.url(), &upstream, "order = \"before_limits\"", &tables);
    let post = |word: &str, user: &str| {
        let body = format!("{{\"user\":\"{user}\"}}");
        Client::connect(proxy.addr()).ask(&format!(
            "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: {word}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let mut client = Client::connect(proxy.addr());
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: 401\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    );
    assert_eq!(client.read().status(), 401);
    let statuses =
        [post("204", "ann"), post("204", "ann"), post("204", "bob")].map(|response| response.status());
    assert_eq!(statuses, [200, 429, 200]);
}

#[test]
fn a_decision_holds_for_requests_with_the_same_key() {
    let (auth, upstream) = (server(), Upstream::echo());
    let keys = "copy = [\"x-user\"], send = [\"authorization\"], cache = { for = \"1h\", key = \"header:authorization\" }";
    let proxy = proxy(&auth.url(), &upstream, keys, ROUTE);
    let user = |word| ask(&proxy, "/any", word).echoed().header("x-user").map(str::to_owned);
    for (word, expected, asked) in [
        ("ok ann", "ann", 1),
        ("ok ann", "ann", 1),
        ("ok bob", "bob", 2),
        ("private eve", "eve", 3),
        ("private eve", "eve", 4),
    ] {
        assert_eq!((user(word).as_deref(), auth.received()), (Some(expected), asked), "{word}");
    }
    // A refusal, and a request without the header, are asked about each time.
    assert_eq!([0; 2].map(|_| ask(&proxy, "/", "401").status()), [401; 2]);
    assert_eq!([0; 2].map(|_| get(proxy.addr(), "/", &[]).status()), [401; 2]);
    assert_eq!(auth.received(), 8);
    assert_eq!(proxy.metric("tidegate_authorizations_total{upstream=\"auth\",outcome=\"cached\"}"), 1);
}

#[test]
fn values_that_differ_share_no_decision() {
    let (auth, upstream) = (server(), Upstream::echo());
    for (key, sent) in [
        (
            "cookie:session",
            [["Cookie: session=old; session=good", "X-A: 1"], ["Cookie: session=a; session=b", "X-A: 1"]],
        ),
        ("header:x-a", [["X-A: 1", "X-A: 2"], ["X-A: 3", "X-A: 4"]]),
    ] {
        let keys = format!("cache = {{ for = \"1h\", key = \"{key}\" }}");
        let (proxy, before) = (proxy(&auth.url(), &upstream, &keys, ROUTE), auth.received());
        for lines in sent {
            let word = says("ok ann");
            assert_eq!(get(proxy.addr(), "/", &[&word, lines[0], lines[1]]).status(), 200);
        }
        assert_eq!(auth.received() - before, 2, "{key}");
    }
}

#[test]
fn decisions_for_other_proxies_are_authorized_too() {
    let (auth, upstream) = (server(), Upstream::echo());
    let tables = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nrespond = \"decide\"\n[client_ip]\ntrusted_proxies = [\"{PROXY}\"]\n{ROUTE}"
    );
    let proxy: Tidegate = proxy(&auth.url(), &upstream, "copy = [\"x-user\", \"x-groups\"]", &tables);
    let decide = |word: &str| {
        let lines = [&*says(word), "X-User: forged", "X-Forwarded-Proto: https"];
        ask_decision(proxy.addr(), "PUT api.test /a?b", "192.0.2.1", &lines)
    };
    let allowed = decide("ok ann");
    assert_eq!(allowed.status(), 200);
    assert_eq!((allowed.header("x-user"), allowed.header("x-groups")), (Some("ann"), Some("")));
    let question = auth.requests().remove(0);
    let described =
        ["method", "host", "uri", "proto"].map(|name| question.header(&format!("x-forwarded-{name}")));
    assert_eq!(described, [Some("PUT"), Some("api.test"), Some("/a?b"), Some("https")]);
    assert_eq!(["401", "403", "302", "500"].map(|word| decide(word).status()), [401, 403, 302, 503]);
    assert_eq!(upstream.received(), 0);
}
