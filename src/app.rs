//! Runs a server: from its configuration to shutdown, with reloads in between.

mod listeners;
mod process;
mod running;
mod summary;
mod tasks;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use self::process::{SignalEvent, Signals, notify_ready, notify_reloading, notify_stopping};
use self::running::Running;
use crate::admin::api::{ReloadError, ReloadInfo};
use crate::admin::{AdminListenError, ConfigControl, ReloadCall};
use crate::config::Loaded;
use crate::reload::{ConfigSource, FileWatcher, describe};
use crate::server::{self, InheritedSockets, Lifecycle, LifecycleSender, ListenError};
use crate::telemetry::{AccessOutput, set_log_level, write_log};
use crate::text::counted;
use crate::time::{Clock, periodic};

/// How long shutdown waits until the last lines of the access log are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long shutdown waits until the last spans are exported.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves the configuration that was read from `path` until a signal stops it: SIGTERM and SIGINT drain, and a SIGINT while
/// draining exits at once. SIGHUP reloads the configuration. Fails if the server can't start, or a worker fails.
pub fn run(path: PathBuf, loaded: Loaded) -> anyhow::Result<()> {
    process::disable_huge_pages();
    process::raise_file_limit(&loaded.config.listeners);
    let inherited = InheritedSockets::from_env();
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = control.block_on(serve(ConfigSource::new(path, &loaded), loaded, inherited));
    // Does not wait for workers whose connections are still open after the grace period.
    control.shutdown_background();
    if let Some(access) = result?
        && !access.flush(FLUSH_TIMEOUT)
    {
        tracing::warn!("the last lines of the access log are lost: its output did not accept them in time");
    }
    Ok(())
}

/// Help for an error of [`run`], or of a reload, if it is a common one.
#[must_use]
pub fn help(error: &anyhow::Error) -> Option<String> {
    let of_listener = error.downcast_ref().and_then(ListenError::help);
    of_listener.or_else(|| error.downcast_ref().and_then(AdminListenError::help))
}

async fn serve(
    source: ConfigSource,
    loaded: Loaded,
    inherited: InheritedSockets,
) -> anyhow::Result<Option<AccessOutput>> {
    let mut signals = Signals::new()?;
    let (lifecycle, stage) = server::lifecycle();
    let summary = summary::lines(&source.name(), &loaded);
    let sha256 = loaded.sha256;
    let config = loaded.config;
    let watches = config.watch;
    let (control, reloads) = ConfigControl::new(source.absolute_name(), sha256, Clock::System.now());
    let running = Running::start(config, inherited, stage, control.clone()).await?;
    for line in summary {
        tracing::info!("{line}");
    }
    let mut server = Supervisor { running, source, watcher: None, control, reloads };
    server.set_watching(watches);
    notify_ready();
    let signal = server.run_until_shutdown(&mut signals).await?;
    notify_stopping();
    shut_down(signal, &mut signals, &lifecycle, server.running).await
}

/// Shuts down: first `/ready` fails, then listeners close, then connections drain. Returns the access log's output.
async fn shut_down(
    signal: &str,
    signals: &mut Signals,
    lifecycle: &LifecycleSender,
    running: Running,
) -> anyhow::Result<Option<AccessOutput>> {
    let (delay, grace) = running.shutdown_times();
    if delay > Duration::ZERO {
        tracing::info!("{signal}: no longer ready, draining in {delay:?}");
        lifecycle.enter(Lifecycle::NotReady);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.interrupted() => tracing::info!("SIGINT: draining at once"),
        }
    }
    tracing::info!("{signal}: draining");
    lifecycle.enter(Lifecycle::Draining);
    let (workers, access, spans) = running.stop();
    let workers_end = tokio::task::spawn_blocking(|| workers.into_iter().try_for_each(server::Worker::join));
    tokio::select! {
        result = workers_end => {
            result??;
            tracing::info!("drained");
            spans.shut_down(EXPORT_TIMEOUT).await;
        }
        () = tokio::time::sleep(grace) => {
            tracing::warn!("connections were still open after {grace:?}");
            spans.shut_down(EXPORT_TIMEOUT).await;
        }
        () = signals.interrupted() => tracing::warn!("SIGINT: not waiting for open connections"),
    }
    Ok(access)
}

/// How often the workers and the logs are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Applies signals and changed files to the running server.
struct Supervisor {
    running: Running,
    source: ConfigSource,
    watcher: Option<FileWatcher>,
    control: ConfigControl,
    /// Requests of the admin interface to reload.
    reloads: mpsc::Receiver<ReloadCall>,
}

impl Supervisor {
    /// Runs until a signal requests shutdown, and reloads on request or when a file has changed. Returns the name of the
    /// signal.
    async fn run_until_shutdown(&mut self, signals: &mut Signals) -> anyhow::Result<&'static str> {
        let mut check = periodic(CHECK_INTERVAL);
        loop {
            tokio::select! {
                event = signals.next() => match event {
                    SignalEvent::Shutdown(signal) => return Ok(signal),
                    SignalEvent::Reload => drop(self.reload("SIGHUP", true).await),
                    SignalEvent::ReopenLogs => reopen(self.running.access()),
                    SignalEvent::Unused(signal) => tracing::info!("{signal} has no effect"),
                },
                Some(ReloadCall { by, reply }) = self.reloads.recv() => {
                    // If the client has disconnected, the log tells the outcome.
                    let _ = reply.send(self.reload(&format!("admin: {by}"), true).await);
                }
                () = changed(&mut self.watcher) => {
                    if self.source.has_changed() {
                        drop(self.reload("a file has changed", false).await);
                    }
                }
                _ = check.tick() => {
                    anyhow::ensure!(!self.running.has_failed(), "a worker has ended unexpectedly");
                    self.running.report_dropped_lines();
                }
            }
        }
    }

    /// Reloads the configuration. If it is invalid or can't be applied, the previous one is kept; also if the file of consumers
    /// has changed and seems to be incomplete, unless an operator has requested the reload. The error is in the log already.
    async fn reload(&mut self, why: &str, is_requested: bool) -> Result<ReloadInfo, ReloadError> {
        notify_reloading();
        let file = self.source.name();
        let failure = |error: anyhow::Error| {
            let help = help(&error);
            ReloadError { error: format!("{error:#}"), help, problems: Vec::new() }
        };
        let result = match self.source.read().await {
            Ok(Ok(loaded)) => match self.source.incomplete(&loaded).filter(|_| !is_requested) {
                Some(error) => {
                    let help = Some("`tidegate reload` and SIGHUP apply it all the same".to_owned());
                    Err(ReloadError { error, help, problems: Vec::new() })
                }
                None => self.apply(loaded, why).await.map_err(failure),
            },
            Ok(Err(report)) => {
                write_log(&report.text());
                let error = format!("{file} has {}", counted(report.len(), "problem"));
                Err(ReloadError { error, help: None, problems: report.problems() })
            }
            Err(error) => Err(failure(error.into())),
        };
        if let Err(failure) = &result {
            self.running.reload_failed();
            self.control.record_failure(failure, Clock::System.now());
            let help = failure.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
            tracing::error!("{why}: {}; serving the previous configuration{help}", failure.error);
            // The invalid configuration may refer to other files than the previous one.
            self.set_watching(self.watcher.is_some());
        }
        notify_ready();
        result
    }

    async fn apply(&mut self, loaded: Loaded, why: &str) -> anyhow::Result<ReloadInfo> {
        let changes = self.source.changes(&loaded);
        let Loaded { config, warnings, fingerprint, sha256, .. } = loaded;
        let (watches, level) = (config.watch, config.log.level);
        let pending = self.running.reload(config, &changes).await?;
        self.control.record_reload(sha256.clone(), Clock::System.now());
        for warning in warnings.lines() {
            tracing::warn!("{warning}");
        }
        let mut lines = describe(&changes);
        for line in &lines {
            tracing::info!("{line}");
        }
        for line in &pending {
            tracing::warn!("{line}");
        }
        lines.extend(pending);
        let unchanged = if changes.is_empty() { ", without changes" } else { "" };
        let file = self.source.name();
        tracing::info!("{why}: {file} was reloaded{unchanged}");
        set_log_level(level);
        self.source.accept(fingerprint);
        self.set_watching(watches);
        Ok(ReloadInfo { file, sha256, changes: lines, warnings: warnings.problems() })
    }

    /// Starts or stops watching the files of the configuration.
    fn set_watching(&mut self, watches: bool) {
        if !watches {
            self.watcher = None;
        } else if !self.watcher.as_ref().is_some_and(|watcher| watcher.covers(self.source.paths())) {
            self.watcher = Some(FileWatcher::start(self.source.paths()));
        }
    }
}

/// Opens the file of the access log again, as after a rotation.
fn reopen(access: Option<&AccessOutput>) {
    match access.map(AccessOutput::reopen).transpose().map(Option::flatten) {
        Ok(Some(path)) => tracing::info!("SIGUSR1: {} was opened again", path.display()),
        Ok(None) => tracing::info!("SIGUSR1: there is no log file to open again (`access_file` of [log])"),
        Err(error) => tracing::error!("SIGUSR1: {error}; lines are still written to the open file"),
    }
}

/// Waits until a file may have changed; forever if none is watched.
async fn changed(watcher: &mut Option<FileWatcher>) {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}
