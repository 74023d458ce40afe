//! Opening of listeners, and responses on inherited sockets that no listener uses.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::server::{self, InheritedSockets, ListenError, Listener, ListenerHandle, ListenerSpec};
use crate::tls::ServerTls;

/// Listeners that are open already, by their index among all of them, with their settings in the next configuration.
pub(super) type KeptListeners = Vec<(usize, ListenerSpec)>;

/// Listens on the addresses of all listeners; returns their handles, and the sockets of each worker.
pub(super) fn listen(
    specs: &[ListenerSpec],
    workers: usize,
    inherited: &InheritedSockets,
    ours: &[SocketAddr],
) -> Result<(Vec<ListenerHandle>, Vec<Vec<Listener>>), ListenError> {
    let mut handles = Vec::new();
    let mut sockets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    for spec in specs {
        let (handle, listeners) = server::listen(spec, workers, inherited, ours)?;
        handles.push(handle);
        sockets.iter_mut().zip(listeners).for_each(|(worker, listener)| worker.push(listener));
    }
    Ok((handles, sockets))
}

/// The TLS settings of these listeners.
pub(super) fn tls_of(listeners: &[ListenerHandle]) -> Vec<ServerTls> {
    listeners.iter().filter_map(|listener| listener.spec().tls.clone()).collect()
}

/// Splits the listeners of a configuration into those that are open already and those to be opened.
pub(super) fn match_listeners(
    open: &[ListenerHandle],
    specs: Vec<ListenerSpec>,
) -> (KeptListeners, Vec<ListenerSpec>) {
    let (mut kept, mut new): (KeptListeners, _) = (Vec::new(), Vec::new());
    for spec in specs {
        let is_same = |(index, listener): &(usize, &ListenerHandle)| {
            listener.spec().address == spec.address && kept.iter().all(|(other, _)| other != index)
        };
        match open.iter().enumerate().find(is_same) {
            Some((index, _)) => kept.push((index, spec)),
            None => new.push(spec),
        }
    }
    (kept, new)
}

/// The most connections at a time to an inherited socket that no listener uses.
const MAX_UNUSED_CONNECTIONS: usize = 64;
/// The pause after an error of accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long such a connection may last.
const UNUSED_CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Responds with 503 on the inherited sockets that neither a listener nor the admin interface uses, until the returned value is
/// dropped. The process that has passed a socket keeps it open, so clients would connect and never get a response.
pub(super) fn respond_on_unused_sockets(
    inherited: &InheritedSockets,
    listeners: &[ListenerHandle],
    admin: Option<SocketAddr>,
) -> JoinSet<()> {
    let is_used =
        |address| Some(address) == admin || listeners.iter().any(|own| own.spec().address == address);
    let mut tasks = JoinSet::new();
    for address in inherited.addresses().filter(|address| !is_used(*address)) {
        tracing::warn!(
            "no listener of the configuration has the address {address}, on which this process has inherited a socket \
             (`LISTEN_FDS`): clients there get 503. Under systemd, change ListenStream with `systemctl edit tidegate.socket`, and run \
             `systemctl stop tidegate`, `systemctl restart tidegate.socket` and `systemctl start tidegate`"
        );
        let Some(socket) = inherited.handle(address) else { continue };
        tasks.spawn(async move {
            if let Err(error) = respond_unavailable(socket).await {
                tracing::warn!("can't respond on the inherited socket {address}: {error}");
            }
        });
    }
    tasks
}

/// Responds to each request of a socket with 503.
async fn respond_unavailable(socket: io::Result<TcpListener>) -> io::Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket?)?;
    let connections = Arc::new(Semaphore::new(MAX_UNUSED_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let permit = Arc::clone(&connections).acquire_owned().await;
        let Ok((stream, _)) = socket.accept().await else {
            // Such as too many open files.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tokio::spawn(async move {
            let _permit = permit;
            // The client may end the connection at any time.
            let _ = timeout(UNUSED_CONNECTION_TIMEOUT, serve_unavailable(stream)).await;
        });
    }
}

async fn serve_unavailable(stream: TcpStream) -> hyper::Result<()> {
    let service = service_fn(|_| async {
        let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
        let response = response.header(CONTENT_TYPE, "text/plain; charset=utf-8");
        Ok::<_, Infallible>(
            response.body("no listener of tidegate has this address\n".to_owned()).unwrap_or_default(),
        )
    });
    http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}
