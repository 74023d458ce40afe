//! The request side: a client's request on its way upstream.

use std::sync::Arc;

use http::uri::{InvalidUri, PathAndQuery, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use percent_encoding::{AsciiSet, percent_encode};

use super::client::ClientConnection;
use super::forward_plan::ForwardPlan;
use super::forwarded::add_forwarded;
use super::hop::{normalize_length, remove_hop_by_hop, retain_announced_trailers, takes_trailers};
use super::request_id::RequestId;
use super::route_action::{HeaderEdits, Rewrite};
use super::snapshot::ConfigSnapshot;
use super::via;
use crate::gate::{ClientIp, RouteId};
use crate::http1::names::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, TE, X_REQUEST_ID};
use crate::http1::{FieldName, Fields, RequestHead};
use crate::upstream::{ForwardError, HeaderScrub, RequestBody};

/// Nothing but what every set has: the bytes beyond ASCII. Controls no URI comes with.
const BEYOND_ASCII: AsciiSet = AsciiSet::EMPTY;

/// From what the head of a request that goes upstream is made.
pub(super) struct OutboundHead<'a> {
    pub client: &'a ClientConnection,
    pub client_ip: &'a ClientIp,
    pub plan: &'a ForwardPlan,
    pub id: &'a RequestId,
    pub rewrite: &'a Rewrite,
    pub edits: &'a HeaderEdits,
    /// The headers whose other spellings are removed.
    pub protected: &'a HeaderScrub,
}

impl OutboundHead<'_> {
    /// Makes the head of a request fit to go upstream. The proxy's own headers are added after everything that the client
    /// can have removed by naming it in `Connection`.
    ///
    /// # Errors
    /// A target that has become too long, since a character that must be escaped takes three; or a request loop through
    /// the same route.
    pub fn prepare(&self, head: &mut RequestHead) -> Result<(), ForwardError> {
        let Self { client, plan, edits, protected, .. } = self;
        set_host_from_authority(head);
        let rewritten = rewrite_target(head, plan.path.as_deref(), self.rewrite);
        rewritten.map_err(|error| ForwardError::Target(error.into()))?;
        let fields = &mut head.fields;
        if !normalize_length(fields, head.version) {
            // The end of the body is known by now; the upstream connection writes the length anew.
            fields.remove(CONTENT_LENGTH);
        }
        let takes_trailers = takes_trailers(fields);
        remove_hop_by_hop(fields);
        self.remove_spoofed_fields(fields);
        if takes_trailers {
            fields.push(TE, b"trailers");
            fields.push(CONNECTION, b"te");
        }
        add_forwarded(fields, client, plan.client, self.client_ip);
        via::add(fields, &client.via(head.version, plan.route)).map_err(|via::Loop| ForwardError::Loop)?;
        fields.set(X_REQUEST_ID, self.id.as_bytes());
        edits.apply(fields);
        retain_announced_trailers(fields, |name| !protected.may_trail(name));
        Ok(())
    }

    /// Removes other spellings of protected headers, and headers about the client that only a trusted proxy may send.
    fn remove_spoofed_fields(&self, fields: &mut Fields) {
        let ClientIp { header, remove_headers, .. } = self.client_ip;
        let header = FieldName::from(header);
        let is_trusted = self.client_ip.is_trusted(self.client.ip());
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

/// The body with the bound of its route, and without trailers that spoof protected headers.
pub(super) fn limit_body(snapshot: &ConfigSnapshot, route: RouteId, body: RequestBody) -> RequestBody {
    let max = snapshot.gate.routes.get(route).max_body;
    body.at_most(max).scrubbed(Arc::clone(&snapshot.protected_headers))
}

/// Reads a small body whole before the request is sent, unless it belongs to a gRPC call. A body of length zero that has
/// not ended is read to its end in any case: its request would be complete before that.
pub(super) async fn buffer_small_body(
    mut body: RequestBody,
    client: &ClientConnection,
    is_grpc: bool,
) -> Result<RequestBody, ForwardError> {
    if body.size_hint().exact() != Some(0) {
        return if is_grpc {
            Ok(body)
        } else {
            body.buffered(client.buffer_budget()).await.map_err(ForwardError::of_body)
        };
    }
    while let Some(frame) = body.frame().await {
        frame.map_err(ForwardError::of_body)?;
    }
    Ok(RequestBody::empty())
}

/// The authority of an absolute target goes over Host (RFC 9112 §3.2.2).
fn set_host_from_authority(head: &mut RequestHead) {
    if let Some(authority) = head.uri.authority() {
        head.fields.set(HOST, authority.as_str().as_bytes());
    }
}

/// Leaves only path and query in the target, with the path as it was matched and without its prefix.
fn rewrite_target(head: &mut RequestHead, path: Option<&str>, rewrite: &Rewrite) -> Result<(), InvalidUri> {
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
    use crate::proxy::ClientTimeouts;
    use crate::proxy::protected::own_headers;

    fn prepared(uri: &str, fields: &[(&str, &str)], path: Option<&str>, prefix: Option<&str>) -> RequestHead {
        let minute = Duration::from_mins(1);
        let times = ClientTimeouts { body: minute, tunnel: minute, min_body_rate: None };
        let client = ClientConnection::new("192.0.2.7:1".parse().unwrap(), times);
        let mut head = RequestHead::new(Method::GET, uri.parse().unwrap());
        head.fields = fields.iter().copied().collect();
        let rewrite = Rewrite { strip_prefix: prefix.map(Into::into), ..Rewrite::default() };
        let outgoing = OutboundHead {
            client: &client,
            client_ip: &ClientIp::default(),
            plan: &ForwardPlan {
                route: RouteId(0),
                client: client.ip(),
                path: path.map(str::to_owned),
                balance_hash: None,
            },
            id: &RequestId::new(&head.fields, false),
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
