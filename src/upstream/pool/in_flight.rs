//! A request at a server, for what is counted of it.

use std::rc::Rc;

use super::Pool;
use crate::telemetry::Attempt;

/// A request at a server, from the choice of it to the last byte of the response.
#[derive(Debug)]
pub struct InFlight {
    pool: Rc<Pool>,
    /// Whether it is known what came of the attempt.
    is_told: bool,
}

impl InFlight {
    /// A request goes there.
    pub fn begin(pool: &Rc<Pool>) -> Self {
        if pool.counts_in_flight {
            pool.endpoint.begin();
        }
        Self { pool: Rc::clone(pool), is_told: false }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Says how the attempt ended, if there was one.
    pub fn report_result(&mut self, attempt: Option<Attempt>) {
        self.is_told = true;
        let Some(attempt) = attempt else { return };
        self.pool.counts.ended(self.pool.endpoint.server, attempt);
        if attempt.is_failure() {
            self.pool.shared.failed(&self.pool.endpoint);
        } else if attempt == Attempt::Answered {
            self.pool.endpoint.succeeded();
        }
        if matches!(attempt, Attempt::Answered | Attempt::Unavailable) {
            self.pool.endpoint.failing.responded();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.pool.counts_in_flight {
            self.pool.endpoint.end();
        }
        if !self.is_told {
            self.pool.counts.ended(self.pool.endpoint.server, Attempt::Abandoned);
        }
    }
}
