//! The address of Redis, and how it is reached and used.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::tls::{ClientTls, TlsError};

/// The address of a Redis, and the credentials for it.
#[derive(Clone)]
pub struct RedisTarget {
    /// The address.
    pub address: RedisAddress,
    /// An ACL user; `None` is the default user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u8,
    /// TLS, if connections are encrypted.
    pub tls: Option<ClientTls>,
}

/// The address of a Redis: one server, or the nodes by which it is found.
#[derive(Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// On TCP.
    Tcp(Node),
    /// On a Unix socket.
    Unix(PathBuf),
    /// The master of a service, by Sentinel.
    Sentinel {
        /// Some of the Sentinels; they know the others.
        nodes: Vec<Node>,
        /// The service name of the master.
        service: String,
        /// An ACL user of the Sentinels.
        username: Option<String>,
        /// Its password.
        password: Option<String>,
    },
    /// A Redis Cluster, by some of its nodes; they know the others.
    Cluster(Vec<Node>),
}

/// A server on TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Why a text is not a Redis URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL.
    #[error("not a URL ({0}); write it as redis://host:6379")]
    Malformed(String),
    /// An unknown scheme.
    #[error(
        "the scheme `{0}` is not one of redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster and \
         rediss-cluster"
    )]
    Scheme(String),
    /// No host.
    #[error("the host is missing; write it as redis://host:6379")]
    NoHost,
    /// A database that is not a number from 0 to 255.
    #[error("`{0}` is no database number from 0 to 255")]
    Database(String),
    /// A database of a cluster, which has only database 0.
    #[error("a cluster has no database but 0")]
    ClusterDatabase,
    /// A socket without a path.
    #[error("the path of the socket is missing; write it as unix:///run/redis.sock")]
    NoPath,
    /// Sentinels without the name of the service.
    #[error("the name of the service is missing; write it as redis-sentinel://host:26379/?service=NAME")]
    NoService,
    /// Something after `?` or `#`.
    #[error("`{0}` is not understood")]
    Extra(String),
    /// TLS that can't be set up.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

/// The kinds of URL.
#[derive(Clone, Copy)]
enum Kind {
    Server,
    Sentinel,
    Cluster,
}

impl Kind {
    fn port(self) -> u16 {
        if let Self::Sentinel = self { 26379 } else { 6379 }
    }
}

impl RedisTarget {
    /// Reads `redis://[user[:password]@]host[:port][/database]`, `unix:///path[?db=database]`,
    /// `redis-sentinel://[…@]host[:port][,host[:port]…]/[database]?service=NAME`, or
    /// `redis-cluster://[…@]host[:port][,host[:port]…]`; with `rediss` in place of `redis` over TLS with
    /// the system's trust store.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (first, others) = split_hosts(text);
        let url = parse(&first)?;
        let username = Some(decoded(url.username())).filter(|name| !name.is_empty());
        let password = url.password().map(decoded).filter(|word| !word.is_empty());
        let (kind, is_secure) = match url.scheme() {
            "redis" => (Kind::Server, false),
            "rediss" => (Kind::Server, true),
            "redis-sentinel" => (Kind::Sentinel, false),
            "rediss-sentinel" => (Kind::Sentinel, true),
            "redis-cluster" => (Kind::Cluster, false),
            "rediss-cluster" => (Kind::Cluster, true),
            "unix" => return socket(&url, username, password),
            other => return Err(UrlError::Scheme(other.to_owned())),
        };
        let mut nodes = vec![node(&url, kind)?];
        for host in others {
            nodes.push(node(&parse(&format!("redis://{host}"))?, kind)?);
        }
        let database = database(url.path())?;
        let address = match kind {
            Kind::Server if nodes.len() > 1 => {
                return Err(UrlError::Malformed("more than one host".to_owned()));
            }
            Kind::Server => nodes.pop().map(RedisAddress::Tcp).ok_or(UrlError::NoHost)?,
            Kind::Sentinel => {
                RedisAddress::Sentinel { nodes, service: service(&url)?, username: None, password: None }
            }
            Kind::Cluster if database > 0 => return Err(UrlError::ClusterDatabase),
            Kind::Cluster => RedisAddress::Cluster(nodes),
        };
        if !matches!(kind, Kind::Sentinel) {
            reject_extra(&url)?;
        }
        let tls = if is_secure { Some(ClientTls::with_system_roots()?) } else { None };
        Ok(Self { address, username, password, database, tls })
    }
}

impl RedisTarget {
    /// The name by which keys are assigned to this server if there are several: without user, password and TLS, so that a change of
    /// these moves no keys.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { address, database, .. } = self;
        match address {
            RedisAddress::Tcp(node) => format!("{node}/{database}").to_ascii_lowercase(),
            RedisAddress::Unix(path) => format!("unix:{}/{database}", path.display()),
            RedisAddress::Sentinel { service, .. } => format!("sentinel:{service}/{database}"),
            RedisAddress::Cluster(nodes) => format!("cluster:{}", listed(nodes)),
        }
    }
}

fn listed(nodes: &[Node]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Splits a text into the same with only its first host, and the other hosts.
fn split_hosts(text: &str) -> (String, Vec<&str>) {
    let start = text.find("://").map_or(text.len(), |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    let hosts = text[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let mut each = text[hosts..end].split(',');
    let first = each.next().unwrap_or_default();
    (format!("{}{first}{}", &text[..hosts], &text[end..]), each.collect())
}

fn parse(text: &str) -> Result<url::Url, UrlError> {
    url::Url::parse(text).map_err(|error| UrlError::Malformed(error.to_string()))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn node(url: &url::Url, kind: Kind) -> Result<Node, UrlError> {
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(UrlError::NoHost)?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Node { host, port: url.port().unwrap_or(kind.port()) })
}

fn socket(
    url: &url::Url,
    username: Option<String>,
    password: Option<String>,
) -> Result<RedisTarget, UrlError> {
    let path = decoded(url.path());
    if !path.starts_with('/') || path.len() < 2 {
        return Err(UrlError::NoPath);
    }
    let database = match url.query().and_then(|query| query.strip_prefix("db=")) {
        Some(number) if url.fragment().is_none() => database(number)?,
        _ => reject_extra(url).map(|()| 0)?,
    };
    Ok(RedisTarget { address: RedisAddress::Unix(path.into()), username, password, database, tls: None })
}

fn service(url: &url::Url) -> Result<String, UrlError> {
    if let Some(fragment) = url.fragment() {
        return Err(UrlError::Extra(fragment.to_owned()));
    }
    let query = url.query().ok_or(UrlError::NoService)?;
    let name = query.strip_prefix("service=").filter(|name| !name.contains('&'));
    let name = decoded(name.ok_or_else(|| UrlError::Extra(query.to_owned()))?);
    Some(name).filter(|name| !name.is_empty()).ok_or(UrlError::NoService)
}

fn reject_extra(url: &url::Url) -> Result<(), UrlError> {
    url.query().or(url.fragment()).map_or(Ok(()), |extra| Err(UrlError::Extra(extra.to_owned())))
}

fn database(path: &str) -> Result<u8, UrlError> {
    match path.trim_start_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| UrlError::Database(number.to_owned())),
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The target without its secrets.
impl std::fmt::Display for RedisTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match &self.address {
            RedisAddress::Tcp(node) => write!(f, "{scheme}://{node}")?,
            RedisAddress::Unix(path) => write!(f, "unix://{}", path.display())?,
            RedisAddress::Cluster(nodes) => write!(f, "{scheme}-cluster://{}", listed(nodes))?,
            RedisAddress::Sentinel { nodes, .. } => write!(f, "{scheme}-sentinel://{}", listed(nodes))?,
        }
        match (&self.address, self.database) {
            (RedisAddress::Sentinel { service, .. }, 0) => write!(f, "/?service={service}"),
            (RedisAddress::Sentinel { service, .. }, number) => write!(f, "/{number}?service={service}"),
            (_, 0) => Ok(()),
            (RedisAddress::Unix(_), number) => write!(f, "?db={number}"),
            (_, number) => write!(f, "/{number}"),
        }
    }
}

impl std::fmt::Debug for RedisTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({self})")
    }
}

/// How Redis is reached and used.
#[derive(Clone, Debug)]
pub struct RedisSpec {
    /// The address and the credentials.
    pub target: RedisTarget,
    /// The longest that a take may last.
    pub timeout: Duration,
    /// The first part of every stored key.
    pub prefix: Box<str>,
    /// Whether the proxy's clock is sent in place of reading the server's.
    pub client_clock: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Node {
        Node { host: host.into(), port }
    }

    #[test]
    fn urls_are_read() {
        let full = RedisTarget::parse("redis://app:s%40cret@db.internal:6390/3").unwrap();
        assert!(full.address == RedisAddress::Tcp(at("db.internal", 6390)) && full.tls.is_none());
        assert_eq!((full.username.as_deref(), full.password.as_deref()), (Some("app"), Some("s@cret")));
        assert_eq!(full.database, 3);
        assert_eq!(RedisTarget::parse("redis://[::1]").unwrap().to_string(), "redis://[::1]:6379");
        let socket = RedisTarget::parse("unix:///run/redis/a.sock").unwrap();
        assert!(socket.address == RedisAddress::Unix("/run/redis/a.sock".into()) && socket.database == 0);
        let socket = RedisTarget::parse("unix:///run/a.sock?db=3").unwrap();
        assert_eq!((socket.database, &*socket.to_string()), (3, "unix:///run/a.sock?db=3"));
    }

    #[test]
    fn a_name_is_that_of_the_server_and_not_of_the_way_to_it() {
        for (text, name) in [
            ("redis://h", "h:6379/0"),
            ("rediss://app:hush@h:6379/0", "h:6379/0"),
            ("redis://[::1]:7000/2", "[::1]:7000/2"),
            ("unix:///run/a.sock?db=3", "unix:/run/a.sock/3"),
            ("redis-sentinel://a,b/1?service=gate", "sentinel:gate/1"),
        ] {
            assert_eq!(RedisTarget::parse(text).unwrap().name(), name, "{text}");
        }
    }

    #[test]
    fn several_hosts_are_read() {
        let sentinel =
            RedisTarget::parse("redis-sentinel://app:a,b@s1,s2:7000,[::1]:7001/2?service=my%20gate").unwrap();
        let RedisAddress::Sentinel { nodes, service, .. } = &sentinel.address else { panic!("{sentinel}") };
        assert_eq!(nodes, &[at("s1", 26379), at("s2", 7000), at("::1", 7001)]);
        assert_eq!(
            (&**service, sentinel.database, sentinel.password.as_deref()),
            ("my gate", 2, Some("a,b"))
        );
        let cluster = RedisTarget::parse("rediss-cluster://c1:7000,c2").unwrap();
        assert!(cluster.address == RedisAddress::Cluster(vec![at("c1", 7000), at("c2", 6379)]));
        assert!(cluster.tls.is_some());
    }

    #[test]
    fn secrets_are_not_printed() {
        for (text, shown) in [
            ("redis://app:hush@h:1/2", "redis://h:1/2"),
            ("rediss://:hush@h", "rediss://h:6379"),
            ("redis-sentinel://:hush@a,b/1?service=s", "redis-sentinel://a:26379,b:26379/1?service=s"),
            ("redis-cluster://app:hush@a,b", "redis-cluster://a:6379,b:6379"),
        ] {
            let target = RedisTarget::parse(text).unwrap();
            assert_eq!(format!("{target} {target:?}"), format!("{shown} Target({shown})"));
        }
    }

    #[test]
    fn invalid_urls_are_explained() {
        for (text, error) in [
            ("127.0.0.1:6379", "not a URL (relative URL without a base); write it as redis://host:6379"),
            ("redis://h:99999", "not a URL (invalid port number); write it as redis://host:6379"),
            ("redis://a,b", "not a URL (more than one host); write it as redis://host:6379"),
            ("redis-cluster://a,", "the host is missing; write it as redis://host:6379"),
            (
                "http://h",
                "the scheme `http` is not one of redis, rediss, unix, redis-sentinel, rediss-sentinel, \
                 redis-cluster and rediss-cluster",
            ),
            ("redis://h/x", "`x` is no database number from 0 to 255"),
            ("unix:///s?db=x", "`x` is no database number from 0 to 255"),
            ("unix:///s?a=1", "`a=1` is not understood"),
            ("redis-cluster://h/1", "a cluster has no database but 0"),
            ("redis://h?a=1", "`a=1` is not understood"),
            ("redis-sentinel://h?a=1", "`a=1` is not understood"),
            (
                "redis-sentinel://h",
                "the name of the service is missing; write it as redis-sentinel://host:26379/?service=NAME",
            ),
            ("unix://", "the path of the socket is missing; write it as unix:///run/redis.sock"),
        ] {
            assert_eq!(RedisTarget::parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }
}
