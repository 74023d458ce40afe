//! Verification of tokens, on a manual clock.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderName};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use proptest::prelude::*;
use rcgen::SigningKey as _;
use serde_json::{Value, json};
use tidegate::http1::{Fields, names};
use tidegate::jwt::{JwtSpec, KeySource, Keys, MAX_TOKEN, TokenError, Verifier};
use tidegate::time::{Clock, Timestamp};

use crate::support::{Issuer, jwks};

const NOW: u64 = 1_800_000_000;

const ALLOWED: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

fn spec(set: &str) -> JwtSpec {
    JwtSpec {
        source: KeySource::File(Keys::parse(set.as_bytes(), &ALLOWED).unwrap()),
        algorithms: ALLOWED.to_vec(),
        issuer: None,
        audience: None,
        header: AUTHORIZATION,
    }
}

fn verifier_of(spec: JwtSpec) -> Verifier {
    Verifier::new(spec, Clock::manual(Timestamp(NOW * 1_000_000)))
}

/// A verifier that trusts these issuers.
fn verifier(issuers: &[&Issuer]) -> Verifier {
    verifier_of(spec(&jwks(issuers)))
}

/// The subject of the token in these headers.
fn subject(verifier: &Verifier, name: &HeaderName, values: &[&str]) -> Result<String, TokenError> {
    let fields: Fields = values.iter().map(|value| (name.as_str(), *value)).collect();
    verifier.claims(&fields).map(|claims| claims.text("sub").unwrap_or_default())
}

/// The subject of a token, which is verified twice: the second result comes from the cache.
#[track_caller]
fn seen(verifier: &Verifier, token: &str) -> Result<String, TokenError> {
    let ask = || subject(verifier, &AUTHORIZATION, &[&format!("Bearer {token}")]);
    let first = ask();
    assert_eq!(ask(), first);
    first
}

fn encoded(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

#[test]
fn each_algorithm_verifies_only_its_own_signatures() {
    let issuers = ALLOWED.map(|algorithm| Issuer::new(algorithm, "k"));
    for issuer in &issuers {
        let verifier = verifier(&[issuer]);
        let token = issuer.token(&json!({ "sub": "alice" }));
        assert_eq!(seen(&verifier, &token), Ok("alice".into()));
        let (head, signature) = token.rsplit_once('.').unwrap();
        let payload = encoded(&json!({ "sub": "mallory" }));
        let forged = format!("{}.{payload}.{signature}", head.split_once('.').unwrap().0);
        assert_eq!(seen(&verifier, &forged), Err(TokenError::Signature));
        let other =
            self::verifier(&[&Issuer::new(Algorithm::ES256, "k"), &Issuer::new(Algorithm::EdDSA, "k")]);
        assert!(seen(&other, &token).is_err());
    }
}

#[test]
fn algorithm_confusion_is_rejected() {
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let verifier = verifier(&[&issuer]);
    let claims = json!({ "sub": "mallory" });
    for name in ["none", "None", "HS256", "ES512", "", "RS256"] {
        let token = format!("{}.{}.", encoded(&json!({ "alg": name, "kid": "k" })), encoded(&claims));
        assert!(seen(&verifier, &token).is_err(), "{name}");
    }
    // The public key taken as a shared secret.
    let point = [&issuer.jwk()["x"], &issuer.jwk()["y"]]
        .map(|half| URL_SAFE_NO_PAD.decode(half.as_str().unwrap()).unwrap());
    for secret in [[&[4][..], &point[0], &point[1]].concat(), issuer.jwk().to_string().into_bytes()] {
        let header = Header { kid: Some("k".into()), ..Header::new(Algorithm::HS256) };
        let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&secret)).unwrap();
        assert_eq!(seen(&verifier, &token), Err(TokenError::Algorithm));
    }
    // Symmetric keys and encryption keys of a set are skipped, and a key in the token is ignored.
    let mut set = json!({ "keys": [{ "kty": "oct", "kid": "s", "k": "c2VjcmV0" }, issuer.jwk()] });
    set["keys"][1]["use"] = json!("enc");
    assert!(Keys::parse(set.to_string().as_bytes(), &ALLOWED).unwrap().is_empty());
    let stranger = Issuer::new(Algorithm::ES256, "k");
    let jwk = serde_json::from_value(stranger.jwk()).unwrap();
    let token = stranger.token_of(&claims, &Header { jwk: Some(jwk), ..stranger.header() });
    assert_eq!(seen(&verifier, &token), Err(TokenError::Signature));
    // An algorithm that fits the key, but is not allowed.
    let mut narrow = spec(&jwks(&[&issuer]));
    narrow.algorithms = vec![Algorithm::RS256];
    assert_eq!(seen(&verifier_of(narrow), &issuer.token(&claims)), Err(TokenError::Algorithm));
}

#[test]
fn keys_are_found_by_kid_or_if_only_one_fits() {
    let [a, b] = ["a", "b"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let (ed, nameless) = (Issuer::new(Algorithm::EdDSA, "a"), Issuer::nameless(Algorithm::ES256));
    let claims = json!({ "sub": "alice" });
    let both = verifier(&[&a, &b, &ed]);
    for issuer in [&a, &b, &ed] {
        assert_eq!(seen(&both, &issuer.token(&claims)), Ok("alice".into()));
    }
    let unnamed = |issuer: &Issuer| issuer.token_of(&claims, &Header { kid: None, ..issuer.header() });
    assert_eq!(seen(&both, &unnamed(&a)), Err(TokenError::UnknownKey), "two keys fit");
    assert_eq!(seen(&both, &unnamed(&ed)), Ok("alice".into()));
    assert_eq!(seen(&both, &Issuer::new(Algorithm::ES256, "c").token(&claims)), Err(TokenError::UnknownKey));
    assert_eq!(seen(&verifier(&[&nameless]), &nameless.token(&claims)), Ok("alice".into()));
    let named = Header { kid: Some("x".into()), ..nameless.header() };
    assert_eq!(seen(&verifier(&[&nameless]), &nameless.token_of(&claims, &named)), Ok("alice".into()));
    assert_eq!(seen(&verifier(&[&b]), &a.token_of(&claims, &b.header())), Err(TokenError::Signature));
}

#[test]
fn expiry_applies_to_cached_tokens() {
    let issuer = Issuer::new(Algorithm::EdDSA, "k");
    let verifier = verifier(&[&issuer]);
    let token = issuer.token(&json!({ "sub": "alice", "nbf": NOW + 100, "exp": NOW + 200 }));
    let at = |seconds: u64| {
        verifier.clock().set(Timestamp(seconds * 1_000_000));
        seen(&verifier, &token)
    };
    // The leeway is a minute in both directions.
    assert_eq!(at(NOW + 39), Err(TokenError::NotYet));
    assert_eq!(at(NOW + 40), Ok("alice".into()));
    assert_eq!(at(NOW + 259), Ok("alice".into()));
    assert_eq!(at(NOW + 260), Err(TokenError::Expired));
    assert_eq!(seen(&verifier, &issuer.token(&json!({ "exp": "soon" }))), Err(TokenError::Malformed));
    assert_eq!(seen(&verifier, &issuer.token(&json!({ "sub": "for ever" }))), Ok("for ever".into()));
}

#[test]
fn issuer_and_audience_must_match() {
    let issuer = Issuer::new(Algorithm::EdDSA, "k");
    let strict = verifier_of(JwtSpec {
        issuer: Some("https://id.test".into()),
        audience: Some("api".into()),
        ..spec(&jwks(&[&issuer]))
    });
    for (claims, expected) in [
        (json!({ "iss": "https://id.test", "aud": "api" }), Ok(String::new())),
        (json!({ "iss": "https://id.test", "aud": ["web", "api"] }), Ok(String::new())),
        (json!({ "iss": "https://id.test/", "aud": "api" }), Err(TokenError::Issuer)),
        (json!({ "aud": "api" }), Err(TokenError::Issuer)),
        (json!({ "iss": 7, "aud": "api" }), Err(TokenError::Issuer)),
        (json!({ "iss": "https://id.test", "aud": "web" }), Err(TokenError::Audience)),
        (json!({ "iss": "https://id.test", "aud": [] }), Err(TokenError::Audience)),
        (json!({ "iss": "https://id.test" }), Err(TokenError::Audience)),
    ] {
        assert_eq!(seen(&strict, &issuer.token(&claims)), expected, "{claims}");
        assert_eq!(seen(&verifier(&[&issuer]), &issuer.token(&claims)), Ok(String::new()), "{claims}");
    }
}

#[test]
fn malformed_tokens_are_rejected() {
    let issuer = Issuer::new(Algorithm::EdDSA, "k");
    let verifier = verifier(&[&issuer]);
    let right = issuer.token(&json!({ "sub": "alice" }));
    let parts: Vec<&str> = right.split('.').collect();
    for token in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "not a token",
        parts[0],
        &format!("{}.{}", parts[0], parts[1]),
        &format!("{right}."),
        &format!("{right}.{}", parts[2]),
        &format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
        &format!("{}.{}.{}", encoded(&json!([])), parts[1], parts[2]),
        &format!("{}.{}.{}", encoded(&json!("x")), parts[1], parts[2]),
        &format!("{}..{}", parts[0], parts[2]),
        &"[".repeat(4_000),
        &URL_SAFE_NO_PAD.encode("[".repeat(4_000)),
    ] {
        assert!(seen(&verifier, token).is_err(), "{token}");
    }
    let critical = Header { crit: Some(vec!["exp".into()]), ..issuer.header() };
    let token = issuer.token_of(&json!({ "sub": "alice" }), &critical);
    assert_eq!(seen(&verifier, &token), Err(TokenError::Critical));
    for claims in [json!([]), json!("text"), json!(null)] {
        assert_eq!(seen(&verifier, &issuer.token(&claims)), Err(TokenError::Malformed), "{claims}");
    }
    let long = |length: usize| issuer.token(&json!({ "sub": "a".repeat(length) }));
    assert!(long(5_900).len() < MAX_TOKEN && seen(&verifier, &long(5_900)).is_ok());
    assert_eq!(seen(&verifier, &long(100 * 1024)), Err(TokenError::TooLong));
}

#[test]
fn the_last_of_duplicate_claims_counts() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(key.public_key_raw()) });
    let verifier = verifier_of(spec(&json!({ "keys": [jwk] }).to_string()));
    let token = |claims: &str| {
        let head = format!("{}.{}", encoded(&json!({ "alg": "EdDSA" })), URL_SAFE_NO_PAD.encode(claims));
        format!("{head}.{}", URL_SAFE_NO_PAD.encode(key.sign(head.as_bytes()).unwrap()))
    };
    let claims = |text: &str| {
        let mut fields = Fields::new();
        fields.push(names::AUTHORIZATION, format!("Bearer {}", token(text)).as_bytes());
        verifier.claims(&fields)
    };
    let twice = claims(r#"{"id":"a","o":{"id":1,"id":2},"id":"b"}"#).unwrap();
    assert_eq!((twice.text("id").as_deref(), twice.text("o.id").as_deref()), (Some("b"), Some("2")));
    // Registered claims must not be duplicated.
    assert_eq!(claims(r#"{"exp":1,"exp":9999999999}"#), Err(TokenError::Malformed));
    let deep = format!(r#"{{"id":"a","o":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    assert_eq!(claims(&deep), Err(TokenError::Malformed));
}

#[test]
fn several_authorization_headers_must_carry_one_token() {
    let issuer = Issuer::new(Algorithm::EdDSA, "k");
    let [alice, bob] = ["alice", "bob"].map(|name| issuer.token(&json!({ "sub": name })));
    let usual = verifier(&[&issuer]);
    let own = HeaderName::from_static("x-token");
    let other = verifier_of(JwtSpec { header: own.clone(), ..spec(&jwks(&[&issuer])) });
    let bearer = format!("Bearer {alice}");
    for (values, is_usual, is_other) in [
        (vec![bearer.clone()], true, true),
        (vec![format!("bEARER   {alice} ")], true, true),
        (vec![bearer.clone(), format!("bearer  {alice}")], true, true),
        (vec![alice.clone()], false, true),
        (vec![alice.clone(), bearer.clone()], false, true),
        (vec![bearer.clone(), format!("Bearer {bob}")], false, false),
        (vec![bearer.clone(), "Basic YTpi".to_owned()], false, false),
        (vec![format!("Basic {alice}")], false, false),
        (vec![format!("{bearer}, {bearer}")], false, false),
        (vec![], false, false),
    ] {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(subject(&usual, &AUTHORIZATION, &values).is_ok(), is_usual, "{values:?}");
        assert_eq!(subject(&other, &own, &values).is_ok(), is_other, "{values:?}");
        assert_eq!(subject(&other, &AUTHORIZATION, &values), Err(TokenError::Absent));
    }
}

#[test]
fn unsupported_keys_of_a_key_set_are_skipped() {
    let issuer = Issuer::new(Algorithm::ES256, "k");
    let strange = [
        json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA" }),
        json!({ "kty": "EC", "crv": "secp256k1", "x": "AAAA", "y": "AAAA" }),
        json!({ "kty": "EC", "crv": "P-521", "x": "AAAA", "y": "AAAA" }),
        json!({ "kty": "RSA", "n": "!", "e": "AQAB" }),
        json!({ "kid": 7 }),
        json!("text"),
        json!(null),
    ];
    let mut keys = strange.to_vec();
    keys.push(issuer.jwk());
    let set = json!({ "keys": keys, "more": 1 }).to_string();
    assert_eq!(Keys::parse(set.as_bytes(), &ALLOWED).unwrap().len(), 1);
    assert_eq!(seen(&verifier_of(spec(&set)), &issuer.token(&json!({ "sub": "alice" }))), Ok("alice".into()));
    for wrong in ["", "{", "[]", "{}", r#"{"keys":{}}"#, "-----BEGIN PUBLIC KEY-----", &"[".repeat(100_000)] {
        assert!(Keys::parse(wrong.as_bytes(), &ALLOWED).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn no_token_causes_a_panic(
        header in "\\PC{0,80}",
        name in "[A-Za-z0-9]{0,6}",
        claims in "\\PC{0,80}",
        rest in "[ -~]{0,40}",
    ) {
        let verifier = verifier_of(spec(r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}"#));
        let [header, claims] = [header, claims].map(|text| URL_SAFE_NO_PAD.encode(text));
        let named = encoded(&json!({ "alg": name }));
        let known = encoded(&json!({ "alg": "ES256" }));
        let tokens = [
            format!("{header}.{claims}.{rest}"),
            format!("{named}.{claims}."),
            format!("{known}.{claims}.{rest}"),
            rest,
        ];
        for token in tokens {
            let bearer = format!("Bearer {token}");
            prop_assert!(subject(&verifier, &AUTHORIZATION, &[&bearer]).is_err());
        }
    }
}
