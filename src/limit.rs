//! Limits: rates, quotas, keys, decisions, and one pure `step` per algorithm.
//!
//! Nothing in here waits, reads a clock or accesses a store. Each algorithm has a twin in `lua/`
//! that must make the same decisions on the same requests, bit for bit.
//!
//! # Example
//! A token bucket with two tokens, refilled at 10 tokens each second:
//! ```
//! use tidegate::limit::{Holder, Quota, Rate};
//! use tidegate::time::{Micros, Timestamp};
//!
//! let bucket = Quota::token_bucket(Rate::new(10, Micros::SECOND)?, 2)?;
//! let (mut state, now) = (None, Timestamp(1_000_000));
//! for remaining in [1, 0] {
//!     let step = bucket.step(state.as_ref(), now, 1, Holder::default());
//!     assert!(step.decision.allowed);
//!     assert_eq!(step.decision.remaining, remaining);
//!     state = step.next;
//! }
//! let denied = bucket.step(state.as_ref(), now, 1, Holder::default());
//! assert!(!denied.decision.allowed);
//! assert_eq!(denied.decision.retry_after, Some(Micros(100_000)));
//! # Ok::<(), tidegate::limit::QuotaError>(())
//! ```

mod ahead;
mod algorithm;
mod bucket;
mod calendar;
mod charge;
mod clock;
mod decision;
mod entry_id;
mod grants;
mod interval;
mod key;
mod owed;
mod penalty;
mod policy;
mod quota;
mod raise;
mod rate;
mod record;
mod sliding_log;
mod sliding_window;
mod slots;
mod state;
mod timeline;
mod window;

pub use ahead::{Ahead, Grant, GrantReport, GrantRequest};
pub use algorithm::Algorithm;
pub use bucket::{Bucket, Debt};
pub use calendar::{Calendar, CalendarUnit, UnknownZone};
pub use charge::{Charge, ChargeKind, PolicyId};
pub use decision::{Decision, DenyReason, ShareUpdate, Step, StoreView, binding};
pub use entry_id::EntryId;
pub use interval::{Interval, Shortfall};
pub use key::{Key, KeyHasher, PartKind, Parts};
pub use owed::{Admitted, LateCharges, OwedBucket, OwedCharges};
pub use penalty::{Ban, Penalty};
pub use policy::{Outcome, Policy};
pub use quota::{Quota, Taken};
pub use raise::{DerivedFrom, Factor};
pub use rate::{MAX_TICKS, QuotaError, Rate};
pub use record::Record;
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::{PartCounts, SlidingWindow};
pub use slots::{Holder, Lease, Leases, MAX_IN_FLIGHT, MAX_LEASE, Slots};
pub use state::{Generation, State, WithGrants};
pub use timeline::Timeline;
pub use window::{Align, Count, Window};
