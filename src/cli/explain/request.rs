//! Builds a request's head from arguments.

use std::fs;

use http::header::HeaderName;
use http::{HeaderValue, Method, Uri};

use crate::http1::{RequestHead, names};

/// The Host of a request without one.
const DEFAULT_HOST: &str = "localhost";

/// Builds a head as a client would send it: the target in origin form, and its host in the Host header.
pub(super) fn head(method: &str, url: &str, headers: &[String]) -> Result<RequestHead, String> {
    let method =
        Method::from_bytes(method.as_bytes()).map_err(|_| format!("`{method}` is not a valid method"))?;
    let (host, target) = split_url(url)?;
    let target: Uri = target.parse().map_err(|error| format!("`{url}` is not a valid URL: {error}"))?;
    let mut head = RequestHead::new(method, target);
    for header in headers {
        let (name, value) = parse_header(header)?;
        head.fields.push(&name, value.as_bytes());
    }
    if !head.fields.contains(names::HOST) {
        let host = HeaderValue::from_str(host.unwrap_or(DEFAULT_HOST));
        let host = host.map_err(|_| format!("the host of `{url}` is not valid"))?;
        head.fields.push(names::HOST, host.as_bytes());
    }
    Ok(head)
}

/// The body that arguments make, as with curl; none without arguments.
pub(super) fn body(data: &[String]) -> Result<Option<Vec<u8>>, String> {
    let parts: Vec<Vec<u8>> = data.iter().map(|text| part_of_body(text)).collect::<Result<_, _>>()?;
    Ok((!parts.is_empty()).then(|| parts.join(&b'&')))
}

fn part_of_body(text: &str) -> Result<Vec<u8>, String> {
    let Some(file) = text.strip_prefix('@') else { return Ok(text.into()) };
    let mut bytes = fs::read(file).map_err(|error| format!("can't read {file}: {error}"))?;
    bytes.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
    Ok(bytes)
}

/// Adds the headers that describe a body, where the head does not have them.
pub(super) fn describe_body(head: &mut RequestHead, body: &[u8]) {
    head.fields.set_default(names::CONTENT_TYPE, b"application/x-www-form-urlencoded");
    head.fields.set_default(names::CONTENT_LENGTH, body.len().to_string().as_bytes());
}

/// Splits a URL into its host, if it has one, and the rest.
fn split_url(url: &str) -> Result<(Option<&str>, &str), String> {
    if url.starts_with('/') || url == "*" {
        return Ok((None, url));
    }
    let scheme = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    let start = match (scheme.starts_with("http://"), scheme.starts_with("https://")) {
        (true, _) => 7,
        (_, true) => 8,
        _ => {
            return Err(format!(
                "`{url}` is neither a URL that starts with http:// nor a path that starts with /"
            ));
        }
    };
    let rest = &url[start..];
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match (host, target) {
        ("", _) => Err(format!("`{url}` has no host")),
        (host, "") => Ok((Some(host), "/")),
        (host, target) => Ok((Some(host), target)),
    }
}

fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("`{header}` is not a header; write it as 'NAME: VALUE'");
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_and_target(url: &str, headers: &[&str]) -> Result<(String, String), String> {
        let headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
        let head = head("GET", url, &headers)?;
        Ok((head.fields.get_str(names::HOST).unwrap().to_owned(), head.uri.to_string()))
    }

    #[test]
    fn the_host_is_that_of_the_header_the_url_or_the_default() {
        let ok = |host: &str, target: &str| Ok((host.to_owned(), target.to_owned()));
        assert_eq!(host_and_target("http://a.example:81/b?c=d", &[]), ok("a.example:81", "/b?c=d"));
        assert_eq!(host_and_target("HTTPS://u:p@a.example", &[]), ok("a.example", "/"));
        assert_eq!(host_and_target("http://127.0.0.1/b", &["Host: a.example"]), ok("a.example", "/b"));
        assert_eq!(host_and_target("/b", &[]), ok("localhost", "/b"));
        assert_eq!(host_and_target("*", &["host:a"]), ok("a", "*"));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (url, headers) in [
            ("ftp://a", vec![]),
            ("a.example/b", vec![]),
            ("http://", vec![]),
            ("/a b", vec![]),
            ("/", vec!["no colon"]),
            ("/", vec!["a b: c"]),
            ("/", vec!["a: \u{1}"]),
        ] {
            assert!(host_and_target(url, &headers).is_err(), "{url}");
        }
        assert!(head("G T", "/", &[]).is_err());
        assert!(body(&["@/nonexistent".to_owned()]).is_err());
    }

    #[test]
    fn a_body_is_joined_from_its_parts() {
        let body = |data: &[&str]| body(&data.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        assert_eq!(body(&[]), None);
        assert_eq!(body(&["a=1", "b=2"]).unwrap(), b"a=1&b=2");
        let mut head = head("POST", "/", &["content-type: application/json".to_owned()]).unwrap();
        describe_body(&mut head, b"{}");
        assert_eq!(head.fields.get_str(names::CONTENT_TYPE), Some("application/json"));
        assert_eq!(head.fields.get_str(names::CONTENT_LENGTH), Some("2"));
    }
}
