//! The operations of the admin interface by their paths, and the dispatch of requests to them.

use std::sync::Arc;

use http::{Request, StatusCode, request};
use hyper::body::Incoming;

use super::api::ReloadRequest;
use super::client::Operator;
use super::keys::KeyOperations;
use super::response::{self, AdminError, AdminResponse};
use super::sessions::AdminConnection;
use super::spec::AdminAccess;
use super::state::Admin;
use super::top::TopQuery;
use super::{control, events, guard, limits, page, raises, status, top};
use crate::server::Lifecycle;
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
            control::reload(admin, operator).await
        }
        _ => Err(unknown_path(head.uri.path())),
    }
}

/// Responds to a request that changes nothing.
async fn read(
    (connection, access): (&AdminConnection, AdminAccess),
    keys: &KeyOperations<'_>,
    operation: ReadOperation,
    head: &request::Parts,
) -> Result<AdminResponse, AdminError> {
    let AdminConnection { admin, session, .. } = connection;
    let (shared, query) = (Arc::clone(admin), head.uri.query().unwrap_or(""));
    match operation {
        ReadOperation::Metrics => Ok(status::metrics(admin, session, &head.headers)),
        ReadOperation::OpenApi => {
            Ok(response::text(StatusCode::OK, "application/json", page::OPENAPI.to_owned()))
        }
        ReadOperation::Status => session.render(move || response::json(&status::report(&shared))).await,
        ReadOperation::Limits => {
            session.render(move || response::json(&limits::all(&shared.snapshot.gate))).await
        }
        ReadOperation::Top => {
            let query = TopQuery::parse(query, keys)?;
            session.render(move || response::json(&top::list(&shared, &query))).await
        }
        ReadOperation::Events => {
            guard::check_site(head)?;
            events::open(connection, access)
        }
        ReadOperation::History => Ok(events::history(admin, session)),
        ReadOperation::Keys => Ok(response::json(&keys.list(query).await?)),
        ReadOperation::DeniedKeys => Ok(response::json(&top::denied_keys(keys, query).await?)),
        ReadOperation::Peek => Ok(response::json(&keys.peek(query).await?)),
        ReadOperation::KeyHistory => {
            let (limit, key) = keys.named(query)?;
            let (limit, (key, _)) = (keys.limit(&limit)?, keys.key(&limit, &key)?);
            session.render(move || response::json(&events::of_key(&shared, limit, key))).await
        }
        ReadOperation::Raises => Ok(response::json(&raises::list(keys))),
    }
}

/// Responds to a request that changes a key.
async fn change(
    keys: &KeyOperations<'_>,
    operation: ChangeOperation,
    head: &request::Parts,
    body: Incoming,
) -> Result<AdminResponse, AdminError> {
    let changed = match operation {
        ChangeOperation::Reset => keys.reset(guard::read_json(head, body).await?).await?,
        ChangeOperation::Block => keys.block(guard::read_json(head, body).await?).await?,
        ChangeOperation::Unblock => keys.unblock(guard::read_json(head, body).await?).await?,
        ChangeOperation::Raise => raises::start(keys, guard::read_json(head, body).await?).await?,
        ChangeOperation::EndRaise => raises::end(keys, guard::read_json(head, body).await?).await?,
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
    let store = match (admin.is_redis(), admin.servers_down(), admin.store.iter().count()) {
        (false, ..) => "in this process".to_owned(),
        (true, 0, _) => "up".to_owned(),
        (true, _, 1) => "unreachable".to_owned(),
        (true, down, all) => format!("{down} of {all} servers unreachable"),
    };
    let stale = "config: the last reload failed (see the log); serving the previous configuration\n";
    let note = if admin.metrics.is_stale() { stale } else { "" };
    let text = format!("{word}\nstore: {store}\n{note}");
    response::text(status, "text/plain; charset=utf-8", text)
}

/// An operation of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Checks the process. Needs no token: a supervisor or load balancer needs no secret for it.
    Probe(Probe),
    /// The page for operators. Needs no token, since it has no data.
    Page,
    /// Reads: GET.
    Read(ReadOperation),
    /// Changes a key: POST.
    Change(ChangeOperation),
    /// Reloads the configuration: POST.
    Reload,
}

/// A check of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Live,
    Ready,
}

/// An operation that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOperation {
    Metrics,
    OpenApi,
    Status,
    Limits,
    Top,
    Events,
    History,
    Keys,
    DeniedKeys,
    Peek,
    KeyHistory,
    Raises,
}

/// A change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeOperation {
    Reset,
    Block,
    Unblock,
    Raise,
    EndRaise,
}

/// Every operation with its path. Paths without a version are where other programs expect them.
pub(super) const OPERATIONS: [(&str, Operation); 21] = [
    ("/", Operation::Page),
    ("/live", Operation::Probe(Probe::Live)),
    ("/ready", Operation::Probe(Probe::Ready)),
    ("/metrics", Operation::Read(ReadOperation::Metrics)),
    ("/openapi.json", Operation::Read(ReadOperation::OpenApi)),
    ("/v1/status", Operation::Read(ReadOperation::Status)),
    ("/v1/reload", Operation::Reload),
    ("/v1/limits", Operation::Read(ReadOperation::Limits)),
    ("/v1/top", Operation::Read(ReadOperation::Top)),
    ("/v1/events", Operation::Read(ReadOperation::Events)),
    ("/v1/history", Operation::Read(ReadOperation::History)),
    ("/v1/keys", Operation::Read(ReadOperation::Keys)),
    ("/v1/keys/denied", Operation::Read(ReadOperation::DeniedKeys)),
    ("/v1/keys/peek", Operation::Read(ReadOperation::Peek)),
    ("/v1/keys/history", Operation::Read(ReadOperation::KeyHistory)),
    ("/v1/keys/raises", Operation::Read(ReadOperation::Raises)),
    ("/v1/keys/reset", Operation::Change(ChangeOperation::Reset)),
    ("/v1/keys/block", Operation::Change(ChangeOperation::Block)),
    ("/v1/keys/unblock", Operation::Change(ChangeOperation::Unblock)),
    ("/v1/keys/raise", Operation::Change(ChangeOperation::Raise)),
    ("/v1/keys/end-raise", Operation::Change(ChangeOperation::EndRaise)),
];

impl Operation {
    /// The operation with this path.
    pub fn at(path: &str) -> Option<Self> {
        OPERATIONS.iter().find(|(own, _)| *own == path).map(|(_, operation)| *operation)
    }
}
