//! `[jwt]`.

use std::path::Path;

use http::header::{AUTHORIZATION, HeaderName};

use super::limits::ReadLimits;
use super::reader::{Item, Reader, Text};
use super::report::Problem;
use super::upstreams::ReadUpstreams;
use crate::gate::KeyPart;
use crate::jwt::{ALGORITHMS, Algorithm, Endpoint, EndpointError, JwtSpec, KeySource, Keys};

const FORM: &str =
    "name a file or a URL, such as \"keys.json\" or \"https://id.example.com/.well-known/jwks.json\"";

/// Reads which tokens are believed. A file of keys is looked for from `directory`.
pub(super) fn jwt(item: Item<'_>, directory: &Path) -> Option<JwtSpec> {
    let mut table = item.table("[jwt]")?;
    let jwks = table.required("jwks", "jwks = \"https://id.example.com/.well-known/jwks.json\"");
    let algorithms = table
        .item("algorithms")
        .map_or(Some(vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]), algorithms);
    let issuer = name(table.item("issuer"));
    let audience = name(table.item("audience"));
    let header = table.item("header").map_or(Some(AUTHORIZATION), |item| {
        let text = item.string()?;
        text.parsed("a header name", "such as \"authorization\"", |text| text.parse::<HeaderName>().ok())
    });
    table.close();
    // Which keys of a file will do depends on the algorithms; where those are wrong, any key will.
    let any = ALGORITHMS.map(|(_, algorithm)| algorithm);
    let source = jwks.and_then(|item| source(item, algorithms.as_deref().unwrap_or(&any), directory));
    let (issuer, audience) = (issuer.ok()?, audience.ok()?);
    Some(JwtSpec { source: source?, algorithms: algorithms?, issuer, audience, header: header? })
}

/// Refuses limits that count by a claim, and upstreams that choose by one, where nothing says which tokens are
/// believed.
pub(super) fn check_parts(
    has_jwt: bool,
    limits: &ReadLimits,
    upstreams: &ReadUpstreams,
    reader: &Reader<'_>,
) {
    if has_jwt {
        return;
    }
    let help = "say whose tokens are believed: add a table [jwt] with `jwks`, the file or the URL of the issuer's \
                keys";
    let needs = |part: &KeyPart| matches!(part, KeyPart::Jwt(_));
    for (part, span) in limits.going_by(needs) {
        let title = format!("this limit goes by `{part}`, and the file has no [jwt]");
        reader.note(Problem::error(span, title).help(help).derived());
    }
    for (part, span) in upstreams.going_by(needs) {
        let title = format!("this upstream goes by `{part}`, and the file has no [jwt]");
        reader.note(Problem::error(span, title).help(help).derived());
    }
}

/// A value that is there, and wrong.
struct Refused;

/// What a token must name, if anything.
fn name(item: Option<Item<'_>>) -> Result<Option<Box<str>>, Refused> {
    let Some(item) = item else { return Ok(None) };
    let text = item.string().ok_or(Refused)?;
    if text.value.is_empty() {
        let problem = text.error(format!("`{}` is empty", item.name));
        text.refuse::<()>(problem.help("leave it out to accept any"));
        return Err(Refused);
    }
    Ok(Some(text.value.into()))
}

fn algorithms(item: Item<'_>) -> Option<Vec<Algorithm>> {
    let items = item.list("put the names in brackets: [\"RS256\"]")?;
    if items.is_empty() {
        let problem = item.error("no token could be verified: `algorithms` is empty");
        return item.refuse(problem.help("leave it out for RS256, ES256 and EdDSA"));
    }
    let read: Vec<Option<Algorithm>> = items.into_iter().map(algorithm).collect();
    read.into_iter().collect()
}

fn algorithm(item: Item<'_>) -> Option<Algorithm> {
    let text = item.string()?;
    let word = text.value.to_ascii_lowercase();
    let why = if word == "none" {
        "a token without a signature proves nothing"
    } else if word.starts_with("hs") {
        "whoever can verify HMAC signatures can make them as well"
    } else {
        return item.choice(&ALGORITHMS, &[]);
    };
    let problem = text.error(format!("{} is not allowed: {why}", text.quoted()));
    text.refuse(problem.help("have the issuer sign with a private key: RS256, ES256 or EdDSA"))
}

fn source(item: Item<'_>, algorithms: &[Algorithm], directory: &Path) -> Option<KeySource> {
    let text = item.string_like("a file or a URL", FORM)?;
    if text.value.contains("://") {
        return url(&text).map(KeySource::Url);
    }
    keys(&text, algorithms, directory).map(KeySource::File)
}

fn url(text: &Text<'_>) -> Option<Endpoint> {
    match Endpoint::parse(&text.value) {
        Ok(endpoint) => {
            if endpoint.is_exposed() {
                let title =
                    "these keys are fetched without TLS: who can change them on the way can forge tokens";
                let problem = Problem::warning(text.item.span(), title);
                text.item.reader.note(problem.help("fetch them over https://, or from this machine"));
            }
            Some(endpoint)
        }
        Err(error @ EndpointError::UserInformation) => {
            text.refuse(text.error(error.to_string()).help("keys are public: leave it out"))
        }
        Err(error) => text.refuse(text.error(error.to_string()).help(FORM)),
    }
}

/// Reads a file of keys. Its name shows in messages; that of a variable would show in its place.
fn keys(text: &Text<'_>, algorithms: &[Algorithm], directory: &Path) -> Option<Keys> {
    let (path, bytes) = text.read_file(directory);
    let shown = path.display();
    let bytes = match bytes {
        Ok(bytes) if bytes.len() <= Keys::MAX_TEXT => bytes,
        Ok(bytes) => {
            let title = format!("{shown} has {} bytes: too many for a file of keys", bytes.len());
            return text.refuse(text.error(title).help(format!("at most {} are read", Keys::MAX_TEXT)));
        }
        Err(error) => return text.refuse(text.error(format!("can't read {shown}: {error}")).help(FORM)),
    };
    let form = "a JWKS is JSON such as {\"keys\": [{\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"…\", \"y\": \"…\"}]}";
    match Keys::parse(&bytes, algorithms) {
        Ok(keys) if keys.is_empty() => {
            let names = ALGORITHMS.iter().filter(|(_, one)| algorithms.contains(one)).map(|(name, _)| *name);
            let names = names.collect::<Vec<_>>().join(", ");
            text.refuse(text.error(format!("{shown} has no key that verifies any of {names}")).help(form))
        }
        Ok(keys) => Some(keys),
        Err(error) => text.refuse(text.error(format!("{shown} is not a JWKS: {error}")).help(form)),
    }
}
