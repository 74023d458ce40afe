//! Reading what the plan of a request needs beyond its head.

use futures_util::future::LocalBoxFuture;

use super::client::ClientConnection;
use super::client_body::ClientBody;
use super::outbound::limit_body;
use super::rejection::Rejection;
use super::snapshot::Proxy;
use crate::consumers::ConsumerError;
use crate::gate::{BodyFields, MAX_READ_BODY, NoField, RequestError, RequestPlan, RouteId};
use crate::http1::RequestHead;
use crate::upstream::{ForwardError, ReadBody};

/// Reads what the plan of a request lacks: its consumer from Redis, and the fields of its body that the limits of its route
/// count by. The future is boxed because few requests wait for it, and it would enlarge the future of all.
///
/// # Errors
/// A body that ends early, arrives too slowly, or is larger than the route allows.
pub(super) fn read_missing<'f>(
    proxy: &'f Proxy,
    client: &'f ClientConnection,
    (head, body): (&'f RequestHead, &'f mut ClientBody),
    plan: &'f RequestPlan<'_>,
) -> LocalBoxFuture<'f, Result<Option<BodyFields>, Rejection>> {
    Box::pin(async move {
        if plan.identity.error == Some(ConsumerError::NotFetched) {
            proxy.snapshot.gate.fetch_consumer(client.identity(), head, &proxy.limiter).await;
        }
        let Some(route) = plan.route.filter(|_| plan.awaits_body) else { return Ok(None) };
        read_fields(proxy, client, (head, body), route).await.map(Some)
    })
}

/// Plans a request again, once what its plan has lacked is read. Not inlined, because few requests need it.
#[inline(never)]
pub(super) fn replan<'h>(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &'h RequestHead,
    fields: Option<&'h BodyFields>,
) -> Result<RequestPlan<'h>, RequestError> {
    proxy.snapshot.gate.plan(client.identity(), head, fields)
}

/// Reads the body of a request, if it can have a field that the limits of the route name. It is forwarded unchanged.
async fn read_fields(
    proxy: &Proxy,
    client: &ClientConnection,
    (head, body): (&RequestHead, &mut ClientBody),
    route: RouteId,
) -> Result<BodyFields, Rejection> {
    let fields = &proxy.snapshot.gate.routes.get(route).body_fields;
    let find = |body| BodyFields::find(fields, head, body);
    if let Err(why) = BodyFields::check_head(fields, head) {
        return Ok(find(Err(why)));
    }
    let Some(unread) = body.take(client, false) else { return Ok(find(Err(NoField::NoBody))) };
    let unread = limit_body(&proxy.snapshot, route, unread);
    let read = unread.read(MAX_READ_BODY as u64, client.buffer_budget()).await;
    let (read, found) = match read.map_err(ForwardError::from_body_error)? {
        ReadBody::Whole(read, bytes) => (read, find(Ok(&bytes))),
        ReadBody::TooLong(read) => (read, find(Err(NoField::TooLong))),
        ReadBody::NoMemory(read) => (read, find(Err(NoField::NoMemory))),
    };
    *body = ClientBody::Read(Box::new(read));
    Ok(found)
}
