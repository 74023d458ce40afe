//! Names of servers: which addresses they have, and for how long. The only place that knows hickory.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use tokio::time::Instant;

use crate::time::monotonic;

/// How long one question to a name server may take; each server is asked twice.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least and the most that an answer is believed, whatever its TTL says.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);

/// Finds the addresses of names, as the system's files say: `/etc/resolv.conf` and `/etc/hosts`.
#[derive(Clone)]
pub(super) struct Resolver(TokioResolver);

/// The addresses of a name.
pub(super) struct Found {
    pub addresses: Vec<IpAddr>,
    /// When to look again.
    pub until: Instant,
}

impl Resolver {
    /// One that asks whom the system would ask.
    pub fn system() -> Result<Self, String> {
        let (config, options) =
            hickory_resolver::system_conf::read_system_conf().map_err(|error| error.to_string())?;
        Self::new(config, options)
    }

    fn new(config: ResolverConfig, options: ResolverOpts) -> Result<Self, String> {
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let own = builder.options_mut();
        *own = options;
        own.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        own.timeout = own.timeout.min(PATIENCE);
        own.positive_max_ttl = Some(LONGEST);
        own.negative_max_ttl = Some(SHORTEST);
        builder.build().map(Self).map_err(|error| error.to_string())
    }

    /// The addresses that a name has now.
    pub async fn look_up(&self, name: &str) -> Result<Found, String> {
        // As it is written: containers have names with underscores, which are none by the rules of IDNA.
        let name = Name::from_ascii(name).map_err(|error| error.to_string())?;
        let found = self.0.lookup_ip(name).await.map_err(|error| {
            if error.is_no_records_found() { "it has no address".to_owned() } else { error.to_string() }
        })?;
        let now = monotonic();
        let until = Instant::from_std(found.valid_until()).clamp(now + SHORTEST, now + LONGEST);
        let addresses: Vec<IpAddr> = found.iter().collect();
        if addresses.is_empty() {
            Err("it has no address".to_owned())
        } else {
            Ok(Found { addresses, until })
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use hickory_resolver::config::NameServerConfig;
    use parking_lot::Mutex;
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that knows one set of IPv4 addresses, with a TTL in seconds, for every name.
    pub struct NameServer {
        pub knows: Arc<Mutex<(Vec<Ipv4Addr>, u32)>>,
        pub resolver: Resolver,
    }

    impl NameServer {
        pub async fn start() -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut server = NameServerConfig::udp(socket.local_addr().unwrap().ip());
            server.connections[0].port = socket.local_addr().unwrap().port();
            let knows = Arc::new(Mutex::new((Vec::new(), 0)));
            let shared = Arc::clone(&knows);
            tokio::spawn(async move {
                let mut query = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut query).await {
                    let answer = answer(&query[..length], &shared.lock());
                    socket.send_to(&answer, from).await.unwrap();
                }
            });
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            let resolver = Resolver::new(config, ResolverOpts::default()).unwrap();
            Self { knows, resolver }
        }

        /// Answers so from now on; nothing is remembered.
        pub fn set(&self, addresses: &[[u8; 4]], ttl: u32) {
            *self.knows.lock() = (addresses.iter().map(|octets| (*octets).into()).collect(), ttl);
            self.resolver.0.clear_cache();
        }
    }

    /// The answer to a query for one name (RFC 1035 §4.1).
    fn answer(query: &[u8], (addresses, ttl): &(Vec<Ipv4Addr>, u32)) -> Vec<u8> {
        let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
        let asks_for_ipv4 = query[end - 4..end] == [0, 1, 0, 1];
        let found: &[Ipv4Addr] = if asks_for_ipv4 { addresses } else { &[] };
        let code = if addresses.is_empty() { 3 } else { 0 };
        let count = u8::try_from(found.len()).unwrap();
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
        answer.extend(&query[12..end]);
        for address in found {
            answer.extend([0xc0, 12, 0, 1, 0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend([0, 4]);
            answer.extend(address.octets());
        }
        answer
    }

    #[tokio::test]
    async fn a_name_has_its_addresses_for_as_long_as_its_ttl_says() {
        let server = NameServer::start().await;
        for (ttl, least, most) in [(0, 0, 1), (40, 30, 40), (86_400, 290, 300)] {
            server.set(&[[10, 0, 0, 1], [10, 0, 0, 2]], ttl);
            let found = server.resolver.look_up(&format!("with-{ttl}.test.")).await.unwrap();
            assert_eq!(found.addresses, [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from));
            let left = found.until - monotonic();
            assert!((least..=most).contains(&left.as_secs()), "{left:?} for {ttl}");
        }
        server.set(&[], 0);
        let error = server.resolver.look_up("none.test.").await.err();
        assert_eq!(error.as_deref(), Some("it has no address"));
    }

    #[tokio::test]
    async fn names_as_containers_have_them_are_names() {
        let server = NameServer::start().await;
        server.set(&[[10, 0, 0, 1]], 60);
        for name in ["my_service", "_x.a_b.test", "a-1"] {
            assert!(server.resolver.look_up(name).await.is_ok(), "{name}");
        }
    }
}
