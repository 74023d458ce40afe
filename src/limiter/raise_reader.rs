//! Keeps the raises of this process up to date: removes those that have ended, and reads those in Redis, so that a raise on
//! another proxy takes effect within a second.

use std::time::Duration;

use super::raises::Raises;
use super::store_client::StoreClient;
use crate::store::Store;
use crate::time::monotonic;

/// How often a worker does so.
const INTERVAL: Duration = Duration::from_millis(500);

/// Keeps the raises up to date; never returns.
pub(super) async fn run(client: &StoreClient, raises: &Raises) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        update(client, raises).await;
    }
}

/// Updates the raises once. While the store is unavailable they stay until their ends.
pub(super) async fn update(client: &StoreClient, raises: &Raises) {
    let now = monotonic();
    raises.remove_ended(now);
    let Store::Redis(redis) = &client.store else { return };
    if client.fallback.breaker.is_open() {
        return;
    }
    let Some(known) = raises.due(now) else { return };
    // Boxed because it would enlarge the futures of all background work.
    match Box::pin(redis.raises(known)).await {
        Ok(Some(list)) => raises.replace(list, now),
        Ok(None) => {}
        Err(error) => tracing::debug!("the raises of keys can't be read: {error}"),
    }
}
