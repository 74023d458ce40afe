//! Signals to the process, and notifications of its supervisor.

use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request of a signal.
pub(super) enum SignalEvent {
    /// To shut down; the name of the signal.
    Shutdown(&'static str),
    /// To reload the configuration.
    Reload,
}

/// The signals that the server handles.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("can't register signal handlers");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.terminate.recv() => SignalEvent::Shutdown("SIGTERM"),
            _ = self.interrupt.recv() => SignalEvent::Shutdown("SIGINT"),
            _ = self.hangup.recv() => SignalEvent::Reload,
        }
    }

    /// Waits for SIGINT while shutting down: a second Ctrl-C skips the drain. A second SIGTERM does not, since some
    /// supervisors send it both to the process and to its group.
    pub async fn interrupted(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::warn!("SIGHUP: shutting down, so the configuration is not reloaded"),
            }
        }
    }
}

/// Notifies the supervisor that the server is ready.
pub(super) fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Notifies the supervisor that a reload has started; [`notify_ready`] follows when it is done.
pub(super) fn notify_reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    notify(&states);
}

/// Notifies the supervisor that the server is shutting down.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends a notification to `NOTIFY_SOCKET`, if the supervisor (such as systemd) has set it.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("can't notify the supervisor: {error}");
    }
}
