//! Routes that require a token.

use std::net::IpAddr;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tidegate::limits::{Decision, Limiter};

use super::requests::{claims, file_of, now};
use crate::support::{Issuer, Message, Tidegate, get, jwks};

/// A proxy with a route for valid tokens, and one for those with a scope or a role.
fn proxy(jwks: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[jwt]\njwks = \"{jwks}\"\n\
         [limits.guesses]\nrate = \"100/hour\"\nkey = \"client_ip\"\n\
         [[routes]]\npath = \"/any\"\nlimits = [\"guesses\"]\nrequire = \"token\"\nrespond = {{}}\n\
         [[routes]]\npath = \"/scope\"\nrequire = {{ claim = \"scope\", values = [\"admin\", \"read:*:all\"] }}\nrespond = {{}}\n\
         [[routes]]\npath = \"/role\"\nrequire = {{ claim = \"realm.roles\", values = [\"admin\"] }}\nrespond = {{}}\n\
         [[routes]]\npath = \"/open\"\nrespond = {{}}\n"
    ))
}

fn request(proxy: &Tidegate, path: &str, token: &str) -> Message {
    get(proxy.addr(), path, &[&format!("Authorization: Bearer {token}")])
}

#[test]
fn a_route_refuses_requests_without_a_valid_token() {
    let [issuer, forger] = ["k", "k"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let (_directory, file) = file_of(&jwks(&[&issuer]));
    let proxy = proxy(file.to_str().unwrap());
    assert_eq!(request(&proxy, "/any", &issuer.token(&claims("alice"))).status(), 200);
    let absent = get(proxy.addr(), "/any", &[]);
    assert_eq!((absent.status(), absent.header("www-authenticate")), (401, Some("Bearer")));
    assert!(absent.text().contains("the request has no token"), "{}", absent.text());
    let expired = issuer.token(&json!({ "exp": now() - 3600 }));
    for (token, why) in [
        (&*forger.token(&claims("mallory")), "the token's signature is wrong"),
        (&*expired, "the token has expired"),
        ("x.y.z", "the token is no signed JWT"),
    ] {
        let refused = request(&proxy, "/any", token);
        let challenge = refused.header("www-authenticate");
        assert_eq!((refused.status(), challenge), (401, Some("Bearer error=\"invalid_token\"")), "{why}");
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        assert!(refused.text().contains(why), "{}", refused.text());
        assert_eq!(request(&proxy, "/open", token).status(), 200, "{why}");
    }
    // What is refused is charged.
    assert_eq!(request(&proxy, "/any", "x").header("x-ratelimit-remaining"), Some("94"));
}

#[test]
fn a_claim_must_have_one_of_the_values() {
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let (_directory, file) = file_of(&jwks(&[&issuer]));
    let proxy = proxy(file.to_str().unwrap());
    let status = |path, claims: &Value| request(&proxy, path, &issuer.token(claims)).status();
    for (path, claims, expected) in [
        ("/scope", json!({ "scope": "admin" }), 200),
        ("/scope", json!({ "scope": "openid read:orders:all" }), 200),
        ("/scope", json!({ "scope": "read:one write:all" }), 403),
        ("/scope", json!({ "scope": ["openid", "admin"] }), 200),
        ("/scope", json!({ "scope": "openid write" }), 403),
        ("/scope", json!({ "scope": "administrator" }), 403),
        ("/scope", json!({ "scope": { "admin": true } }), 403),
        ("/scope", json!({}), 403),
        ("/role", json!({ "realm": { "roles": ["user", "admin"] } }), 200),
        ("/role", json!({ "realm": { "roles": "admin" } }), 200),
        ("/role", json!({ "realm": { "roles": "user admin" } }), 403),
        ("/role", json!({ "realm": { "roles": [["admin"], 7] } }), 403),
    ] {
        assert_eq!(status(path, &claims), expected, "{path} {claims}");
    }
    let refused = request(&proxy, "/role", &issuer.token(&claims("alice")));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer error=\"insufficient_scope\""));
    assert_eq!(get(proxy.addr(), "/scope", &[]).status(), 401);
}

/// Until the keys are fetched for the first time nothing is known of tokens.
#[test]
fn without_keys_requests_are_to_be_sent_again() {
    let proxy = proxy("http://127.0.0.1:9/keys");
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let response = request(&proxy, "/any", &issuer.token(&claims("alice")));
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")));
    assert_eq!(response.header("www-authenticate"), None);
}

/// The library rejects requests with the responses of the proxy.
#[tokio::test]
async fn the_library_requires_tokens_too() {
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let (_directory, file) = file_of(&jwks(&[&issuer]));
    let limiter = Limiter::from_toml(&format!(
        "[jwt]\njwks = \"{}\"\n[[routes]]\npath = \"/any\"\nrequire = \"token\"\nrespond = {{}}\n",
        file.to_str().unwrap()
    ))
    .unwrap();
    for (token, expected) in [(Some(issuer.token(&claims("alice"))), None), (None, Some(401))] {
        let request = http::Request::get("/any").header("host", "a");
        let request = token
            .iter()
            .fold(request, |request, token| request.header("authorization", format!("Bearer {token}")));
        let check = limiter.check(&request.body(()).unwrap(), "127.0.0.1".parse::<IpAddr>().unwrap());
        let status = match check.await {
            Decision::Allowed(_) => None,
            Decision::Denied(denied) => Some(denied.status().as_u16()),
        };
        assert_eq!(status, expected);
    }
}
