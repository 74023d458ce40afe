//! Dispatches requests to the admin interface.

use std::sync::Arc;

use http::{Request, StatusCode, request};
use hyper::body::Incoming;

use super::api::ReloadRequest;
use super::client::Operator;
use super::connection::AdminConnection;
use super::keys::KeyOperations;
use super::operations::{Change, OPERATIONS, Operation, Probe, Read};
use super::response::{self, AdminError, AdminResponse};
use super::spec::AdminAccess;
use super::state::Admin;
use super::top::TopQuery;
use super::{denied, events, guard, history, limits, metrics, openapi, page, raises, reload, status, top};
use crate::server::Lifecycle;
use crate::store::Store;
use crate::text::join_and;

/// Responds to a request.
pub(super) async fn handle(
    connection: &AdminConnection,
    operator: &Operator,
    request: Request<Incoming>,
) -> AdminResponse {
    // Boxed so that a connection does not hold the space of every operation's future.
    Box::pin(dispatch(connection, operator, request)).await.unwrap_or_else(AdminError::into_response)
}

async fn dispatch(
    connection: &AdminConnection,
    operator: &Operator,
    request: Request<Incoming>,
) -> Result<AdminResponse, AdminError> {
    let AdminConnection { admin, session, .. } = connection;
    let (head, body) = request.into_parts();
    guard::check_host(&admin.spec, &head)?;
    let operation = Operation::at(head.uri.path());
    let public = match operation {
        Some(Operation::Page) => Some(page::response()),
        Some(Operation::Probe(Probe::Live)) => Some(live()),
        Some(Operation::Probe(Probe::Ready)) => Some(readiness(admin)),
        _ => None,
    };
    if let Some(response) = public {
        guard::require_read(&head)?;
        return Ok(response);
    }
    let access = guard::check_token(&admin.spec, &head, operator.client, session.failures())?;
    session.admit()?;
    let keys = admin.keys(operator);
    match operation {
        Some(Operation::Read(operation)) => {
            guard::require_read(&head)?;
            read((connection, access), &keys, operation, &head).await
        }
        Some(Operation::Change(operation)) => {
            guard::check_access(access, AdminAccess::Change)?;
            Box::pin(change(&keys, operation, &head, body)).await
        }
        Some(Operation::Reload) => {
            guard::check_access(access, AdminAccess::Change)?;
            let ReloadRequest {} = guard::read_json(&head, body).await?;
            reload::reload(admin, operator).await
        }
        _ => Err(unknown_path(head.uri.path())),
    }
}

/// Responds to a request that changes nothing.
async fn read(
    (connection, access): (&AdminConnection, AdminAccess),
    keys: &KeyOperations<'_>,
    operation: Read,
    head: &request::Parts,
) -> Result<AdminResponse, AdminError> {
    let AdminConnection { admin, session, .. } = connection;
    let (shared, query) = (Arc::clone(admin), head.uri.query().unwrap_or(""));
    match operation {
        Read::Metrics => Ok(metrics::response(admin, session, &head.headers)),
        Read::OpenApi => Ok(response::text(StatusCode::OK, "application/json", openapi::DOCUMENT.to_owned())),
        Read::Status => session.render(move || response::json(&status::report(&shared))).await,
        Read::Limits => session.render(move || response::json(&limits::all(&shared.snapshot.gate))).await,
        Read::Top => {
            let query = TopQuery::parse(query, keys)?;
            session.render(move || response::json(&top::list(&shared, &query))).await
        }
        Read::Events => {
            guard::check_site(head)?;
            events::open(connection, access)
        }
        Read::History => Ok(history::response(admin, session)),
        Read::Keys => Ok(response::json(&keys.list(query).await?)),
        Read::DeniedKeys => Ok(response::json(&denied::list(keys, admin.top.as_deref(), query).await?)),
        Read::Peek => Ok(response::json(&keys.peek(query).await?)),
        Read::KeyHistory => {
            let (limit, key) = keys.named(query)?;
            let (limit, (key, _)) = (keys.limit(&limit)?, keys.key(&limit, &key)?);
            session.render(move || response::json(&history::of_key(&shared, limit, key))).await
        }
        Read::Raises => Ok(response::json(&raises::list(keys))),
    }
}

/// Responds to a request that changes a key.
async fn change(
    keys: &KeyOperations<'_>,
    operation: Change,
    head: &request::Parts,
    body: Incoming,
) -> Result<AdminResponse, AdminError> {
    let changed = match operation {
        Change::Reset => keys.reset(guard::read_json(head, body).await?).await?,
        Change::Block => keys.block(guard::read_json(head, body).await?).await?,
        Change::Unblock => keys.unblock(guard::read_json(head, body).await?).await?,
        Change::Raise => raises::start(keys, guard::read_json(head, body).await?).await?,
        Change::EndRaise => raises::end(keys, guard::read_json(head, body).await?).await?,
    };
    Ok(response::json(&changed))
}

fn unknown_path(path: &str) -> AdminError {
    let paths = OPERATIONS.map(|(path, _)| path);
    AdminError::new(StatusCode::NOT_FOUND, format!("unknown path `{path}`"))
        .help(format!("the paths are {}", join_and(&paths)))
}

/// While this thread responds, the process is alive: it ends by itself when a worker does.
fn live() -> AdminResponse {
    response::text(StatusCode::OK, "text/plain; charset=utf-8", "live\n".to_owned())
}

/// An unreachable store does not affect readiness: each limit then follows its `on_store_failure`.
fn readiness(admin: &Admin) -> AdminResponse {
    let lifecycle = *admin.lifecycle.borrow();
    let word = status::state(lifecycle);
    let status = match lifecycle {
        Lifecycle::Serving => StatusCode::OK,
        Lifecycle::NotReady | Lifecycle::Draining => StatusCode::SERVICE_UNAVAILABLE,
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
