//! The admission of requests to upstreams with `overload`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::sums::{CounterSums, Cursor, RefusalSums, SharedName, SortedByName};
use crate::overload::Class;
use crate::telemetry::counts::counted_since;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::upstreams::UpstreamValues;

/// The limit of an upstream and its requests in flight at the end of the time, and what was refused in it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AdmissionActivity {
    upstream: SharedName,
    limit: u64,
    in_flight: u64,
    #[serde(skip_serializing_if = "ByClass::is_empty")]
    refused: ByClass,
}

/// Numbers of requests by class. Classes without requests are not serialized.
#[derive(Clone, Copy, Debug, Default)]
struct ByClass(RefusalSums);

/// The admissions of all upstreams that have one, between two readings of their counters. `values` are in ascending order of their
/// labels.
pub(super) fn admissions(
    earlier: &SortedByName<Arc<str>, RefusalSums>,
    later: &SortedByName<Arc<str>, RefusalSums>,
    values: &[UpstreamValues],
) -> Vec<AdmissionActivity> {
    let (mut counted, mut known) = (Cursor::of(later), Cursor::of(earlier));
    let with_admission = values.iter().filter_map(|values| Some((&*values.label, values.admission?)));
    let activity = with_admission.map(|(label, admission)| {
        let (upstream, refused) = match counted.find(|name| (**name).cmp(label)) {
            Some((name, later)) => {
                let since = known.seek(name).map_or(*later, |earlier| counted_since(earlier, later));
                (Arc::clone(name), since)
            }
            None => (label.into(), RefusalSums::default()),
        };
        AdmissionActivity {
            upstream: SharedName(upstream),
            limit: admission.limit,
            in_flight: admission.in_flight,
            refused: ByClass(refused),
        }
    });
    activity.collect()
}

/// What upstreams with `overload` have refused, by their names.
#[derive(Clone, Debug, Default)]
pub struct Refusals(BTreeMap<Arc<str>, RefusalSums>);

impl Refusals {
    /// Those since these sums were read.
    #[must_use]
    pub fn since(earlier: &CounterSums, metrics: &Metrics) -> Self {
        let mut refusals = Self::default();
        let mut known = Cursor::of(&earlier.refusals);
        let Ok(()) = metrics.registry().each_upstream(|upstream, counted| {
            if let Some(classes) = counted.classes {
                let earlier = known.find(|name| (**name).cmp(upstream));
                let since = earlier
                    .map_or(classes.refusals, |(_, earlier)| counted_since(earlier, &classes.refusals));
                refusals.add(upstream.into(), since);
            }
            Ok::<_, Infallible>(())
        });
        refusals
    }

    /// The upstreams that have refused requests, that with the most first, with the number for each class.
    #[must_use]
    pub fn ranked(self) -> Vec<(Arc<str>, [u64; Class::COUNT])> {
        let all = self.0.into_iter().filter(|(_, refused)| refused.iter().any(|count| *count > 0));
        let mut ranked: Vec<_> = all.collect();
        ranked.sort_by_key(|(_, refused)| Reverse(refused.iter().sum::<u64>()));
        ranked
    }

    fn add(&mut self, upstream: Arc<str>, refused: RefusalSums) {
        let sums = self.0.entry(upstream).or_default();
        sums.iter_mut().zip(refused).for_each(|(sum, count)| *sum += count);
    }
}

impl AdmissionActivity {
    /// Adds what was refused.
    pub fn add_to(&self, refusals: &mut Refusals) {
        refusals.add(Arc::clone(&self.upstream.0), self.refused.0);
    }
}

impl ByClass {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }
}

impl Serialize for ByClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let classes = Class::ALL.iter().map(|class| class.name());
        serializer.collect_map(classes.zip(self.0).filter(|(_, count)| *count > 0))
    }
}
