//! The head of a request as it goes upstream.

use std::net::IpAddr;

use http::uri::{InvalidUri, PathAndQuery, Uri};
use percent_encoding::{AsciiSet, percent_encode};

use super::forwarded::introduce;
use super::hop::{normalize_length, remove_hop_by_hop, takes_trailers, unannounce};
use super::request_id::RequestId;
use super::route_action::{HeaderEdits, Rewrite};
use super::{ClientConnection, via};
use crate::gate::{ClientIp, RouteId};
use crate::http1::names::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, TE, X_REQUEST_ID};
use crate::http1::{FieldName, Fields, RequestHead};
use crate::upstream::{ForwardError, HeaderScrub};

/// Nothing but what every set has: the bytes beyond ASCII. Controls no URI comes with.
const BEYOND_ASCII: AsciiSet = AsciiSet::EMPTY;

/// What is known of a request that goes upstream, beside its head.
pub(super) struct Outgoing<'a> {
    pub peer: &'a ClientConnection,
    /// The client's whole address; the peer's own unless that is a trusted proxy.
    pub client: IpAddr,
    pub client_ip: &'a ClientIp,
    pub id: &'a RequestId,
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
    pub fn prepare(&self, head: &mut RequestHead) -> Result<(), ForwardError> {
        let Self { peer, client_ip, edits, protected, .. } = self;
        take_authority(head);
        retarget(head, self.path, self.rewrite).map_err(ForwardError::Target)?;
        let fields = &mut head.fields;
        if !normalize_length(fields, head.version) {
            // Where the body ends is known by now; its connection says it anew.
            fields.remove(CONTENT_LENGTH);
        }
        let takes_trailers = takes_trailers(fields);
        remove_hop_by_hop(fields);
        self.remove_twins_and_claims(fields);
        if takes_trailers {
            fields.push(TE, b"trailers");
            fields.push(CONNECTION, b"te");
        }
        introduce(fields, peer, self.client, client_ip);
        via::add(fields, &peer.via(head.version, self.route)).map_err(|via::Loop| ForwardError::Loop)?;
        fields.set(X_REQUEST_ID, self.id.as_bytes());
        edits.apply(fields);
        unannounce(fields, |name| !protected.may_trail(name));
        Ok(())
    }

    /// Removes the twins of protected headers, the headers by which only a trusted proxy may speak of a client, and from
    /// every client their spellings with underscores.
    fn remove_twins_and_claims(&self, fields: &mut Fields) {
        let ClientIp { header, remove_headers, .. } = self.client_ip;
        let header = FieldName::from(header);
        let is_trusted = self.client_ip.is_trusted(self.peer.ip());
        let is_claim = |name: FieldName<'_>| {
            if name.has_underscore() && name != header {
                return remove_headers.contains(name.as_bytes());
            }
            if is_trusted {
                return header == FORWARDED && name.as_bytes().starts_with(b"x-forwarded-");
            }
            name == header || remove_headers.contains(name.as_bytes())
        };
        fields.retain(|field| !self.protected.is_twin(field.name) && !is_claim(field.name));
    }
}

/// The authority of an absolute target goes over Host (RFC 9112 §3.2.2).
fn take_authority(head: &mut RequestHead) {
    if let Some(authority) = head.uri.authority() {
        head.fields.set(HOST, authority.as_str().as_bytes());
    }
}

/// Leaves only path and query in the target, with the path as it was matched and without its prefix.
fn retarget(head: &mut RequestHead, path: Option<&str>, rewrite: &Rewrite) -> Result<(), InvalidUri> {
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

    use http::Method;

    use super::*;
    use crate::proxy::ClientTimes;
    use crate::proxy::protected::own_headers;

    fn prepared(uri: &str, fields: &[(&str, &str)], path: Option<&str>, prefix: Option<&str>) -> RequestHead {
        let minute = Duration::from_mins(1);
        let times = ClientTimes { body: minute, tunnel: minute, min_body_rate: None };
        let peer = ClientConnection::new("192.0.2.7:1".parse().unwrap(), times);
        let mut head = RequestHead::new(Method::GET, uri.parse().unwrap());
        head.fields = fields.iter().copied().collect();
        let rewrite = Rewrite { strip_prefix: prefix.map(Into::into), ..Rewrite::default() };
        let outgoing = Outgoing {
            peer: &peer,
            client: peer.ip(),
            client_ip: &ClientIp::default(),
            id: &RequestId::new(&head.fields, false),
            route: RouteId(0),
            path,
            rewrite: &rewrite,
            edits: &HeaderEdits::default(),
            protected: &own_headers().collect(),
        };
        outgoing.prepare(&mut head).unwrap();
        head
    }

    #[tokio::test]
    async fn a_target_is_left_as_path_and_query() {
        let target = |uri: &str, path, prefix| prepared(uri, &[], path, prefix).uri.to_string();
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
        let head = prepared("http://real.example/", &[("host", "other")], None, None);
        assert_eq!(head.fields.get_all(HOST).collect::<Vec<_>>(), [b"real.example"]);
    }

    #[tokio::test]
    async fn twins_of_what_the_proxy_answers_for_go() {
        let names =
            ["X_Forwarded_For", "x-forwarded_host", "Content_Length", "proxy_authorization", "x_free"];
        let sent: Vec<(&str, &str)> = names.iter().map(|name| (*name, "1")).chain([("host", "a")]).collect();
        let fields = prepared("/", &sent, None, None).fields;
        let odd: Vec<&str> =
            fields.iter().map(|field| field.name.as_str()).filter(|name| name.contains('_')).collect();
        assert_eq!(odd, ["x_free"]);
    }

    #[tokio::test]
    async fn strangers_are_not_believed() {
        let sent = [
            ("host", "a"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "7.7.7.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil"),
            ("forwarded", "for=6.6.6.6"),
            ("expect", "100-continue"),
        ];
        let fields = prepared("/", &sent, None, None).fields;
        let all = |name: &str| {
            let values = fields.get_all(FieldName::new(name.as_bytes()));
            values.map(|value| std::str::from_utf8(value).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(all("x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(all("x-forwarded-proto"), ["http"]);
        assert_eq!(all("x-forwarded-host"), ["a"]);
        assert_eq!(all("forwarded"), [r#"for=192.0.2.7;host="a";proto=http"#]);
        assert!(all("expect").is_empty());
    }
}
