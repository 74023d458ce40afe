//! The process and the operating system: signals, notifications of the supervisor, memory pages and open files.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::disable_transparent_huge_pages;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::ListenerSpec;

/// The request of a signal.
pub(super) enum SignalEvent {
    /// To shut down; the name of the signal.
    Shutdown(&'static str),
    /// To reload the configuration.
    Reload,
    /// To open the files of logs again.
    ReopenLogs,
    /// None: the signal would end the process otherwise. The name of the signal.
    Unused(&'static str),
}

/// The signals that the server handles.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    pub fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("can't register signal handlers");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
            user1: on(SignalKind::user_defined1())?,
            user2: on(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.terminate.recv() => SignalEvent::Shutdown("SIGTERM"),
            _ = self.interrupt.recv() => SignalEvent::Shutdown("SIGINT"),
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.user1.recv() => SignalEvent::ReopenLogs,
            _ = self.user2.recv() => SignalEvent::Unused("SIGUSR2"),
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

/// Disables transparent huge pages. Most of each 2 MiB page would be unused: they double the memory of an idle process and
/// of idle connections, without a measurable gain in speed.
pub(super) fn disable_huge_pages() {
    // Old kernels do not support this; then the process only uses more memory.
    let _ = disable_transparent_huge_pages(true);
}

/// Raises the soft limit on open files to the hard limit. Most systems start programs with a soft limit of 1,024, for
/// those that use `select`; with that many clients, no file would remain for connections to servers. Logs a warning if
/// the limit is too low for `max_connections` of all listeners.
pub(super) fn raise_file_limit(listeners: &[ListenerSpec]) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!("can't raise the limit on open files: {error}");
    }
    let clients =
        listeners.iter().map(|listener| listener.max_connections as u64).fold(0, u64::saturating_add);
    if let Some(files) = getrlimit(Resource::Nofile).current
        && files < clients
    {
        tracing::warn!(
            "`max_connections` allows {clients} client connections, but this process may open only {files} files: \
             raise the limit on open files (LimitNOFILE of systemd, ulimit -n), or lower `max_connections`"
        );
    }
}
