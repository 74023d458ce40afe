//! Units that are taken while a response streams, once it has cost more than was reserved.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::open_response::OpenResponse;
use crate::boxed::rare;
use crate::limit::PolicyId;
use crate::limiter::Reservation;
use crate::time::cached_now;

/// Tokens of output after which more units are taken.
const TOKENS: u64 = 256;
/// The time after which they are taken for fewer tokens.
const INTERVAL: Duration = Duration::from_secs(1);

/// The units that a step takes.
type More = SmallVec<[(PolicyId, u64); 2]>;

/// Takes units while a response streams, one step after the other.
#[derive(Default)]
pub(super) struct Steps {
    /// The output whose cost has been taken, or asked for by the last step.
    covered: u64,
    /// When the response began to cost more than that.
    since: Option<Instant>,
    step: Option<Step>,
}

/// A step that waits for the decisions of its limits.
pub(super) struct Step {
    more: More,
    taken: Pin<Box<dyn Future<Output = (Box<Reservation>, bool)>>>,
}

impl Steps {
    /// Starts a step if the response has cost so much more than was taken that one is due.
    pub fn start(&mut self, response: &mut OpenResponse) {
        if self.step.is_some() {
            return;
        }
        let more: More = (0..response.pending.limits.len())
            .filter_map(|index| {
                let limit = response.pending.limits[index];
                let more = response.so_far(index)?.checked_sub(limit.reserved)?;
                (more > 0).then_some((limit.policy, more))
            })
            .collect();
        let output = response.observer.so_far().map_or(0, |observed| {
            observed.counted_output.max(observed.tokens.map_or(0, |tokens| tokens.output))
        });
        if more.is_empty() {
            (self.covered, self.since) = (output, None);
            return;
        }
        let since = *self.since.get_or_insert_with(cached_now);
        if output.saturating_sub(self.covered) < TOKENS && cached_now() - since < INTERVAL {
            return;
        }
        let Some(mut reservation) = response.pending.reservation.take() else { return };
        (self.covered, self.since) = (output, None);
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
