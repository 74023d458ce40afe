//! Listens for connections to the admin interface, and serves them.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::client::{ClientId, Operator};
use super::handle::handle;
use super::sessions::{AdminConnection, Sessions};
use super::spec::{AdminAddress, AdminSpec};
use super::state::Admin;
use crate::server::InheritedSockets;
use crate::socket::{listen_cure, unix_listen_cure};
use crate::telemetry::LogThrottle;

/// Connections that may wait to be accepted on a Unix socket.
const BACKLOG: i32 = 1024;

/// The listening socket. The file of a Unix socket is removed when this is dropped.
#[derive(Debug)]
pub struct AdminListener {
    socket: Bound,
    address: AdminAddress,
    file: Option<SocketFile>,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The listening socket, registered with the runtime.
#[derive(Debug)]
struct OpenListener {
    socket: Open,
    address: AdminAddress,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Open {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// A connection of a client.
enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

/// The file of a Unix socket, which is removed when this is dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: distinguish it from a file of the same path that another process has created since.
    identity: (u64, u64),
}

/// An address or a file that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}")]
pub struct AdminListenError {
    /// The address.
    address: AdminAddress,
    /// The cause.
    error: io::Error,
}

impl AdminListenError {
    /// Help, if the error is a common one.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match &self.address {
            AdminAddress::Tcp(address) => listen_cure(*address, &self.error),
            AdminAddress::Unix { path, .. } => unix_listen_cure(path, &self.error),
        }
    }
}

/// Listens on the address, or takes the inherited socket for it. Fails if the address can't be bound; also if another process
/// serves the Unix socket, or its path is another kind of file.
fn listen(address: &AdminAddress, inherited: &InheritedSockets) -> Result<AdminListener, AdminListenError> {
    let bound = match address {
        AdminAddress::Tcp(address) => {
            let socket = inherited.handle(*address).unwrap_or_else(|| TcpListener::bind(address));
            socket.and_then(|socket| {
                socket.set_nonblocking(true)?;
                let address = AdminAddress::Tcp(socket.local_addr()?);
                Ok(AdminListener { socket: Bound::Tcp(socket), address, file: None })
            })
        }
        AdminAddress::Unix { path, mode } => bind(path, *mode).map(|(socket, file)| AdminListener {
            socket: Bound::Unix(socket),
            address: address.clone(),
            file: Some(file),
        }),
    };
    bound.map_err(|error| AdminListenError { address: address.clone(), error })
}

/// Listens for the interface of the next configuration, unless it has none or its address is the present one; the permissions
/// of a Unix socket change in place. Fails if the address can't be bound, or the permissions can't be changed.
pub fn listen_next(
    current: Option<&AdminAddress>,
    next: Option<&AdminSpec>,
    inherited: &InheritedSockets,
) -> Result<Option<AdminListener>, AdminListenError> {
    match (current, next.map(|spec| &spec.address)) {
        (_, None) => Ok(None),
        (
            Some(AdminAddress::Unix { path: current, .. }),
            Some(address @ AdminAddress::Unix { path, mode }),
        ) if current == path => {
            let changed = fs::set_permissions(path, Permissions::from_mode(*mode));
            changed.map_err(|error| AdminListenError { address: address.clone(), error })?;
            Ok(None)
        }
        (Some(current), Some(address)) if current == address => Ok(None),
        (_, Some(address)) => listen(address, inherited).map(Some),
    }
}

/// Binds a Unix socket with these permissions. The socket file of a process that has ended is replaced.
fn bind(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let metadata = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
    // The mode is set before the socket listens, so that no client can connect with the permissions of the umask.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok((socket.into(), file))
}

/// Removes the socket file of a process that has ended without removing it.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::other("a file that is not a socket has this path"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::from_raw_os_error(ADDRESS_IN_USE)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// `EADDRINUSE`, as a TCP socket reports it.
const ADDRESS_IN_USE: i32 = 98;

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(is_own) {
            // If this fails, the next start replaces the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AdminListener {
    /// The address, with the port that was chosen for port 0.
    #[must_use]
    pub fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Registers the socket with the current runtime.
    fn open(self) -> io::Result<OpenListener> {
        let socket = match self.socket {
            Bound::Tcp(socket) => Open::Tcp(tokio::net::TcpListener::from_std(socket)?),
            Bound::Unix(socket) => Open::Unix(tokio::net::UnixListener::from_std(socket)?),
        };
        Ok(OpenListener { socket, address: self.address, _file: self.file })
    }
}

impl OpenListener {
    pub fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Accepts the next connection; returns it with its client.
    pub async fn accept(&self) -> io::Result<(Stream, ClientId)> {
        match &self.socket {
            Open::Tcp(socket) => {
                let (stream, address) = socket.accept().await?;
                Ok((Stream::Tcp(stream), ClientId::of(address.ip())))
            }
            Open::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
                Ok((Stream::Unix(stream), ClientId::User(user)))
            }
        }
    }
}

/// How long the request's head may take, and before it the TLS handshake.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// The pause after an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until it is dropped. Each connection is served with the value that `current` has when it is accepted.
pub async fn serve(current: &Arc<ArcSwap<Admin>>, listener: AdminListener) -> io::Result<()> {
    let listener = listener.open()?;
    let sessions = Arc::new(Sessions::default());
    let mut throttle = LogThrottle::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let (admin, current) = (current.load_full(), Arc::clone(current));
                sessions.start(client, |session| async move {
                    let connection = AdminConnection { admin, current, session };
                    match stream {
                        Stream::Tcp(stream) => serve_tcp(&connection, stream).await,
                        Stream::Unix(stream) => serve_connection(&connection, None, stream).await,
                    }
                });
                // A head that has arrived already is read before the next connection could close this one.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                if throttle.is_due() {
                    tracing::warn!("can't accept connections on {}: {error}", listener.address());
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection over TCP, with TLS if that is configured.
async fn serve_tcp(connection: &AdminConnection, stream: TcpStream) {
    let Some(tls) = &connection.admin.spec.tls else {
        return serve_connection(connection, None, stream).await;
    };
    let client = connection.session.client;
    match tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let subject = stream.peer_names().and_then(|names| names.subject);
            serve_connection(connection, subject.as_deref(), stream).await;
        }
        Ok(Err(error)) => tracing::debug!("admin: TLS handshake with {client} failed: {error}"),
        Err(_) => tracing::debug!("admin: TLS handshake with {client} timed out"),
    }
}

/// Serves the only request of a connection; `subject` is that of the client's certificate.
async fn serve_connection(
    connection: &AdminConnection,
    subject: Option<&str>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    let session = &connection.session;
    let operator = &Operator::new(session.client, subject);
    let service = service_fn(move |request| async move {
        session.head_received();
        Ok::<_, Infallible>(handle(connection, operator, request).await)
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!("admin connection ended: {error}");
        },
        () = session.deadline.passed() => tracing::debug!("admin connection timed out"),
    }
}
