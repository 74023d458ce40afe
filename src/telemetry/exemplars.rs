//! Exemplars: for each bucket of a histogram the last observation that is part of a trace.

use parking_lot::Mutex;

use super::histogram::{DURATION_BUCKETS, duration_bucket};
use super::trace::TraceId;
use crate::time::{Nanos, Timestamp};

/// An observation that is part of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub trace: TraceId,
    pub took: Nanos,
    /// When it was observed.
    pub at: Timestamp,
}

/// The exemplars of the buckets of a histogram.
pub(super) type BucketExemplars = [Option<Exemplar>; DURATION_BUCKETS];

/// One worker's exemplars of a histogram. The lock is taken for traced requests only, and seldom contended.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BucketExemplars>);

impl Exemplars {
    /// Replaces the exemplar of a bucket.
    pub fn record(&self, exemplar: Exemplar) {
        self.0.lock()[duration_bucket(exemplar.took)] = Some(exemplar);
    }

    /// Replaces the exemplars in `latest` that are older.
    pub fn merge_into(&self, latest: &mut BucketExemplars) {
        for (latest, own) in latest.iter_mut().zip(*self.0.lock()) {
            let at = |exemplar: &Option<Exemplar>| exemplar.map(|exemplar| exemplar.at);
            if at(&own) > at(latest) {
                *latest = own;
            }
        }
    }
}
