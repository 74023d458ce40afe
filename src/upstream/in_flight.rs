//! A request at a server, for the counters and health of that server.

use std::rc::Rc;

use super::pool::Pool;
use crate::telemetry::Attempt;
use crate::time::Stopwatch;

/// A request at an endpoint, from the endpoint's selection to the last byte of the response.
#[derive(Debug)]
pub struct InFlight {
    pool: Rc<Pool>,
    stopwatch: Stopwatch,
    result: Reported,
}

/// What was reported of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
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
        Self { pool: Rc::clone(pool), stopwatch: Stopwatch::start(), result: Reported::Nothing }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reports the head of a response to counters and health.
    pub fn report_response(&mut self, attempt: Attempt) {
        self.result = Reported::Response;
        self.pool.report_response(attempt, self.stopwatch.elapsed());
    }

    /// Reports a failed attempt to counters and health; none if the server was not involved.
    pub fn report_failure(&mut self, attempt: Option<Attempt>) {
        self.result = Reported::Failed;
        if let Some(attempt) = attempt {
            self.pool.report_failure(attempt);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pool.request_finished();
        match self.result {
            Reported::Nothing => self.pool.report_failure(Attempt::Abandoned),
            Reported::Failed => {}
            Reported::Response => self.pool.record_duration(self.stopwatch.elapsed()),
        }
    }
}
