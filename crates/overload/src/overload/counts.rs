//! Refusals and values for metrics.

use super::class::Class;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The queue was full, or its class held half of it.
    Full,
    /// A request of a higher class, or of a key with fewer requests, took its place in the queue.
    Displaced,
    /// It waited for too long.
    TimedOut,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Full, Self::Displaced, Self::TimedOut];

    /// The name in the log and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Displaced => "displaced",
            Self::TimedOut => "timeout",
        }
    }
}

/// The decision against a request. The response is 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The class of the request.
    pub class: Class,
    /// Why it was refused.
    pub reason: Reason,
}

/// A snapshot for metrics and pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// The limit of requests in flight.
    pub limit: u32,
    /// Requests in flight, by [`Class::index`].
    pub in_flight: [u32; Class::COUNT],
    /// Requests that wait, by [`Class::index`].
    pub waiting: [u32; Class::COUNT],
    /// Requests that were refused since the start, by [`Class::index`] and by the position in [`Reason::ALL`].
    pub refused: [[u64; Reason::ALL.len()]; Class::COUNT],
    /// In shadow mode: requests that were admitted above the limit since the start, by [`Class::index`].
    pub above_limit: [u64; Class::COUNT],
}

impl Counts {
    /// Counts a refusal.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.refused[refusal.class.index()][refusal.reason as usize] += 1;
    }

    /// The requests in flight of all classes.
    #[must_use]
    pub fn in_flight_total(&self) -> u32 {
        self.in_flight.iter().sum()
    }

    /// The waiting requests of all classes.
    #[must_use]
    pub fn waiting_total(&self) -> u32 {
        self.waiting.iter().sum()
    }
}
