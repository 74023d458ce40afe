//! Checks whether a Redis does all that a proxy needs, for `tidegate check --connect`.

use std::sync::Arc;

use super::redis::Redis;
use super::types::{StateChange, StoreError};
use crate::limit::{Charge, Key, Policy, PolicyId};

/// The name of the policies of the check: no limit can have it.
const NAME: &str = "+check";
/// The key of the check.
const KEY: Key = Key([0; 16]);

/// Takes a unit of a key of its own by the algorithm of each of these limits, removes that key, and reads the raises; reads the
/// record of a consumer too if `reads_consumers`. So it needs all permissions that a proxy needs.
///
/// # Errors
/// The first call without a well-formed reply within the deadline.
pub async fn check_redis(redis: &Redis, limits: &[Policy], reads_consumers: bool) -> Result<(), StoreError> {
    // The first call may have to send the script, and opens connections to the nodes of a cluster.
    match redis.probe().await {
        Err(StoreError::Deadline) => redis.probe().await?,
        probed => probed?,
    }
    let mut kinds: Vec<Policy> = Vec::new();
    for limit in limits {
        if kinds.iter().all(|known| known.quota.letter() != limit.quota.letter()) {
            kinds.push(Policy::new(NAME, limit.quota.clone()));
        }
    }
    let kinds: Arc<[Policy]> = kinds.into();
    for (id, _) in (0..).map(PolicyId).zip(kinds.iter()) {
        redis.take(&kinds, &[Charge::take(id, KEY, 1)]).await?;
    }
    let keys: Vec<(PolicyId, Key)> = kinds.first().map(|_| (PolicyId(0), KEY)).into_iter().collect();
    redis.change(&kinds, &keys, StateChange::Reset).await?;
    redis.raises(0).await?;
    if reads_consumers {
        redis.consumer_record(NAME).await?;
    }
    Ok(())
}
