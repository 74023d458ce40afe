//! Requests that lack a key part which a limit requires (`on_missing = "deny"`).

use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};

use super::body_fields::BodyField;
use super::key_part::KeyPart;
use crate::limit::PolicyId;

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
