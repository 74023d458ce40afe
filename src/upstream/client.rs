//! One worker's client of an upstream: endpoint selection and retries.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::time::sleep_until;

use super::admitted::{Admitted, WorkerAdmission};
use super::attempt::{AttemptLog, AttemptOptions, FailedAttempt, address, attempt, outcome};
use super::client_counts::ClientPermits;
use super::detached::Detachable;
use super::error::ForwardError;
use super::message::{AdmissionRequest, ForwardOptions, UpstreamRequest};
use super::pool::acquire::Acquired;
use super::pool::connection_limit::WorkerWaker;
use super::pool::{InFlight, Pool};
use super::response::ResponseBody;
use super::retry::{Attempts, Retry, RetryBudget};
use super::selection::{EndpointSet, Selection};
use super::shared::SharedUpstream;
use crate::boxed::rare;
use crate::http1::ResponseHead;
use crate::limiter::Permit;
use crate::overload::Class;
use crate::telemetry::{UpstreamCounts, UpstreamEvent};
use crate::time::monotonic;

/// One worker's upstream: its endpoints, with this worker's connections to them.
#[derive(Debug)]
pub struct Upstream {
    shared: Arc<SharedUpstream>,
    /// The upstream's name in the access log.
    label: Rc<str>,
    endpoints: RefCell<Rc<EndpointSet>>,
    /// Whether any server has a base path.
    has_base_paths: bool,
    budget: RetryBudget,
    /// This worker's part of the admission, if the upstream has `overload`.
    admission: Option<WorkerAdmission>,
    counts: UpstreamCounts,
    worker: WorkerWaker,
}

impl Upstream {
    /// A worker's client of an upstream, without connections yet; to be used within the worker's runtime. `worker` is
    /// notified when the worker has to call [`Upstream::adopt_changes`].
    #[must_use]
    pub fn new(shared: Arc<SharedUpstream>, counts: UpstreamCounts, worker: &WorkerWaker) -> Self {
        let spec = shared.spec();
        shared.register_worker(worker);
        let upstream = Self {
            has_base_paths: spec.servers.iter().any(|server| !server.base_path.is_empty()),
            label: spec.label().into(),
            budget: RetryBudget::new(spec.retry_budget),
            endpoints: RefCell::default(),
            admission: shared.overload.as_ref().map(WorkerAdmission::new),
            counts,
            worker: Arc::clone(worker),
            shared,
        };
        upstream.update_endpoints();
        upstream
    }

    /// Whether this is a client of that upstream.
    #[must_use]
    pub fn is_client_of(&self, shared: &Arc<SharedUpstream>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Sends a request and returns the response as soon as its head has arrived; the body streams. `permit` is held
    /// until the last byte of the response; if it has concurrency slots, an exchange that has been sent continues even
    /// if the caller is dropped. `log` records the attempts.
    ///
    /// A failed request is retried only where that is safe:
    /// - over a new connection, when a reused connection turns out to be closed before any byte was sent;
    /// - as often as `retries` and the retry budget allow, when
    ///   - an endpoint can't be reached and there is another one,
    ///   - an idempotent request (RFC 9110 §9.2.2) got no byte of a response, and the connection was a reused one or
    ///     there is another endpoint, or
    ///   - an HTTP/2 server states that it has not processed the request (RFC 9113 §8.7).
    ///
    /// A request with a body is retried only if that is small and has arrived completely.
    ///
    /// With `retry_for` such a request, and one of which nothing was sent, also waits while no server answers, and is sent
    /// again after each pause.
    ///
    /// `IS_OWN` says that it is a request of the proxy itself. Requests of clients thus have a future of their own, with one
    /// caller, of which the compiler makes a part.
    pub async fn forward<const IS_OWN: bool>(
        &self,
        permit: Permit,
        mut request: UpstreamRequest,
        options: ForwardOptions<'_>,
        mut log: AttemptLog<'_>,
    ) -> Result<(ResponseHead, Box<ResponseBody>), ForwardError> {
        // First, so that a rejected request neither waits for a connection nor adds to the retry budget.
        let client_permits = self.admit_client(&options, request.body.is_upgrade())?;
        // Each attempt prefixes the original target with the base path of its server.
        let target = self.has_base_paths.then(|| request.head.uri.clone());
        // Kept if a resolver replaces them meanwhile: `tried` has the index of the endpoint of each failed attempt.
        let mut endpoints = self.endpoints();
        let mut attempts = Attempts::new(self.shared.spec().retry_for, options.policy.total_timeout);
        let mut admitted = self.start(&options, &mut log);
        loop {
            if let Some(admitted) = &mut admitted {
                admitted.enter(&attempts, &mut log).await?;
            }
            let (index, acquired) = match endpoints.select(attempts.tried(), options.hash_key) {
                Some(Selection::At(index)) => (index, None),
                Some(Selection::New(index, permit)) => (index, Some(Acquired::Permit(permit))),
                Some(Selection::Full(index)) => {
                    // Before the wait, so that a request that gets no connection is logged with its server.
                    log.select(&endpoints.pools[index], attempts.number());
                    self.wait(&endpoints, index, &attempts, options.client).await?
                }
                None => {
                    endpoints = self.resolved(&mut attempts, &mut admitted).await?;
                    continue;
                }
            };
            let pool = &endpoints.pools[index];
            log.select(pool, attempts.number());
            address(&mut request, target.as_ref(), pool, options.host, &mut log)?;
            let attempt_options = AttemptOptions::new(options, &attempts, &endpoints, log.delivery);
            let mut in_flight = InFlight::start(pool);
            let place = || admitted.as_mut().and_then(Admitted::take_place);
            let counted = client_permits.request.as_ref();
            let detachable = Detachable::of(&permit, counted, place, options.policy.response_timeout);
            match attempt(pool, acquired, &mut request, &attempt_options, detachable).await {
                Ok((head, stream, latency)) => {
                    log.head(head.status);
                    in_flight.report_response(outcome(head.status));
                    let place = admitted.and_then(|own| own.responded(head.status, latency));
                    let permits = (permit, client_permits.after_head(head.status), place);
                    let body = ResponseBody::new(stream, in_flight, permits, options.is_reclaimable);
                    return Ok((head, Box::new(body)));
                }
                Err(failed) => {
                    Admitted::failed(admitted.as_mut(), &failed);
                    attempts.fail(index);
                    report_failure(&failed.error, in_flight, &mut log);
                    if self.recover(failed, &mut attempts, &attempt_options).await? {
                        endpoints = self.endpoints();
                    }
                }
            }
        }
    }

    /// Counts a request, and the tunnel that it asks for, if there are bounds for each client. Fails when the client has reached
    /// one.
    #[inline]
    fn admit_client(
        &self,
        options: &ForwardOptions<'_>,
        is_handshake: bool,
    ) -> Result<ClientPermits, ForwardError> {
        if !self.shared.spec().bounds_clients() {
            return Ok(ClientPermits::default());
        }
        let fair_key = options.admission.map(|request| request.key);
        self.shared.admit_client(options.client, fair_key, is_handshake).inspect_err(|error| {
            if let ForwardError::ClientLimit(counted, _) = error {
                self.counts.record_event(counted.refusal());
            }
        })
    }

    /// Records that forwarding starts, which adds to the budget of retries. Returns the admission of the request, which has no place yet, if the upstream has
    /// `overload`.
    fn start(&self, options: &ForwardOptions<'_>, log: &mut AttemptLog<'_>) -> Option<Admitted<'_>> {
        log.start(&self.label);
        self.budget.deposit();
        let (admission, request) = (self.admission.as_ref()?, *options.admission?);
        log.set_class(request.class);
        Some(admission.request(request, &self.counts))
    }

    /// Refuses a request for which the queue of the upstream has no room, before anything is charged for it. `log` records that.
    ///
    /// # Errors
    /// [`ForwardError::Overloaded`].
    pub fn refuse_at_once<'l>(
        &self,
        request: AdmissionRequest,
        log: impl FnOnce() -> AttemptLog<'l>,
    ) -> Result<(), ForwardError> {
        let refusal = self.admission.as_ref().and_then(|own| own.refuse_at_once(request, &self.counts));
        let Some(refusal) = refusal else { return Ok(()) };
        let mut log = log();
        log.start(&self.label);
        log.set_class(request.class);
        Err(ForwardError::Overloaded(refusal))
    }

    /// Whether a request of this class that comes soon may have to wait for its admission.
    #[must_use]
    pub fn may_have_to_wait(&self, class: Class) -> bool {
        self.admission.as_ref().is_some_and(|own| own.may_have_to_wait(class))
    }

    /// Counts an event of a request that concerns this upstream.
    pub fn record_event(&self, event: UpstreamEvent) {
        self.counts.record_event(event);
    }

    /// Closes connections that have been idle for too long or that the server has closed, and adopts changes of the
    /// endpoints.
    pub fn sweep(&self) {
        self.update_endpoints();
        for pool in &self.endpoints.borrow().pools {
            pool.sweep();
        }
    }

    /// Whether there are connections, idle or in use.
    pub fn has_connections(&self) -> bool {
        // Each request holds the pool of its connection.
        let is_used = |pool: &Rc<Pool>| Rc::strong_count(pool) > 1 || pool.connections().has_idle();
        self.endpoints.borrow().pools.iter().any(is_used)
    }

    /// Adopts changes of the endpoints, and closes idle connections while requests of other workers wait for a connection.
    pub fn adopt_changes(&self) {
        self.update_endpoints();
        for pool in &self.endpoints.borrow().pools {
            pool.connections().close_idle_for_waiters();
        }
    }

    /// Closes idle connections, now and whenever one becomes idle: this worker sends no more requests.
    pub fn retire(&self) {
        for pool in &self.endpoints.borrow().pools {
            pool.connections().retire();
        }
    }

    fn endpoints(&self) -> Rc<EndpointSet> {
        Rc::clone(&self.endpoints.borrow())
    }

    fn update_endpoints(&self) {
        let members = self.shared.members();
        let mut endpoints = self.endpoints.borrow_mut();
        if endpoints.was_built_from(&members) {
            return;
        }
        let new_pool =
            |member: &_| Pool::new(&self.shared, member, self.counts.clone(), Arc::clone(&self.worker));
        let balancer = self.shared.balancer(&members);
        let updated = endpoints.updated(members, balancer, new_pool);
        for removed in endpoints.pools_without(&updated) {
            removed.connections().retire();
        }
        *endpoints = Rc::new(updated);
    }

    /// The endpoints after a pause, while no name of a server has an address.
    async fn resolved(
        &self,
        attempts: &mut Attempts,
        admitted: &mut Option<Admitted<'_>>,
    ) -> Result<Rc<EndpointSet>, ForwardError> {
        admitted.iter_mut().for_each(Admitted::leave);
        let error = ForwardError::Unresolved(self.shared.spec().label().into());
        let failed = FailedAttempt::unsent(error, Retry::AfterPause);
        self.pause(failed, attempts).await?;
        Ok(self.endpoints())
    }

    /// Waits until the chosen endpoint or an alternative has a connection for this client. Counts a request that gets none.
    async fn wait(
        &self,
        endpoints: &EndpointSet,
        index: usize,
        attempts: &Attempts,
        client: IpAddr,
    ) -> Result<(usize, Option<Acquired>), ForwardError> {
        let acquired = rare(endpoints.wait(index, attempts.tried(), client, attempts.deadline)).await;
        let (index, acquired) = acquired.inspect_err(|error| self.count_full(error))?;
        Ok((index, Some(acquired)))
    }

    /// Returns when another attempt may follow a failed one, and whether that was after a pause. Fails with the error of the
    /// failed attempt if no other may follow.
    async fn recover(
        &self,
        failed: FailedAttempt,
        attempts: &mut Attempts,
        options: &AttemptOptions<'_>,
    ) -> Result<bool, ForwardError> {
        let may_retry = failed.retry == Retry::AtOnce && options.may_retry;
        // Past its deadline another attempt would time out at once, and count against a healthy server.
        let is_over = || options.deadline.is_some_and(|deadline| deadline <= monotonic());
        if may_retry && !is_over() && self.spend_retry() {
            return Ok(false);
        }
        self.pause(failed, attempts).await?;
        Ok(true)
    }

    /// Waits while no server answers, until the next attempt. Fails with the error of the failed attempt if the request must not
    /// be sent again, has waited for `retry_for`, or `max_pending` requests wait.
    async fn pause(&self, failed: FailedAttempt, attempts: &mut Attempts) -> Result<(), ForwardError> {
        let end = (failed.retry != Retry::Never).then(|| attempts.pause()).flatten();
        let waits = end.and_then(|end| Some((end, self.shared.start_pending(|| false)?)));
        let Some((end, _pending)) = waits else {
            self.count_full(&failed.error);
            return Err(failed.error);
        };
        self.counts.record_event(UpstreamEvent::Retried);
        rare(sleep_until(end)).await;
        Ok(())
    }

    /// Takes a retry from the budget; returns whether it had one.
    fn spend_retry(&self) -> bool {
        let is_granted = self.budget.withdraw();
        self.counts.record_event(if is_granted { UpstreamEvent::Retried } else { UpstreamEvent::OverBudget });
        is_granted
    }

    fn count_full(&self, error: &ForwardError) {
        if let ForwardError::NoFreeConnection(_) = error {
            self.counts.record_event(UpstreamEvent::Full);
        }
    }
}

/// Reports an attempt without a response to counters, health and logs.
fn report_failure(error: &ForwardError, mut in_flight: InFlight, log: &mut AttemptLog<'_>) {
    log.failure(error);
    in_flight.report_failure(error.attempt());
    in_flight.pool().log_failure(error);
}

#[cfg(test)]
mod tests;
