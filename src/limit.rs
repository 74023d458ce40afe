//! WHAT a limit is: rates, quotas, keys, decisions, and one pure `step` per algorithm.
//!
//! Nothing in here waits, reads a clock or touches a store. Each algorithm has a twin in `lua/`
//! that must give the same answers to the same arrivals, bit for bit.

mod bucket;
mod decision;
mod key;
mod policy;
mod quota;
mod rate;
mod sliding_log;
mod sliding_window;
mod timeline;

pub use bucket::{Bucket, Debt};
pub use decision::{Decision, Step, binding};
pub use key::{Key, KeyHasher, PartKind, Parts};
pub use policy::{Charge, Policy, PolicyId};
pub use quota::{Algorithm, Quota, State};
pub use rate::{MAX_TICKS, QuotaError, Rate};
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::{PartCounts, SlidingWindow};
pub use timeline::Timeline;
