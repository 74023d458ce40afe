//! Responses to an ACME server that validates a name (HTTP-01, RFC 8555 §8.3).

use http::StatusCode;

use super::client::ClientConnection;
use super::local_reply::{self, LocalReply};
use super::snapshot::Proxy;
use crate::acme::HttpChallenges;
use crate::boxed::rare;
use crate::gate::RequestError;
use crate::http1::RequestHead;

/// The response to a request that an ACME server is expected to send. The request is not routed, and limits do not count it.
pub(super) async fn reply(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &RequestHead,
) -> Option<LocalReply> {
    let challenges = proxy.challenges.as_ref()?;
    let token = HttpChallenges::token(head.uri.path())?;
    let authorization = match challenges.own(token) {
        Some(authorization) => authorization,
        // For a blocked client no files are read.
        None if is_blocked(proxy, client, head) => return None,
        None => rare(challenges.stored(token)).await?,
    };
    Some(local_reply::reply(StatusCode::OK, b"application/octet-stream", authorization))
}

fn is_blocked(proxy: &Proxy, client: &ClientConnection, head: &RequestHead) -> bool {
    let planned = proxy.snapshot.gate.plan(client.identity(), head, None);
    matches!(planned, Err(RequestError::Blocked(_)))
}
