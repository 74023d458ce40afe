//! The listener of the interface.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::{Admin, AdminSpec};
use crate::server::{Inherited, ListenError};
use crate::telemetry::Seldom;

/// Connections at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long a head may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last. It has one request, so that there is no idling.
const LIFETIME: Duration = Duration::from_secs(30);
/// The largest head.
const MAX_HEAD: usize = 16 * 1024;
/// How long to wait when no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The socket of the interface.
#[derive(Debug)]
pub struct AdminListener {
    socket: TcpListener,
    address: SocketAddr,
}

/// A socket where nobody listens yet, or one that was passed on.
///
/// # Errors
/// When the address can't be had.
pub fn listen(spec: &AdminSpec, inherited: &Inherited) -> Result<AdminListener, ListenError> {
    let bind = || {
        let passed_on = inherited.handle(spec.address);
        let socket = passed_on.unwrap_or_else(|| TcpListener::bind(spec.address))?;
        socket.set_nonblocking(true)?;
        Ok(AdminListener { address: socket.local_addr()?, socket })
    };
    bind().map_err(|error| ListenError { address: spec.address, error })
}

impl AdminListener {
    /// The address with its real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves for as long as it is polled, each connection with what `admin` is when it comes.
///
/// # Errors
/// When the socket can't be used.
pub async fn serve(admin: &ArcSwap<Admin>, listener: AdminListener) -> std::io::Result<()> {
    let socket = tokio::net::TcpListener::from_std(listener.socket)?;
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut failing = Seldom::default();
    loop {
        // Nobody closes it, so that there is a place some day.
        let place = Arc::clone(&free).acquire_owned().await.map_err(std::io::Error::other)?;
        match socket.accept().await {
            Ok((stream, _)) => {
                let admin = admin.load_full();
                tokio::spawn(async move {
                    let _place = place;
                    converse(admin, stream).await;
                });
            }
            Err(error) => {
                if failing.is_due() {
                    tracing::warn!("can't accept connections on {}: {error}", listener.address);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the one request of a connection.
async fn converse(admin: Arc<Admin>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let admin = Arc::clone(&admin);
        async move { Ok::<_, Infallible>(admin.handle(request).await) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LIFETIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("admin connection ended: {error}"),
        Err(_) => tracing::debug!("admin connection lasted too long"),
    }
}
