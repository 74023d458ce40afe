//! The pause after wrong tokens.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::ClientId;
use crate::telemetry::LogThrottle;

/// How many wrong tokens a client may show in a row before it has to wait.
const BURST: u32 = 5;
/// How long it then takes until it may show the next one.
const PAUSE: Duration = Duration::from_secs(10);
/// The most clients that are remembered.
const MAX_CLIENTS: usize = 1024;

/// Clients that have shown wrong tokens, and when all of that is forgotten (GCRA: each failure adds a pause to it).
#[derive(Debug, Default)]
pub(super) struct Failures {
    clients: Mutex<HashMap<ClientId, Instant>>,
    logged: Mutex<LogThrottle>,
}

impl Failures {
    /// How long a client has to wait before its next token is looked at; none if it need not.
    pub fn pause(&self, client: ClientId, now: Instant) -> Option<Duration> {
        let forgotten = *self.clients.lock().get(&client)?;
        let pause = forgotten.saturating_duration_since(now).saturating_sub(PAUSE * (BURST - 1));
        (pause > Duration::ZERO).then_some(pause)
    }

    /// A client has shown a wrong token.
    pub fn note(&self, client: ClientId, now: Instant) {
        let mut clients = self.clients.lock();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, forgotten| *forgotten > now);
        }
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            // The one with the fewest failures goes, so that many clients with one failure each free none that pauses.
            let least = clients.iter().min_by_key(|(_, forgotten)| **forgotten).map(|(client, _)| *client);
            least.and_then(|client| clients.remove(&client));
        }
        let forgotten = clients.entry(client).or_insert(now);
        *forgotten = (*forgotten).max(now) + PAUSE;
        if self.logged.lock().is_due() {
            tracing::warn!("a wrong token was shown to the admin interface, by {client}");
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
    fn after_a_few_failures_there_is_one_in_each_pause() {
        let (failures, start) = (Failures::default(), monotonic());
        for _ in 0..BURST {
            assert_eq!(failures.pause(client(1), start), None);
            failures.note(client(1), start);
        }
        assert_eq!(failures.pause(client(1), start), Some(PAUSE));
        assert_eq!(failures.pause(client(2), start), None);
        assert_eq!(failures.pause(client(1), start + PAUSE / 2), Some(PAUSE / 2));
        assert_eq!(failures.pause(client(1), start + PAUSE), None);
        failures.note(client(1), start + PAUSE);
        assert_eq!(failures.pause(client(1), start + PAUSE), Some(PAUSE));
        // After a while all is forgotten.
        let later = start + PAUSE * 10;
        for _ in 0..BURST {
            assert_eq!(failures.pause(client(1), later), None);
            failures.note(client(1), later);
        }
    }

    #[test]
    fn many_clients_take_bounded_memory_and_end_no_pause() {
        let (failures, now) = (Failures::default(), monotonic());
        (0..BURST).for_each(|_| failures.note(client(0), now));
        (1..10_000).for_each(|number| failures.note(client(number), now));
        assert_eq!(failures.clients.lock().len(), MAX_CLIENTS);
        assert!(failures.pause(client(0), now).is_some());
        failures.note(client(10_000), now + PAUSE * 10);
        assert_eq!(failures.clients.lock().len(), 1);
    }
}
