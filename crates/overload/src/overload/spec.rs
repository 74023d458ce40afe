//! What the configuration says.

use tidegate_limit::time::Micros;

use super::class::Class;

/// Whether requests are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Requests above the limit wait or are refused.
    #[default]
    Enforce,
    /// Decisions are made and counted, but all requests are admitted at once.
    Shadow,
}

/// Until when a request is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountUntil {
    /// The head of the response.
    #[default]
    Head,
    /// The end of the response.
    End,
}

/// The limit of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSpec {
    /// Learned, between two bounds.
    Adaptive {
        /// The least value; at least 1.
        min: u32,
        /// The greatest value; at most [`OverloadSpec::MAX_LIMIT`].
        max: u32,
    },
    /// Always this number.
    Fixed(u32),
}

/// Admission to one upstream. The caller has checked the ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadSpec {
    /// Whether requests are refused.
    pub mode: Mode,
    /// The limit of requests in flight.
    pub limit: LimitSpec,
    /// The part of the limit that only a class may use, by [`Class::index`]; the sum is at most 0.9.
    pub reserved_share: [f64; Class::COUNT],
    /// The part of the turns in the queue that goes to the classes below the highest one that waits, 0 to 0.5.
    pub floor: f64,
    /// The most requests that wait; with 0 none does.
    pub max_pending: usize,
    /// How long a request waits, unless the queue stands: see [`Queue`](crate::overload::Queue).
    pub pending_timeout: Micros,
    /// Until when a request is in flight. Only the caller needs it.
    pub count: CountUntil,
    /// The number of servers, from which the limit starts; at least 1.
    pub servers: u32,
}

impl OverloadSpec {
    /// The greatest limit.
    pub const MAX_LIMIT: u32 = 60_000;
    /// Requests in flight for each server with which the limit starts.
    pub const START_PER_SERVER: u32 = 8;
}

impl Default for OverloadSpec {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            limit: LimitSpec::Adaptive { min: 8, max: 1000 },
            reserved_share: [0.2, 0.0, 0.0, 0.0],
            floor: 0.05,
            max_pending: 256,
            pending_timeout: Micros(500_000),
            count: CountUntil::Head,
            servers: 1,
        }
    }
}
