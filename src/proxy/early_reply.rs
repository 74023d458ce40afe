//! Responses to requests that no route serves: to an ACME server that validates a name (HTTP-01, RFC 8555 §8.3), and redirects to
//! HTTPS; and the redirects of routes.

use http::StatusCode;

use super::client::ClientConnection;
use super::local_reply::{self, LocalReply};
use super::redirect::Redirect;
use super::snapshot::Proxy;
use crate::acme::HttpChallenges;
use crate::boxed::rare;
use crate::gate::{PathPattern, RequestError, RouteId};
use crate::http1::RequestHead;
use crate::http1::names::LOCATION;

/// Whether there may be such a response to a request over this connection.
pub(super) fn is_possible(proxy: &Proxy, client: &ClientConnection) -> bool {
    proxy.challenges.is_some() || client.redirect().is_some()
}

/// The response to a request that an ACME server is expected to send, or else the redirect of the listener. The request is not
/// routed, and limits do not count it.
pub(super) async fn reply(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &RequestHead,
) -> Option<LocalReply> {
    if let Some(response) = challenge(proxy, client, head).await {
        return Some(response);
    }
    let redirect = client.redirect()?;
    // A trusted proxy may have received the request by HTTPS.
    let forwarded = proxy.snapshot.gate.client_ip.forwarded_scheme(client.ip(), &head.fields);
    (forwarded != Some("https")).then(|| redirected(redirect, client.scheme(), head, None))
}

/// The redirect of a route that matches a request.
pub(super) fn of_route(
    redirect: &Redirect,
    (proxy, client): (&Proxy, &ClientConnection),
    head: &RequestHead,
    route: RouteId,
) -> LocalReply {
    let gate = &proxy.snapshot.gate;
    let forwarded = gate.client_ip.forwarded_scheme(client.ip(), &head.fields);
    redirected(redirect, forwarded.unwrap_or(client.scheme()), head, Some(&gate.routes.get(route).path))
}

/// The response of a redirect; 400 to a request that names no host, if the target needs one.
fn redirected(
    redirect: &Redirect,
    scheme: &str,
    head: &RequestHead,
    pattern: Option<&PathPattern>,
) -> LocalReply {
    const TEXT: &[u8] = b"text/plain; charset=utf-8";
    let Some(location) = redirect.location.fill(scheme, head, pattern) else {
        return local_reply::reply(StatusCode::BAD_REQUEST, TEXT, "the request names no host\n");
    };
    let mut reply = local_reply::reply(redirect.status, TEXT, "");
    reply.head.fields.push(LOCATION, location.as_bytes());
    reply
}

async fn challenge(proxy: &Proxy, client: &ClientConnection, head: &RequestHead) -> Option<LocalReply> {
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
