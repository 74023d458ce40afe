//! The head of a request as it goes upstream.

use std::net::IpAddr;

use http::header::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderName, TE};
use http::uri::{InvalidUri, PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, request};
use percent_encoding::{AsciiSet, percent_encode};

use super::forwarded::introduce;
use super::hop::{remove_hop_by_hop, unannounce};
use super::request_id::X_REQUEST_ID;
use super::treatment::{HeaderEdits, Rewrite};
use super::{Peer, via};
use crate::gate::{ClientIp, RouteId};
use crate::upstream::{ForwardError, HeaderScrub};

/// Nothing but what every set has: the bytes beyond ASCII. Controls no URI comes with.
const BEYOND_ASCII: AsciiSet = AsciiSet::EMPTY;

/// What is known of a request that goes upstream, beside its head.
pub(super) struct Outgoing<'a> {
    pub peer: &'a Peer,
    /// The client's whole address; the peer's own unless that is a trusted proxy.
    pub client: IpAddr,
    pub client_ip: &'a ClientIp,
    pub id: &'a HeaderValue,
    pub route: RouteId,
    /// Its normalized path, where that differs from what was sent.
    pub path: Option<&'a str>,
    pub rewrite: &'a Rewrite,
    pub edits: &'a HeaderEdits,
    /// The headers whose twins are removed.
    pub protected: &'a HeaderScrub,
}

impl Outgoing<'_> {
    /// Makes the head of a request fit to go upstream. What the proxy sets comes after everything that the client can
    /// have removed by naming it in `Connection`.
    ///
    /// # Errors
    /// A target that has become too long, since a character that must be escaped takes three; or a request that has come
    /// back to the route that has forwarded it.
    pub fn prepare(&self, head: &mut request::Parts) -> Result<(), ForwardError> {
        let Self { peer, client_ip, edits, protected, .. } = self;
        take_authority(head);
        retarget(head, self.path, self.rewrite).map_err(ForwardError::Target)?;
        let headers = &mut head.headers;
        let passing = remove_hop_by_hop(headers);
        if !passing.has_one_length {
            // Where the body ends is known by now; its connection says it anew.
            headers.remove(CONTENT_LENGTH);
        }
        if passing.takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        protected.remove_twins(headers);
        self.remove_claims(headers);
        introduce(headers, peer, self.client, client_ip);
        via::add(headers, peer.via(head.version, self.route)).map_err(|via::Loop| ForwardError::Loop)?;
        headers.insert(X_REQUEST_ID, self.id.clone());
        edits.apply(headers);
        unannounce(headers, |name| !protected.may_trail(name));
        Ok(())
    }

    /// Removes the headers by which only a trusted proxy may speak of a client, and from every client their spellings with
    /// underscores.
    fn remove_claims(&self, headers: &mut HeaderMap) {
        let ClientIp { header, remove_headers, .. } = self.client_ip;
        let is_trusted = self.client_ip.is_trusted(self.peer.ip());
        let is_claim = |name: &&HeaderName| {
            let text = name.as_str();
            if text.contains('_') && *name != header {
                return remove_headers.contains(text);
            }
            if is_trusted {
                return *header == FORWARDED && text.starts_with("x-forwarded-");
            }
            remove_headers.contains(text) || *name == header
        };
        // One look at every name, because most requests have none of them.
        let claims: Vec<HeaderName> = headers.keys().filter(is_claim).cloned().collect();
        for name in claims {
            headers.remove(name);
        }
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;

    use super::*;
    use crate::proxy::ClientTimes;
    use crate::proxy::protected::own_headers;

    fn prepared(request: http::request::Builder, path: Option<&str>, prefix: Option<&str>) -> request::Parts {
        let minute = Duration::from_mins(1);
        let times =
            ClientTimes { header: minute, body: minute, idle: minute, tunnel: minute, min_body_rate: None };
        let peer = Peer::new("192.0.2.7:1".parse().unwrap(), times, times.patience());
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let rewrite = Rewrite { strip_prefix: prefix.map(Into::into), ..Rewrite::default() };
        let outgoing = Outgoing {
            peer: &peer,
            client: peer.ip(),
            client_ip: &ClientIp::default(),
            id: &HeaderValue::from_static("id"),
            route: RouteId(0),
            path,
            rewrite: &rewrite,
            edits: &HeaderEdits::default(),
            protected: &own_headers().cloned().collect(),
        };
        outgoing.prepare(&mut head).unwrap();
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
