//! The client of a connection to the admin interface: who that is, and pauses for clients that send wrong tokens.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::LogThrottle;

/// The prefix length of the IPv6 network that counts as one client: a host usually has a /64.
const IPV6_PREFIX: u32 = 64;

/// The client of a connection: what bounds and pauses apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// An IPv4 address, or the network of an IPv6 address.
    Address(IpAddr),
    /// The user of the process on the other end of a Unix socket; none if the system does not report it.
    User(Option<u32>),
}

/// Who sends a request, for the log and for the list of raises.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    /// Where the connection comes from.
    pub client: ClientId,
    /// The subject of the client's certificate, if clients need one.
    certificate: Option<Box<str>>,
}

/// The most characters of a subject that are shown.
const MAX_SUBJECT: usize = 128;

impl Operator {
    /// The operator with a certificate of this subject.
    pub fn new(client: ClientId, subject: Option<&str>) -> Self {
        // One line, whatever an authority has signed.
        let shown = |subject: &str| {
            subject
                .chars()
                .take(MAX_SUBJECT)
                .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                .collect::<String>()
        };
        Self { client, certificate: subject.map(|subject| shown(subject).into()) }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.certificate {
            Some(subject) => write!(f, "{subject} from {}", self.client),
            None => self.client.fmt(f),
        }
    }
}

impl ClientId {
    /// The client at an address.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - IPV6_PREFIX))).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address @ IpAddr::V4(_)) => address.fmt(f),
            Self::Address(network @ IpAddr::V6(_)) => write!(f, "{network}/{IPV6_PREFIX}"),
            Self::User(Some(user)) => write!(f, "user {user}"),
            Self::User(None) => f.write_str("an unknown user"),
        }
    }
}

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

    #[test]
    fn an_ipv6_network_is_one_client() {
        let shown = |address: &str| ClientId::of(address.parse().unwrap()).to_string();
        assert_eq!(shown("192.0.2.7"), "192.0.2.7");
        assert_eq!(shown("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    }

    #[test]
    fn an_operator_is_one_short_line() {
        let client = ClientId::of("192.0.2.7".parse().unwrap());
        let shown = |subject| Operator::new(client, subject).to_string();
        assert_eq!(shown(None), "192.0.2.7");
        assert_eq!(shown(Some("CN=alice,O=Ops")), "CN=alice,O=Ops from 192.0.2.7");
        assert_eq!(shown(Some("CN=a\nb")), "CN=a\u{fffd}b from 192.0.2.7");
        assert_eq!(shown(Some(&"x".repeat(1_000))).len(), 128 + " from 192.0.2.7".len());
    }

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
