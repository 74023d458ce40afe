//! Why a request is rejected before any limit is checked; a key part that it lacks and a limit requires (`on_missing =
//! "deny"`).

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderValue, StatusCode};

use super::body_fields::{BodyField, MAX_READ_BODY};
use super::key_part::KeyPart;
use super::path::PathError;
use super::query::MAX_PARAMETERS;
use crate::limit::PolicyId;

/// Why a request is rejected before any limit is checked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// The path can be read in more than one way.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The path has an encoded slash, and the route does not keep it.
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// No host, several, or a malformed one (RFC 9112 §3.2).
    #[error("the request must have exactly one valid Host header")]
    Host,
    /// An absolute target of another scheme.
    #[error("the scheme of the request target must be http or https")]
    Scheme,
    /// A transfer coding other than chunked: forwarding the rest would change the meaning of the body.
    #[error("the only supported transfer coding is chunked")]
    TransferCoding,
    /// Over HTTP/2, a header or a Content-Length that HTTP/1.1 can't express. The HTTP/1.1 parser has its own error.
    #[error("a header of the request is malformed")]
    Header,
    /// Over HTTP/2, more headers than the listener allows. The HTTP/1.1 parser has its own error.
    #[error("the request has too many headers")]
    TooManyHeaders,
    /// `*` with another method than OPTIONS (RFC 9112 §3.2.4).
    #[error("the request target * is allowed for OPTIONS only")]
    Asterisk,
    /// The method differs from a known one in case alone: some servers would treat it as that one.
    #[error("methods are case-sensitive, and the case of this one is wrong")]
    MethodCase,
    /// The query has more than [`MAX_PARAMETERS`], and a condition or a key reads it.
    #[error("the query has more than {MAX_PARAMETERS} parameters")]
    TooManyParameters,
    /// A header that one of the limits reads has several values, and the server may read another one than the gate.
    #[error("the header {0} has several values that differ")]
    DifferingHeader(HeaderName),
    /// A cookie or query parameter has more values than key rules are looked up for.
    #[error("the request has too many different values for {0}")]
    TooManyValues(KeyPart),
    /// A field of the body that one of the limits counts by has several values, of which a form may have some in the query,
    /// and the server may read another one.
    #[error("the request has several values for {0} that differ")]
    DifferingField(BodyField),
    /// The body is longer than what is read of it for a limit.
    #[error("the request body is longer than {} KiB, the most that a limit of this route reads", MAX_READ_BODY / 1024)]
    LongBody,
    /// The usage of a stream is required, and the request does not ask for it.
    #[error(
        "a limit of this route counts tokens: a streaming request needs \"stream_options\": {{\"include_usage\": true}}"
    )]
    NoStreamUsage,
    /// Other bodies of the connection use the memory in which a limit would read the body.
    #[error("too many request bodies of this connection are being read")]
    NoBodyMemory,
    /// CONNECT, which is for forward proxies.
    #[error("CONNECT is supported for WebSocket over HTTP/2 only")]
    Connect,
    /// The body is longer than the route's `max_body`.
    #[error("the request body is larger than the route allows")]
    TooLarge,
    /// The `block` list of this limit has the client's address or its key.
    #[error("this client is blocked")]
    Blocked(PolicyId),
}

impl RequestError {
    /// Whether the client may frame its messages differently, so that what follows on its connection can't be trusted.
    #[must_use]
    pub fn is_about_framing(&self) -> bool {
        !matches!(
            self,
            Self::TooLarge | Self::LongBody | Self::NoStreamUsage | Self::NoBodyMemory | Self::Blocked(_)
        )
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoBodyMemory => StatusCode::SERVICE_UNAVAILABLE,
            Self::Blocked(_) => StatusCode::FORBIDDEN,
            Self::TooManyHeaders => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TooLarge | Self::LongBody => StatusCode::PAYLOAD_TOO_LARGE,
            // RFC 9112 §6.1.
            Self::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Path(_)
            | Self::EncodedSlash
            | Self::Host
            | Self::Header
            | Self::Scheme
            | Self::MethodCase
            | Self::TooManyParameters
            | Self::DifferingHeader(_)
            | Self::DifferingField(_)
            | Self::TooManyValues(_)
            | Self::NoStreamUsage
            | Self::Asterisk => StatusCode::BAD_REQUEST,
        }
    }
}

/// A key part that a request lacks, and the limit that requires it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPart {
    /// The limit.
    pub limit: PolicyId,
    /// The part.
    pub part: KeyPart,
    /// The status of the response.
    pub status: StatusCode,
}

impl MissingPart {
    /// The `detail` of the response: the missing part, in terms of HTTP.
    #[must_use]
    pub fn detail(&self) -> String {
        missing_detail(&self.part)
    }

    /// The challenge that a 401 must send (RFC 9110 §11.6.1): `Bearer` (RFC 6750) for tokens and the Authorization
    /// header; there is no registered scheme for API keys elsewhere.
    #[must_use]
    pub fn challenge(&self) -> Option<HeaderValue> {
        let scheme = match &self.part {
            KeyPart::Jwt(_) => "Bearer",
            KeyPart::Header(name) if *name == AUTHORIZATION => "Bearer",
            _ => "ApiKey",
        };
        (self.status == StatusCode::UNAUTHORIZED).then(|| HeaderValue::from_static(scheme))
    }
}

/// What a request without this part lacks, in terms of HTTP.
pub(super) fn missing_detail(part: &KeyPart) -> String {
    match part {
        KeyPart::Header(name) => format!("the request must have exactly one {name} header"),
        KeyPart::Cookie(name) => format!("the request must have the cookie {name}"),
        KeyPart::Query(name) => format!("the request must have the query parameter {name}"),
        KeyPart::Jwt(_) => "the request must have a valid token".to_owned(),
        KeyPart::TlsSubject => "the connection must have a client certificate".to_owned(),
        KeyPart::TlsSan => {
            "the connection must have a client certificate with a subject alternative name".to_owned()
        }
        KeyPart::Consumer => "the request must have the credential of a consumer".to_owned(),
        KeyPart::Body(BodyField::Json(pointer)) => {
            format!("the request must have an unencoded JSON body with a value at {pointer}")
        }
        KeyPart::Body(BodyField::Form(name)) => {
            format!("the request must have an unencoded form as its body, with the field {name}")
        }
        _ => "the request lacks a value that one of its limits counts by".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §11.6.1.
    #[test]
    fn only_a_401_has_a_challenge() {
        let missing = |part: &str, status| MissingPart {
            limit: PolicyId(0),
            part: KeyPart::parse(part).unwrap(),
            status: StatusCode::from_u16(status).unwrap(),
        };
        assert_eq!(missing("jwt:sub", 401).challenge().unwrap(), "Bearer");
        assert_eq!(missing("header:authorization", 401).challenge().unwrap(), "Bearer");
        assert_eq!(missing("header:x-api-key", 401).challenge().unwrap(), "ApiKey");
        assert_eq!(missing("jwt:sub", 403).challenge(), None);
    }
}
