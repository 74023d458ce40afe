//! Which consumer a request has, by its credential, and which requests are rejected for the lack of one.

use http::StatusCode;
use jsonwebtoken::Algorithm;
use serde_json::json;

use super::setup::{CONSUMERS, ConsumersFile, status_of, with_key};
use crate::support::{Issuer, Tidegate, get, jwks};

const ROUTES: &str = "\
    [[routes]]\npath = \"/public\"\nconsumers = \"public\"\nrespond = { body = \"public\" }\n\
    [[routes]]\npath = \"/pro\"\nconsumers = [\"pro\"]\nrespond = { body = \"pro\" }\n\
    [[routes]]\npath = \"/*\"\nrespond = { body = \"all\" }\n";

#[test]
fn a_request_without_a_known_credential_is_rejected_with_401() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&(file.table("") + ROUTES));
    let missing = get(proxy.addr(), "/", &[]);
    assert_eq!(missing.status(), 401);
    assert_eq!(missing.header("www-authenticate"), Some("ApiKey"));
    assert_eq!(missing.header("cache-control"), Some("no-store"));
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    assert!(
        missing.text().contains("the request must have exactly one x-api-key header"),
        "{}",
        missing.text()
    );
    for (name, key, status) in [
        ("plain", "k-2", 200),
        ("hashed", "k-4711", 200),
        ("unknown", "k-3", 401),
        ("prefix of another", "k-471", 401),
        ("the hash itself", "23acf55272b297aad718dd6b606d6495f539f1df33a0cc34ca103c807f33fe44", 401),
        ("not expired", "l-1", 200),
        ("expired", "e-1", 401),
        ("blocked", "b-1", 403),
    ] {
        // The second time from the cache of credentials.
        for time in ["first", "second"] {
            assert_eq!(with_key(&proxy, "/", key).status(), status, "{name}, the {time} time");
        }
    }
}

/// Limits that a consumer evades if it is taken for no consumer, on a route that serves requests without one.
const PUBLIC: &str = "\
    [limits.each]\nrate = \"2/day\"\nkey = \"consumer\"\non_missing = \"skip\"\n\
    [[routes]]\npath = \"/*\"\nconsumers = \"public\"\nlimits = [\"each\"]\nrespond = {}\n";

#[test]
fn a_header_with_differing_credentials_is_rejected_on_every_route() {
    let file = ConsumersFile::new(CONSUMERS);
    for (source, prefix) in [("header:x-api-key", "X-Api-Key: "), ("bearer", "Authorization: Bearer ")] {
        for (unknown, routes) in [("anonymous", ROUTES), ("reject", PUBLIC), ("reject", ROUTES)] {
            let keys = format!("credential = \"{source}\"\nunknown = \"{unknown}\"");
            let proxy = Tidegate::start(&(file.table(&keys) + routes));
            let status = |credentials: &[&str]| {
                let lines: Vec<String> = credentials.iter().map(|it| format!("{prefix}{it}")).collect();
                get(proxy.addr(), "/", &lines.iter().map(String::as_str).collect::<Vec<_>>()).status()
            };
            for credentials in
                [["b-1", "x"], ["x", "b-1"], ["k-2", "s-1"], ["k-2", "k-4711"], ["x", "y"], ["b-1", ""]]
            {
                assert_eq!(status(&credentials), 400, "{source}, {unknown}: {credentials:?}");
            }
            assert_eq!((status(&["b-1", "b-1"]), status(&["k-2", "k-2"])), (403, 200), "{source}");
        }
    }
    let proxy = Tidegate::start(&(file.table("credential = \"bearer\"") + PUBLIC));
    let lines = ["Authorization: Bearer b-1", "Authorization: Basic YTpi"];
    assert_eq!(get(proxy.addr(), "/", &lines).status(), 400, "another scheme");
}

#[test]
fn a_second_token_makes_no_consumer_anonymous() {
    let [issuer, forger] = ["k", "k"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let file = ConsumersFile::new(CONSUMERS);
    let keys = file.path.with_extension("json");
    std::fs::write(&keys, jwks(&[&issuer])).unwrap();
    let bearer = |issuer: &Issuer, sub: &str| {
        let claims = json!({ "sub": sub, "exp": 4_000_000_000_u64 });
        format!("Authorization: Bearer {}", issuer.token(&claims))
    };
    let [blocked, known, invalid] =
        [(&issuer, "b-1"), (&issuer, "k-2"), (&forger, "b-1")].map(|(issuer, sub)| bearer(issuer, sub));
    for (unknown, routes) in [("anonymous", ROUTES), ("reject", PUBLIC)] {
        let table = file.table(&format!("credential = \"jwt:sub\"\nunknown = \"{unknown}\""));
        let proxy = Tidegate::start(&format!("{table}[jwt]\njwks = \"{}\"\n{routes}", keys.display()));
        for (lines, status) in [
            (&[&*blocked][..], 403),
            (&[&*known], 200),
            (&[&*invalid], 200),
            (&[&*invalid, &*blocked], 400),
            (&[&*blocked, &*invalid], 400),
            (&[&*known, &*blocked], 400),
            (&[&*blocked, "Authorization: Basic YTpi"], 400),
            (&["Authorization: Basic YTpi", &*blocked], 400),
            (&[&*blocked, &*blocked], 403),
        ] {
            assert_eq!(get(proxy.addr(), "/", lines).status(), status, "{unknown}: {lines:?}");
        }
    }
}

#[test]
fn every_value_of_a_cookie_or_query_parameter_is_looked_up() {
    let file = ConsumersFile::new(CONSUMERS);
    let public = PUBLIC.replace("2/day", "100/day");
    for (source, is_cookie) in [("cookie:key", true), ("query:key", false)] {
        for (unknown, routes) in [("anonymous", ROUTES), ("reject", &public)] {
            let keys = format!("credential = \"{source}\"\nunknown = \"{unknown}\"");
            let proxy = Tidegate::start(&(file.table(&keys) + routes));
            for (credentials, status) in [
                (&["x"][..], 200),
                (&["b-1", "x"], 403),
                (&["x", "b-1"], 403),
                (&["k-2", "b-1"], 403),
                (&["b-1", "e-1", "s-1", "x"], 403),
                (&["b-1", ""], 403),
                (&["l-1", "x"], 200),
                (&["x", "e-1", "l-1"], 200),
                (&["k-2", "k-4711"], 200),
                (&["k-2", "s-1"], 401),
                (&["x", "y"], 401),
                (&["e-1", "x"], 401),
                (&["b-1", "1", "2", "3", "4"], 400),
            ] {
                let pairs: Vec<String> = credentials.iter().map(|it| format!("key={it}")).collect();
                let target = if is_cookie { "/".to_owned() } else { format!("/?{}", pairs.join("&")) };
                let cookie = format!("Cookie: a=b; {}", pairs.join("; "));
                let sent = [&*cookie].into_iter().filter(|_| is_cookie).collect::<Vec<_>>();
                assert_eq!(
                    get(proxy.addr(), &target, &sent).status(),
                    status,
                    "{source}, {unknown}: {credentials:?}"
                );
            }
        }
    }
}

/// The limit of a consumer, and one of failed guesses, count a request with several credentials.
#[test]
fn a_second_credential_hides_no_consumer_from_its_limits() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&(file.table("credential = \"query:key\"") + PUBLIC));
    let statuses = (0..3).map(|number| get(proxy.addr(), &format!("/?key=s-1&key=x{number}"), &[]).status());
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 429]);
    let guesses = "[limits.guesses]\nrate = \"2/hour\"\ncharge_on = [401]\n\
                   [[routes]]\npath = \"/*\"\nlimits = [\"guesses\"]\nrespond = {}\n";
    let proxy =
        Tidegate::start(&(file.table("credential = \"query:key\"\nunknown = \"anonymous\"") + guesses));
    let statuses =
        (0..3).map(|number| get(proxy.addr(), &format!("/?key=a{number}&key=b{number}"), &[]).status());
    assert_eq!(statuses.collect::<Vec<_>>(), [401, 401, 429]);
}

#[test]
fn routes_serve_certain_tiers_or_everybody() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&(file.table("") + ROUTES));
    for (path, key, status) in [
        ("/public", None, 200),
        ("/public", Some("unknown"), 200),
        ("/public", Some("b-1"), 403),
        ("/pro", None, 401),
        ("/pro", Some("k-2"), 200),
        ("/pro", Some("s-1"), 403),
    ] {
        let header = key.map(|key| format!("X-Api-Key: {key}"));
        let response = get(proxy.addr(), path, &header.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(response.status(), status, "{path} with {key:?}");
        if status == 403 {
            assert_eq!(response.header("www-authenticate"), None);
        }
    }
}

#[test]
fn requests_without_a_consumer_can_be_served() {
    let file = ConsumersFile::new(CONSUMERS);
    let limit = "[limits.each]\nrate = \"1/hour\"\nkey = \"consumer\"\n\
                 [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = {}\n";
    let proxy = Tidegate::start(&(file.table("unknown = \"anonymous\"") + limit));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    assert_eq!(status_of(&proxy, "/", "unknown"), StatusCode::TOO_MANY_REQUESTS, "by address as well");
    assert_eq!(status_of(&proxy, "/", "k-2"), StatusCode::OK);
    assert_eq!(status_of(&proxy, "/", "k-4711"), StatusCode::TOO_MANY_REQUESTS, "the same consumer");
    assert_eq!(status_of(&proxy, "/", "s-1"), StatusCode::OK);
}

/// As a credential that never was valid.
#[test]
fn an_expired_credential_is_anonymous_where_that_is_allowed() {
    let file = ConsumersFile::new(CONSUMERS);
    let strict = Tidegate::start(&(file.table("") + ROUTES));
    assert_eq!(status_of(&strict, "/public", "e-1"), 200);
    let lenient = Tidegate::start(&(file.table("unknown = \"anonymous\"") + ROUTES));
    assert_eq!(status_of(&lenient, "/", "e-1"), 200);
    assert_eq!(status_of(&lenient, "/pro", "e-1"), 401);
}

#[test]
fn a_route_that_blocks_requests_needs_no_credential() {
    let file = ConsumersFile::new(CONSUMERS);
    let routes = "[[routes]]\npath = \"/*\"\nblock = true\n";
    let proxy = Tidegate::start(&(file.table("") + routes));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 403);
    assert_eq!(status_of(&proxy, "/", "unknown"), 403);
}

/// A consumer that is rejected for its tier does not use up the count of others at its address.
#[test]
fn rejected_consumers_are_counted_as_themselves() {
    let file = ConsumersFile::new(CONSUMERS);
    let routes = "[limits.each]\nrate = \"1/day\"\nkey = \"consumer\"\n\
        [[routes]]\npath = \"/pro\"\nconsumers = [\"pro\"]\nlimits = [\"each\"]\nrespond = {}\n";
    let proxy = Tidegate::start(&(file.table("") + routes));
    for (key, status) in [("s-1", 403), ("s-1", 429), ("l-1", 403), ("unknown", 401), ("k-2", 200)] {
        assert_eq!(status_of(&proxy, "/pro", key), status, "{key}");
    }
}

#[test]
fn limits_bound_how_fast_credentials_can_be_guessed() {
    let file = ConsumersFile::new(CONSUMERS);
    let limit = "[limits.guesses]\nrate = \"2/hour\"\ncharge_on = [401]\n\
                 [[routes]]\npath = \"/*\"\nlimits = [\"guesses\"]\nrespond = {}\n";
    let proxy = Tidegate::start(&(file.table("") + limit));
    let statuses: Vec<u16> =
        (0..3).map(|number| with_key(&proxy, "/", &format!("guess-{number}")).status()).collect();
    assert_eq!(statuses, [401, 401, 429]);
}

#[test]
fn tiers_and_own_numbers_of_consumers_apply() {
    let file = ConsumersFile::new(&format!(
        "{CONSUMERS}[big]\ncredentials = [\"big\"]\ntier = \"pro\"\nlimits = {{ each = {{ rate = \"70/hour\" }} }}\n\
         [\"with|bar\"]\ncredentials = [\"bar\"]\n[\"with|bar\".limits]\neach = {{ rate = \"80/hour\" }}\n"
    ));
    let limit = "[limits.each]\nrate = \"5/hour\"\nkey = [\"consumer\", \"method\"]\n\
                 tiers = { by = \"consumer\", pro = { rate = \"60/hour\" } }\n\
                 [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = {}\n";
    let proxy = Tidegate::start(&(file.table("") + limit));
    for (key, most) in [("s-1", "5"), ("k-2", "60"), ("big", "70"), ("bar", "80")] {
        assert_eq!(with_key(&proxy, "/", key).header("x-ratelimit-limit"), Some(most), "{key}");
    }
}

#[test]
fn credentials_come_from_each_source() {
    let file = ConsumersFile::new("[acme]\ncredentials = [\"the key\"]\n");
    for (source, path, header, challenge) in [
        ("header:authorization", "/", "Authorization: the key", "Bearer"),
        ("cookie:key", "/", "Cookie: a=b; key=\"the key\"", "ApiKey"),
        ("query:key", "/?key=the+key", "X: y", "ApiKey"),
        ("bearer", "/", "Authorization: BEARER  the key", "Bearer"),
    ] {
        let proxy = Tidegate::start(&(file.table(&format!("credential = \"{source}\"")) + ROUTES));
        assert_eq!(get(proxy.addr(), path, &[header]).status(), 200, "{source}");
        let missing = get(proxy.addr(), "/", &[]);
        assert_eq!(missing.status(), 401, "{source}");
        assert_eq!(missing.header("www-authenticate"), Some(challenge), "{source}");
    }
}
