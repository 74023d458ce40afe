//! Name resolution: the addresses of servers' host names. The only module that uses hickory.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::time::monotonic;
use crate::upstream::server::{ServerAddress, ServerPeer, ServerSpec};

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

/// Resolves the names of servers.
#[derive(Clone)]
pub(in crate::upstream) struct Resolver(TokioResolver);

/// What the DNS has for a server.
pub(in crate::upstream) struct Resolved {
    pub peers: Vec<ServerPeer>,
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

    /// Finds the addresses of a server. Fails when the DNS has none, as a message.
    pub async fn resolve(&self, server: &ServerSpec) -> Result<Resolved, String> {
        match &server.address {
            ServerAddress::Service(name) => self.resolve_service(name).await,
            ServerAddress::Tcp { host, port } => {
                let (addresses, valid_until) = self.addresses(host).await?;
                Ok(Resolved::new(ServerPeer::of_name(&addresses, *port), valid_until))
            }
            ServerAddress::Unix(_) => Err("it has no name".to_owned()),
        }
    }

    async fn addresses(&self, name: &str) -> Result<(Vec<IpAddr>, std::time::Instant), String> {
        let found = self.0.lookup_ip(dns_name(name)?).await;
        let found = found.map_err(|error| describe(&error, "it has no address"))?;
        let addresses: Vec<IpAddr> = found.iter().collect();
        if addresses.is_empty() {
            return Err("it has no address".to_owned());
        }
        Ok((addresses, found.valid_until()))
    }

    /// The addresses of the targets of the SRV records of a service. Targets that can't be resolved are left out, if there are
    /// others.
    async fn resolve_service(&self, name: &str) -> Result<Resolved, String> {
        let found = self.0.srv_lookup(dns_name(name)?).await;
        let found = found.map_err(|error| describe(&error, "it has no SRV record"))?;
        let records = found.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(record) => Some(record),
            _ => None,
        });
        let targets = join_all(records.map(|record| self.target(record))).await;
        let (mut peers, mut valid_until) = (Vec::new(), found.valid_until());
        let mut failure = "it has no SRV record".to_owned();
        for target in targets {
            match target {
                Ok((own, until)) => {
                    peers.extend(own);
                    valid_until = valid_until.min(until);
                }
                Err(error) => failure = error,
            }
        }
        // Name servers rotate records. An address that several records have counts once, with the lowest priority number.
        peers.sort_unstable_by(|a, b| (&a.address, a.priority).cmp(&(&b.address, b.priority)));
        peers.dedup_by(|later, first| later.address == first.address);
        if peers.is_empty() { Err(failure) } else { Ok(Resolved::new(peers, valid_until)) }
    }

    /// The addresses of the target of an SRV record.
    async fn target(&self, record: &SRV) -> Result<(Vec<ServerPeer>, std::time::Instant), String> {
        if record.target.is_root() {
            return Err("its SRV record says that the service is not available".to_owned());
        }
        let target = record.target.to_ascii();
        let (addresses, valid_until) =
            self.addresses(&target).await.map_err(|error| format!("{target}: {error}"))?;
        Ok((ServerPeer::of_target(&addresses, record.port, record.weight, record.priority), valid_until))
    }
}

impl Resolved {
    fn new(peers: Vec<ServerPeer>, valid_until: std::time::Instant) -> Self {
        let now = monotonic();
        let expires_at = Instant::from_std(valid_until).clamp(now + MIN_TTL, now + MAX_TTL);
        Self { peers, expires_at }
    }
}

/// A name in ASCII, without IDNA, whose rules forbid the underscores that names of containers have.
fn dns_name(name: &str) -> Result<Name, String> {
    Name::from_ascii(name).map_err(|error| error.to_string())
}

/// A failed lookup as a message; `none` if there is no such record.
fn describe(error: &NetError, none: &str) -> String {
    if error.is_no_records_found() { none.to_owned() } else { error.to_string() }
}

#[cfg(test)]
pub(in crate::upstream) mod tests {
    use std::net::Ipv4Addr;

    use hickory_resolver::config::NameServerConfig;
    use parking_lot::Mutex;
    use tokio::net::UdpSocket;

    use super::*;
    use crate::config::defaults::server;

    /// A name server that has the same records for every name.
    pub struct NameServer {
        pub records: Arc<Mutex<Records>>,
        pub resolver: Resolver,
    }

    /// The records of a name server.
    #[derive(Default)]
    pub struct Records {
        addresses: Vec<Ipv4Addr>,
        /// The priority, weight and port of each SRV record, whose target is `PORT.test`.
        services: Vec<[u16; 3]>,
        /// In seconds.
        ttl: u32,
    }

    impl NameServer {
        pub async fn start() -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut server = NameServerConfig::udp(socket.local_addr().unwrap().ip());
            server.connections[0].port = socket.local_addr().unwrap().port();
            let records = Arc::<Mutex<Records>>::default();
            let shared = Arc::clone(&records);
            tokio::spawn(async move {
                let mut query = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut query).await {
                    let answer = shared.lock().answer(&query[..length]);
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

        /// Sets the addresses, and clears the resolver's cache.
        pub fn set(&self, addresses: &[[u8; 4]], ttl: u32) {
            let addresses = addresses.iter().map(|octets| (*octets).into()).collect();
            *self.records.lock() = Records { addresses, ttl, services: Vec::new() };
            self.resolver.0.clear_cache();
        }
    }

    impl Records {
        /// The answer to a query for one name (RFC 1035 §4.1, RFC 2782).
        fn answer(&self, query: &[u8]) -> Vec<u8> {
            const A: u8 = 1;
            const SRV: u8 = 33;
            let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
            let kind = query[end - 3];
            let data: Vec<Vec<u8>> = match kind {
                A => self.addresses.iter().map(|address| address.octets().to_vec()).collect(),
                SRV => self.services.iter().copied().map(service_data).collect(),
                _ => Vec::new(),
            };
            let is_unknown = self.addresses.is_empty() && self.services.is_empty();
            let code = if is_unknown { 3 } else { 0 };
            let mut answer = query[..2].to_vec();
            answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(data.len()).unwrap(), 0, 0, 0, 0]);
            answer.extend(&query[12..end]);
            for data in data {
                answer.extend([0xc0, 12, 0, kind, 0, 1]);
                answer.extend(self.ttl.to_be_bytes());
                answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
                answer.extend(data);
            }
            answer
        }
    }

    fn service_data(numbers: [u16; 3]) -> Vec<u8> {
        let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        for label in [&*numbers[2].to_string(), "test", ""] {
            data.push(u8::try_from(label.len()).unwrap());
            data.extend(label.as_bytes());
        }
        data
    }

    fn addresses(found: &Resolved) -> Vec<String> {
        found.peers.iter().map(|peer| peer.address.to_string()).collect()
    }

    #[tokio::test]
    async fn addresses_expire_after_their_ttl_within_bounds() {
        let names = NameServer::start().await;
        for (ttl, least, most) in [(0, 0, 1), (40, 30, 40), (86_400, 290, 300)] {
            names.set(&[[10, 0, 0, 1], [10, 0, 0, 2]], ttl);
            let url = format!("http://with-{ttl}.test");
            let found = names.resolver.resolve(&server(&url)).await.unwrap();
            assert_eq!(addresses(&found), ["10.0.0.1:80", "10.0.0.2:80"]);
            let left = found.expires_at - monotonic();
            assert!((least..=most).contains(&left.as_secs()), "{left:?} for {ttl}");
        }
        names.set(&[], 0);
        let error = names.resolver.resolve(&server("http://none.test")).await.err();
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
            resolver.resolve(&server("http://a.test")).await.map(|found| found.peers)
        };
        // Without a name server too. The IPv6 address is the fallback of the other one.
        assert_eq!(addresses(&mut resolver).await.unwrap().len(), 1);
        for (text, expected) in [
            ("10.0.0.2 a.test\n::1 a.test\n", Some(1)),
            ("", None),
            ("10.0.0.3 a.test\n::3 a.test\n", Some(1)),
        ] {
            write("hosts", text);
            resolver.changed().await.unwrap();
            let found = addresses(&mut resolver).await.ok();
            assert_eq!(found.as_ref().map(Vec::len), expected);
            let first = text.split(' ').next().filter(|first| !first.is_empty());
            assert!(first.is_none_or(|first| format!("{found:?}").contains(first)));
        }
        // A new name server is adopted; after that nothing changes.
        write("resolv.conf", "nameserver 127.0.0.1\n");
        resolver.changed().await.unwrap();
        assert_eq!(addresses(&mut resolver).await.unwrap().len(), 1);
        assert!(tokio::time::timeout(10 * CHECK_INTERVAL, resolver.changed()).await.is_err());
    }

    #[tokio::test]
    async fn services_have_ports_weights_and_priorities() {
        let names = NameServer::start().await;
        let server = server("srv://_api._tcp.a.test");
        names.set(&[[10, 0, 0, 1], [10, 0, 0, 2]], 60);
        let error = names.resolver.resolve(&server).await.err();
        assert_eq!(error.as_deref(), Some("it has no SRV record"));
        names.set(&[[10, 0, 0, 1], [10, 0, 0, 2]], 60);
        names.records.lock().services = vec![[2, 0, 9002], [3, 9, 9001], [1, 6, 9001]];
        let found = names.resolver.resolve(&server).await.unwrap();
        let peers = found.peers.iter().map(|peer| (peer.address.to_string(), peer.weight, peer.priority));
        let expected = [("10.0.0.1:9001", 3000, 1), ("10.0.0.1:9002", 1, 2), ("10.0.0.2:9001", 3000, 1)];
        let peers: Vec<_> = peers.take(3).collect();
        assert_eq!(peers, expected.map(|(address, weight, priority)| (address.to_owned(), weight, priority)));
        assert_eq!(found.peers.len(), 4);
        names.set(&[], 60);
        names.records.lock().services = vec![[1, 6, 9001]];
        let error = names.resolver.resolve(&server).await.err();
        assert_eq!(error.as_deref(), Some("9001.test.: it has no address"));
    }

    #[tokio::test]
    async fn names_with_underscores_are_resolved() {
        let names = NameServer::start().await;
        names.set(&[[10, 0, 0, 1]], 60);
        for name in ["my_service", "_x.a_b.test", "a-1"] {
            let url = format!("http://{name}");
            assert!(names.resolver.resolve(&server(&url)).await.is_ok(), "{name}");
        }
    }
}
