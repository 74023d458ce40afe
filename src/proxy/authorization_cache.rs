//! Positive decisions of authorization servers that hold for later requests of this worker, for a time.

use std::cell::RefCell;

use tokio::time::Instant;

use super::authorization::CopiedHeaders;
use crate::gate::RouteId;
use crate::generations::Generations;
use crate::limit::Key;

/// The number of entries of each of two generations. An entry has at most a few KiB.
const GENERATION: usize = 2_048;

/// The requests that share a decision: those of one route with the same key.
pub(super) type CacheKey = (RouteId, Key);

/// The decisions by one configuration that hold for a time.
#[derive(Debug, Default)]
pub(super) struct AuthorizationCache(RefCell<Generations<CacheKey, CachedDecision, GENERATION>>);

#[derive(Clone, Debug)]
struct CachedDecision {
    copied: CopiedHeaders,
    until: Instant,
}

impl AuthorizationCache {
    /// The headers of the decision on requests with this key, if one holds.
    pub fn get(&self, key: &CacheKey, now: Instant) -> Option<CopiedHeaders> {
        let decision = self.0.borrow_mut().get(key).filter(|decision| now < decision.until)?;
        Some(decision.copied)
    }

    /// Keeps a decision.
    pub fn put(&self, key: CacheKey, copied: CopiedHeaders, until: Instant) {
        if copied.can_be_kept() {
            self.0.borrow_mut().put(key, CachedDecision { copied, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::HeaderName;

    use super::*;
    use crate::http1::Fields;
    use crate::time::monotonic;

    #[test]
    fn a_decision_holds_for_its_route_and_key_until_it_expires() {
        let (cache, now, names) =
            (AuthorizationCache::default(), monotonic(), [HeaderName::from_static("x-user")]);
        let copied = |value: &str| {
            CopiedHeaders::new(names.to_vec().into(), &[("x-user", value)].into_iter().collect::<Fields>())
        };
        let key = (RouteId(0), Key([1; 16]));
        cache.put(key, copied("ann"), now + Duration::from_secs(30));
        let user = |key, now| {
            let mut fields: Fields = [("x-user", "forged")].into_iter().collect();
            cache.get(&key, now)?.apply(&mut fields);
            fields.get_str(&names[0]).map(str::to_owned)
        };
        assert_eq!(user(key, now + Duration::from_millis(29_999)).as_deref(), Some("ann"));
        assert_eq!(user(key, now + Duration::from_secs(30)), None);
        assert_eq!(user((RouteId(1), key.1), now), None);
        assert_eq!(user((RouteId(0), Key([2; 16])), now), None);
        let large = (RouteId(2), key.1);
        cache.put(large, copied(&"x".repeat(4_000)), now + Duration::from_secs(30));
        assert_eq!(user(large, now), None);
    }
}
