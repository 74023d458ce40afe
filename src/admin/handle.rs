//! Dispatches requests to the admin interface.

use std::sync::Arc;

use http::{Request, StatusCode, request};
use hyper::body::Incoming;

use super::keys::Keys;
use super::response::{self, AdminError, AdminResponse};
use super::sessions::Session;
use super::state::Admin;
use super::top::TopQuery;
use super::{denied, guard, limits, metrics, raises, top};
use crate::server::Lifecycle;
use crate::store::Store;

/// Responds to a request.
pub(super) async fn handle(
    admin: &Arc<Admin>,
    session: &Session,
    request: Request<Incoming>,
) -> AdminResponse {
    // Boxed so that a connection does not hold the space of every operation's future.
    Box::pin(dispatch(admin, session, request)).await.unwrap_or_else(AdminError::into_response)
}

async fn dispatch(
    admin: &Arc<Admin>,
    session: &Session,
    request: Request<Incoming>,
) -> Result<AdminResponse, AdminError> {
    let (head, body) = request.into_parts();
    guard::check_host(&admin.spec, &head)?;
    let query = head.uri.query().unwrap_or("");
    // Before the token is checked: a load balancer needs no secret to check readiness.
    if head.uri.path() == "/ready" {
        guard::require_read(&head)?;
        return Ok(readiness(admin));
    }
    guard::check_token(&admin.spec, &head, session.client, session.failures())?;
    session.admit()?;
    let keys = admin.keys(session.client);
    match head.uri.path() {
        "/metrics" => {
            guard::require_read(&head)?;
            Ok(metrics::response(admin, session, &head.headers))
        }
        "/limits" => {
            guard::require_read(&head)?;
            let admin = Arc::clone(admin);
            session.render(move || response::json(&limits::all(&admin.snapshot.gate))).await
        }
        "/top" => {
            guard::require_read(&head)?;
            let (admin, query) = (Arc::clone(admin), TopQuery::parse(query, &keys)?);
            session.render(move || response::json(&top::list(&admin, &query))).await
        }
        "/keys/denied" => {
            guard::require_read(&head)?;
            Ok(response::json(&denied::list(&keys, admin.top.as_deref(), query).await?))
        }
        _ => Box::pin(respond_about_keys(&keys, &head, body)).await,
    }
}

/// Responds to a request about keys.
async fn respond_about_keys(
    keys: &Keys<'_>,
    head: &request::Parts,
    body: Incoming,
) -> Result<AdminResponse, AdminError> {
    let query = head.uri.query().unwrap_or("");
    match head.uri.path() {
        "/keys" => {
            guard::require_read(head)?;
            Ok(response::json(&keys.list(query).await?))
        }
        "/keys/peek" => {
            guard::require_read(head)?;
            Ok(response::json(&keys.peek(query).await?))
        }
        "/keys/reset" => Ok(response::json(&keys.reset(guard::read_json(head, body).await?).await?)),
        "/keys/block" => Ok(response::json(&keys.block(guard::read_json(head, body).await?).await?)),
        "/keys/unblock" => Ok(response::json(&keys.unblock(guard::read_json(head, body).await?).await?)),
        "/keys/raises" => {
            guard::require_read(head)?;
            Ok(response::json(&raises::list(keys)))
        }
        "/keys/raise" => {
            let request = guard::read_json(head, body).await?;
            Ok(response::json(&raises::start(keys, request).await?))
        }
        "/keys/end-raise" => {
            let request = guard::read_json(head, body).await?;
            Ok(response::json(&raises::end(keys, request).await?))
        }
        path => Err(AdminError::new(StatusCode::NOT_FOUND, format!("unknown path `{path}`")).help(
            "the paths are /metrics, /ready, /limits, /top, /keys, /keys/denied, /keys/peek, /keys/raises, \
             /keys/reset, /keys/block, /keys/unblock, /keys/raise and /keys/end-raise",
        )),
    }
}

/// An unreachable store does not affect readiness: each limit then follows its `on_store_failure`.
fn readiness(admin: &Admin) -> AdminResponse {
    let (status, word) = match *admin.lifecycle.borrow() {
        Lifecycle::Serving => (StatusCode::OK, "ready"),
        Lifecycle::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "leaving"),
        Lifecycle::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    let store = match (&admin.store, admin.gauges.breakers.open()) {
        (Store::Memory(_), _) => "in this process",
        (_, 0) => "up",
        _ => "unreachable",
    };
    let stale = "config: the last reload failed (see the log); serving the previous configuration\n";
    let note = if admin.metrics.is_stale() { stale } else { "" };
    let text = format!("{word}\nstore: {store}\n{note}");
    response::text(status, "text/plain; charset=utf-8", text)
}
