//! Responses to an ACME server that validates a name (HTTP-01, RFC 8555 §8.3).

use http::StatusCode;

use super::local_reply::{self, LocalReply};
use crate::acme::HttpChallenges;

/// The response to a request for this path, if an ACME server is expected to send it. The request is not routed, and limits
/// do not count it.
pub(super) async fn reply(challenges: &HttpChallenges, path: &str) -> Option<LocalReply> {
    let token = HttpChallenges::token(path)?;
    // Boxed so that it does not enlarge every request's future.
    let authorization = Box::pin(challenges.find(token)).await?;
    Some(local_reply::reply(StatusCode::OK, b"application/octet-stream", authorization))
}
