//! Trailers: which names are allowed after a body.

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderName;
use hyper::body::Frame;

/// Whether a header name is a token (RFC 9110 §5.1). The `http` crate lets only one forbidden character pass, a quote
/// over HTTP/2.
#[must_use]
pub fn is_token(name: &str) -> bool {
    !name.contains('"')
}

/// Whether a trailer may have this name. Fields that control routing, framing or the sender's identity are forbidden, in
/// any variant that a server may read as one of them (RFC 9110 §6.5.1).
#[must_use]
pub fn may_be_trailer(name: &str) -> bool {
    let name = &*name.replace('_', "-");
    is_token(name)
        && !name.starts_with("x-forwarded-")
        && !matches!(
            name,
            "transfer-encoding"
                | "content-length"
                | "host"
                | "connection"
                | "te"
                | "trailer"
                | "upgrade"
                | "content-encoding"
                | "content-type"
                | "content-range"
                | "authorization"
                | "cookie"
                | "expect"
                | "forwarded"
                | "proxy-authorization"
                | "cf-connecting-ip"
                | "front-end-https"
                | "proxy"
                | "true-client-ip"
                | "via"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "x-envoy-external-address"
                | "x-original-url"
                | "x-real-ip"
                | "x-rewrite-url"
                | "x-scheme"
                | "x-request-id"
                | "set-cookie"
                | "cache-control"
                | "max-forwards"
                | "keep-alive"
                | "proxy-connection"
        )
}

/// Removes the trailers of a frame that `may_be_trailer` forbids.
pub(super) fn retain(frame: &mut Frame<Bytes>, may_be_trailer: impl Fn(&HeaderName) -> bool) {
    let Some(trailers) = frame.trailers_mut() else { return };
    if trailers.keys().all(&may_be_trailer) {
        return;
    }
    let mut kept = HeaderMap::new();
    for (name, value) in trailers.iter().filter(|(name, _)| may_be_trailer(name)) {
        kept.append(name, value.clone());
    }
    *trailers = kept;
}
