//! WHAT a limit is: rates, quotas, keys, decisions, and one pure `step` per algorithm.
//!
//! Nothing in here waits, reads a clock or touches a store. Each algorithm has a twin in `lua/`
//! that must give the same answers to the same arrivals, bit for bit.

mod bucket;
mod calendar;
mod decision;
mod interval;
mod key;
mod owed;
mod penalty;
mod policy;
mod quota;
mod rate;
mod seed;
mod sliding_log;
mod sliding_window;
mod slots;
mod timeline;
mod window;

pub use bucket::{Bucket, Debt};
pub use calendar::{Calendar, CalendarUnit, UnknownZone};
pub use decision::{Decision, DenyReason, Step, binding};
pub use interval::{Interval, Shortfall};
pub use key::{Key, KeyHasher, PartKind, Parts};
pub use owed::{LateCharges, OwedBucket, OwedCharges};
pub use penalty::{Ban, Penalty};
pub use policy::{Charge, ChargeKind, Outcome, Policy, PolicyId, Record};
pub use quota::{Algorithm, Quota, State};
pub use rate::{MAX_TICKS, QuotaError, Rate};
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::{PartCounts, SlidingWindow};
pub use slots::{Holder, Lease, Leases, MAX_IN_FLIGHT, MAX_LEASE, Slots};
pub use timeline::Timeline;
pub use window::{Align, Count, Window};
