//! The limiter of a program.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use http::Request;
use hyper::ext::Protocol;

use super::check::check;
use super::client::Client;
use super::decision::Decision;
use super::error::{ConfigErrors, Error};
use super::shared::Shared;
use crate::config::{load_limits, parse_limits};
use crate::http1::{Fields, RequestHead};

/// The name of a text without a file, in error messages.
const NO_FILE: &str = "limits.toml";

/// Checks requests against the limits of a configuration file, with a thread of its own for the store. Clones share the thread,
/// which ends when the last of them is dropped, and with it the last [`Allowed`](super::Allowed) request that holds a slot.
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

impl Limiter {
    /// A limiter with the limits in a text, which has the form of the proxy's configuration file. Files that it names are relative
    /// to the current directory, and `${NAME}` is a variable of the environment.
    ///
    /// # Errors
    /// If the text has errors, or no thread can be started. An unreachable Redis is none: see
    /// [outages](super#outages).
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let loaded = parse_limits(text, NO_FILE).map_err(ConfigErrors::new)?;
        Shared::start(loaded).map(|shared| Self(Arc::new(shared)))
    }

    /// The same with a file, which may be that of the proxies.
    ///
    /// # Errors
    /// If the file can't be read or has errors, or no thread can be started.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let loaded = load_limits(path.as_ref()).map_err(ConfigErrors::new)?;
        Shared::start(loaded).map(|shared| Self(Arc::new(shared)))
    }

    /// Checks a request of this peer against the limits of its route, and charges them: all of them, or none if one denies the
    /// request. The body is not read.
    ///
    /// If the future is dropped before it is ready, the units may have been charged; slots are released.
    pub fn check<B, C: Into<Client>>(
        &self,
        request: &Request<B>,
        client: C,
    ) -> impl Future<Output = Decision> + Send + use<B, C> {
        let head = RequestHead {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            fields: Fields::from(request.headers()),
        };
        let protocol = request.extensions().get::<Protocol>().cloned();
        check(Arc::clone(&self.0), Box::new(head), protocol, client.into())
    }

    /// The decisions of each limit, and the state of the store, in the text format of Prometheus. The names are those of the
    /// proxy's metrics.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.0.metrics()
    }

    /// Drops this clone, and waits until the thread of the limiter has ended: until the other clones and all requests in flight are
    /// gone, slots are released in Redis, and what was charged locally is paid. Without it that happens in the background, if
    /// the process lives long enough.
    pub async fn close(self) {
        let mut ended = self.0.ended.clone();
        drop(self);
        // It fails when the thread has dropped the other end.
        let _ = ended.changed().await;
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}
