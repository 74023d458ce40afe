//! Pauses clients that send wrong tokens.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::ClientId;
use crate::telemetry::LogThrottle;

/// How many wrong tokens a client may send before it is paused.
const BURST: u32 = 5;
/// How long a paused client waits before its next token is checked.
const PAUSE: Duration = Duration::from_secs(10);
/// The most clients that are remembered.
const MAX_CLIENTS: usize = 1024;

/// Clients that have sent wrong tokens, and when their failures are forgotten (GCRA: each failure adds a pause).
#[derive(Debug, Default)]
pub(super) struct Failures {
    clients: Mutex<HashMap<ClientId, Instant>>,
    throttle: Mutex<LogThrottle>,
}

impl Failures {
    /// How long until the client's next token is checked; none if it is checked now.
    pub fn pause(&self, client: ClientId, now: Instant) -> Option<Duration> {
        let forgotten = *self.clients.lock().get(&client)?;
        let pause = forgotten.saturating_duration_since(now).saturating_sub(PAUSE * (BURST - 1));
        (pause > Duration::ZERO).then_some(pause)
    }

    /// Records a wrong token of a client.
    pub fn record(&self, client: ClientId, now: Instant) {
        let mut clients = self.clients.lock();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, forgotten| *forgotten > now);
        }
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            // The client with the fewest failures is evicted, so that many clients with one failure each don't end the
            // pause of another.
            let least = clients.iter().min_by_key(|(_, forgotten)| **forgotten).map(|(client, _)| *client);
            least.and_then(|client| clients.remove(&client));
        }
        let forgotten = clients.entry(client).or_insert(now);
        *forgotten = (*forgotten).max(now) + PAUSE;
        if self.throttle.lock().is_due() {
            tracing::warn!("admin: wrong token from {client}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::time::monotonic;

    fn client(number: u32) -> ClientId {
        ClientId::of(IpAddr::from(Ipv4Addr::from(number)))
    }

    #[test]
    fn after_a_burst_one_token_is_checked_per_pause() {
        let (failures, start) = (Failures::default(), monotonic());
        for _ in 0..BURST {
            assert_eq!(failures.pause(client(1), start), None);
            failures.record(client(1), start);
        }
        assert_eq!(failures.pause(client(1), start), Some(PAUSE));
        assert_eq!(failures.pause(client(2), start), None);
        assert_eq!(failures.pause(client(1), start + PAUSE / 2), Some(PAUSE / 2));
        assert_eq!(failures.pause(client(1), start + PAUSE), None);
        failures.record(client(1), start + PAUSE);
        assert_eq!(failures.pause(client(1), start + PAUSE), Some(PAUSE));
        // After a while all failures are forgotten.
        let later = start + PAUSE * 10;
        for _ in 0..BURST {
            assert_eq!(failures.pause(client(1), later), None);
            failures.record(client(1), later);
        }
    }

    #[test]
    fn many_clients_use_bounded_memory_and_end_no_pause() {
        let (failures, now) = (Failures::default(), monotonic());
        (0..BURST).for_each(|_| failures.record(client(0), now));
        (1..10_000).for_each(|number| failures.record(client(number), now));
        assert_eq!(failures.clients.lock().len(), MAX_CLIENTS);
        assert!(failures.pause(client(0), now).is_some());
        failures.record(client(10_000), now + PAUSE * 10);
        assert_eq!(failures.clients.lock().len(), 1);
    }
}
