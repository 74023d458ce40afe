//! Background tasks of the main thread.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::{self, Admin, AdminListener};
use crate::jwt::{Refresher, Verifier};
use crate::limiter::{self, SharedState};
use crate::store::Store;
use crate::telemetry::TopKeys;
use crate::time::{monotonic, periodic};
use crate::upstream::{HealthMonitor, SharedUpstream};

/// Fetches the keys of tokens, and starts refreshing them. Listeners accept connections meanwhile, but serve them only
/// afterwards: without keys, tokens would count as missing.
pub(super) async fn refresh_keys(verifier: Option<&Arc<Verifier>>) -> Option<JoinHandle<()>> {
    let mut refresher = verifier.and_then(Refresher::new)?;
    refresher.fetch().await;
    Some(tokio::spawn(refresher.run()))
}

/// Resolves the names of servers, for two seconds at most, and starts resolving them regularly and checking their health.
pub(super) async fn monitor(upstreams: &[Arc<SharedUpstream>]) -> JoinSet<()> {
    let mut monitor = HealthMonitor::new(upstreams);
    monitor.resolve().await;
    monitor.start()
}

/// Keeps the raises of the workers up to date over the main thread's connection, until the returned value is dropped.
pub(super) fn keep_raises(store: &Store, shared: &SharedState) -> JoinSet<()> {
    let (store, shared) = (store.clone(), shared.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { limiter::keep_raises(&store, &shared).await });
    tasks
}

/// Serves the admin interface, and records what it shows.
pub(super) async fn serve_admin(admin: Arc<ArcSwap<Admin>>, listener: AdminListener) {
    let served = tokio::select! {
        served = admin::serve(&admin, listener) => served,
        () = admin::record_activity(&admin) => Ok(()),
    };
    if let Err(error) = served {
        tracing::error!("the admin interface has stopped: {error}");
    }
}

/// Takes what the workers have counted for the most frequent keys, on a blocking thread since there may be many limits.
pub(super) async fn take_top_keys(top: Arc<TopKeys>) {
    let mut tick = periodic(TopKeys::INTERVAL);
    loop {
        tick.tick().await;
        let top = Arc::clone(&top);
        // It can only fail if the process ends.
        let _ = tokio::task::spawn_blocking(move || top.take(monotonic())).await;
    }
}
