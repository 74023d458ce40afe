//! One address of a server, shared by all workers, and the log of its failures.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep};

use super::health::HealthState;
use super::pool::connection_limit::ConnectionLimit;
use super::server::{PeerAddress, ServerAddress, ServerSpec};
use super::spec::UpstreamSpec;
use crate::boxed::rare;
use crate::socket::{set_tcp_options, unix_connect_cure};
use crate::tls::{HandshakeFault, Transport};

/// How long no request may fail before the endpoint counts as recovered: one that fails now and then would otherwise fill
/// the log.
const QUIET: Duration = Duration::from_secs(5);

/// One address of a server. Failures and health checks lock its state; load balancing reads only the atomic share and
/// count.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The index of its server in the upstream's list.
    pub server: usize,
    pub address: PeerAddress,
    /// Its hash for balancing by a key: the same in every proxy.
    pub id: u64,
    /// Its share of the requests, relative to the others; 0 while it is unavailable.
    share: AtomicU32,
    /// Requests whose response is incomplete; counted if load balancing depends on them.
    in_flight: AtomicUsize,
    /// Consecutive failures.
    pub failures: AtomicU32,
    pub health: Mutex<HealthState>,
    pub failure_log: FailureLog,
    pub connection_limit: Arc<ConnectionLimit>,
}

impl Endpoint {
    /// An endpoint of the server with this index.
    pub fn new(server: usize, spec: &ServerSpec, address: PeerAddress, max_connections: usize) -> Self {
        // The ports of SRV records are not in the URL.
        let place = match (&address, &spec.address) {
            (PeerAddress::Tcp(address), ServerAddress::Service(_)) => address.to_string(),
            (PeerAddress::Tcp(address), _) => address.ip().to_string(),
            (PeerAddress::Unix(_), _) => String::new(),
        };
        let hash = blake3::hash(format!("{} {place}", spec.url()).as_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&hash.as_bytes()[..8]);
        Self {
            server,
            address,
            id: u64::from_le_bytes(id),
            share: AtomicU32::new(0),
            in_flight: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            health: Mutex::default(),
            failure_log: FailureLog::default(),
            connection_limit: ConnectionLimit::new(max_connections),
        }
    }

    /// Whether `other` is the same address of the same server.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.address == other.address
    }

    /// Its share of the requests, relative to the others.
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Sets its share; returns whether that has changed.
    pub fn set_share(&self, share: u32) -> bool {
        self.share.swap(share, Ordering::Relaxed) != share
    }

    /// Requests whose response is incomplete.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a request.
    pub fn request_started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a request.
    pub fn request_finished(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Resets the consecutive failures.
    pub fn record_success(&self) {
        // Read first: a cache line that is only read stays in the caches of all cores.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }
}

/// Connects to an address of a server, or else to the fallback, with TLS if the server's URL says so. Fails when neither address
/// accepts the connection, or the TLS handshake fails.
pub(super) async fn dial(
    address: &PeerAddress,
    fallback: Option<SocketAddr>,
    upstream: &UpstreamSpec,
    server: &ServerSpec,
) -> io::Result<Transport> {
    let stream = match (address, fallback) {
        (PeerAddress::Unix(path), _) => return rare(connect_unix(path)).await.map(Transport::Plain),
        (PeerAddress::Tcp(address), None) => TcpStream::connect(address).await?,
        (PeerAddress::Tcp(address), Some(fallback)) => TcpStream::connect(&[*address, fallback][..]).await?,
    };
    set_tcp_options(&stream)?;
    let (ServerAddress::Tcp { host, .. }, true, Some(tls)) = (&server.address, server.is_tls, &upstream.tls)
    else {
        return Ok(Transport::Plain(stream));
    };
    let connected = rare(tls.connect(host, stream)).await;
    let describe = |error: io::Error| {
        let error = HandshakeFault::add_cure(&error, HandshakeFault::cure);
        io::Error::new(error.kind(), format!("the TLS handshake with {} failed: {error}", server.peer()))
    };
    connected.map_err(describe)
}

/// Connects to a Unix socket. While its queue of connections is full, it tries again: the caller limits the time. The stream
/// gets the type of TCP streams, whose operations are those of stream sockets of any family, so that no request pays for the
/// distinction.
async fn connect_unix(path: &Path) -> io::Result<TcpStream> {
    const LONGEST_PAUSE: Duration = Duration::from_millis(64);
    let mut pause = Duration::from_millis(1);
    let stream = loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(pause).await,
            Err(error) => {
                let cure = unix_connect_cure(&error).map_or_else(String::new, |cure| format!("; {cure}"));
                return Err(io::Error::new(error.kind(), format!("{error}{cure}")));
            }
            Ok(stream) => break stream,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    TcpStream::from_std(OwnedFd::from(stream.into_std()?).into())
}

/// Whether requests to an endpoint fail, over all workers.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// Readable without the lock, since each response reads it.
    is_failing: AtomicBool,
    failure: Mutex<Option<LoggedFailure>>,
}

#[derive(Debug)]
struct LoggedFailure {
    last: Instant,
    /// Whether the endpoint has responded to a request since.
    has_responded: bool,
}

impl FailureLog {
    /// Records a failed request; returns whether it is the first one.
    pub fn record_failure(&self, now: Instant) -> bool {
        let mut failure = self.failure.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        failure.replace(LoggedFailure { last: now, has_responded: false }).is_none()
    }

    /// Records a response.
    pub fn record_response(&self) {
        if self.is_failing.load(Ordering::Relaxed)
            && let Some(failure) = &mut *self.failure.lock()
        {
            failure.has_responded = true;
        }
    }

    /// Resets the state once the endpoint responds and no request has failed for a while; returns whether it did.
    pub fn check_recovery(&self, now: Instant) -> bool {
        if !self.is_failing.load(Ordering::Relaxed) {
            return false;
        }
        let mut failure = self.failure.lock();
        let is_over = |failure: &LoggedFailure| failure.has_responded && now - failure.last >= QUIET;
        let is_over = failure.as_ref().is_some_and(is_over);
        if is_over {
            *failure = None;
            self.is_failing.store(false, Ordering::Relaxed);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::config;
    use crate::time::monotonic;

    #[tokio::test]
    async fn the_fallback_is_used_if_the_address_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let upstream = config::defaults::upstream("u", vec![config::defaults::server("http://a")]);
        let server = &upstream.servers[0];
        let dial = |address, fallback| {
            let upstream = &upstream;
            async move { dial(&PeerAddress::Tcp(address), fallback, upstream, server).await }
        };
        assert!(dial(closed, None).await.is_err());
        assert!(dial(closed, Some(open)).await.is_ok());
        assert!(dial(open, Some(closed)).await.is_ok());
    }

    #[tokio::test]
    async fn connections_use_tcp_keepalive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = config::defaults::upstream("u", vec![config::defaults::server("http://a")]);
        let address = PeerAddress::Tcp(listener.local_addr().unwrap());
        let dialed = dial(&address, None, &upstream, &upstream.servers[0]).await;
        let Ok(Transport::Plain(stream)) = dialed else { panic!("{dialed:?}") };
        assert!(socket2::SockRef::from(&stream).keepalive().unwrap());
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failure_and_a_recovery_are_reported_once() {
        let (log, start) = (FailureLog::default(), monotonic());
        log.record_response();
        assert!(!log.check_recovery(start));
        assert!(log.record_failure(start));
        assert!(!log.record_failure(start + SECOND));
        assert!(!log.check_recovery(start + 60 * SECOND), "no response yet");
        log.record_response();
        assert!(log.check_recovery(start + 60 * SECOND));
        assert!(!log.check_recovery(start + 61 * SECOND));
        assert!(log.record_failure(start + 62 * SECOND));
    }

    #[test]
    fn intermittent_failures_are_reported_once() {
        let (log, start) = (FailureLog::default(), monotonic());
        for seconds in 0..100 {
            assert_eq!(log.record_failure(start + seconds * SECOND), seconds == 0);
            log.record_response();
            assert!(!log.check_recovery(start + seconds * SECOND + SECOND / 2));
        }
        assert!(!log.check_recovery(start + 103 * SECOND));
        assert!(log.check_recovery(start + 104 * SECOND));
    }
}
