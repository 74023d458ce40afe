//! The limiter of a program.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use http::Request;
use hyper::ext::Protocol;

use super::check::check;
use super::client::Client;
use super::decision::{ConfigErrors, Decision, Error};
use super::shared::Shared;
use crate::config::{Loaded, Report, load_limits, parse_limits};
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

    /// Starts a limiter with the limits of a file, which may be that of the proxies.
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

    /// Replaces the configuration by that of another text, for requests that start afterwards. Limits that are the same, or have
    /// other numbers, keep their counts, as in a reload of the proxy. It takes as long as connecting to another store, half a
    /// second at most, and fetching the keys of tokens from another URL, five seconds at most; requests are served meanwhile. If
    /// the future is dropped before it is ready, the configuration may have been replaced.
    ///
    /// # Errors
    /// If the text has errors: then nothing has changed. If the thread of the limiter has panicked.
    pub async fn reload_toml(&self, text: &str) -> Result<(), Error> {
        self.reload(parse_limits(text, NO_FILE)).await
    }

    /// Applies the limits of a file, which is read on the caller's thread.
    ///
    /// # Errors
    /// If the file can't be read or has errors: then nothing has changed. If the thread of the limiter has panicked.
    pub async fn reload_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let loaded = load_limits(path.as_ref());
        drop(path);
        self.reload(loaded).await
    }

    async fn reload(&self, loaded: Result<Loaded, Report>) -> Result<(), Error> {
        match loaded {
            Ok(loaded) => self.0.reload(loaded).await,
            Err(report) => {
                self.0.control.metrics.record_rejected_reload();
                Err(ConfigErrors::new(report).into())
            }
        }
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::super::calls::{EngineCall, MAX_WAITING};
    use super::*;

    /// A limit of each kind that needs the thread, and one that does not.
    const FILE: &str = "\
        [limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
        [limits.units]\nrate = \"5/day\"\n\
        [[routes]]\npath = \"/slots\"\nlimits = [\"slots\"]\n\
        [[routes]]\npath = \"/units\"\nlimits = [\"units\"]\n";

    async fn check(limiter: &Limiter, path: &str) -> Decision {
        let request = Request::get(path).header("host", "a").body(()).unwrap();
        limiter.check(&request, IpAddr::from([192, 0, 2, 7])).await
    }

    async fn status(limiter: &Limiter, path: &str) -> u16 {
        match check(limiter, path).await {
            Decision::Allowed(_) => 200,
            Decision::Denied(denied) => denied.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_thread_denies_only_what_needs_it() {
        let limiter = Limiter::from_toml(FILE).unwrap();
        let held = check(&limiter, "/slots").await;
        assert!(held.is_allowed());
        let _ = limiter.0.calls.send(EngineCall::Panic);
        let _ = limiter.0.ended.clone().changed().await;
        assert_eq!((status(&limiter, "/slots").await, status(&limiter, "/units").await), (503, 200));
        assert!(matches!(limiter.reload_toml(FILE).await, Err(Error::Thread(_))));
        drop(held);
        limiter.close().await;
    }

    #[tokio::test]
    async fn calls_beyond_the_bound_are_denied() {
        let limiter = Limiter::from_toml(FILE).unwrap();
        let places = limiter.0.places().try_acquire_many_owned(MAX_WAITING.try_into().unwrap()).unwrap();
        let Decision::Denied(denied) = check(&limiter, "/slots").await else { panic!("it is not queued") };
        assert_eq!(
            (denied.status().as_u16(), denied.retry_after().map(|wait| wait.as_secs())),
            (503, Some(1))
        );
        assert_eq!(status(&limiter, "/units").await, 200);
        assert!(limiter.metrics().contains("interface=\"library\",outcome=\"error\"} 1\n"));
        drop(places);
        assert_eq!(status(&limiter, "/slots").await, 200);
        // Each call gives its place back, at the latest soon after its decision.
        let all = limiter.0.places().acquire_many_owned(MAX_WAITING.try_into().unwrap());
        assert!(tokio::time::timeout(Duration::from_secs(10), all).await.is_ok());
    }
}
