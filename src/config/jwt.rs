//! `[jwt]`, and what routes require of tokens.

use std::path::Path;

use super::client_ip::header_name;
use super::item::{Item, TextItem};
use super::keys::keys;
use super::keys::kinds::{Words as _, words};
use super::report::Problem;
use super::table::Table;
use crate::gate::{TokenRule, ValuePattern};
use crate::jwt::{ALGORITHMS, Algorithm, JwtSpec, KeySetUrl, KeySetUrlError, KeySource, Keys};

const FORM: &str =
    "name a file or a URL, such as \"keys.json\" or \"https://id.example.com/.well-known/jwks.json\"";

words!(AlgorithmWords: Algorithm = ALGORITHMS);
words!(RequireWords: () = [("token", ())]);

keys! {
    /// The keys of `[jwt]`.
    JwtKeys {
        /// The public keys of the issuer as a JWKS: a file, relative to the directory of the configuration file, or
        /// an `https://` or `http://` URL
        jwks: Text, required "https://id.example.com/.well-known/jwks.json";
        /// Accepted signature algorithms: also `RS384`, `RS512`, `PS256`, `PS384`, `PS512` and `ES384`
        algorithms: List<Choice<AlgorithmWords>> = ["RS256", "ES256", "EdDSA"];
        /// The required value of the claim `iss`
        issuer: Text, or "any";
        /// A required value of the claim `aud`, which may have others as well
        audience: Text, or "any";
        /// The header that holds the token; in other headers the prefix `Bearer` is optional
        header: Text = "authorization";
    }
}

keys! {
    /// The keys of `require`.
    RequireKeys {
        /// The name of a claim; a dot selects a member of an object
        claim: Text, required "scope";
        /// Patterns, one of which the value of the claim matches, an element of it, or a word of `scope`
        values: List<Text>, required ["orders:read"];
    }
}

/// Reads `[jwt]`. A file of keys is relative to `directory`.
pub(super) fn jwt(item: Item<'_>, directory: &Path) -> Option<JwtSpec> {
    let table = Table::<JwtKeys>::of(item, "[jwt]")?;
    let jwks = table.jwks().item();
    let algorithms = algorithms(&table);
    let (issuer, audience) = (table.issuer().with(claim), table.audience().with(claim));
    let header = table.header().with(|item| header_name(item, "such as \"authorization\""));
    // The usable keys of a file depend on the algorithms; if those are invalid, any key is accepted.
    let any = ALGORITHMS.map(|(_, algorithm)| algorithm);
    let source = jwks.and_then(|item| source(item, algorithms.as_deref().unwrap_or(&any), directory));
    table.close();
    Some(JwtSpec {
        source: source?,
        algorithms: algorithms?,
        issuer: issuer.ok()?,
        audience: audience.ok()?,
        header: header?,
    })
}

/// Reads what a route requires of tokens.
pub(super) fn required(item: Item<'_>) -> Option<TokenRule> {
    if !item.is_table() {
        item.choice_or_table(
            RequireWords::MEANINGS,
            "require = { claim = \"scope\", values = [\"orders:read\"] }",
        )?;
        return Some(TokenRule { claim: None });
    }
    let table = Table::<RequireKeys>::of(item, "`require`")?;
    let claim = table.claim().read();
    let values = table.values().item();
    let pattern = |item: Item<'_>| Some(ValuePattern::parse(&item.string()?.value));
    let patterns = values.and_then(|item| item.list_of("put them in brackets: [\"orders:read\"]", pattern));
    table.close();
    let (claim, values, patterns) = (claim?, values?, patterns?);
    if patterns.is_empty() {
        let problem = values.error("no token could meet this: the list is empty");
        return values.reject(problem.help("name a value, or write require = \"token\" for any valid token"));
    }
    Some(TokenRule { claim: Some((claim.value.into(), patterns.into())) })
}

/// The value that a claim must have.
fn claim(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string()?;
    if text.value.is_empty() {
        return text
            .reject(text.error(format!("`{}` is empty", item.name)).help("leave it out to accept any"));
    }
    Some(text.value.into())
}

fn algorithms(table: &Table<'_, JwtKeys>) -> Option<Vec<Algorithm>> {
    let item = table.algorithms().item();
    let algorithms = item.list_of("put the names in brackets: [\"RS256\"]", |item| algorithm(table, item))?;
    if algorithms.is_empty() {
        let problem = item.error("no token could be verified: `algorithms` is empty");
        return item.reject(problem.help("leave it out for the default"));
    }
    Some(algorithms)
}

fn algorithm<'a>(table: &Table<'a, JwtKeys>, item: Item<'a>) -> Option<Algorithm> {
    let text = item.string()?;
    let word = text.value.to_ascii_lowercase();
    let why = if word == "none" {
        "a token without a signature proves nothing"
    } else if word.starts_with("hs") {
        "every holder of an HMAC key can sign tokens as well as verify them"
    } else {
        return table.algorithms().element(item);
    };
    let problem = text.error(format!("{} is not allowed: {why}", text.quoted()));
    text.reject(problem.help("have the issuer sign with a private key: RS256, ES256 or EdDSA"))
}

fn source(item: Item<'_>, algorithms: &[Algorithm], directory: &Path) -> Option<KeySource> {
    let text = item.string_like("a file or a URL", FORM)?;
    if text.value.contains("://") {
        return url(&text).map(KeySource::Url);
    }
    keys(&text, algorithms, directory).map(KeySource::File)
}

fn url(text: &TextItem<'_>) -> Option<KeySetUrl> {
    match KeySetUrl::parse(&text.value) {
        Ok(url) => {
            if url.is_exposed() {
                let title = "these keys are fetched without TLS: an attacker on the network path can replace them and forge tokens";
                let problem = Problem::warning(text.item.span(), title);
                text.item.reader.report(problem.help("fetch them over https://, or from this machine"));
            }
            Some(url)
        }
        Err(error @ KeySetUrlError::UserInformation) => {
            text.reject(text.error(error.to_string()).help("keys are public: leave it out"))
        }
        Err(error) => text.reject(text.error(error.to_string()).help(FORM)),
    }
}

/// Reads a file of keys.
fn keys(text: &TextItem<'_>, algorithms: &[Algorithm], directory: &Path) -> Option<Keys> {
    let (path, bytes) = text.read_file(directory);
    let shown = path.display();
    let bytes = match bytes {
        Ok(bytes) if bytes.len() <= Keys::MAX_TEXT => bytes,
        Ok(bytes) => {
            let title = format!("{shown} has {} bytes: too many for a file of keys", bytes.len());
            return text.reject(text.error(title).help(format!("at most {} are read", Keys::MAX_TEXT)));
        }
        Err(error) => return text.reject(text.unreadable(&path, &error).help(FORM)),
    };
    let form = "a JWKS is JSON such as {\"keys\": [{\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"…\", \"y\": \"…\"}]}";
    match Keys::parse(&bytes, algorithms) {
        Ok(keys) if keys.is_empty() => {
            let names = ALGORITHMS.iter().filter(|(_, one)| algorithms.contains(one)).map(|(name, _)| *name);
            let names = names.collect::<Vec<_>>().join(", ");
            text.reject(text.error(format!("{shown} has no key that verifies any of {names}")).help(form))
        }
        Ok(keys) => Some(keys),
        Err(error) => text.reject(text.error(format!("{shown} is not a JWKS: {error}")).help(form)),
    }
}
