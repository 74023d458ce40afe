//! Removes a credential from a request, so that the upstream does not see it.

use std::borrow::Cow;

use http::Uri;
use http::uri::{InvalidUri, PathAndQuery};

use super::canonical;
use super::consumer_rules::CredentialSource;
use super::key_part::KeyPart;
use super::query::decoded_name;
use crate::http1::{RequestHead, names};

/// Removes the credential from a request's head. A claim of a token is not removed, since the token is also that of other claims,
/// and a certificate is no part of the head. Fails if the target is not valid without the query parameter, which can't happen for
/// a target that was valid with it.
pub fn remove_credential(source: &CredentialSource, head: &mut RequestHead) -> Result<(), InvalidUri> {
    match source {
        // Other schemes may be for the upstream.
        CredentialSource::Bearer => head.fields.retain(|field| {
            let is_bearer = || {
                field
                    .value
                    .trim_ascii_start()
                    .get(..6)
                    .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
            };
            field.name != names::AUTHORIZATION || !is_bearer()
        }),
        CredentialSource::Part(KeyPart::Header(name)) => drop(head.fields.remove(name)),
        CredentialSource::Part(KeyPart::Cookie(name)) => remove_cookie(head, name),
        CredentialSource::Part(KeyPart::Query(name)) => remove_parameter(head, name)?,
        CredentialSource::Part(_) => {}
    }
    Ok(())
}

fn remove_cookie(head: &mut RequestHead, name: &str) {
    let kept: Vec<Vec<u8>> =
        head.fields.get_all(names::COOKIE).map(|header| canonical::without_cookie(header, name)).collect();
    head.fields.remove(names::COOKIE);
    for header in kept.iter().filter(|header| !header.is_empty()) {
        head.fields.push(names::COOKIE, header);
    }
}

fn remove_parameter(head: &mut RequestHead, name: &str) -> Result<(), InvalidUri> {
    let Some(query) = head.uri.query() else { return Ok(()) };
    let is_kept = |pair: &&str| decoded_name(pair) != name.as_bytes();
    let kept = query.split('&').filter(is_kept).collect::<Vec<_>>().join("&");
    if kept.len() == query.len() {
        return Ok(());
    }
    let path = head.uri.path();
    let target = if kept.is_empty() { path.to_owned() } else { format!("{path}?{kept}") };
    let mut parts = head.uri.clone().into_parts();
    parts.path_and_query = Some(target.parse::<PathAndQuery>()?);
    // The scheme and the authority are those of a valid target.
    if let Ok(uri) = Uri::from_parts(parts) {
        head.uri = uri;
    }
    Ok(())
}

/// A request target for logs: without the values of the query parameter that holds the credential, if one does.
#[must_use]
pub fn hide_credential<'t>(source: &CredentialSource, target: Cow<'t, str>) -> Cow<'t, str> {
    let CredentialSource::Part(KeyPart::Query(name)) = source else { return target };
    let Some((path, query)) = target.split_once('?') else { return target };
    let hide = |pair: &str| match pair.split_once('=') {
        Some((written, _)) if decoded_name(pair) == name.as_bytes() => format!("{written}=…"),
        _ => pair.to_owned(),
    };
    let pairs: Vec<String> = query.split('&').map(hide).collect();
    format!("{path}?{}", pairs.join("&")).into()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn without(source: &str, target: &str, fields: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        let mut head = RequestHead::new(Method::GET, target.parse().unwrap());
        head.fields = fields.iter().copied().collect();
        remove_credential(&CredentialSource::parse(source).unwrap(), &mut head).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let left = head.fields.iter().map(|field| (field.name.as_str().to_owned(), text(field.value)));
        (head.uri.to_string(), left.collect())
    }

    #[test]
    fn the_credential_is_hidden_in_targets() {
        let hidden = |source: &str, target: &'static str| {
            hide_credential(&CredentialSource::parse(source).unwrap(), target.into()).into_owned()
        };
        assert_eq!(
            hidden("query:key", "/a?b=1&key=k-1&k%65y=k-2&keys=3&key"),
            "/a?b=1&key=…&k%65y=…&keys=3&key"
        );
        assert_eq!(hidden("query:key", "/a"), "/a");
        assert_eq!(hidden("header:key", "/a?key=k-1"), "/a?key=k-1");
    }

    #[test]
    fn only_the_credential_is_removed() {
        let fields = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let sent = [
            ("x-api-key", "k"),
            ("authorization", "Bearer t"),
            ("cookie", "a=1; sid=s; b=2"),
            ("cookie", "sid=t"),
        ];
        assert_eq!(without("header:x-api-key", "/?k=1", &sent), ("/?k=1".to_owned(), fields(&sent[1..])));
        assert_eq!(without("bearer", "/", &sent).1, fields(&[sent[0], sent[2], sent[3]]));
        let basic = [("authorization", "Basic YTpi"), ("authorization", " BEARER t")];
        assert_eq!(without("bearer", "/", &basic).1, fields(&basic[..1]));
        assert_eq!(without("cookie:sid", "/", &sent).1, fields(&[sent[0], sent[1], ("cookie", "a=1; b=2")]));
        for (target, left) in [
            ("/a?key=1", "/a"),
            ("/a?b=2&key=1&c=%26", "/a?b=2&c=%26"),
            ("/a?k%65y=1&b", "/a?b"),
            ("/a?keys=1", "/a?keys=1"),
            ("/a", "/a"),
            ("http://h.example/a?key=1", "http://h.example/a"),
        ] {
            assert_eq!(without("query:key", target, &[]).0, left, "{target}");
        }
    }
}
