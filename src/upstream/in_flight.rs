//! A request at a server, for the counters and health of that server.

use std::rc::Rc;

use super::pool::Pool;
use crate::telemetry::Attempt;

/// A request at an endpoint, from the endpoint's selection to the last byte of the response.
#[derive(Debug)]
pub struct InFlight {
    pool: Rc<Pool>,
    /// Whether the result of the attempt was reported; without a report it is counted as abandoned on drop.
    is_reported: bool,
}

impl InFlight {
    /// Counts a request to the endpoint.
    pub fn start(pool: &Rc<Pool>) -> Self {
        pool.request_started();
        Self { pool: Rc::clone(pool), is_reported: false }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reports the result of the attempt to counters and health; none if the server was not involved.
    pub fn report_result(&mut self, attempt: Option<Attempt>) {
        self.is_reported = true;
        if let Some(attempt) = attempt {
            self.pool.report_attempt(attempt);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pool.request_finished();
        if !self.is_reported {
            self.pool.report_attempt(Attempt::Abandoned);
        }
    }
}
