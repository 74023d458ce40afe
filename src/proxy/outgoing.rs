//! The head of a request as it goes upstream.

use http::header::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderName, TE};
use http::uri::{InvalidUri, PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, request};

use percent_encoding::{AsciiSet, percent_encode};

use super::Peer;
use super::hop::{is_hop_by_hop, remove_hop_by_hop, unannounce};
use super::treatment::{HeaderEdits, Rewrite};
use crate::gate::ClientIp;

/// Nothing but what every set has: the bytes beyond ASCII. Controls no URI comes with.
const BEYOND_ASCII: AsciiSet = AsciiSet::EMPTY;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Makes the head of a request fit to go upstream. `path` is its normalized path, where that differs from
/// what was sent.
///
/// # Errors
/// A target that has become too long: a character that must be escaped takes three.
pub(super) fn prepare(
    head: &mut request::Parts,
    path: Option<&str>,
    peer: &Peer,
    client_ip: &ClientIp,
    rewrite: &Rewrite,
    edits: &HeaderEdits,
) -> Result<(), InvalidUri> {
    take_authority(head);
    retarget(head, path, rewrite)?;
    let passing = remove_hop_by_hop(&mut head.headers);
    if !passing.has_one_length {
        // Where the body ends is known by now; its connection says it anew.
        head.headers.remove(CONTENT_LENGTH);
    }
    if passing.takes_trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
        head.headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    remove_twins(&mut head.headers, client_ip, edits);
    introduce(&mut head.headers, peer, client_ip);
    edits.apply(&mut head.headers);
    unannounce(&mut head.headers, |name| *name == client_ip.header || edits.concern(name));
    Ok(())
}

/// Removes headers that a server may take for one that the proxy answers for. Whoever reads them from variables,
/// as CGI and its successors do, can't tell `X_Forwarded_For` from `X-Forwarded-For` (RFC 3875 §4.1.18).
fn remove_twins(headers: &mut HeaderMap, client_ip: &ClientIp, edits: &HeaderEdits) {
    let is_odd = |name: &&HeaderName| name.as_str().contains('_');
    if !headers.keys().any(|name| is_odd(&name)) {
        return;
    }
    let is_ours = |name: &&HeaderName| {
        let plain = HeaderName::from_bytes(name.as_str().replace('_', "-").as_bytes());
        plain.is_ok_and(|plain| answers_for(&plain) || plain == client_ip.header || edits.concern(&plain))
    };
    // What the edits themselves name is there because the file says so.
    let twins = headers.keys().filter(is_odd).filter(is_ours).filter(|name| !edits.concern(name));
    for name in twins.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Whether the proxy itself writes this header, or leaves it out.
fn answers_for(name: &HeaderName) -> bool {
    [CONTENT_LENGTH, FORWARDED, X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST].contains(name)
        || is_hop_by_hop(name)
}

/// The authority of an absolute target goes over Host (RFC 9112 §3.2.2).
fn take_authority(head: &mut request::Parts) {
    let authority = head.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(authority)) = authority {
        head.headers.insert(HOST, authority);
    }
}

/// Leaves only path and query in the target, with the path as it was matched and without its prefix.
fn retarget(head: &mut request::Parts, path: Option<&str>, rewrite: &Rewrite) -> Result<(), InvalidUri> {
    let sent = path.unwrap_or_else(|| head.uri.path());
    let cut = rewrite.path(sent);
    let query = head.uri.query();
    let is_unchanged = head.uri.scheme().is_none()
        && path.is_none()
        && cut.len() == sent.len()
        && query.is_none_or(str::is_ascii);
    if is_unchanged {
        return Ok(());
    }
    let target = match query {
        // A target has no characters beyond ASCII (RFC 3986 §2), though some clients send them as they are.
        Some(query) => format!("{cut}?{}", percent_encode(query.as_bytes(), &BEYOND_ASCII)),
        None => cut.to_owned(),
    };
    head.uri = Uri::from(target.parse::<PathAndQuery>()?);
    Ok(())
}

/// Tells the server who is asking. What a stranger says of itself is replaced; a trusted proxy's word stays,
/// and the proxy is added to it.
fn introduce(headers: &mut HeaderMap, peer: &Peer, client_ip: &ClientIp) {
    let is_trusted = client_ip.is_trusted(peer.ip());
    // Only HTTP/1.0 comes without a host.
    let host = headers.get(HOST).cloned().unwrap_or_else(|| HeaderValue::from_static(""));
    if is_trusted {
        append(headers, &X_FORWARDED_FOR, peer.text());
        append(headers, &FORWARDED, &peer.forwarded(&host));
        headers.entry(X_FORWARDED_PROTO).or_insert(peer.scheme());
        headers.entry(X_FORWARDED_HOST).or_insert(host);
        return;
    }
    headers.insert(X_FORWARDED_FOR, peer.text().clone());
    headers.insert(FORWARDED, peer.forwarded(&host));
    headers.insert(X_FORWARDED_PROTO, peer.scheme());
    headers.insert(X_FORWARDED_HOST, host);
    if client_ip.header != X_FORWARDED_FOR && client_ip.header != FORWARDED {
        headers.remove(&client_ip.header);
    }
}

/// Adds an element to the end of a list, which becomes one line.
fn append(headers: &mut HeaderMap, name: &HeaderName, element: &HeaderValue) {
    let mut list = Vec::new();
    for value in headers.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    // Joined valid values are valid.
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;

    use super::*;
    use crate::proxy::ClientTimes;

    fn prepared(request: http::request::Builder, path: Option<&str>, prefix: Option<&str>) -> request::Parts {
        let minute = Duration::from_mins(1);
        let times =
            ClientTimes { header: minute, body: minute, idle: minute, tunnel: minute, min_body_rate: None };
        let peer = Peer::new("192.0.2.7:1".parse().unwrap(), times, times.patience());
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let rewrite = Rewrite { strip_prefix: prefix.map(Into::into), ..Rewrite::default() };
        prepare(&mut head, path, &peer, &ClientIp::default(), &rewrite, &HeaderEdits::default()).unwrap();
        head
    }

    #[tokio::test]
    async fn a_target_is_left_as_path_and_query() {
        let target = |uri: &str, path, prefix| prepared(Request::get(uri), path, prefix).uri.to_string();
        assert_eq!(target("/a?b=%2F", None, None), "/a?b=%2F");
        assert_eq!(target("http://h/a?b", None, None), "/a?b");
        assert_eq!(target("/x/../a?b", Some("/a"), None), "/a?b");
        assert_eq!(target("/v1/a", None, Some("/v1")), "/a");
        assert_eq!(target("/v1", None, Some("/v1")), "/");
        assert_eq!(target("/v12/a", None, Some("/v1")), "/v12/a");
        assert_eq!(target("/a?b=é&c={d}", None, None), "/a?b=%C3%A9&c={d}");
    }

    #[tokio::test]
    async fn an_absolute_target_goes_over_host() {
        let head = prepared(Request::get("http://real.example/").header("host", "other"), None, None);
        assert_eq!(head.headers[HOST], "real.example");
    }

    #[tokio::test]
    async fn twins_of_what_the_proxy_answers_for_go() {
        let names =
            ["X_Forwarded_For", "x-forwarded_host", "Content_Length", "proxy_authorization", "x_free"];
        let request =
            names.iter().fold(Request::get("/").header("host", "a"), |it, name| it.header(*name, "1"));
        let headers = prepared(request, None, None).headers;
        let odd: Vec<&str> =
            headers.keys().map(HeaderName::as_str).filter(|name| name.contains('_')).collect();
        assert_eq!(odd, ["x_free"]);
    }

    #[tokio::test]
    async fn strangers_are_not_believed() {
        let request = Request::get("/")
            .header("host", "a")
            .header("x-forwarded-for", "6.6.6.6")
            .header("x-forwarded-for", "7.7.7.7")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-host", "evil")
            .header("forwarded", "for=6.6.6.6")
            .header("expect", "100-continue");
        let headers = prepared(request, None, None).headers;
        let all = |name: &str| headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all("x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(all("x-forwarded-proto"), ["http"]);
        assert_eq!(all("x-forwarded-host"), ["a"]);
        assert_eq!(all("forwarded"), [r#"for=192.0.2.7;host="a";proto=http"#]);
        assert!(all("expect").is_empty());
    }
}
