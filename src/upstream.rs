//! Upstreams: where requests go, over which connections, and what a failure there means.

mod acquire;
mod balance;
mod body;
mod body_channel;
mod body_recorder;
mod budget;
mod buffered;
mod client_counts;
mod connection;
mod connection_limit;
mod connection_use;
mod detached;
mod early_upload;
mod endpoint;
mod endpoint_set;
mod error;
mod failing;
mod fair_queue;
mod header_names;
mod health_monitor;
mod health_state;
mod http1;
mod http2;
mod members;
mod pool;
mod probe;
mod resolver;
mod response;
mod scrub;
mod shared;
mod spec;
mod stream;
mod trailers;
mod tunnel;
mod upload;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::{StatusCode, Uri};
use smallvec::SmallVec;
use tokio::time::Instant;

pub use body::{BodyError, RequestBody};
pub use body_channel::{BodyReceiver, BodySender, Demand, body_channel};
pub use buffered::BufferBudget;
pub use connection_limit::WorkerWaker;
pub use connection_use::ConnectionUse;
pub use error::ForwardError;
pub use header_names::HeaderNames;
pub use health_monitor::HealthMonitor;
pub use response::ResponseBody;
pub use scrub::HeaderScrub;
pub use shared::SharedUpstream;
pub use spec::{Balance, EjectSpec, HealthSpec, HostRule, ServerSpec, UpstreamId, UpstreamSpec};
pub use stream::ClientStream;
pub use trailers::{is_token, may_trail};
pub use tunnel::ServerEnd;

use self::acquire::Acquired;
use self::budget::RetryBudget;
use self::detached::{Detachable, ResponseStream};
use self::endpoint_set::{EndpointSet, Selection};
use self::error::SendError;
use self::pool::{InFlight, Pool};
use crate::http1::names::{CONTENT_TYPE, HOST};
use crate::http1::{Fields, RequestHead, ResponseHead};
use crate::limiter::Permit;
use crate::telemetry::{Attempt, Event, Forwarding, UpstreamCounts};
use crate::time::{monotonic, recent};

/// One worker's upstream: its connections, and whose turn it is.
#[derive(Debug)]
pub struct Upstream {
    shared: Arc<SharedUpstream>,
    /// What the access log calls it.
    label: Rc<str>,
    lineup: RefCell<Rc<EndpointSet>>,
    /// Whether any server has a path of its own.
    has_bases: bool,
    budget: RetryBudget,
    counts: UpstreamCounts,
    worker: WorkerWaker,
}

/// A request to a server.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// Its head, whose target is path and query.
    pub head: Box<RequestHead>,
    /// Its body.
    pub body: RequestBody,
}

/// Who sends a request, and how its server is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The client, as limits count it.
    pub client: IpAddr,
    /// Whether the client has to take a response in time.
    pub is_timed: bool,
    /// Whether the sender calls [`ResponseBody::poll_upload`] while it can't take the response.
    pub polls_upload: bool,
    /// The key that chooses the server, where the upstream balances by a hash.
    pub key: Option<u64>,
}

/// How one attempt at a request may go.
#[derive(Clone, Copy)]
struct AttemptOptions {
    sender: Sender,
    /// Whether it takes a new connection.
    is_fresh: bool,
    /// Whether there may be another attempt after it.
    may_retry: bool,
    /// Whether there is another server to go to.
    has_others: bool,
    /// When all must be over, the response's body too.
    deadline: Option<Instant>,
}

/// An attempt that got no response.
struct Failed {
    error: ForwardError,
    /// Whether the request may be sent again.
    again: bool,
}

impl Upstream {
    /// A worker's part of an upstream, without connections yet; to be used within its runtime. `worker` rings when
    /// [`Upstream::make_room`] is wanted.
    #[must_use]
    pub fn new(shared: Arc<SharedUpstream>, counts: UpstreamCounts, worker: &WorkerWaker) -> Self {
        let spec = shared.spec();
        shared.register(worker);
        let upstream = Self {
            has_bases: spec.servers.iter().any(|server| !server.base_path.is_empty()),
            label: spec.label().into(),
            budget: RetryBudget::new(spec.retry_budget),
            lineup: RefCell::default(),
            counts,
            worker: Arc::clone(worker),
            shared,
        };
        upstream.line_up();
        upstream
    }

    /// Whether this is a part of that upstream.
    #[must_use]
    pub fn is_of(&self, shared: &Arc<SharedUpstream>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Sends a request and returns the response as soon as its head is there; the body streams. `permit` is held until
    /// its last byte; if it has slots, what has been sent goes on without the caller. If the request is logged, its way is
    /// written into `forwarding`.
    ///
    /// A request goes once more, over a new connection, where that is safe: when a connection that was kept
    /// turns out to be dead before any of it was sent; or, as often as `retries` and the budget allow, when a
    /// server can't be reached and there is another, or when the connection died before a byte was answered and
    /// the request is idempotent (RFC 9110 §9.2.2), if that connection was kept or there is another server; or when a
    /// server says over HTTP/2 that it has not looked at the request. If it has a body, that must be small and have come
    /// to its end.
    ///
    /// # Errors
    /// When no response came.
    pub async fn forward(
        &self,
        permit: Permit,
        request: &mut UpstreamRequest,
        host: &HostRule,
        sender: Sender,
        mut forwarding: Option<&mut Forwarding>,
    ) -> Result<(ResponseHead, ResponseBody), ForwardError> {
        let Sender { client, is_timed, key, .. } = sender;
        let admitted = self.shared.admit(client)?.map(Rc::new);
        let target = self.has_bases.then(|| request.head.uri.clone());
        let spec = self.shared.spec();
        let deadline = spec.total_timeout.map(|total| recent() + total);
        let lineup = Rc::clone(&self.lineup.borrow());
        // One for each attempt that has failed.
        let mut tried = SmallVec::<[usize; 4]>::new();
        self.budget.requested();
        if let Some(forwarding) = &mut forwarding {
            forwarding.begin(&self.label);
        }
        loop {
            let picked = lineup.pick(&tried, key);
            let (place, turn) = match picked.ok_or_else(|| ForwardError::Unresolved(spec.label().into()))? {
                Selection::At(place) => (place, None),
                Selection::New(place, room) => (place, Some(Acquired::Place(room))),
                Selection::Full(place) => {
                    if let Some(forwarding) = &mut forwarding {
                        forwarding.try_at(lineup.pools[place].label(), tried.len() + 1);
                    }
                    // Apart, because it is large.
                    let waited = Box::pin(lineup.wait(place, &tried, client, deadline)).await;
                    waited
                        .map(|(place, turn)| (place, Some(turn)))
                        .inspect_err(|full| self.note_refusal(full))?
                }
            };
            let pool = &lineup.pools[place];
            if let Some(forwarding) = &mut forwarding {
                forwarding.try_at(pool.label(), tried.len() + 1);
            }
            direct(request, target.as_ref(), pool, host)?;
            let terms = AttemptOptions {
                sender,
                is_fresh: !tried.is_empty(),
                may_retry: tried.len() < spec.retries as usize,
                has_others: lineup.pools.len() > 1,
                deadline,
            };
            let mut visit = InFlight::begin(pool);
            let detachable = Detachable::of(&permit, admitted.as_ref(), spec.response_timeout);
            match attempt(pool, turn, request, terms, detachable).await {
                Ok((head, stream)) => {
                    if let Some(forwarding) = forwarding {
                        forwarding.head_came();
                    }
                    visit.report_result(Some(outcome(head.status)));
                    return Ok((head, ResponseBody::new(stream, visit, (permit, admitted), is_timed)));
                }
                Err(Failed { error, again }) => {
                    if let Some(forwarding) = forwarding.as_deref_mut().filter(|_| error.has_head()) {
                        forwarding.head_came();
                    }
                    visit.report_result(error.attempt());
                    pool.record(&error);
                    // Past its deadline nobody could answer, and would be thought badly of.
                    let is_over = || deadline.is_some_and(|deadline| deadline <= monotonic());
                    if !(again && terms.may_retry && !is_over() && self.takes_retry()) {
                        self.note_refusal(&error);
                        return Err(error);
                    }
                }
            }
            tried.push(place);
        }
    }

    /// Closes connections that have been idle for long or that the server has closed, and takes up addresses that
    /// have come or gone.
    pub fn sweep(&self) {
        self.line_up();
        for pool in &self.lineup.borrow().pools {
            pool.sweep();
        }
    }

    /// Closes kept connections for which requests of other workers wait.
    pub fn make_room(&self) {
        for pool in &self.lineup.borrow().pools {
            pool.make_room();
        }
    }

    /// Closes kept connections, now and from now on: no request will begin here any more.
    pub fn retire(&self) {
        for pool in &self.lineup.borrow().pools {
            pool.retire();
        }
    }

    fn line_up(&self) {
        let members = self.shared.members();
        let mut lineup = self.lineup.borrow_mut();
        if !lineup.is_of(&members) {
            let make =
                |member: &_| Pool::new(&self.shared, member, self.counts.clone(), Arc::clone(&self.worker));
            let next = lineup.renewed(members, self.shared.spec().balance, make);
            for gone in lineup.pools.iter().filter(|pool| !next.pools.iter().any(|it| Rc::ptr_eq(it, pool))) {
                gone.retire();
            }
            *lineup = Rc::new(next);
        }
    }

    /// Whether one more request may be sent again.
    fn takes_retry(&self) -> bool {
        let may = self.budget.take();
        self.counts.happened(if may { Event::Retried } else { Event::OverBudget });
        may
    }

    fn note_refusal(&self, error: &ForwardError) {
        if let ForwardError::Full(_) = error {
            self.counts.happened(Event::Full);
        }
    }
}

/// Sends a request to one server, at first over the connection that it has waited for, if it has.
async fn attempt(
    pool: &Pool,
    mut turn: Option<Acquired>,
    request: &mut UpstreamRequest,
    terms: AttemptOptions,
    detachable: Option<Box<Detachable>>,
) -> Result<(ResponseHead, ResponseStream), Failed> {
    let AttemptOptions {
        sender: Sender { client, polls_upload, .. },
        mut is_fresh,
        may_retry,
        has_others,
        deadline,
    } = terms;
    loop {
        let connection = pool.checkout(turn.take(), client, is_fresh, deadline).await.map_err(|error| {
            let again = has_others && !matches!(error, ForwardError::Full(_));
            Failed { error, again }
        })?;
        connection.begin(client);
        let was_kept = connection.was_kept();
        let is_idempotent = request.head.method.is_idempotent();
        // Over a shared connection a server can say that it has not looked at a request, whatever that is.
        let may_repeat = may_retry && (connection.is_shared() || is_idempotent && (was_kept || has_others));
        let may_repeat = may_repeat && request.body.keep_record();
        let may_switch = request.body.is_handshake();
        let never = |error| Err(Failed { error, again: false });
        let sent = match detachable.clone() {
            None => {
                let sent = connection.send(request, deadline, polls_upload).await;
                sent.map(|(head, exchange)| {
                    let stream = ResponseStream::new(&head, exchange, None);
                    (head, stream)
                })
            }
            // Boxed so that few requests do not enlarge the future of all others.
            Some(detachable) => Box::pin(detached::send(connection, request, deadline, detachable)).await,
        };
        let failed = match sent {
            Ok((head, _)) if head.status == StatusCode::SWITCHING_PROTOCOLS && !may_switch => {
                return never(ForwardError::Switched(pool.server().authority()));
            }
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let SendError { cause, is_unsent, is_unanswered } = failed;
        if is_unsent && was_kept && request.body.rewind() {
            // It was dead, and that says nothing of the server. So may be the next one that is shared; each is left.
            is_fresh = true;
            continue;
        }
        let error = ForwardError::of(cause, pool.server());
        let may_again = error.is_refused() || is_idempotent && is_unanswered && error.is_dead_connection();
        let again = if is_unsent { has_others } else { may_repeat && may_again };
        return Err(Failed { again: again && request.body.rewind(), error });
    }
}

/// What an answer with this status says of an attempt.
fn outcome(status: StatusCode) -> Attempt {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Attempt::Unavailable
        }
        _ => Attempt::Answered,
    }
}

/// Puts the server's own path before `target`, and the right name into its Host header.
fn direct(
    request: &mut UpstreamRequest,
    target: Option<&Uri>,
    pool: &Pool,
    host: &HostRule,
) -> Result<(), ForwardError> {
    if let Some(target) = target {
        let base = &pool.server().base_path;
        request.head.uri = format!("{base}{target}").parse().map_err(ForwardError::Target)?;
    }
    let named = match host {
        HostRule::Named(name) => Some(name),
        HostRule::Upstream => Some(pool.authority()),
        // HTTP/1.0 can do without, HTTP/1.1 can't.
        HostRule::Client => (!request.head.fields.contains(HOST)).then(|| pool.authority()),
    };
    if let Some(name) = named {
        request.head.fields.set(HOST, name.as_bytes());
    }
    Ok(())
}

/// Whether a body may be silent for as long as it likes: events come when they come.
fn is_open_ended(fields: &Fields) -> bool {
    let begins =
        |kind: &[u8], with: &[u8]| kind.get(..with.len()).is_some_and(|it| it.eq_ignore_ascii_case(with));
    fields
        .get(CONTENT_TYPE)
        .is_some_and(|kind| begins(kind, b"text/event-stream") || begins(kind, b"application/grpc"))
}
