//! Forward authentication: a trusted proxy describes the request of its client in an authorization request, and serves it only
//! if the response is a success.

use http::StatusCode;
use http::header::HeaderName;

use crate::gate::OriginalError;
use crate::http1::names::CONNECTION;
use crate::http1::{ResponseHead, push_decimal};

/// The status of a denial that is sent with another one.
const STATUS: HeaderName = HeaderName::from_static("x-tidegate-status");

/// How decisions are returned to the trusted proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The status of every denial, for proxies that accept no other one.
    pub deny_status: Option<StatusCode>,
}

/// Why an authorization request gets no decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardAuthError {
    /// It comes from no trusted proxy, so its headers could be those of a client.
    #[error(
        "decisions are for trusted proxies only, and this address is none: see trusted_proxies of [client_ip]"
    )]
    Untrusted,
    /// The proxy would pass on a header that the server may confuse with one which tidegate protects.
    #[error(
        "the header {0} differs only in `_` from one that tidegate protects, and a server may read it as that one: let \
         the proxy remove it"
    )]
    Variant(String),
    /// Its headers do not describe an original request.
    #[error("{0}")]
    Original(OriginalError),
}

impl ForwardAuthError {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Untrusted => StatusCode::FORBIDDEN,
            Self::Variant(_) | Self::Original(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl ForwardAuth {
    /// Completes the response to a denied request: with `deny_status`, and never with the status of a success, which the response
    /// to a gRPC call has.
    #[cold]
    pub(super) fn deny(self, head: &mut ResponseHead) {
        // The connection is that of the trusted proxy, which a malformed original request does not concern.
        head.fields.remove(CONNECTION);
        let is_success = head.status.is_success() || head.status.is_informational();
        let status = self.deny_status.or(is_success.then_some(StatusCode::FORBIDDEN));
        let Some(status) = status else { return };
        let own = u64::from(head.status.as_u16());
        head.fields.set_with(&STATUS, |out| push_decimal(out, own));
        head.status = status;
        head.reason = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_never_a_success() {
        for (deny_status, own, sent, shown) in [
            (None, 429, 429, None),
            (Some(403), 429, 403, Some("429")),
            (Some(403), 403, 403, Some("403")),
            (None, 200, 403, Some("200")),
            (Some(401), 204, 401, Some("204")),
        ] {
            let status = |code| StatusCode::from_u16(code).unwrap();
            let mut head = ResponseHead::new(status(own));
            ForwardAuth { deny_status: deny_status.map(status) }.deny(&mut head);
            assert_eq!((head.status, head.fields.get_str(&STATUS)), (status(sent), shown), "{own}");
        }
    }
}
