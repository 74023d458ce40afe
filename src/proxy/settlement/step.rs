//! Units that are taken while a response streams, once it has cost more than was reserved.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::open_response::OpenResponse;
use super::pending::Pending;
use crate::boxed::rare;
use crate::limit::PolicyId;
use crate::limiter::Reservation;
use crate::socket::LazyTimer;
use crate::time::cached_now;

/// Tokens of output after which more units are taken.
const TOKENS: u64 = 256;
/// The time after which they are taken for fewer tokens.
const INTERVAL: Duration = Duration::from_secs(1);

/// The units that a step takes.
type More = SmallVec<[(PolicyId, u64); 2]>;

/// Takes units while a response streams, one step after the other.
pub(super) struct Steps {
    /// The output whose cost has been taken, or asked for by the last step.
    covered: u64,
    /// When the response began to cost more than that; with a cost that grows by time, when it was last found to be covered.
    since: Option<Instant>,
    /// Whether a cost grows while the response is silent.
    grows_by_time: bool,
    timer: LazyTimer,
    step: Option<Step>,
}

/// A step that waits for the decisions of its limits.
pub(super) struct Step {
    more: More,
    taken: Pin<Box<dyn Future<Output = (Box<Reservation>, bool)>>>,
}

impl Steps {
    /// The steps of a response; none if no limit stops streams.
    pub fn of(pending: &Pending) -> Option<Self> {
        let stops = || pending.costs().filter(|cost| cost.stops_streams);
        let grows_by_time = stops().any(|cost| cost.basis.grows_by_time());
        stops().next().map(|_| Self {
            covered: 0,
            since: grows_by_time.then(cached_now),
            grows_by_time,
            timer: LazyTimer::default(),
            step: None,
        })
    }

    /// Starts a step if the response has cost so much more than was taken that one is due.
    pub fn start(&mut self, response: &mut OpenResponse) {
        if self.step.is_some() {
            return;
        }
        let more: More = (0..response.pending.limits.len())
            .filter_map(|index| {
                let limit = response.pending.limits[index];
                // What the head of the response has settled, and a status that is not charged, take no more units.
                let units = response.so_far(index).filter(|_| limit.is_open())?;
                let more = units.checked_sub(limit.reserved)?;
                (more > 0).then_some((limit.policy, more))
            })
            .collect();
        let output = response.observer.so_far().map_or(0, |observed| {
            observed.counted_output.max(observed.tokens.map_or(0, |tokens| tokens.output))
        });
        if more.is_empty() {
            (self.covered, self.since) = (output, self.grows_by_time.then(cached_now));
            return;
        }
        let since = *self.since.get_or_insert_with(cached_now);
        if output.saturating_sub(self.covered) < TOKENS && cached_now() - since < INTERVAL {
            return;
        }
        (self.covered, self.since) = (output, None);
        let Some(mut reservation) = response.pending.reservation.take() else { return };
        let (asked, limiter) = (more.clone(), response.pending.limiter.clone());
        let taken = rare(async move {
            let is_granted = limiter.take_more(&mut reservation, &asked).await;
            (reservation, is_granted)
        });
        self.step = Some(Step { more, taken });
    }

    /// Polls the step; `Some(false)` if it is denied, so that the stream has to end.
    pub fn poll(&mut self, response: &mut OpenResponse, cx: &mut Context<'_>) -> Poll<Option<bool>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let Poll::Ready((reservation, is_granted)) = step.taken.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        step.end(response, (reservation, is_granted));
        self.step = None;
        Poll::Ready(Some(is_granted))
    }

    /// Whether a step may be due since the response has been silent for so long; if not, the task is woken at that time.
    pub fn is_time_over(&mut self, cx: &mut Context<'_>) -> bool {
        let since = self.since.filter(|_| self.step.is_none());
        since.is_some_and(|since| self.timer.wait_until(since + INTERVAL, cx).is_ready())
    }

    /// Takes the step that is under way.
    pub fn take(&mut self) -> Option<Step> {
        self.step.take()
    }
}

impl Step {
    /// Waits for the decisions of a response that has ended.
    pub async fn wait(mut self, response: &mut OpenResponse) {
        let taken = self.taken.as_mut().await;
        self.end(response, taken);
    }

    fn end(&self, response: &mut OpenResponse, (reservation, is_granted): (Box<Reservation>, bool)) {
        response.pending.reservation = Some(reservation);
        if is_granted {
            for (policy, more) in &self.more {
                let limit = response.pending.limits.iter_mut().find(|limit| limit.policy == *policy);
                if let Some(limit) = limit {
                    limit.reserved += more;
                }
            }
        }
    }
}
