//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection_limiter::ConnectionLimiter;
use super::{InheritedSockets, ListenerSpec};
use crate::socket::set_options;

/// Connections that may wait to be accepted, on each worker's socket.
pub(super) const BACKLOG: i32 = 1024;

/// An address is taken, or not ours.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}")]
pub struct ListenError {
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    pub error: io::Error,
}

/// How long to wait until a worker has closed a socket: it has nothing else to do before.
const CLOSING: Duration = Duration::from_secs(1);

/// The sockets of all workers on one address. Without it they close, and their connections are drained.
#[derive(Clone, Debug)]
pub struct ListenerHandle {
    spec: watch::Sender<Arc<ListenerSpec>>,
    /// Knows whether sockets are open.
    sockets: watch::Sender<()>,
    address: SocketAddr,
    places: Arc<ConnectionLimiter>,
}

/// One worker's socket on one address.
#[derive(Debug)]
pub struct Listener {
    /// The bounds for new connections.
    pub(super) spec: watch::Receiver<Arc<ListenerSpec>>,
    pub(super) socket: TcpListener,
    /// For the connections that all workers have here.
    pub(super) places: Arc<ConnectionLimiter>,
    /// To be dropped behind the socket.
    pub(super) is_open: watch::Receiver<()>,
}

/// Sockets for `workers` workers on one address, which share what arrives; from one that was passed on, if there is one.
/// `ours` are addresses on which this process listens already: one of all addresses may follow a single one on the same
/// port, and the other way round.
///
/// # Errors
/// When the address can't be had, also when another process listens there: `SO_REUSEPORT` alone would
/// share it.
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
    let places = Arc::new(ConnectionLimiter::default());
    let listener = |socket: TcpListener| {
        set_options(&socket)?;
        Ok(Listener { spec: receiver.clone(), socket, places: Arc::clone(&places), is_open: is_open.clone() })
    };
    let listeners = sockets.and_then(|sockets| sockets.into_iter().map(listener).collect());
    let handle = ListenerHandle { spec: sender, sockets: open, address, places };
    Ok((handle, listeners.map_err(failed)?))
}

fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, true)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Finds out whether the address is free, and which port 0 stands for.
fn probe(address: SocketAddr) -> io::Result<SocketAddr> {
    let probe = socket(address, false)?;
    probe.listen(1)?;
    probe.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier process that linger must not keep a new one from starting.
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

    /// How many connections are open here over all workers, and how many were refused.
    #[must_use]
    pub fn places(&self) -> Arc<ConnectionLimiter> {
        Arc::clone(&self.places)
    }

    /// What it was last told to be; its port may be 0.
    #[must_use]
    pub fn spec(&self) -> Arc<ListenerSpec> {
        Arc::clone(&self.spec.borrow())
    }

    /// Has the sockets close, unless others have this handle too, and waits for that: the address can be had again then.
    pub async fn close(self) {
        let Self { spec, sockets, .. } = self;
        drop(spec);
        let _ = timeout(CLOSING, sockets.closed()).await;
    }

    /// Changes the bounds for connections that come from now on.
    pub fn change(&self, mut spec: ListenerSpec) {
        if let (Some(old), Some(new)) = (&self.spec().tls, &mut spec.tls) {
            // Clients can go on with their sessions.
            old.adopt(new);
            *new = old.clone();
        }
        self.spec.send_replace(Arc::new(spec));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_a_port_and_others_do_not() {
        let spec = ListenerSpec::new("127.0.0.1:0".parse().unwrap());
        let (handle, ours) = listen(&spec, 3, &InheritedSockets::default(), &[]).unwrap();
        let address = handle.address();
        assert!(ours.iter().all(|listener| listener.socket.local_addr().unwrap() == address));
        let error = listen(&ListenerSpec::new(address), 1, &InheritedSockets::default(), &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("can't listen on {address}: Address already in use (os error 98)")
        );
    }

    #[test]
    fn accepted_connections_have_their_options_from_the_listener() {
        let spec = ListenerSpec::new("127.0.0.1:0".parse().unwrap());
        let (handle, ours) = listen(&spec, 1, &InheritedSockets::default(), &[]).unwrap();
        let _client = std::net::TcpStream::connect(handle.address()).unwrap();
        let accepted = std::iter::from_fn(|| Some(ours[0].socket.accept())).find_map(Result::ok).unwrap().0;
        assert!(socket2::SockRef::from(&accepted).keepalive().unwrap());
        assert!(accepted.nodelay().unwrap());
    }
}
