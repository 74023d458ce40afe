//! The task that records the activity of the process.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::MissedTickBehavior;

use super::activity::LIVE_SECONDS;
use super::state::Admin;

/// Makes the frames of the history and of event streams, until it is dropped. Counters and gauges are read on a blocking
/// thread, since there may be many routes and servers.
pub async fn record_activity(current: &ArcSwap<Admin>) {
    let activity = Arc::clone(&current.load().activity);
    let mut tick = tokio::time::interval(Duration::from_secs(LIVE_SECONDS));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
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
