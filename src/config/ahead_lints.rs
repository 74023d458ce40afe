//! Lints of `ahead`: limits where it has no effect.

use std::ops::Range;

use super::limits::{ReadLimit, ReadLimits};
use super::report::Problem;
use super::store::ReadStore;
use crate::limit::{Ahead, Policy, Quota};
use crate::store::StoreSpec;

/// A warning for each limit whose `ahead` has no effect.
pub(super) fn warnings(limits: &ReadLimits, store: Option<&ReadStore>) -> impl Iterator<Item = Problem> {
    let is_in_memory = store.is_some_and(|store| matches!(store.spec, StoreSpec::Memory));
    limits.ids().filter_map(move |id| {
        let limit = limits.get(id)?;
        let at = limit.ahead.clone()?;
        if is_in_memory {
            let title =
                "`ahead` has no effect: this process counts the limit itself, so there are no calls to save";
            return Some(Problem::warning(at, title).help("leave it out, or set `url` in [store]"));
        }
        too_small(limit, at)
    })
}

/// A limit that has too few units, as have all of its tiers and overrides.
fn too_small(limit: &ReadLimit, at: Range<usize>) -> Option<Problem> {
    if limit.policies().any(has_effect) {
        return None;
    }
    let title = match (&limit.policy.quota, limit.policy.ahead) {
        (Quota::Concurrency(_), _) => {
            "`ahead` has no effect: slots of so small a limit are not kept".to_owned()
        }
        (quota, Some(Ahead { share, .. })) => format!(
            "`ahead` has no effect: a grant has at least {} units and at most 1/{share} of those available, and this limit has {}",
            Ahead::MIN_GRANT,
            quota.limit()
        ),
        (_, None) => return None,
    };
    Some(Problem::warning(at, title).help("leave it out: Redis decides each request in any case"))
}

fn has_effect(policy: &Policy) -> bool {
    match (&policy.quota, policy.ahead) {
        (Quota::Concurrency(slots), _) => slots.max_kept() > 0,
        (quota, Some(ahead)) => ahead.may_grant(quota),
        (_, None) => false,
    }
}
