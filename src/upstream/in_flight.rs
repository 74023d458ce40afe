//! A request at a server, for the counters and health of that server.

use std::rc::Rc;

use super::pool::Pool;
use crate::telemetry::AttemptOutcome;
use crate::time::Stopwatch;

/// A request at an endpoint, from the endpoint's selection to the last byte of the response.
#[derive(Debug)]
pub struct InFlight {
    pool: Rc<Pool>,
    stopwatch: Stopwatch,
    result: ReportedAttempt,
}

/// What was reported of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedAttempt {
    /// Nothing: on drop it is counted as abandoned.
    Nothing,
    /// A failure, or that the server was not involved.
    Failed,
    /// A response: its duration is counted on drop.
    Response,
}

impl InFlight {
    /// Counts a request to the endpoint.
    pub fn start(pool: &Rc<Pool>) -> Self {
        pool.request_started();
        Self { pool: Rc::clone(pool), stopwatch: Stopwatch::start(), result: ReportedAttempt::Nothing }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reports the head of a response to counters and health.
    pub fn report_response(&mut self, attempt: AttemptOutcome) {
        self.result = ReportedAttempt::Response;
        self.pool.report_response(attempt, self.stopwatch.elapsed());
    }

    /// Reports a failed attempt to counters and health; none if the server was not involved.
    pub fn report_failure(&mut self, attempt: Option<AttemptOutcome>) {
        self.result = ReportedAttempt::Failed;
        if let Some(attempt) = attempt {
            self.pool.report_failure(attempt);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pool.request_finished();
        match self.result {
            ReportedAttempt::Nothing => self.pool.report_failure(AttemptOutcome::Abandoned),
            ReportedAttempt::Failed => {}
            ReportedAttempt::Response => self.pool.record_duration(self.stopwatch.elapsed()),
        }
    }
}
