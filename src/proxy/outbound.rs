//! The request side: makes a client's request fit for the upstream.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::HeaderName;
use http::uri::{InvalidUri, PathAndQuery, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use percent_encoding::{AsciiSet, percent_encode};

use super::client::ClientConnection;
use super::consumer_forwarding::ConsumerForwarding;
use super::forward::ForwardPlan;
use super::forwarded::add_forwarded;
use super::header_template::HeaderFacts;
use super::hop::{normalize_length, remove_hop_by_hop, retain_announced_trailers, takes_trailers};
use super::request_id::RequestId;
use super::route_action::{HeaderEdits, Rewrite};
use super::snapshot::ConfigSnapshot;
use super::soft_headers::SoftHeaders;
use super::via;
use crate::gate::{ClientIp, PathPattern, RouteId};
use crate::http1::names::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, TE, VIA, X_REQUEST_ID};
use crate::http1::{FieldName, Fields, RequestHead};
use crate::telemetry::RequestTrace;
use crate::upstream::{ForwardError, HeaderScrub, RequestBody};

/// Encodes bytes beyond ASCII alone, as every set does; control characters can't occur in a URI.
const NON_ASCII: AsciiSet = AsciiSet::EMPTY;

/// Everything that the head of a forwarded request depends on.
pub(super) struct OutboundHead<'a> {
    pub client: &'a ClientConnection,
    pub client_ip: &'a ClientIp,
    pub plan: &'a ForwardPlan,
    pub id: &'a RequestId,
    pub rewrite: &'a Rewrite,
    /// The path of the route.
    pub pattern: &'a PathPattern,
    pub edits: &'a HeaderEdits,
    /// What the upstream learns about the consumer.
    pub consumers: Option<&'a ConsumerForwarding>,
    /// What the upstream learns about soft limits.
    pub soft: Option<&'a SoftHeaders>,
    /// Whether requests are traced.
    pub is_traced: bool,
    /// The trace that the upstream continues; none for a new one that is not sampled, which has the ID of the request.
    pub trace: Option<&'a RequestTrace>,
    /// The headers of which variants with underscores are removed.
    pub protected: &'a HeaderScrub,
}

impl OutboundHead<'_> {
    /// Prepares the head of a request for the upstream. The proxy's own headers are added last, so that the client can't have
    /// them removed by naming them in `Connection`. Rejects a target that is too long once percent-encoded, or a request loop.
    pub fn prepare(&self, head: &mut RequestHead) -> Result<(), ForwardError> {
        let Self { client, plan, edits, protected, .. } = self;
        set_host_from_authority(head);
        let filled = self.filled(head);
        let target = head.fields.contains(VIA).then(|| via::target(head));
        let rewritten = rewrite_target(head, plan.path.as_deref(), (self.rewrite, self.pattern));
        rewritten.map_err(|error| ForwardError::Target(error.into()))?;
        let fields = &mut head.fields;
        if !normalize_length(fields, head.version) {
            // The connection has framed the body already; the upstream connection writes its length anew.
            fields.remove(CONTENT_LENGTH);
        }
        // Read before TE is removed: servers send trailers, as those of gRPC, only to a client that takes them.
        let takes_trailers = takes_trailers(fields);
        remove_hop_by_hop(fields);
        self.remove_spoofed_fields(fields);
        if takes_trailers {
            fields.push(TE, b"trailers");
            fields.push(CONNECTION, b"te");
        }
        add_forwarded(fields, client, plan.client, self.client_ip);
        let added = via::add(fields, &client.via(head.version, plan.route), target);
        added.map_err(|via::Loop| ForwardError::Loop)?;
        fields.set(X_REQUEST_ID, self.id.as_bytes());
        if let Some(forwarding) = self.consumers {
            let is_trusted = self.client_ip.is_trusted(client.ip());
            forwarding.apply(head, plan.consumer.as_deref(), is_trusted)?;
        }
        let fields = &mut head.fields;
        if let Some(soft) = self.soft {
            soft.set_on_request(fields);
        }
        if let Some(trace) = self.trace {
            trace.propagate(fields);
        } else if let Some(id) = self.id.as_trace_id().filter(|_| self.is_traced) {
            RequestTrace::propagate_unsampled(&id, fields);
        }
        // The edits of the operator come last, so that they can change what the proxy itself has set.
        edits.apply(fields);
        for (name, value) in filled {
            fields.remove(name);
            if let Some(value) = value {
                fields.push(FieldName::from(name), &value);
            }
        }
        retain_announced_trailers(fields, |name| !protected.may_be_trailer(name));
        Ok(())
    }

    /// The headers with parts of the request, which are read before the proxy changes its headers.
    fn filled(&self, head: &RequestHead) -> Vec<(&HeaderName, Option<Vec<u8>>)> {
        if self.edits.filled.is_empty() {
            return Vec::new();
        }
        let forwarded = self.client_ip.forwarded_scheme(self.client.ip(), &head.fields);
        let scheme = forwarded.unwrap_or(self.client.scheme());
        self.edits.fill(&HeaderFacts { client: self.plan.client, scheme }, head)
    }

    /// Removes variants of protected headers, and headers about the client that only a trusted proxy may send.
    fn remove_spoofed_fields(&self, fields: &mut Fields) {
        let ClientIp { header, remove_headers, .. } = self.client_ip;
        let header = FieldName::from(header);
        let is_trusted = self.client_ip.is_trusted(self.client.ip());
        let is_spoofed = |name: FieldName<'_>, has_underscore: bool| {
            if has_underscore && name != header {
                return remove_headers.contains_field(name);
            }
            if is_trusted {
                // A trusted proxy that names the client in Forwarded may pass on the X-Forwarded headers of its own client.
                return header == FORWARDED && name.as_bytes().starts_with(b"x-forwarded-");
            }
            name == header || remove_headers.contains_field(name)
        };
        fields.retain(|field| {
            let has_underscore = field.name.has_underscore();
            let is_variant =
                self.protected.may_be_variant(has_underscore) && self.protected.is_variant(field.name);
            !is_variant && !is_spoofed(field.name, has_underscore)
        });
    }
}

/// Applies the route's `max_body`, and removes trailers that spoof protected headers.
pub(super) fn limit_body(snapshot: &ConfigSnapshot, route: RouteId, body: RequestBody) -> RequestBody {
    let max = snapshot.gate.routes.get(route).max_body;
    body.at_most(max).scrubbed(Arc::clone(&snapshot.protected_headers))
}

/// Buffers a small body before the request is sent, unless it belongs to a gRPC call. A body of length zero whose end has
/// not arrived is always read to its end, because the forwarded request is complete without it.
pub(super) async fn buffer_small_body(
    mut body: RequestBody,
    client: &ClientConnection,
    is_grpc: bool,
) -> Result<RequestBody, ForwardError> {
    if body.size_hint().exact() != Some(0) {
        // A call may wait for a response before it sends its next message, so its body is not awaited.
        return if is_grpc {
            Ok(body)
        } else {
            body.buffered(client.buffer_budget()).await.map_err(ForwardError::from_body_error)
        };
    }
    while let Some(frame) = body.frame().await {
        frame.map_err(ForwardError::from_body_error)?;
    }
    Ok(RequestBody::empty())
}

/// Sets Host to the authority of an absolute target, which takes precedence (RFC 9112 §3.2.2).
fn set_host_from_authority(head: &mut RequestHead) {
    if let Some(authority) = head.uri.authority() {
        head.fields.set(HOST, authority.as_str().as_bytes());
    }
}

/// Reduces the target to path and query; `path` is the normalized path where it differs from the one sent.
fn rewrite_target(
    head: &mut RequestHead,
    path: Option<&str>,
    (rewrite, pattern): (&Rewrite, &PathPattern),
) -> Result<(), InvalidUri> {
    let sent = path.unwrap_or_else(|| head.uri.path());
    let is_kept = rewrite.keeps_paths();
    let rewritten = if is_kept { Cow::Borrowed(sent) } else { rewrite.path(sent, pattern) };
    let query = head.uri.query();
    let is_unchanged = head.uri.scheme().is_none()
        && path.is_none()
        && (is_kept || *rewritten == *sent)
        && query.is_none_or(str::is_ascii);
    if is_unchanged {
        return Ok(());
    }
    let target = match query {
        // A target is ASCII (RFC 3986 §2), but some clients send other characters unencoded.
        Some(query) => format!("{rewritten}?{}", percent_encode(query.as_bytes(), &NON_ASCII)),
        None => rewritten.into_owned(),
    };
    head.uri = Uri::from(target.parse::<PathAndQuery>()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;

    use super::*;
    use crate::config;
    use crate::proxy::ClientTimeouts;
    use crate::proxy::protected::own_headers;

    fn prepared(uri: &str, fields: &[(&str, &str)], path: Option<&str>, prefix: Option<&str>) -> RequestHead {
        let minute = Duration::from_mins(1);
        let times = ClientTimeouts { body: minute, tunnel: minute, min_body_rate: None };
        let client = ClientConnection::new("192.0.2.7:1".parse().unwrap(), times);
        let mut head = RequestHead::new(Method::GET, uri.parse().unwrap());
        head.fields = fields.iter().copied().collect();
        let rewrite = Rewrite { strip_prefix: prefix.map(Into::into), ..Rewrite::default() };
        let outbound = OutboundHead {
            client: &client,
            client_ip: &config::defaults::client_ip(),
            plan: &ForwardPlan {
                route: RouteId(0),
                client: client.ip(),
                path: path.map(str::to_owned),
                consumer: None,
                balance_hash: None,
                admission: None,
            },
            id: &RequestId::new(&head.fields, false),
            rewrite: &rewrite,
            pattern: &PathPattern::parse("/*").unwrap(),
            edits: &HeaderEdits::default(),
            consumers: None,
            soft: None,
            is_traced: false,
            trace: None,
            protected: &own_headers().collect(),
        };
        outbound.prepare(&mut head).unwrap();
        head
    }

    #[tokio::test]
    async fn the_target_is_reduced_to_path_and_query() {
        let target = |uri: &str, path, prefix| prepared(uri, &[], path, prefix).uri.to_string();
        assert_eq!(target("/a?b=%2F", None, None), "/a?b=%2F");
        assert_eq!(target("http://h/a?b", None, None), "/a?b");
        assert_eq!(target("/x/../a?b", Some("/a"), None), "/a?b");
        assert_eq!(target("/v1/a", None, Some("/v1")), "/a");
        assert_eq!(target("/v1", None, Some("/v1")), "/");
        assert_eq!(target("/v12/a", None, Some("/v1")), "/v12/a");
        assert_eq!(target("/a?b=é&c={d}", None, None), "/a?b=%C3%A9&c={d}");
    }

    /// RFC 9112 §3.2.2.
    #[tokio::test]
    async fn the_authority_of_an_absolute_target_replaces_host() {
        let head = prepared("http://real.example/", &[("host", "other")], None, None);
        assert_eq!(head.fields.get_all(HOST).collect::<Vec<_>>(), [b"real.example"]);
    }

    #[tokio::test]
    async fn variants_of_protected_headers_are_removed() {
        let names =
            ["X_Forwarded_For", "x-forwarded_host", "Content_Length", "proxy_authorization", "x_free"];
        let sent: Vec<(&str, &str)> = names.iter().map(|name| (*name, "1")).chain([("host", "a")]).collect();
        let fields = prepared("/", &sent, None, None).fields;
        let kept: Vec<&str> =
            fields.iter().map(|field| field.name.as_str()).filter(|name| name.contains('_')).collect();
        assert_eq!(kept, ["x_free"]);
    }

    #[tokio::test]
    async fn forwarding_headers_of_untrusted_clients_are_replaced() {
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
