//! What the process is told from outside, and what it tells its supervisor.

use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a server is told from outside.
pub(super) enum SignalEvent {
    /// To end; by which signal.
    End(&'static str),
    /// To read its configuration again.
    Reload,
}

/// Where it is told so.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("can't listen to signals");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.terminate.recv() => SignalEvent::End("SIGTERM"),
            _ = self.interrupt.recv() => SignalEvent::End("SIGINT"),
            _ = self.hangup.recv() => SignalEvent::Reload,
        }
    }

    /// Waits for SIGINT alone: who stops a terminal's program twice is in a hurry. A second SIGTERM says nothing
    /// new; some supervisors send it to the process and to its group.
    pub async fn interrupted(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::warn!("SIGHUP: this process ends, and reads nothing any more"),
            }
        }
    }
}

/// Tells the supervisor that everything is served.
pub(super) fn is_ready() {
    tell(&[NotifyState::Ready]);
}

/// Tells the supervisor that the configuration is read again; [`is_ready`] says when that is done.
pub(super) fn is_reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    tell(&states);
}

/// Tells the supervisor that the process drains.
pub(super) fn is_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says it where a supervisor listens (`NOTIFY_SOCKET`), as systemd does.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the supervisor can't be told: {error}");
    }
}
