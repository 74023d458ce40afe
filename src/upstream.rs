//! Upstreams: where requests go, over which connections, and what a failure there means.

mod balance;
mod body;
mod error;
mod pool;
mod spec;
mod wire;

use std::rc::Rc;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};

pub use body::{BodyError, RequestBody, ResponseBody};
pub use error::{ForwardError, broken_body};
pub use spec::{HostRule, ServerSpec, UpstreamId, UpstreamSpec};

use self::balance::RoundRobin;
use self::pool::Pool;
use self::wire::{SendError, Wire};
use crate::limiter::Permit;

/// One worker's upstream: its connections, and whose turn it is.
#[derive(Debug)]
pub struct Upstream {
    pools: Vec<Rc<Pool>>,
    /// Whether any server has a path of its own.
    has_bases: bool,
    turn: RoundRobin,
    retries: u32,
}

/// An attempt that got no response.
struct Failed {
    error: ForwardError,
    /// Whether the request stands where it stood, and may be sent again.
    again: bool,
}

impl Upstream {
    /// An upstream without connections; to be used within one worker's runtime.
    #[must_use]
    pub fn new(spec: &UpstreamSpec) -> Self {
        Self {
            pools: spec.servers.iter().map(|server| Rc::new(Pool::new(server.clone(), spec))).collect(),
            has_bases: spec.servers.iter().any(|server| !server.base_path.is_empty()),
            turn: RoundRobin::new(spec.servers.iter().map(|server| server.weight)),
            retries: spec.retries,
        }
    }

    /// Sends a request, whose URI is its path and query, and returns the response as soon as its head is
    /// there; the body streams. `permit` rides along until its last byte. The request is taken out of where it
    /// stands: it is too large to be handed on by value.
    ///
    /// A request goes once more, over a new connection, where that is safe: when a connection that was kept
    /// turns out to be dead before any of it was sent, or, as often as `retries` says, when the connection
    /// died before a byte was answered and the request is idempotent and without a body (RFC 9110 §9.2.2),
    /// or when a server can't be reached and there is another.
    ///
    /// # Errors
    /// When no response came.
    pub async fn forward(
        &self,
        permit: Permit,
        request: &mut Request<RequestBody>,
        host: &HostRule,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        let target = self.has_bases.then(|| request.uri().clone());
        let (mut attempts, mut failed) = (0, None);
        loop {
            let place = self.pick(failed);
            let pool = &self.pools[place];
            direct(request, target.as_ref(), pool, host)?;
            match self.attempt(pool, request, attempts).await {
                Ok((response, wire)) => {
                    return Ok(response.map(|body| ResponseBody::new(body, wire, Rc::clone(pool), permit)));
                }
                Err(Failed { again: true, .. }) => {}
                Err(Failed { error, .. }) => return Err(error),
            }
            attempts += 1;
            failed = Some(place);
        }
    }

    /// Closes connections that have been idle for long or that the server has closed.
    pub fn sweep(&self) {
        for pool in &self.pools {
            pool.sweep();
        }
    }

    /// The server whose turn it is, but if there is a choice not the one that has just failed.
    fn pick(&self, failed: Option<usize>) -> usize {
        let place = self.turn.next();
        if failed == Some(place) { (place + 1) % self.pools.len() } else { place }
    }

    /// Sends a request once, of which `earlier` attempts have failed.
    async fn attempt(
        &self,
        pool: &Pool,
        request: &mut Request<RequestBody>,
        earlier: u32,
    ) -> Result<(Response<Incoming>, Box<Wire>), Failed> {
        let may_retry = earlier < self.retries;
        let wire = match pool.checkout(earlier > 0).await {
            Ok(wire) => wire,
            Err(error) => return Err(Failed { error, again: may_retry && self.pools.len() > 1 }),
        };
        let was_kept = wire.was_kept();
        let spare = if may_retry && was_kept { twin(request) } else { None };
        match wire.send(request).await {
            Ok((response, _)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Failed { error: ForwardError::Switched(pool.server().authority()), again: false })
            }
            Ok((response, _)) if !is_clearly_framed(response.headers()) => {
                Err(Failed { error: ForwardError::Framing(pool.server().authority()), again: false })
            }
            Ok(answered) => Ok(answered),
            Err(SendError { error, is_unsent, is_unanswered }) => {
                let error = ForwardError::of(error, pool.server());
                if is_unsent {
                    return Err(Failed { error, again: was_kept });
                }
                let is_dead = is_unanswered && error.is_dead_connection();
                let again = spare.filter(|_| is_dead).map(|spare| *request = spare).is_some();
                Err(Failed { error, again })
            }
        }
    }
}

/// Puts the server's own path before `target`, and the right name into its Host header.
fn direct(
    request: &mut Request<RequestBody>,
    target: Option<&Uri>,
    pool: &Pool,
    host: &HostRule,
) -> Result<(), ForwardError> {
    if let Some(target) = target {
        let base = &pool.server().base_path;
        *request.uri_mut() = format!("{base}{target}").parse().map_err(ForwardError::Target)?;
    }
    let named = match host {
        HostRule::Named(name) => Some(name),
        HostRule::Upstream => Some(pool.authority()),
        // HTTP/1.0 can do without, HTTP/1.1 can't.
        HostRule::Client => (!request.headers().contains_key(HOST)).then(|| pool.authority()),
    };
    if let Some(name) = named {
        request.headers_mut().insert(HOST, name.clone());
    }
    Ok(())
}

/// Whether a body comes as it is, or in chunks and nothing else.
pub(crate) fn is_plainly_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let first_is_chunked =
        codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    first_is_chunked && codings.next().is_none()
}

/// Whether there is one way only to find the end of a response. hyper reads a response that has both chunks and
/// a length by its chunks, but its length would go on to the client.
fn is_clearly_framed(headers: &HeaderMap) -> bool {
    match headers.get(TRANSFER_ENCODING) {
        None => true,
        Some(_) => is_plainly_coded(headers) && !headers.contains_key(CONTENT_LENGTH),
    }
}

/// A copy of a request that may be sent twice.
fn twin(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !request.method().is_idempotent() || !request.body().is_end_stream() {
        return None;
    }
    let mut twin = Request::new(RequestBody::empty());
    *twin.method_mut() = request.method().clone();
    *twin.uri_mut() = request.uri().clone();
    *twin.headers_mut() = request.headers().clone();
    Some(twin)
}
