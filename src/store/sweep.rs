//! Regular removal of expired records from the in-process store.

use std::sync::Arc;
use std::time::Duration;

use super::memory::Memory;
use crate::time::periodic;

/// The number of parts of the store, of which one is swept each time.
const PARTS: usize = 30;
/// The time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(2);

/// Removes expired records from the in-process store; never returns.
pub async fn sweep_memory(memory: Arc<Memory>) {
    let mut tick = periodic(INTERVAL);
    for part in (0..PARTS).cycle() {
        tick.tick().await;
        memory.sweep(part, PARTS);
    }
}
