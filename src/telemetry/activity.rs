//! What happened in a span of time: the differences of the counters at its ends, with the gauges at its end.

mod frame;
mod routes;
mod sums;

pub use frame::Frame;
pub use sums::CounterSums;

#[cfg(test)]
mod tests;
