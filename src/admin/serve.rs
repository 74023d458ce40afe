//! Connections to the admin interface, with TLS or without, and one request each.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::client::Operator;
use super::handle::handle;
use super::listen::{AdminListener, Stream};
use super::sessions::{AdminConnection, Sessions};
use super::state::Admin;
use crate::telemetry::LogThrottle;

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
            let subject = stream.peer_subject();
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
