//! Listening sockets, of which the process may inherit some, as from systemd (socket activation, `LISTEN_FDS`).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use listenfd::ListenFd;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection_limiter::ConnectionLimiter;
use super::spec::ListenerSpec;
use crate::socket::{listen_cure, set_tcp_options};

/// Connections that may wait to be accepted on each worker's socket.
pub(super) const BACKLOG: i32 = 1024;
/// How long to wait for the workers to close their sockets, which they do at once.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why an address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the operating system.
    pub error: io::Error,
}

impl ListenError {
    /// What to change, if the error is a common one.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        listen_cure(self.address, &self.error)
    }
}

/// The sockets of all workers on one address. When all clones of this are dropped, the workers close the sockets and drain
/// their connections.
#[derive(Clone, Debug)]
pub struct ListenerHandle {
    spec: watch::Sender<Arc<ListenerSpec>>,
    /// Closed when all sockets are.
    sockets: watch::Sender<()>,
    address: SocketAddr,
    limiter: Arc<ConnectionLimiter>,
}

/// One worker's socket on one address.
#[derive(Debug)]
pub struct Listener {
    /// The settings for new connections.
    pub(super) spec: watch::Receiver<Arc<ListenerSpec>>,
    pub(super) socket: TcpListener,
    /// Shared by all workers.
    pub(super) limiter: Arc<ConnectionLimiter>,
    /// To be dropped after the socket.
    pub(super) is_open: watch::Receiver<()>,
}

/// Opens a socket for each of `workers` workers on one address, among which the kernel spreads connections, or takes the
/// inherited socket for this address. `ours` are addresses on which this process listens already: a wildcard address may be added
/// to a specific one with the same port, and the reverse. Fails when the address can't be listened on. That includes one on which
/// another process listens: `SO_REUSEPORT` alone would share the port with it.
pub fn listen(
    spec: &ListenerSpec,
    workers: usize,
    inherited: &InheritedSockets,
    ours: &[SocketAddr],
) -> Result<(ListenerHandle, Vec<Listener>), ListenError> {
    let overlaps = |own: &SocketAddr| {
        own.port() == spec.address.port() && (own.ip().is_unspecified() || spec.address.ip().is_unspecified())
    };
    let failed = |error| ListenError { address: spec.address, error };
    let (address, sockets) = if let Some(handles) = inherited.handles(spec.address, workers) {
        (spec.address, handles)
    } else {
        let is_ours = ours.iter().any(overlaps);
        let address = if is_ours { spec.address } else { probe(spec.address).map_err(failed)? };
        (address, (0..workers).map(|_| listening(address)).collect())
    };
    let (sender, receiver) = watch::channel(Arc::new(spec.clone()));
    let (open, is_open) = watch::channel(());
    let limiter = Arc::new(ConnectionLimiter::default());
    let listener = |socket: TcpListener| {
        set_tcp_options(&socket)?;
        Ok(Listener {
            spec: receiver.clone(),
            socket,
            limiter: Arc::clone(&limiter),
            is_open: is_open.clone(),
        })
    };
    let listeners = sockets.and_then(|sockets| sockets.into_iter().map(listener).collect());
    let handle = ListenerHandle { spec: sender, sockets: open, address, limiter };
    Ok((handle, listeners.map_err(failed)?))
}

fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, true)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The error with which this process would fail to listen on an address for lack of permission, if it would.
#[must_use]
pub fn listen_permission(address: SocketAddr) -> Option<ListenError> {
    let error = socket(address, true).err()?;
    (error.kind() == io::ErrorKind::PermissionDenied).then_some(ListenError { address, error })
}

/// Checks that no other process listens on the address, and returns it with its real port instead of 0.
fn probe(address: SocketAddr) -> io::Result<SocketAddr> {
    // It does not listen: clients that connect before the workers listen must be refused rather than reset.
    let probe = socket(address, false)?;
    probe.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier process in TIME-WAIT must not keep a new process from starting.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

impl ListenerHandle {
    /// The address with its real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts the connections that are open over all workers, and those that were refused.
    #[must_use]
    pub fn limiter(&self) -> Arc<ConnectionLimiter> {
        Arc::clone(&self.limiter)
    }

    /// The current specification; its port may be 0.
    #[must_use]
    pub fn spec(&self) -> Arc<ListenerSpec> {
        Arc::clone(&self.spec.borrow())
    }

    /// Closes the sockets, unless there are clones of this handle, and waits for that, so that the address is free again.
    pub async fn close(self) {
        let Self { spec, sockets, .. } = self;
        drop(spec);
        let _ = timeout(CLOSE_TIMEOUT, sockets.closed()).await;
    }

    /// Replaces the specification for new connections.
    pub fn update(&self, mut spec: ListenerSpec) {
        if let (Some(old), Some(new)) = (&self.spec().tls, &mut spec.tls) {
            // Clients can still resume their sessions.
            old.adopt(new);
            *new = old.clone();
        }
        self.spec.send_replace(Arc::new(spec));
    }
}

/// Inherited listening sockets. They stay open as long as the process lives, so that a listener that a reload removed can
/// be added again.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(SocketAddr, TcpListener)>);

impl InheritedSockets {
    /// The sockets that the environment names; to be called before threads are started.
    #[must_use]
    pub fn from_env() -> Self {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            match passed.take_tcp_listener(index).and_then(|socket| socket.map(inherited).transpose()) {
                Ok(socket) => sockets.extend(socket),
                Err(error) => tracing::warn!("ignored an inherited socket (`LISTEN_FDS`): {error}"),
            }
        }
        Self(sockets)
    }

    /// `count` handles of the socket on this address, if there is one: all workers accept from it.
    pub(super) fn handles(&self, address: SocketAddr, count: usize) -> Option<io::Result<Vec<TcpListener>>> {
        let (_, socket) = self.0.iter().find(|(own, _)| *own == address)?;
        Some((0..count).map(|_| socket.try_clone()).collect())
    }

    /// A handle of the socket on this address, if there is one.
    #[must_use]
    pub fn handle(&self, address: SocketAddr) -> Option<io::Result<TcpListener>> {
        Some(
            self.handles(address, 1)?
                .and_then(|handles| handles.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())),
        )
    }

    /// The addresses of the sockets.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|(address, _)| *address)
    }
}

/// An inherited socket with its address. Fails when it does not listen.
fn inherited(socket: TcpListener) -> io::Result<(SocketAddr, TcpListener)> {
    let address = socket.local_addr()?;
    if !SockRef::from(&socket).is_listener()? {
        return Err(io::Error::other(format!("the socket does not listen ({address})")));
    }
    socket.set_nonblocking(true)?;
    Ok((address, socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn workers_share_a_port_that_others_can_not_take() {
        let spec = config::defaults::listener("127.0.0.1:0".parse().unwrap());
        let (handle, ours) = listen(&spec, 3, &InheritedSockets::default(), &[]).unwrap();
        let address = handle.address();
        assert!(ours.iter().all(|listener| listener.socket.local_addr().unwrap() == address));
        let error =
            listen(&config::defaults::listener(address), 1, &InheritedSockets::default(), &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("can't listen on {address}: Address already in use (os error 98)")
        );
    }

    #[test]
    fn accepted_connections_inherit_the_options_of_the_listener() {
        let spec = config::defaults::listener("127.0.0.1:0".parse().unwrap());
        let (handle, ours) = listen(&spec, 1, &InheritedSockets::default(), &[]).unwrap();
        let _client = std::net::TcpStream::connect(handle.address()).unwrap();
        let accepted = std::iter::from_fn(|| Some(ours[0].socket.accept())).find_map(Result::ok).unwrap().0;
        assert!(socket2::SockRef::from(&accepted).keepalive().unwrap());
        assert!(accepted.nodelay().unwrap());
    }

    #[test]
    fn sockets_are_found_by_address() {
        let bound = || inherited(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let (one, other) = (bound(), bound());
        let addresses = [one.0, other.0];
        let sockets = InheritedSockets(vec![one, other]);
        for address in addresses {
            let handles = sockets.handles(address, 3).unwrap().unwrap();
            assert!(handles.len() == 3 && handles.iter().all(|one| one.local_addr().unwrap() == address));
            assert_eq!(sockets.handle(address).unwrap().unwrap().local_addr().unwrap(), address);
        }
        assert!(sockets.handles("127.0.0.2:1".parse().unwrap(), 1).is_none());
    }
}
