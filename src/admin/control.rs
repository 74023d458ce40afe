//! What the interface and the task that loads configurations tell each other: which configuration is served, and requests to
//! reload it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::RETRY_AFTER;
use tokio::sync::{mpsc, oneshot};

use super::api::{ConfigError, ConfigInfo, ReloadError, ReloadInfo};
use super::client::Operator;
use super::response::{self, AdminError, AdminResponse};
use super::state::Admin;
use crate::server::Lifecycle;
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
    /// The control of a configuration whose text has this SHA-256 hash and was loaded at this time, and where requests to
    /// reload it arrive.
    #[must_use]
    pub fn new(file: String, sha256: String, at: Timestamp) -> (Self, mpsc::Receiver<ReloadCall>) {
        let served = ConfigInfo { file, sha256, loaded: rfc3339(at), last_error: None };
        let (requests, received) = mpsc::channel(MAX_WAITING);
        (Self { served: Arc::new(ArcSwap::from_pointee(served)), requests }, received)
    }

    /// Records that another text of the file is served since this time.
    pub fn record_reload(&self, sha256: String, at: Timestamp) {
        let file = self.served.load().file.clone();
        let served = ConfigInfo { file, sha256, loaded: rfc3339(at), last_error: None };
        self.served.store(Arc::new(served));
    }

    /// Records that a reload has failed at this time.
    pub fn record_failure(&self, failure: &ReloadError, at: Timestamp) {
        let last_error = Some(ConfigError { at: rfc3339(at), failure: failure.clone() });
        self.served.store(Arc::new(ConfigInfo { last_error, ..self.served() }));
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

/// Reloads the configuration, as SIGHUP does, and waits until it is served or rejected. Fails if the process stops, or too many
/// reloads are waiting.
pub(super) async fn reload(admin: &Admin, operator: &Operator) -> Result<AdminResponse, AdminError> {
    let mut lifecycle = admin.lifecycle.clone();
    if *lifecycle.borrow() != Lifecycle::Serving {
        return Err(stopping());
    }
    let outcome = admin.control.request(operator.to_string()).ok_or_else(|| {
        let error = AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "other reloads are waiting");
        error.header(RETRY_AFTER, "1")
    })?;
    let outcome = tokio::select! {
        outcome = outcome => outcome.ok(),
        _ = lifecycle.wait_for(|stage| *stage != Lifecycle::Serving) => None,
    };
    match outcome.ok_or_else(stopping)? {
        Ok(reloaded) => Ok(response::json(&reloaded)),
        // Without errors in the file, something else is in its way, such as a port in use.
        Err(failure) if failure.problems.is_empty() => {
            Ok(response::with_status(StatusCode::CONFLICT, &failure))
        }
        Err(failure) => Ok(response::with_status(StatusCode::UNPROCESSABLE_ENTITY, &failure)),
    }
}

fn stopping() -> AdminError {
    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "the process is stopping")
}
