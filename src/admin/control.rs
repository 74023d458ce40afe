//! What the interface and the task that loads configurations tell each other: which configuration is served, and requests to
//! reload it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};

use super::api::{ConfigError, ConfigInfo, ReloadError, ReloadInfo};
use crate::time::Timestamp;

/// How many requests to reload may wait.
const MAX_WAITING: usize = 4;

/// The configuration that is served, and a way to reload it. Clones share both.
#[derive(Clone, Debug)]
pub struct ConfigControl {
    served: Arc<ArcSwap<ConfigInfo>>,
    requests: mpsc::Sender<ReloadCall>,
}

/// A request to reload the configuration.
#[derive(Debug)]
pub struct ReloadCall {
    /// Who requests it.
    pub by: String,
    /// Gets the outcome.
    pub reply: oneshot::Sender<Result<ReloadInfo, ReloadError>>,
}

impl ConfigControl {
    /// The control of a configuration that was loaded at this time, and where requests to reload it arrive. `sha256` is the
    /// hash of its text.
    #[must_use]
    pub fn new(file: String, sha256: String, at: Timestamp) -> (Self, mpsc::Receiver<ReloadCall>) {
        let served = ConfigInfo { file, sha256, loaded: rfc3339(at), last_error: None };
        let (requests, received) = mpsc::channel(MAX_WAITING);
        (Self { served: Arc::new(ArcSwap::from_pointee(served)), requests }, received)
    }

    /// Records that another configuration is served since this time.
    pub fn record_reload(&self, sha256: String, at: Timestamp) {
        let file = self.served.load().file.clone();
        self.served.store(Arc::new(ConfigInfo { file, sha256, loaded: rfc3339(at), last_error: None }));
    }

    /// Records that a reload has failed at this time.
    pub fn record_failure(&self, failure: &ReloadError, at: Timestamp) {
        let ReloadError { error, help, problems } = failure.clone();
        let last_error = Some(ConfigError { at: rfc3339(at), error, help, problems });
        let served = ConfigInfo::clone(&self.served.load());
        self.served.store(Arc::new(ConfigInfo { last_error, ..served }));
    }

    /// The configuration that is served.
    pub(super) fn served(&self) -> ConfigInfo {
        ConfigInfo::clone(&self.served.load())
    }

    /// Requests a reload; none if too many requests wait already, or the process stops.
    pub(super) fn request(&self, by: String) -> Option<oneshot::Receiver<Result<ReloadInfo, ReloadError>>> {
        let (reply, outcome) = oneshot::channel();
        self.requests.try_send(ReloadCall { by, reply }).ok().map(|()| outcome)
    }
}

/// A time in RFC 3339, to the second.
pub(super) fn rfc3339(at: Timestamp) -> String {
    // A time beyond the year 9999 has no text.
    let time = UNIX_EPOCH.checked_add(Duration::from_micros(at.0)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}
