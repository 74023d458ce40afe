//! Refuses requests while a worker is overloaded.

use super::client::ClientConnection;
use super::client_body::ClientBody;
use super::exchange::Exchange;
use super::rejection::Rejection;
use super::response::ProxyResponse;
use super::snapshot::Proxy;
use crate::http1::RequestHead;

/// Refuses a request without its limits. It is not that of a trusted proxy, which could ask for a decision.
pub async fn refuse(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &RequestHead,
    body: ClientBody,
) -> ProxyResponse {
    let mut exchange = Exchange::begin(proxy, client, head, (body, None));
    let rejection = exchange.rejected(head, Rejection::Overloaded);
    let response = exchange.reject(&rejection);
    exchange.finish(response).await
}
