//! The original request that an authorization request describes (forward authentication).
//!
//! A proxy describes the request of its client, the original request, in headers of its authorization request: Traefik and Caddy with X-Forwarded-Method,
//! X-Forwarded-Host and X-Forwarded-Uri; nginx with the headers that its file sets, by convention X-Original-Method and
//! X-Original-URI with X-Forwarded-Host, or X-Original-URL. All other headers are those of the original request. Each
//! header of one form is required, and headers of two forms are an error: an optional one that the proxy does not
//! set could be set by its client.

use http::header::HeaderName;
use http::{Method, Uri};

use super::client_ip::known_scheme;
use crate::http1::names::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING, X_FORWARDED_PROTO};
use crate::http1::{Fields, RequestHead};

const FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");

/// Why an authorization request describes no original request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginalError {
    /// No header has the target of the original request.
    #[error(
        "no header of this authorization request names the original request. Traefik and Caddy send \
         X-Forwarded-Method, X-Forwarded-Host and X-Forwarded-Uri by themselves; for nginx add: proxy_set_header \
         X-Original-Method $request_method; proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Original-URI \
         $request_uri;"
    )]
    NoTarget,
    /// Headers of two forms have a target, of which a client may have sent one.
    #[error(
        "both {0} and {1} name the original request. Let the proxy remove the one that it does not set, for nginx: \
         proxy_set_header {1} \"\";"
    )]
    TwoTargets(HeaderName, HeaderName),
    /// A header is missing that belongs to the others.
    #[error(
        "the header {name} is missing, which tells {meaning}. For nginx add: proxy_set_header {name} {variable};"
    )]
    Missing {
        /// Its name.
        name: HeaderName,
        /// The part of the original request that the header tells.
        meaning: &'static str,
        /// The variable of nginx that has it.
        variable: &'static str,
    },
    /// A header occurs more than once, or is malformed.
    #[error("the authorization request must have exactly one valid {0} header, set by the proxy")]
    Malformed(HeaderName),
}

/// An original request.
#[derive(Debug)]
pub struct OriginalRequest {
    /// Its head.
    pub head: RequestHead,
    /// Its scheme, `http` or `https`; none if no header has it.
    pub scheme: Option<&'static str>,
}

/// The original request that an authorization request describes. The result has its method, target and host, and all other
/// headers but those of the body, which is not sent along. `client_header` is the header that names the client. Rejects headers
/// that are missing, malformed or contradict each other.
pub fn original(head: &RequestHead, client_header: &HeaderName) -> Result<OriginalRequest, OriginalError> {
    let fields = &head.fields;
    let [uri, path, url] = [FORWARDED_URI, ORIGINAL_URI, ORIGINAL_URL].map(|name| one(fields, name));
    let (method, host, uri, scheme) = match (uri?, path?, url?) {
        (Some(uri), None, None) => {
            let (method, host) = (method(fields, FORWARDED_METHOD)?, forwarded_host(fields)?);
            (method, host, target(uri, FORWARDED_URI)?, forwarded_scheme(fields))
        }
        (None, Some(path), None) => {
            let (method, host) = (method(fields, ORIGINAL_METHOD)?, forwarded_host(fields)?);
            (method, host, target(path, ORIGINAL_URI)?, forwarded_scheme(fields))
        }
        (None, None, Some(url)) => {
            let (scheme, host, path) = split(url).ok_or(OriginalError::Malformed(ORIGINAL_URL))?;
            (method(fields, ORIGINAL_METHOD)?, host, target(path, ORIGINAL_URL)?, Some(scheme))
        }
        (None, None, None) => return Err(OriginalError::NoTarget),
        (None, ..) => return Err(OriginalError::TwoTargets(ORIGINAL_URI, ORIGINAL_URL)),
        (_, Some(_), _) => return Err(OriginalError::TwoTargets(ORIGINAL_URI, FORWARDED_URI)),
        _ => return Err(OriginalError::TwoTargets(ORIGINAL_URL, FORWARDED_URI)),
    };
    if fields.get_all(client_header).all(|value| value.trim_ascii().is_empty()) {
        return Err(OriginalError::Missing {
            name: client_header.clone(),
            meaning: "the address of the client",
            variable: "$remote_addr",
        });
    }
    let mut fields = fields.clone();
    fields.set(HOST, host.as_bytes());
    fields.remove(CONTENT_LENGTH);
    fields.remove(TRANSFER_ENCODING);
    // Routes match by the scheme of the original request, and not by what its client has sent.
    fields.remove(X_FORWARDED_PROTO);
    if let Some(scheme) = scheme {
        fields.push(X_FORWARDED_PROTO, scheme.as_bytes());
    }
    for name in [FORWARDED_METHOD, FORWARDED_URI, ORIGINAL_METHOD, ORIGINAL_URI, ORIGINAL_URL] {
        fields.remove(&name);
    }
    Ok(OriginalRequest { head: RequestHead { method, uri, version: head.version, fields }, scheme })
}

/// Whether a header of a request names an original request.
pub fn names_original(head: &RequestHead) -> bool {
    [FORWARDED_URI, ORIGINAL_URI, ORIGINAL_URL].iter().any(|name| head.fields.contains(name))
}

/// The value of a header that may occur once; none if it is missing or empty.
fn one(fields: &Fields, name: HeaderName) -> Result<Option<&str>, OriginalError> {
    let mut values = fields.get_all(&name);
    let (value, other) = (values.next(), values.next());
    let text = value.map(std::str::from_utf8).transpose();
    match text {
        Ok(text) if other.is_none() => Ok(text.map(trim).filter(|text| !text.is_empty())),
        _ => Err(OriginalError::Malformed(name)),
    }
}

/// A value without the whitespace around it (RFC 9110 §5.6.3). Other blanks of Unicode are part of the value: a proxy and
/// servers treat them so.
fn trim(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

fn method(fields: &Fields, name: HeaderName) -> Result<Method, OriginalError> {
    let Some(method) = one(fields, name.clone())? else {
        let (meaning, variable) = ("the method of the original request", "$request_method");
        return Err(OriginalError::Missing { name, meaning, variable });
    };
    Method::from_bytes(method.as_bytes()).map_err(|_| OriginalError::Malformed(name))
}

fn forwarded_host(fields: &Fields) -> Result<&str, OriginalError> {
    one(fields, FORWARDED_HOST)?.ok_or(OriginalError::Missing {
        name: FORWARDED_HOST,
        meaning: "the host of the original request",
        variable: "$host",
    })
}

/// The scheme of the original request; a malformed one is none.
fn forwarded_scheme(fields: &Fields) -> Option<&'static str> {
    let mut values = fields.get_all(X_FORWARDED_PROTO);
    let scheme = values.next().filter(|_| values.next().is_none())?.trim_ascii();
    known_scheme(scheme)
}

/// A target in origin-form, or `*`. A fragment is no part of a target (RFC 9112 §3.2): nginx routes by what is before it, and
/// forwards all of it.
fn target(text: &str, name: HeaderName) -> Result<Uri, OriginalError> {
    let is_target = (text.starts_with('/') || text == "*") && !text.contains('#');
    let uri = text.parse().ok().filter(|_| is_target);
    uri.ok_or(OriginalError::Malformed(name))
}

/// The scheme, the authority and the rest of a URL. The authority has to end with a slash: a proxy joins it and the target, and
/// the Host of a client could have a `?`, so that the path would seem to begin there.
fn split(url: &str) -> Option<(&'static str, &str, &str)> {
    let (scheme, rest) = ["http", "https"]
        .into_iter()
        .find_map(|scheme| Some((scheme, url.strip_prefix(scheme)?.strip_prefix("://")?)))?;
    let end = rest.find(['/', '?', '#', '\\', '@'])?;
    let (host, path) = rest.split_at(end);
    (!host.is_empty() && path.starts_with('/')).then_some((scheme, host, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: HeaderName = HeaderName::from_static("x-forwarded-for");

    fn read(fields: &[(&str, &str)]) -> Result<String, String> {
        let mut head = RequestHead::new(Method::GET, "/decide".parse().unwrap());
        head.fields = fields.iter().copied().collect();
        head.fields.push(HOST, b"tidegate");
        let OriginalRequest { head, .. } = original(&head, &CLIENT).map_err(|error| error.to_string())?;
        let host = head.fields.get_str(HOST).unwrap();
        Ok(format!("{} {host} {}", head.method, head.uri))
    }

    fn scheme(fields: &[(&str, &str)]) -> Option<&'static str> {
        let mut head = RequestHead::new(Method::GET, "/decide".parse().unwrap());
        head.fields = fields.iter().copied().collect();
        original(&head, &CLIENT).unwrap().scheme
    }

    fn forwarded<'a>(uri: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut fields = vec![
            ("x-forwarded-method", "POST"),
            ("x-forwarded-host", "a.test:8443"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-uri", uri),
        ];
        fields.extend(more);
        fields
    }

    #[test]
    fn each_form_describes_the_original_request() {
        assert_eq!(read(&forwarded("/a%20b?c=1", &[])).unwrap(), "POST a.test:8443 /a%20b?c=1");
        let client = ("x-forwarded-for", "192.0.2.1");
        let method = ("x-original-method", "DELETE");
        let fields = [client, method, ("x-original-uri", "/a?b"), ("x-forwarded-host", "a.test")];
        assert_eq!(read(&fields).unwrap(), "DELETE a.test /a?b");
        let fields = [client, method, ("x-original-url", "https://a.test:1/a?b"), ("x-forwarded-host", "b")];
        assert_eq!(read(&fields).unwrap(), "DELETE a.test:1 /a?b");
    }

    #[test]
    fn headers_of_the_authorization_request_are_not_part_of_the_original_request() {
        let more = [
            ("content-length", "7"),
            ("transfer-encoding", "chunked"),
            ("x-key", "k"),
            ("x-original-method", "PUT"),
        ];
        let mut head = RequestHead::new(Method::GET, "/decide".parse().unwrap());
        head.fields = forwarded("/a", &more).into_iter().collect();
        let OriginalRequest { head, .. } = original(&head, &CLIENT).unwrap();
        let names: Vec<&str> = head.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["x-forwarded-host", "x-forwarded-for", "x-key", "host"]);
    }

    #[test]
    fn the_scheme_is_that_of_the_original_request() {
        let forwarded = |values: &[&'static str]| {
            scheme(&forwarded("/", &values.iter().map(|it| ("x-forwarded-proto", *it)).collect::<Vec<_>>()))
        };
        for (values, expected) in [
            (&["https"][..], Some("https")),
            (&["HTTP"], Some("http")),
            (&["ws"], Some("http")),
            (&["wss"], Some("https")),
            (&[], None),
            (&["gopher"], None),
            (&["http, https"], None),
            (&["http", "https"], None),
        ] {
            assert_eq!(forwarded(values), expected, "{values:?}");
        }
        let of_url = |url| {
            scheme(&[
                ("x-forwarded-for", "192.0.2.1"),
                ("x-original-method", "GET"),
                ("x-original-url", url),
                ("x-forwarded-proto", "http"),
            ])
        };
        assert_eq!((of_url("https://a/"), of_url("http://a/")), (Some("https"), Some("http")));
    }

    #[test]
    fn a_missing_header_is_named_with_its_cure() {
        let all = forwarded("/a", &[]);
        for (index, (name, _)) in all.iter().enumerate() {
            let mut fields = all.clone();
            fields.remove(index);
            let error = read(&fields).unwrap_err();
            assert!(error.to_lowercase().contains(name), "{name}: {error}");
            assert!(error.contains("proxy_set_header"), "{name}: {error}");
            fields.push((name, " "));
            assert_eq!(read(&fields).unwrap_err(), error, "an empty {name}");
        }
        let url = [("x-forwarded-for", "192.0.2.1"), ("x-original-url", "http://a/")];
        assert!(read(&url).unwrap_err().contains("x-original-method"));
    }

    #[test]
    fn contradictions_are_errors() {
        for more in [
            ("x-original-uri", "/b"),
            ("x-original-url", "http://b/b"),
            ("x-forwarded-uri", "/b"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-host", "b.test"),
        ] {
            assert!(read(&forwarded("/a", &[more])).is_err(), "{more:?}");
        }
        let two = [("x-original-uri", "/a"), ("x-original-url", "http://a/a")];
        assert!(read(&two).unwrap_err().contains("both x-original-uri and x-original-url"));
    }

    #[test]
    fn a_target_that_could_be_read_in_two_ways_is_an_error() {
        for uri in ["a", "http://a/b", "//a b", "?a", "/a b", "\u{e4}", "/a#b", "/a?b#c", "/a#/../b"] {
            assert!(read(&forwarded(uri, &[])).is_err(), "{uri}");
        }
        assert_eq!(read(&forwarded("//a/b", &[])).unwrap(), "POST a.test:8443 //a/b");
        // A blank of Unicode is part of the target, as it is for the proxy.
        assert_ne!(read(&forwarded("/a\u{a0}", &[])), read(&forwarded("/a", &[])));
        for url in [
            "http://a?/b",
            "http://a/b#c",
            "http://a#/b",
            "http://a\\/b",
            "http://u@a/b",
            "http:///b",
            "http://a",
            "ftp://a/b",
            "/b",
        ] {
            let fields =
                [("x-forwarded-for", "192.0.2.1"), ("x-original-method", "GET"), ("x-original-url", url)];
            assert!(read(&fields).is_err(), "{url}");
        }
    }
}
