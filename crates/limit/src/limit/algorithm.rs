//! The algorithms by their names in the configuration.

/// An algorithm, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A full bucket that refills.
    TokenBucket,
    /// Even spacing with a tolerance.
    Gcra,
    /// A counter for each window of time.
    FixedWindow,
    /// A log of every admitted request of the last period.
    SlidingLog,
    /// Counters of the parts of the last period.
    SlidingWindow,
    /// A queue that drains at a constant rate, and delays the requests in it.
    LeakyBucket,
    /// A maximum of concurrent requests.
    Concurrency,
}

impl Algorithm {
    /// Every algorithm, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::TokenBucket,
        Self::Gcra,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::LeakyBucket,
        Self::Concurrency,
    ];

    /// The name in the configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
            Self::SlidingWindow => "sliding_window",
            Self::LeakyBucket => "leaky_bucket",
            Self::Concurrency => "concurrency",
        }
    }
}
