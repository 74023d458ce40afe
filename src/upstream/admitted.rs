//! The admission of one request to an upstream with `overload`, over its attempts.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::attempt::{AttemptLog, FailedAttempt};
use super::error::ForwardError;
use super::message::AdmissionRequest;
use super::overload::{HeldPlace, Overload};
use super::retry::Attempts;
use crate::boxed::rare;
use crate::overload::{Class, Outcome, Refusal, Sample, Samples};
use crate::telemetry::UpstreamCounts;
use crate::time::{Nanos, cached_now, monotonic};

/// One worker's part of the admission to an upstream.
#[derive(Debug)]
pub(super) struct WorkerAdmission {
    overload: Arc<Overload>,
    samples: RefCell<Samples>,
}

/// The admission of one request: it has a place in each of its attempts.
pub(super) struct Admitted<'u> {
    worker: &'u WorkerAdmission,
    counts: &'u UpstreamCounts,
    request: AdmissionRequest,
    place: Option<HeldPlace>,
    /// How long it may still wait for a place.
    remaining: Duration,
}

impl WorkerAdmission {
    pub fn new(overload: &Arc<Overload>) -> Self {
        Self { overload: Arc::clone(overload), samples: RefCell::default() }
    }

    /// The refusal of a request for which the queue has no room; none if it may take a place or wait.
    pub fn refuse_at_once(&self, request: AdmissionRequest, counts: &UpstreamCounts) -> Option<Refusal> {
        let refusal = self.overload.refuse_at_once(request.arrival())?;
        counts.record_refusal(refusal.class);
        Some(refusal)
    }

    /// Whether a request of this class that comes soon may have to wait.
    pub fn may_have_to_wait(&self, class: Class) -> bool {
        self.overload.may_have_to_wait(class)
    }

    /// The admission of a request that has no place yet.
    pub fn request<'u>(&'u self, request: AdmissionRequest, counts: &'u UpstreamCounts) -> Admitted<'u> {
        Admitted { worker: self, counts, request, place: None, remaining: self.overload.pending_timeout() }
    }
}

impl Admitted<'_> {
    /// Gets a place for the next attempt, unless the request has one. Waits if need be, in all attempts together no longer than
    /// the upstream says. `log` records that.
    pub async fn enter(&mut self, attempts: &Attempts, log: &mut AttemptLog<'_>) -> Result<(), ForwardError> {
        if self.place.is_some() {
            return Ok(());
        }
        self.place = match self.worker.overload.try_admit(self.request.arrival()) {
            Some(place) => Some(place),
            None => Some(rare(self.wait(attempts.deadline, log)).await?),
        };
        Ok(())
    }

    async fn wait(
        &mut self,
        deadline: Option<Instant>,
        log: &mut AttemptLog<'_>,
    ) -> Result<HeldPlace, ForwardError> {
        let (overload, arrival) = (&self.worker.overload, self.request.arrival());
        let started = cached_now();
        let until = started + self.remaining;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let answer = if until > started {
            overload.wait(arrival, until).await
        } else {
            // Without time left it must not displace a request that can wait.
            overload.admit_late(arrival)
        };
        let waited = monotonic().saturating_duration_since(started);
        self.remaining = self.remaining.saturating_sub(waited);
        if answer.as_ref().is_ok_and(HeldPlace::is_above_limit) {
            log.set_above_limit();
        } else {
            log.add_queued(waited);
            self.counts.record_admission_wait(arrival.class, waited);
        }
        answer.map_err(|refusal| {
            self.counts.record_refusal(arrival.class);
            ForwardError::Overloaded(refusal)
        })
    }

    /// The place of this attempt, for an exchange that continues when the client has disconnected.
    pub fn take_place(&mut self) -> Option<HeldPlace> {
        self.place.take()
    }

    /// Records the head of a response, which took this long unless that says nothing of the server. Returns the place if the
    /// request counts until the end of the response.
    pub fn responded(self, status: StatusCode, latency: Option<Nanos>) -> Option<HeldPlace> {
        let outcome = match status {
            StatusCode::SERVICE_UNAVAILABLE => Outcome::Unavailable,
            StatusCode::GATEWAY_TIMEOUT => Outcome::Failure,
            _ => Outcome::Response,
        };
        let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(latency) = latency.filter(|_| !is_switch) {
            self.record(outcome, latency);
        }
        self.place?.after_head().filter(|_| !is_switch)
    }

    /// Records an attempt without a response, and gives its place back. A timeout says nothing of the server if a part of the body
    /// still had to arrive from the client.
    pub fn failed(admitted: Option<&mut Self>, failed: &FailedAttempt) {
        let Some(admitted) = admitted else { return };
        if let (ForwardError::ResponseTimeout(_), false) = (&failed.error, failed.is_uploading) {
            admitted.record(Outcome::Failure, Nanos(0));
        }
        admitted.leave();
    }

    /// Gives the place back.
    pub fn leave(&mut self) {
        self.place = None;
    }

    fn record(&self, outcome: Outcome, latency: Nanos) {
        let AdmissionRequest { key, route, .. } = self.request;
        let sample = Sample { route, key, latency, outcome };
        self.worker.overload.record(&mut self.worker.samples.borrow_mut(), sample);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::poll_immediate;

    use super::*;
    use crate::overload::{LimitSpec, OverloadSpec};

    #[tokio::test(start_paused = true)]
    async fn time_in_which_a_request_did_not_wait_is_not_taken_from_its_time_to_wait() {
        let spec = OverloadSpec {
            limit: LimitSpec::Fixed(2),
            reserved_share: [0.5, 0.0, 0.0, 0.0],
            ..OverloadSpec::default()
        };
        let overload = Overload::new(&spec);
        let worker = WorkerAdmission::new(&overload);
        let (counts, attempts) = (UpstreamCounts::default(), Attempts::new(None, None));
        let request = |class| AdmissionRequest { key: 1, class, route: 0 };
        let admit = |class| overload.try_admit(request(class).arrival()).unwrap();
        let (first, second) = (admit(Class::Critical), admit(Class::Critical));
        let mut vital = worker.request(request(Class::Critical), &counts);
        let mut log = AttemptLog::default();
        let (entered, ()) = tokio::join!(vital.enter(&attempts, &mut log), async { drop(first) });
        entered.unwrap();
        // An attempt of a minute, which fails.
        tokio::time::advance(Duration::from_mins(1)).await;
        let _ = monotonic();
        vital.leave();
        drop(second);
        // Another class has the place that all may take, and waits for another one.
        let _place = admit(Class::Normal);
        let mut other = worker.request(request(Class::Normal), &counts);
        let mut other_log = AttemptLog::default();
        let mut waiting = pin!(other.enter(&attempts, &mut other_log));
        assert!(poll_immediate(&mut waiting).await.is_none());
        vital.enter(&attempts, &mut log).await.unwrap();
    }
}
