//! Keeps the raises of this process up to date: removes those that have ended, and reads those in Redis, so that a raise on
//! another proxy takes effect within about a second.

use std::time::Duration;

use super::raises::Raises;
use super::shared_state::SharedState;
use crate::store::{Store, StoreError};
use crate::time::{monotonic, periodic};

/// How often that is done, once for all workers.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// How often ended raises are removed if none are read. They have no effect any more.
const REMOVE_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps the raises up to date over a connection to their store; never returns. If the store does not reply, the workers probe
/// it as well, so that they notice its failure while they are idle.
pub async fn keep_raises(store: &Store, shared: &SharedState) {
    let mut interval = periodic(match store {
        Store::Redis(_) => READ_INTERVAL,
        Store::Memory(_) => REMOVE_INTERVAL,
    });
    loop {
        interval.tick().await;
        match update(store, &shared.raises).await {
            // A missing permission for this command says nothing about the calls of limits.
            Ok(()) | Err(StoreError::ErrorReply(_)) => {}
            Err(_) => shared.breakers.suspect(),
        }
    }
}

/// Updates the raises once, unless they were read just before. While the store is unavailable they stay until their ends.
///
/// # Errors
/// When the store does not reply.
pub(super) async fn update(store: &Store, raises: &Raises) -> Result<(), StoreError> {
    let now = monotonic();
    raises.remove_ended(now);
    let Store::Redis(redis) = store else { return Ok(()) };
    let Some(known) = raises.due(now) else { return Ok(()) };
    // Boxed because it would enlarge the futures of all background work.
    let list = Box::pin(redis.raises(known)).await;
    let list = list.inspect_err(|error| tracing::debug!("the raises of keys can't be read: {error}"))?;
    if let Some(list) = list {
        raises.replace(list, now);
    }
    Ok(())
}
