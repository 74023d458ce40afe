//! From a configuration to a running server, and to its end.

mod files;
mod memory;
mod running;
mod signals;

use std::path::PathBuf;
use std::time::Duration;

use self::running::Running;
use self::signals::{SignalEvent, Signals, is_ready, is_reloading, is_stopping};
use crate::config::{Config, Loaded};
use crate::reload::{Source, Watch, words};
use crate::server::{self, InheritedSockets, Lifecycle, LifecycleSender};
use crate::telemetry::{AccessOutput, set_log_level, write_log};

/// How long the end waits for the last lines of the access log to be taken.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Serves what was read from `path` until a signal ends it: SIGTERM and SIGINT drain, and a SIGINT after that ends it at
/// once. SIGHUP has the file read again.
///
/// # Errors
/// When it can't start, or when a worker fails.
pub fn run(path: PathBuf, loaded: Loaded) -> anyhow::Result<()> {
    memory::take_small_pages();
    files::allow_all(&loaded.config.listeners);
    let inherited = InheritedSockets::from_env();
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let source = Source::new(path, &loaded);
    let ended = control.block_on(serve(source, loaded.config, inherited));
    // Workers whose connections are still open are not waited for.
    control.shutdown_background();
    if let Some(access) = ended?
        && !access.flush(LAST_LINES)
    {
        tracing::warn!("the last lines of the access log are lost: standard output did not take them");
    }
    Ok(())
}

async fn serve(
    source: Source,
    config: Config,
    inherited: InheritedSockets,
) -> anyhow::Result<Option<AccessOutput>> {
    let mut signals = Signals::new()?;
    let (lifecycle, stage) = server::lifecycle();
    let watches = config.watch;
    let mut served =
        RunningServer { running: Running::start(config, inherited, stage).await?, source, watch: None };
    served.watch(watches);
    is_ready();
    let signal = served.until_ended(&mut signals).await?;
    is_stopping();
    end(signal, &mut signals, &lifecycle, served.running).await
}

/// Ends what is running: readiness goes first, then listeners close, then connections end. Gives who writes the access
/// log.
async fn end(
    signal: &str,
    signals: &mut Signals,
    lifecycle: &LifecycleSender,
    running: Running,
) -> anyhow::Result<Option<AccessOutput>> {
    let (delay, grace) = running.patience();
    if delay > Duration::ZERO {
        tracing::info!("{signal}: not ready any more, and draining in {delay:?}");
        lifecycle.enter(Lifecycle::NotReady);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.interrupted() => tracing::info!("SIGINT: not waiting"),
        }
    }
    tracing::info!("{signal}: draining");
    lifecycle.enter(Lifecycle::Draining);
    let (workers, access) = running.stop();
    let ends = tokio::task::spawn_blocking(|| workers.into_iter().try_for_each(server::Worker::join));
    tokio::select! {
        ended = ends => {
            ended??;
            tracing::info!("drained");
        }
        () = tokio::time::sleep(grace) => tracing::warn!("connections were still open after {grace:?}"),
        () = signals.interrupted() => tracing::warn!("SIGINT: not waiting for open connections"),
    }
    Ok(access)
}

/// What runs, and the file that says so.
struct RunningServer {
    running: Running,
    source: Source,
    watch: Option<Watch>,
}

impl RunningServer {
    /// Waits for a signal to end, which it names, and reads the file again when it is time; a worker that ends before is an error.
    async fn until_ended(&mut self, signals: &mut Signals) -> anyhow::Result<&'static str> {
        let mut look = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                told = signals.next() => match told {
                    SignalEvent::End(signal) => return Ok(signal),
                    SignalEvent::Reload => self.reload("SIGHUP").await,
                },
                () = changed(&mut self.watch) => {
                    if self.source.has_changed() {
                        self.reload("a file has changed").await;
                    }
                }
                _ = look.tick() => {
                    anyhow::ensure!(!self.running.has_failed(), "a worker has ended unexpectedly");
                    self.running.tell_of_dropped_lines();
                }
            }
        }
    }

    /// Reads the file again, and serves what it says; if anything is wrong with it everything stays as it is.
    async fn reload(&mut self, why: &str) {
        is_reloading();
        let file = self.source.name();
        let refused = match self.source.read().await {
            Ok(Ok(loaded)) => self.apply(loaded, why).await,
            Ok(Err(report)) => {
                write_log(&report.text());
                let plural = if report.len() == 1 { "" } else { "s" };
                Err(anyhow::anyhow!("{file} has {} problem{plural}", report.len()))
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = refused {
            self.running.refused_reload();
            tracing::error!("{why}: {error:#}; nothing has changed");
            // It may name other files than before.
            self.watch(self.watch.is_some());
        }
        is_ready();
    }

    async fn apply(&mut self, loaded: Loaded, why: &str) -> anyhow::Result<()> {
        let changes = self.source.changes(&loaded);
        let Loaded { config, warnings, outline, .. } = loaded;
        let (watches, level) = (config.watch, config.log.level);
        self.running.reload(config, &changes).await?;
        for warning in warnings.lines() {
            tracing::warn!("{warning}");
        }
        for line in words(&changes) {
            tracing::info!("{line}");
        }
        let same = if changes.is_empty() { ", and says the same" } else { "" };
        tracing::info!("{why}: {} was read again{same}", self.source.name());
        set_log_level(level);
        self.source.accept(outline);
        self.watch(watches);
        Ok(())
    }

    /// Watches the files, or does not.
    fn watch(&mut self, watches: bool) {
        if !watches {
            self.watch = None;
        } else if !self.watch.as_ref().is_some_and(|watch| watch.covers(self.source.paths())) {
            self.watch = Some(Watch::start(self.source.paths()));
        }
    }
}

/// Waits until a file may have changed; for ever if none is watched.
async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}
