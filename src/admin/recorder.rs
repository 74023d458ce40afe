//! The task that records the activity of the process.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::activity::LIVE_SECONDS;
use super::state::Admin;
use crate::time::periodic;

/// The time between two checks while no client watches: the frames of the history have a multiple of it.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);

/// Makes the frames of the history and of event streams, until it is dropped. Counters and gauges are read on a blocking
/// thread, since there may be many routes and servers.
pub async fn record_activity(current: &ArcSwap<Admin>) {
    let activity = Arc::clone(&current.load().activity);
    let mut live = periodic(Duration::from_secs(LIVE_SECONDS));
    let mut idle = periodic(IDLE_INTERVAL);
    loop {
        let is_watched = activity.is_watched();
        tokio::select! {
            _ = live.tick(), if is_watched => {}
            _ = idle.tick(), if !is_watched => {}
            () = activity.subscribed() => {}
        }
        let (due, admin) = (activity.due(), current.load_full());
        if due.any() {
            let update = move || {
                admin.activity.update(due, &admin.metrics, &admin.gauge_values(), admin.clock.now());
            };
            // It can only fail if the process ends.
            let _ = tokio::task::spawn_blocking(update).await;
        }
    }
}
