//! The fields of known JSON formats.

use std::borrow::Cow;

use super::dates::TimeUnit;
use crate::replay::fields::FieldRole;

/// The fields of a format.
pub(super) type Known = &'static [(FieldRole, &'static str)];

/// nginx has no JSON format of its own; these are the names of its variables, as most configurations use them.
pub(super) const NGINX: Known = &[
    (FieldRole::End, "msec"),
    (FieldRole::End, "time_iso8601"),
    (FieldRole::End, "time_local"),
    (FieldRole::End, "time"),
    (FieldRole::End, "timestamp"),
    (FieldRole::End, "@timestamp"),
    (FieldRole::Method, "request_method"),
    (FieldRole::Target, "request_uri"),
    (FieldRole::Request, "request"),
    (FieldRole::Host, "host"),
    (FieldRole::Host, "http_host"),
    (FieldRole::Client, "remote_addr"),
    (FieldRole::Protocol, "server_protocol"),
    (FieldRole::Status, "status"),
    (FieldRole::Bytes, "body_bytes_sent"),
    (FieldRole::Bytes, "bytes_sent"),
    (FieldRole::Duration(TimeUnit::Seconds), "request_time"),
    (FieldRole::User, "remote_user"),
    (FieldRole::Headers, "http_*"),
];

/// Caddy 2, in the formats of its encoder for times and durations except numbers of milliseconds or nanoseconds.
pub(super) const CADDY: Known = &[
    (FieldRole::End, "ts"),
    (FieldRole::Method, "request.method"),
    (FieldRole::Target, "request.uri"),
    (FieldRole::Host, "request.host"),
    (FieldRole::Client, "request.client_ip"),
    (FieldRole::Client, "request.remote_ip"),
    (FieldRole::Client, "request.remote_addr"),
    (FieldRole::Protocol, "request.proto"),
    (FieldRole::Headers, "request.headers"),
    (FieldRole::Status, "status"),
    (FieldRole::Bytes, "size"),
    (FieldRole::Duration(TimeUnit::Seconds), "duration"),
    (FieldRole::User, "user_id"),
];

/// Traefik.
pub(super) const TRAEFIK: Known = &[
    (FieldRole::Time, "StartUTC"),
    (FieldRole::Time, "StartLocal"),
    (FieldRole::Method, "RequestMethod"),
    (FieldRole::Target, "RequestPath"),
    (FieldRole::Host, "RequestAddr"),
    (FieldRole::Host, "RequestHost"),
    (FieldRole::Client, "ClientHost"),
    (FieldRole::Client, "ClientAddr"),
    (FieldRole::Protocol, "RequestProtocol"),
    (FieldRole::Status, "DownstreamStatus"),
    (FieldRole::Bytes, "DownstreamContentSize"),
    (FieldRole::Duration(TimeUnit::Nanos), "Duration"),
    (FieldRole::User, "ClientUsername"),
    (FieldRole::Headers, "request_*"),
];

/// Envoy has no JSON format of its own; these are the names of its documentation, of Istio and of Envoy Gateway.
pub(super) const ENVOY: Known = &[
    (FieldRole::Time, "start_time"),
    (FieldRole::Method, "method"),
    (FieldRole::Method, ":method"),
    (FieldRole::Target, "x-envoy-origin-path"),
    (FieldRole::Target, "x-envoy-original-path"),
    (FieldRole::Target, "path"),
    (FieldRole::Target, ":path"),
    (FieldRole::Host, "authority"),
    (FieldRole::Host, ":authority"),
    (FieldRole::Client, "downstream_remote_address"),
    (FieldRole::Client, "x_forwarded_for"),
    (FieldRole::Client, "x-forwarded-for"),
    (FieldRole::Header(Cow::Borrowed("x-forwarded-for")), "x_forwarded_for"),
    (FieldRole::Header(Cow::Borrowed("x-forwarded-for")), "x-forwarded-for"),
    (FieldRole::Protocol, "protocol"),
    (FieldRole::Status, "response_code"),
    (FieldRole::Bytes, "bytes_sent"),
    (FieldRole::Duration(TimeUnit::Millis), "duration"),
    (FieldRole::UserAgent, "user_agent"),
    (FieldRole::UserAgent, "user-agent"),
];

/// Cloudflare Logpush, the data set `http_requests`.
pub(super) const CLOUDFLARE: Known = &[
    (FieldRole::Time, "EdgeStartTimestamp"),
    (FieldRole::End, "EdgeEndTimestamp"),
    (FieldRole::Method, "ClientRequestMethod"),
    (FieldRole::Target, "ClientRequestURI"),
    (FieldRole::Target, "ClientRequestPath"),
    (FieldRole::Host, "ClientRequestHost"),
    (FieldRole::Client, "ClientIP"),
    (FieldRole::Protocol, "ClientRequestProtocol"),
    (FieldRole::Status, "EdgeResponseStatus"),
    (FieldRole::Bytes, "EdgeResponseBytes"),
    (FieldRole::UserAgent, "ClientRequestUserAgent"),
    (FieldRole::Referer, "ClientRequestReferer"),
    (FieldRole::Headers, "RequestHeaders"),
];

/// tidegate's own log.
pub(super) const TIDEGATE: Known = &[
    (FieldRole::Time, "time"),
    (FieldRole::Client, "client"),
    (FieldRole::Method, "method"),
    (FieldRole::Target, "target"),
    (FieldRole::Host, "host"),
    (FieldRole::Protocol, "protocol"),
    (FieldRole::Status, "status"),
    (FieldRole::Bytes, "bytes"),
    (FieldRole::Duration(TimeUnit::Micros), "took_us"),
    (FieldRole::Consumer, "consumer"),
    (FieldRole::Headers, "headers"),
    (FieldRole::Field(Cow::Borrowed("route")), "route"),
    (FieldRole::Field(Cow::Borrowed("denied_by")), "denied_by"),
    (FieldRole::Field(Cow::Borrowed("shadow_denied_by")), "shadow_denied_by"),
    (FieldRole::Field(Cow::Borrowed("key")), "key"),
];
