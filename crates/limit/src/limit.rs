//! Limits: rates, quotas, keys, decisions, and one pure `step` per algorithm.
//!
//! Nothing in here waits, reads a clock or accesses a store. Each algorithm has a twin in `lua/`
//! that must make the same decisions on the same requests, bit for bit.
//!
//! # Example
//! A token bucket with two tokens, refilled at 10 tokens each second:
//! ```
//! use tidegate_limit::limit::{Holder, Quota, Rate};
//! use tidegate_limit::time::{Micros, Timestamp};
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
//! # Ok::<(), tidegate_limit::limit::QuotaError>(())
//! ```
//!
//! # Policies, charges and records
//! A `Quota` is an algorithm with its parameters, valid by construction. A `Policy` is a quota with a name, an optional `Ban`,
//! and its mode (enforce or shadow). For each policy and key a store keeps a `Record`: the `State` of the algorithm, and a
//! `Penalty`, which counts denials and has the ends of a ban and of a block. `Policy::decide` decides one charge;
//! `store::memory` and `decide.lua` combine the charges of a request: first the enforcing ones, all or none, then each shadow
//! one by itself.
//!
//! The `ChargeKind` of a `Charge` says what to do with its units: take; check, without taking them; release or renew a slot;
//! refund, because another charge of the request was denied or its final status is not counted; charge late what was admitted
//! while the store was unavailable, at its time and up to the limit; or take with a grant request (`limit::grants`).
//!
//! | algorithm | in `limit::` | state |
//! | --- | --- | --- |
//! | token bucket, GCRA, leaky bucket | `bucket` | timestamp, debt, unit: 24 bytes |
//! | token bucket with `refill = "interval"` | `interval` | timestamp, last tick, missing tokens: 24 bytes |
//! | fixed window | `window`, `calendar` | timestamp, start, grid, units: 32 bytes |
//! | sliding log | `sliding_log`, `timeline` | 16 bytes, and 8 for each entry: time and running total, so that each sum is one subtraction |
//! | sliding window | `sliding_window`, `timeline` | 24 bytes, and 8 for each part with units |
//! | concurrency | `slots` | 32 bytes, and 24 for each holder, with its lease |
//!
//! A penalty is a trailer of 41 bytes after the state; granted units are a trailer of 49 bytes between the two. The length of
//! every state is a multiple of 8, so the length and the last byte show which trailers there are, and keys without ban, block
//! or granted units do not pay for them. A block is written for every algorithm that the limit could have, so that it survives
//! a change of the algorithm.

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
mod reserved_share;
mod sliding_log;
mod sliding_window;
mod slots;
mod soft;
mod state;
mod timeline;
mod window;

pub use ahead::{Ahead, Grant, GrantReport, GrantRequest};
pub use algorithm::Algorithm;
pub use bucket::{Bucket, Debt};
pub use calendar::{Calendar, CalendarUnit, UnknownZone};
pub use charge::{Charge, ChargeKind, Charges, DecidedCharge, DecidedCharges, PolicyId};
pub use decision::{Decision, DenyReason, ShareUpdate, Step, StoreView, binding};
pub use entry_id::EntryId;
pub use interval::{Interval, Shortfall};
pub use key::{Key, KeyHasher, PartKind, Parts};
pub use owed::{Admitted, LateCharges, OwedBucket, OwedCharges};
pub use penalty::{Ban, Penalty};
pub use policy::{Policy, RecordStep};
pub use quota::{Quota, Taken};
pub use raise::{DerivedFrom, Factor};
pub use rate::{MAX_TICKS, QuotaError, Rate};
pub use record::Record;
pub use reserved_share::ReservedShare;
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::{PartCounts, SlidingWindow};
pub use slots::{Holder, Lease, Leases, MAX_IN_FLIGHT, MAX_LEASE, Slots};
pub use soft::{Share, Soft};
pub use state::{Generation, State, WithGrants};
pub use timeline::Timeline;
pub use window::{Align, Count, Window};
