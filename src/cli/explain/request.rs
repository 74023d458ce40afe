//! From arguments to a request's head.

use http::header::HeaderName;
use http::{HeaderValue, Method, Uri};

use crate::http1::{RequestHead, names};

/// The Host of a request that names none.
const NO_HOST: &str = "localhost";

/// Makes a head as a client would send it: the target without its host, which goes into the Host header.
pub(super) fn head(method: &str, url: &str, headers: &[String]) -> Result<RequestHead, String> {
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| format!("`{method}` is not a method"))?;
    let (host, target) = split(url)?;
    let target: Uri = target.parse().map_err(|error| format!("`{url}` can't be asked for: {error}"))?;
    let mut head = RequestHead::new(method, target);
    for header in headers {
        let (name, value) = pair(header)?;
        head.fields.push(&name, value.as_bytes());
    }
    if !head.fields.contains(names::HOST) {
        let host = HeaderValue::from_str(host.unwrap_or(NO_HOST));
        let host = host.map_err(|_| format!("the host of `{url}` is not valid"))?;
        head.fields.push(names::HOST, host.as_bytes());
    }
    Ok(head)
}

/// The host of a URL, if it has one, and the rest.
fn split(url: &str) -> Result<(Option<&str>, &str), String> {
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

fn pair(header: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("`{header}` is not a header; write it as 'NAME: VALUE'");
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(url: &str, headers: &[&str]) -> Result<(String, String), String> {
        let headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
        let head = head("GET", url, &headers)?;
        Ok((head.fields.get_str(names::HOST).unwrap().to_owned(), head.uri.to_string()))
    }

    #[test]
    fn the_host_comes_from_the_header_the_url_or_nowhere() {
        let ok = |host: &str, target: &str| Ok((host.to_owned(), target.to_owned()));
        assert_eq!(made("http://a.example:81/b?c=d", &[]), ok("a.example:81", "/b?c=d"));
        assert_eq!(made("HTTPS://u:p@a.example", &[]), ok("a.example", "/"));
        assert_eq!(made("http://127.0.0.1/b", &["Host: a.example"]), ok("a.example", "/b"));
        assert_eq!(made("/b", &[]), ok("localhost", "/b"));
        assert_eq!(made("*", &["host:a"]), ok("a", "*"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (url, headers) in [
            ("ftp://a", vec![]),
            ("a.example/b", vec![]),
            ("http://", vec![]),
            ("/a b", vec![]),
            ("/", vec!["no colon"]),
            ("/", vec!["a b: c"]),
            ("/", vec!["a: \u{1}"]),
        ] {
            assert!(made(url, &headers).is_err(), "{url}");
        }
        assert!(head("G T", "/", &[]).is_err());
    }
}
