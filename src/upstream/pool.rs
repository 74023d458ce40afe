//! One worker's connections to one server.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::HeaderValue;
use tokio::net::TcpStream;

use super::ForwardError;
use super::http2::Shared;
use super::link::Link;
use super::spec::{ServerSpec, UpstreamSpec};
use super::wire::Wire;
use crate::tls::{ClientTls, Transport};

/// Connections that are kept at most.
const MAX_KEPT: usize = 256;
/// How long one is kept: less than most servers keep their end.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Connections to one server that wait for the next request; the one used last goes first.
#[derive(Debug)]
pub struct Pool {
    server: ServerSpec,
    authority: HeaderValue,
    tls: Option<ClientTls>,
    connect_timeout: Duration,
    response_timeout: Duration,
    stall_timeout: Duration,
    #[allow(clippy::vec_box)] // A wire is large, and it goes from hand to hand.
    kept: RefCell<Vec<Box<Wire>>>,
    /// Those that requests share, where HTTP/2 is spoken.
    shared: Option<Shared>,
}

impl Pool {
    pub(super) fn new(server: ServerSpec, spec: &UpstreamSpec) -> Self {
        let authority = HeaderValue::from_str(&server.authority());
        Self {
            // A host that is read from a URL has only characters that a header may have.
            authority: authority.unwrap_or_else(|_| HeaderValue::from_static("")),
            tls: spec.tls.clone().filter(|_| server.is_tls),
            server,
            connect_timeout: spec.connect_timeout,
            response_timeout: spec.response_timeout,
            stall_timeout: spec.stall_timeout,
            kept: RefCell::default(),
            shared: spec.is_http2.then(Shared::default),
        }
    }

    pub(super) fn server(&self) -> &ServerSpec {
        &self.server
    }

    /// The server's name and port, for a Host header.
    pub(super) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// A connection that was kept, or with `fresh` and where there is none a new one.
    pub(super) async fn checkout(&self, fresh: bool) -> Result<Link, ForwardError> {
        if !fresh && let Some(wire) = self.kept() {
            return Ok(Link::Http1(wire));
        }
        match tokio::time::timeout(self.connect_timeout, self.link(fresh)).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(error)) => Err(ForwardError::Connect { server: self.server.authority(), error }),
            Err(_) => Err(ForwardError::ConnectTimeout(self.server.authority())),
        }
    }

    /// Keeps a connection whose response has been read to its end, if it is good for another.
    pub(super) fn give_back(&self, mut wire: Box<Wire>) {
        wire.keep();
        if !wire.is_free() {
            wire.settle();
        }
        let mut kept = self.kept.borrow_mut();
        if kept.len() < MAX_KEPT && wire.is_free() {
            kept.push(wire);
        }
    }

    /// Closes what has been kept for too long, and what the server has closed.
    pub(super) fn sweep(&self) {
        if let Some(shared) = &self.shared {
            shared.sweep();
        }
        self.kept.borrow_mut().retain_mut(|wire| {
            wire.settle();
            wire.idle_for() < KEPT_FOR && wire.is_free()
        });
    }

    /// A kept connection. It may have died since somebody last looked: then it does not send the request, and
    /// gives it back.
    fn kept(&self) -> Option<Box<Wire>> {
        let mut kept = self.kept.borrow_mut();
        std::iter::from_fn(|| kept.pop()).find(|wire| wire.is_free())
    }

    async fn link(&self, fresh: bool) -> io::Result<Link> {
        let times = (self.response_timeout, self.stall_timeout);
        match &self.shared {
            Some(shared) => shared.lane(fresh, times, self.connect()).await.map(Link::Http2),
            None => Wire::over(self.connect().await?, times.0, times.1).await.map(Link::Http1),
        }
    }

    async fn connect(&self) -> io::Result<Transport> {
        let stream = match self.server.host.parse::<IpAddr>() {
            Ok(address) => TcpStream::connect(SocketAddr::new(address, self.server.port)).await?,
            Err(_) => TcpStream::connect((&*self.server.host, self.server.port)).await?,
        };
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Transport::Plain(stream),
            // Apart, because it is large, and a plain connection does not need it.
            Some(tls) => {
                let connected = Box::pin(tls.connect(&self.server.host, stream)).await;
                let is_news = tls.fails_anew(&self.server.host, connected.is_err());
                if let Err(error) = &connected
                    && is_news
                {
                    tracing::warn!("no TLS with {}: {error}", self.server.authority());
                }
                connected?
            }
        })
    }
}
