//! Admission to servers under overload. No I/O, no clock: the time is an argument.
//!
//! An [`Admission`] joins three parts: the number of requests in flight with its limit ([`AdaptiveLimit`], or a fixed number), the
//! shares of it that are reserved for classes ([`Places`]), and the requests that wait ([`Queue`]).
//!
//! Times are [`Timestamp`](tidegate_limit::time::Timestamp)s of one clock that never goes back and was set by the wall clock once:
//! the limit is tested in the same second by all processes whose clocks agree.

pub mod simulation;

mod admission;
mod class;
mod counts;
mod limit;
mod places;
mod queue;
mod samples;
mod spec;
mod turns;
mod window;

pub use admission::{Admission, Arrived, Released};
pub use class::{Arrival, Class};
pub use counts::{Counts, Reason, Refusal};
pub use limit::{AdaptiveLimit, Learned};
pub use places::{Place, Places};
pub use queue::{Pushed, Queue, Ticket};
pub use samples::{Outcome, Sample, Samples};
pub use spec::{CountUntil, LimitSpec, Mode, OverloadSpec};
pub use turns::Turns;
