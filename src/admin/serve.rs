//! Connections of the interface, one request each.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Admin;
use super::listen::{AdminListener, Stream};
use super::sessions::{Session, Sessions};
use crate::telemetry::LogThrottle;

/// How long a head may take, from the beginning of its connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may last. It has one request, so that there is no idling.
const LIFETIME: Duration = Duration::from_secs(30);
/// The largest head.
const MAX_HEAD: usize = 16 * 1024;
/// How long to wait when no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves for as long as it is polled, each connection with what `admin` is when it comes.
///
/// # Errors
/// When the socket can't be used.
pub async fn serve(admin: &ArcSwap<Admin>, listener: AdminListener) -> io::Result<()> {
    let listener = listener.open()?;
    let sessions = Arc::new(Sessions::default());
    let mut failing = LogThrottle::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let admin = admin.load_full();
                sessions.start(client, |session| async move {
                    match stream {
                        Stream::Tcp(stream) => converse(&admin, &session, stream).await,
                        Stream::Unix(stream) => converse(&admin, &session, stream).await,
                    }
                });
                // A head that has come already is read before the next connection can push its own out.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                if failing.is_due() {
                    tracing::warn!("can't accept connections on {}: {error}", listener.address());
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the one request of a connection.
async fn converse(admin: &Arc<Admin>, session: &Session, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(move |request| async move {
        session.has_head();
        Ok::<_, Infallible>(admin.handle(session, request).await)
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
