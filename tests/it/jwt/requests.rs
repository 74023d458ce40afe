//! Tokens of requests to a running proxy, and keys that are fetched.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::AUTHORIZATION;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::http1::{Fields, names};
use tidegate::jwt::{JwtSpec, KeySetUrl, KeySource, Refresher, TokenError, Verifier};
use tidegate::time::Clock;

use crate::support::{
    Client, Issuer, Publisher, TIDEGATE, Tidegate, Upstream, command, eventually, get, jwks, patience,
    publish_over_tls,
};

/// A limit of one request by this key, with the key set at this location.
fn once_by(key: &str, jwks: &str, more: &str) -> String {
    format!(
        "[jwt]\njwks = \"{jwks}\"\n{more}\n\
         [limits.once]\nrate = \"1/hour\"\nkey = {key}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// A file with this key set.
pub(super) fn file_of(jwks: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, jwks).unwrap();
    (directory, file)
}

/// The status code of a request with a token.
fn with(proxy: &Tidegate, token: &str) -> u16 {
    get(proxy.addr(), "/", &[&format!("Authorization: Bearer {token}")]).status()
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(super) fn claims(sub: &str) -> Value {
    json!({ "sub": sub, "iat": now(), "exp": now() + 600 })
}

#[test]
fn a_key_file_is_reloaded_with_the_configuration() {
    let [first, next] = ["first", "next"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let (_directory, file) = file_of(&jwks(&[&first]));
    let config = once_by("\"jwt:sub\"", file.to_str().unwrap(), "");
    let proxy = Tidegate::start(&config);
    assert_eq!(with(&proxy, &first.token(&claims("alice"))), 200);
    std::fs::write(&file, jwks(&[&next])).unwrap();
    proxy.reload(&config);
    assert_eq!(with(&proxy, &next.token(&claims("bob"))), 200);
    // The count of a subject does not depend on the key that signed.
    assert_eq!(with(&proxy, &next.token(&claims("alice"))), 429);
    assert_eq!(with(&proxy, &first.token(&claims("carol"))), 200, "by address");
    assert_eq!(with(&proxy, &first.token(&claims("dave"))), 429, "by address as well");
}

#[test]
fn tokens_of_one_subject_share_a_count_and_forged_ones_count_by_address() {
    let [issuer, forger] = ["k", "k"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let (_directory, file) = file_of(&jwks(&[&issuer]));
    let proxy = Tidegate::start(&once_by("\"jwt:sub\"", file.to_str().unwrap(), ""));
    assert_eq!(with(&proxy, &issuer.token(&claims("alice"))), 200);
    assert_eq!(with(&proxy, &issuer.token(&claims("alice"))), 429, "another token of hers");
    assert_eq!(with(&proxy, &issuer.token(&claims("bob"))), 200);
    assert_eq!(with(&proxy, &forger.token(&claims("carol"))), 200, "by address");
    assert_eq!(with(&proxy, &forger.token(&claims("dave"))), 429, "by address as well");
    let expired = json!({ "sub": "erin", "exp": now() - 3600 });
    assert_eq!(with(&proxy, &issuer.token(&expired)), 429);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
    let other = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &["Authorization: Bearer x.y.z"]);
    assert_eq!(other.status(), 200);
}

#[test]
fn claims_can_be_combined_in_keys_and_missing_ones_denied() {
    let issuer = Issuer::new(Algorithm::RS256, "k");
    let (_directory, file) = file_of(&jwks(&[&issuer]));
    let config = once_by("[\"jwt:org.id\", \"method\"]\non_missing = \"deny\"", file.to_str().unwrap(), "");
    let proxy = Tidegate::start(&config);
    let token = |org: &Value| issuer.token(&json!({ "org": org }));
    assert_eq!(with(&proxy, &token(&json!({ "id": 7 }))), 200);
    assert_eq!(with(&proxy, &token(&json!({ "id": 7, "name": "seven" }))), 429);
    assert_eq!(with(&proxy, &token(&json!({ "id": 8 }))), 200);
    let lacking = [json!({}), json!({ "id": [7] }), json!({ "id": "" }), json!({ "id": null }), json!("7")];
    for org in lacking {
        assert_eq!(with(&proxy, &token(&org)), 403, "{org}");
    }
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 403);
}

#[test]
fn a_token_may_be_in_another_header_and_oversized_ones_are_ignored() {
    let issuer = Issuer::new(Algorithm::EdDSA, "k");
    let (_directory, file) = file_of(&jwks(&[&issuer]));
    let more = "header = \"x-token\"\naudience = \"api\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\nmax_header_bytes = \"512KiB\"";
    let proxy = Tidegate::start(&once_by("\"jwt:sub\"", file.to_str().unwrap(), more));
    let token =
        |sub: &str, aud: &str| format!("X-Token: {}", issuer.token(&json!({ "sub": sub, "aud": aud })));
    let ask = |lines: &[&str]| get(proxy.addr(), "/", lines).status();
    assert_eq!(ask(&[&token("alice", "api")]), 200);
    assert_eq!(ask(&[&token("alice", "api")]), 429);
    assert_eq!(ask(&[&token(&"a".repeat(100 * 1024), "api")]), 200, "by address");
    assert_eq!(ask(&[&token("bob", "web")]), 429, "by address as well");
    assert_eq!(ask(&[&token("bob", "api"), &token("carol", "api")]), 400);
    assert_eq!(ask(&[&token("bob", "api")]), 200);
}

#[test]
fn an_unknown_kid_causes_one_fetch_but_not_one_per_token() {
    let [old, new, stranger] = ["old", "new", "stranger"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let publisher = Publisher::new(&jwks(&[&old]));
    let proxy = Tidegate::start(&once_by("\"jwt:sub\"\non_missing = \"deny\"", &publisher.url(), ""));
    proxy.wait_log("tokens are verified with 1 key from http://127.0.0.1:");
    let fetch = publisher.first();
    assert_eq!(fetch.start, "GET /keys?a=b HTTP/1.1");
    assert_eq!(fetch.header("host"), Some(publisher.url()[7..].split('/').next().unwrap()));
    assert!(!proxy.lines().iter().any(|line| line.contains("a=b")), "the query may be a secret");
    assert_eq!(with(&proxy, &old.token(&claims("alice"))), 200);
    assert_eq!(publisher.asked(), 1);
    publisher.publish(&jwks(&[&new]));
    eventually("the new key is known", || with(&proxy, &new.token(&claims("bob"))) == 200);
    assert_eq!(publisher.asked(), 2);
    assert_eq!(
        with(&proxy, &old.token(&claims("alice"))),
        403,
        "it was verified once, but its key is withdrawn"
    );
    for _ in 0..50 {
        assert_eq!(with(&proxy, &stranger.token(&claims("mallory"))), 403);
    }
    assert_eq!(publisher.asked(), 2);
}

#[test]
fn the_proxy_starts_without_keys() {
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let proxy = Tidegate::start(&once_by("\"jwt:sub\"", "http://localhost:1/keys", ""));
    proxy.wait_log(
        "can't fetch http://localhost:1 (Connection refused (os error 111)): until a fetch succeeds, tokens",
    );
    assert_eq!(with(&proxy, &issuer.token(&claims("alice"))), 200);
    assert_eq!(with(&proxy, &issuer.token(&claims("bob"))), 429);
    assert!(proxy.stop().success());
}

#[test]
fn keys_are_fetched_over_tls_with_system_roots() {
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let (port, authority) = publish_over_tls(&jwks(&[&issuer]));
    let (_directory, file) = file_of(&authority);
    let start = |host: &str, trusted: &str| {
        let config = once_by("\"jwt:sub\"\non_missing = \"deny\"", &format!("https://{host}:{port}/"), "");
        Tidegate::builder(&config).env("SSL_CERT_FILE", trusted).start()
    };
    let proxy = start("localhost", file.to_str().unwrap());
    proxy.wait_log(&format!("1 key from https://localhost:{port}"));
    assert_eq!(with(&proxy, &issuer.token(&claims("alice"))), 200);
    let proxy = start("127.0.0.1", file.to_str().unwrap());
    proxy.wait_log("certificate not valid for name");
    let proxy = start("localhost", "/dev/null");
    proxy.wait_log("the authority that has signed its certificate is not trusted");
    assert_eq!(with(&proxy, &issuer.token(&claims("alice"))), 403);
}

#[test]
fn explain_shows_a_claim_or_why_it_is_missing() {
    let [issuer, stranger] = ["k", "other"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let (directory, _) = file_of(&jwks(&[&issuer]));
    let explain = |jwks: &str, token: &str| {
        let config = format!("listen = \"127.0.0.1:8080\"\n{}", once_by("\"jwt:sub\"", jwks, ""));
        std::fs::write(directory.path().join("tidegate.toml"), config).unwrap();
        let output = command(TIDEGATE)
            // The path of a key file is relative to the configuration.
            .args(["explain", "GET", "/", "-H", &format!("authorization: Bearer {token}"), "-c"])
            .arg(directory.path().join("tidegate.toml"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let key = text.lines().find_map(|line| line.trim().strip_prefix("key       "));
        key.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let missing =
        |why: &str| format!("jwt:sub is missing ({why}): the client's address is used instead, 127.0.0.1");
    let token = issuer.token(&claims("alice"));
    assert_eq!(explain("keys.json", &token), "jwt:sub = alice");
    assert_eq!(
        explain("keys.json", &issuer.token(&json!({}))),
        missing("the token does not have this claim")
    );
    assert_eq!(
        explain("keys.json", &stranger.token(&claims("alice"))),
        missing("no key fits the token's `kid` and algorithm")
    );
    assert_eq!(
        explain("http://127.0.0.1:1/", &token),
        missing("its keys are fetched only while tidegate runs")
    );
}

/// A verifier without keys, and the refresher that fetches them.
fn refresher(url: &str) -> (Arc<Verifier>, Refresher) {
    let verifier = Arc::new(Verifier::new(
        JwtSpec {
            source: KeySource::Url(KeySetUrl::parse(url).unwrap()),
            algorithms: vec![Algorithm::ES256],
            issuer: None,
            audience: None,
            header: AUTHORIZATION,
        },
        Clock::System,
    ));
    let refresher = Refresher::new(&verifier).unwrap();
    (verifier, refresher)
}

fn verdict(verifier: &Verifier, token: &str) -> Option<TokenError> {
    let mut fields = Fields::new();
    fields.push(names::AUTHORIZATION, format!("Bearer {token}").as_bytes());
    verifier.claims(&fields).err()
}

#[tokio::test]
async fn the_last_keys_are_kept_when_a_fetch_fails() {
    let [old, new] = ["old", "new"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let [of_old, of_new] = [&old, &new].map(|issuer| issuer.token(&claims("alice")));
    let publisher = Publisher::new("no keys");
    let (verifier, mut refresher) = refresher(&publisher.url());
    assert_eq!(verdict(&verifier, &of_old), Some(TokenError::NoKeys));
    refresher.fetch().await;
    assert_eq!(verdict(&verifier, &of_old), Some(TokenError::NoKeys));
    publisher.publish(&jwks(&[&old]));
    refresher.fetch().await;
    assert_eq!(verdict(&verifier, &of_old), None);
    let other = "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n";
    let huge = format!("{{\"keys\":[], \"more\": \"{}\"}}", "a".repeat(2 << 20));
    let failures = [
        other.to_owned(),
        "HTTP/1.1 500 Oh\r\nContent-Length: 11\r\n\r\n{\"keys\":[]}".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n{\"keys\":[]}".to_owned(),
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{huge}", huge.len()),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        "nonsense\r\n\r\n".to_owned(),
    ];
    for failure in failures {
        publisher.answer(failure.clone());
        tokio::time::timeout(patience(), refresher.fetch()).await.unwrap();
        assert_eq!(verdict(&verifier, &of_old), None, "{failure:.60}");
    }
    publisher.publish(&jwks(&[&new]));
    refresher.fetch().await;
    assert_eq!(
        (verdict(&verifier, &of_new), verdict(&verifier, &of_old)),
        (None, Some(TokenError::UnknownKey))
    );
    publisher.publish("{\"keys\":[]}");
    refresher.fetch().await;
    assert_eq!(verdict(&verifier, &of_new), Some(TokenError::UnknownKey), "all are withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_without_a_response_times_out() {
    let silent = Upstream::scripted(|caller| drop(caller.read_to_close()));
    let (verifier, mut refresher) = refresher(&silent.url());
    refresher.fetch().await;
    assert_eq!(verdict(&verifier, "x.y.z"), Some(TokenError::NoKeys));
}
