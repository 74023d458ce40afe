//! Name resolution: the addresses of servers' host names. The only module that uses hickory.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::time::monotonic;

/// The timeout of one query to a name server; each server is queried twice.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// The bounds of the time for which an answer is used, whatever its TTL.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_mins(5);

/// How often the system's files are read.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A resolver that follows the system's configuration: `/etc/hosts` and `/etc/resolv.conf`.
pub(in crate::upstream) struct SystemResolver {
    directory: PathBuf,
    /// The files as they were last read.
    files: Option<Files>,
    resolver: watch::Sender<Option<Resolver>>,
}

/// The contents of those files.
#[derive(PartialEq, Eq)]
struct Files {
    /// None if the file can't be read.
    hosts: Option<Vec<u8>>,
    servers: Result<Vec<u8>, String>,
}

/// Resolves names to addresses.
#[derive(Clone)]
pub(in crate::upstream) struct Resolver(TokioResolver);

/// The addresses of a name.
pub(in crate::upstream) struct Resolved {
    pub addresses: Vec<IpAddr>,
    /// When to resolve the name again.
    pub expires_at: Instant,
}

impl SystemResolver {
    /// A resolver for the files in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let (resolver, _) = watch::channel(None);
        let mut system = Self { directory: directory.into(), files: None, resolver };
        system.read_files();
        system
    }

    /// The resolver for the present files; none if they can't be used.
    pub fn resolver(&self) -> watch::Receiver<Option<Resolver>> {
        self.resolver.subscribe()
    }

    /// Reads the files repeatedly, and replaces the resolver whenever they have changed.
    pub async fn watch_files(mut self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            self.read_files();
        }
    }

    fn read_files(&mut self) {
        let read = |name| std::fs::read(self.directory.join(name));
        let servers = read("resolv.conf").map_err(|error| error.to_string());
        let files = Files { hosts: read("hosts").ok(), servers };
        if self.files.as_ref() == Some(&files) {
            return;
        }
        match files.resolver() {
            Ok(resolver) => drop(self.resolver.send_replace(Some(resolver))),
            Err(error) => tracing::error!("can't resolve host names of servers: {error}"),
        }
        self.files = Some(files);
    }
}

impl Files {
    fn resolver(&self) -> Result<Resolver, String> {
        let mut hosts = Hosts::default();
        if let Some(text) = &self.hosts
            && let Err(error) = hosts.read_hosts_conf(&**text)
        {
            tracing::warn!("/etc/hosts can't be read: {error}");
        }
        let servers = self.servers.clone();
        let servers = servers.and_then(|text| parse_resolv_conf(text).map_err(|error| error.to_string()));
        let (config, options) = servers.unwrap_or_else(|error| {
            tracing::warn!("no name servers are used, because /etc/resolv.conf can't be read: {error}");
            (ResolverConfig::from_parts(None, Vec::new(), Vec::new()), ResolverOpts::default())
        });
        Resolver::new(config, options, hosts)
    }
}

impl Resolver {
    fn new(config: ResolverConfig, options: ResolverOpts, hosts: Hosts) -> Result<Self, String> {
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let own = builder.options_mut();
        *own = options;
        own.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        own.timeout = own.timeout.min(QUERY_TIMEOUT);
        own.positive_max_ttl = Some(MAX_TTL);
        own.negative_max_ttl = Some(MIN_TTL);
        own.use_hosts_file = ResolveHosts::Never;
        let mut resolver = builder.build().map_err(|error| error.to_string())?;
        resolver.set_hosts(Arc::new(hosts));
        Ok(Self(resolver))
    }

    /// Resolves a name. Fails when it has no address, as a message.
    pub async fn resolve(&self, name: &str) -> Result<Resolved, String> {
        // ASCII without IDNA: its rules forbid the underscores that names of containers have.
        let name = Name::from_ascii(name).map_err(|error| error.to_string())?;
        let found = self.0.lookup_ip(name).await.map_err(|error| {
            if error.is_no_records_found() { "it has no address".to_owned() } else { error.to_string() }
        })?;
        let now = monotonic();
        let expires_at = Instant::from_std(found.valid_until()).clamp(now + MIN_TTL, now + MAX_TTL);
        let addresses: Vec<IpAddr> = found.iter().collect();
        if addresses.is_empty() {
            Err("it has no address".to_owned())
        } else {
            Ok(Resolved { addresses, expires_at })
        }
    }
}

#[cfg(test)]
pub(in crate::upstream) mod tests {
    use std::net::Ipv4Addr;

    use hickory_resolver::config::NameServerConfig;
    use parking_lot::Mutex;
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that has one set of IPv4 addresses, with a TTL in seconds, for every name.
    pub struct NameServer {
        pub records: Arc<Mutex<(Vec<Ipv4Addr>, u32)>>,
        pub resolver: Resolver,
    }

    impl NameServer {
        pub async fn start() -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut server = NameServerConfig::udp(socket.local_addr().unwrap().ip());
            server.connections[0].port = socket.local_addr().unwrap().port();
            let records = Arc::new(Mutex::new((Vec::new(), 0)));
            let shared = Arc::clone(&records);
            tokio::spawn(async move {
                let mut query = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut query).await {
                    let answer = answer(&query[..length], &shared.lock());
                    socket.send_to(&answer, from).await.unwrap();
                }
            });
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            let resolver = Resolver::new(config, ResolverOpts::default(), Hosts::default()).unwrap();
            Self { records, resolver }
        }

        /// A system resolver that queries this server.
        pub fn system(&self) -> SystemResolver {
            let (resolver, _) = watch::channel(Some(self.resolver.clone()));
            SystemResolver { directory: PathBuf::new(), files: None, resolver }
        }

        /// Sets the answer, and clears the resolver's cache.
        pub fn set(&self, addresses: &[[u8; 4]], ttl: u32) {
            *self.records.lock() = (addresses.iter().map(|octets| (*octets).into()).collect(), ttl);
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
    async fn addresses_expire_after_their_ttl_within_bounds() {
        let server = NameServer::start().await;
        for (ttl, least, most) in [(0, 0, 1), (40, 30, 40), (86_400, 290, 300)] {
            server.set(&[[10, 0, 0, 1], [10, 0, 0, 2]], ttl);
            let found = server.resolver.resolve(&format!("with-{ttl}.test.")).await.unwrap();
            assert_eq!(found.addresses, [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from));
            let left = found.expires_at - monotonic();
            assert!((least..=most).contains(&left.as_secs()), "{left:?} for {ttl}");
        }
        server.set(&[], 0);
        let error = server.resolver.resolve("none.test.").await.err();
        assert_eq!(error.as_deref(), Some("it has no address"));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_the_system_files_are_adopted() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("hosts", "10.0.0.1 a.test\n::1 a.test\n");
        let system = SystemResolver::new(directory.path());
        let mut resolver = system.resolver();
        let _watching = tokio::spawn(system.watch_files());
        let addresses = async |resolver: &mut watch::Receiver<Option<Resolver>>| {
            let resolver = resolver.borrow_and_update().clone().unwrap();
            resolver.resolve("a.test").await.map(|found| found.addresses)
        };
        // Without a name server too.
        assert_eq!(addresses(&mut resolver).await.unwrap().len(), 2);
        for (text, expected) in [
            ("10.0.0.2 a.test\n::1 a.test\n", Some(2)),
            ("", None),
            ("10.0.0.3 a.test\n::3 a.test\n", Some(2)),
        ] {
            write("hosts", text);
            resolver.changed().await.unwrap();
            let found = addresses(&mut resolver).await.ok();
            assert_eq!(found.as_ref().map(Vec::len), expected);
            let first = text.split(' ').next().and_then(|first| first.parse().ok());
            assert!(first.is_none_or(|first| found.unwrap().contains(&first)));
        }
        // A new name server is adopted; after that nothing changes.
        write("resolv.conf", "nameserver 127.0.0.1\n");
        resolver.changed().await.unwrap();
        assert_eq!(addresses(&mut resolver).await.unwrap().len(), 2);
        assert!(tokio::time::timeout(10 * CHECK_INTERVAL, resolver.changed()).await.is_err());
    }

    #[tokio::test]
    async fn names_with_underscores_are_resolved() {
        let server = NameServer::start().await;
        server.set(&[[10, 0, 0, 1]], 60);
        for name in ["my_service", "_x.a_b.test", "a-1"] {
            assert!(server.resolver.resolve(name).await.is_ok(), "{name}");
        }
    }
}
