//! From a configuration to a running server, and to its end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::{self, Admin, AdminListener, Gauges};
use crate::config::Config;
use crate::jwt::Refresher;
use crate::limiter::Limiter;
use crate::proxy::Proxy;
use crate::server::{self, Draining, Listener, Worker, WorkerSetup};
use crate::store::{Memory, Redis, Store, StoreSpec};
use crate::telemetry::{AccessWriter, Metrics};
use crate::time::Clock;

/// The in-process store is swept in so many parts, one a second.
const SWEEP_PARTS: usize = 60;

/// What a server is told from outside.
enum Told {
    /// To end; by which signal.
    End(&'static str),
    /// To read its configuration again.
    Reload,
}

/// How a server has ended.
enum End {
    /// Everything that was begun was finished.
    Drained,
    /// Some connections were cut.
    Cut,
}

/// Where it is told so.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Serves until a signal ends it: SIGTERM and SIGINT drain, and a SIGINT after that ends it at once.
///
/// # Errors
/// When it can't start, or when a worker fails.
pub fn run(config: Config) -> anyhow::Result<()> {
    let (access, writing) = AccessWriter::start(config.log.access).unzip();
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = control.block_on(serve(config, access));
    // Workers whose connections are still open are not waited for.
    control.shutdown_background();
    if let (Ok(End::Drained), Some(writing)) = (&ended, writing) {
        // All lines are handed over; let them be written.
        let _ = writing.join();
    }
    ended.map(|_| ())
}

async fn serve(config: Config, access: Option<AccessWriter>) -> anyhow::Result<End> {
    let mut signals = Signals::new()?;
    let mut sockets: Vec<Vec<Listener>> = (0..config.workers).map(|_| Vec::new()).collect();
    let (mut addresses, mut connections) = (Vec::new(), Vec::new());
    for spec in &config.listeners {
        let listeners = server::listen(spec, config.workers)?;
        addresses.extend(listeners.first().map(Listener::address));
        connections.extend(listeners.first().map(|listener| (listener.address(), listener.connections())));
        for (worker, listener) in sockets.iter_mut().zip(listeners) {
            worker.push(listener);
        }
    }
    let admin = config.admin.map(|spec| admin::listen(&spec).map(|listener| (spec, listener)));
    let admin = admin.transpose().context("[admin]")?;
    let memory = Arc::new(Memory::new(config.max_keys, Clock::System));
    let metrics = Arc::new(Metrics::new(Clock::System.now()));
    let dropped_lines = access.as_ref().map(AccessWriter::dropped);
    let local = Store::Memory(Arc::clone(&memory));
    let limiter = Limiter::new(local.clone(), Arc::clone(&memory));
    let (draining, drain) = server::drain_signal();
    let site = Arc::new(config.site);
    let mut refresher = site.gate.jwt.as_ref().and_then(Refresher::new);
    if let Some(refresher) = &mut refresher {
        // Those that connect meanwhile wait a moment: without keys their tokens would count as missing.
        refresher.fetch().await;
    }
    let mut workers = Vec::new();
    for (number, listeners) in sockets.into_iter().enumerate() {
        let (site, limiter, store) = (Arc::clone(&site), limiter.over(local.clone()), config.store.clone());
        let access = access.clone();
        let gate = &site.gate;
        let routes = gate.routes.routes().iter().map(|route| &*route.name);
        let counts = Arc::new(metrics.counts(number, &gate.limits.policies, routes));
        let limiter = limiter.counting(Arc::clone(&counts));
        let proxy = move || Proxy::new(site, connected(limiter, &store), access, counts);
        let setup = WorkerSetup { listeners, proxy, drain: drain.clone() };
        workers.push(Worker::start(number, setup).context("can't start a worker")?);
    }
    for address in &addresses {
        let plural = if config.workers == 1 { "" } else { "s" };
        tracing::info!("listening on {address} with {} worker{plural}", config.workers);
    }
    describe_store(&config.store);
    if let Some((spec, listener)) = admin {
        let (breakers, memory) = (limiter.breakers(), &memory);
        let gauges = Gauges { connections, breakers, memory: Arc::clone(memory), dropped_lines };
        let store = store(&config.store, memory);
        let denials = limiter.denials();
        let admin = Admin { spec, site, store, denials, metrics, gauges, drain, clock: Clock::System };
        tracing::info!("the admin interface is at http://{}", listener.address());
        tokio::spawn(administer(admin, listener));
    }
    let sweeping = tokio::spawn(sweep(memory));
    let refreshing = refresher.map(|refresher| tokio::spawn(refresher.run()));
    let ended = until_ended(&mut signals, &workers).await;
    sweeping.abort();
    if let Some(refreshing) = refreshing {
        refreshing.abort();
    }
    ended?;
    drop(access);
    drain_workers(&mut signals, &draining, workers, config.shutdown_grace).await
}

/// A worker's limiter, with its own connection to the store.
fn connected(limiter: Limiter, store: &StoreSpec) -> Limiter {
    match store {
        StoreSpec::Memory => limiter,
        StoreSpec::Redis(spec) => limiter.over(Store::Redis(Redis::connect(spec))),
    }
}

/// A store for the main thread, with its own connection.
fn store(spec: &StoreSpec, memory: &Arc<Memory>) -> Store {
    match spec {
        StoreSpec::Memory => Store::Memory(Arc::clone(memory)),
        StoreSpec::Redis(spec) => Store::Redis(Redis::connect(spec)),
    }
}

async fn administer(admin: Admin, listener: AdminListener) {
    if let Err(error) = admin.serve(listener).await {
        tracing::error!("the admin interface has ended: {error}");
    }
}

/// Says where limits are counted; whether it is there is said by those who count.
fn describe_store(store: &StoreSpec) {
    match store {
        StoreSpec::Memory => tracing::info!("limits are counted in this process"),
        StoreSpec::Redis(spec) => tracing::info!("limits are counted in {}", spec.target),
    }
}

async fn sweep(memory: Arc<Memory>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    for part in (0..SWEEP_PARTS).cycle() {
        tick.tick().await;
        memory.sweep(part, SWEEP_PARTS);
    }
}

/// Waits for the signal to end; a worker that ends before is an error.
async fn until_ended(signals: &mut Signals, workers: &[Worker]) -> anyhow::Result<()> {
    let mut look = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::End(name) => {
                    tracing::info!("{name}: draining");
                    return Ok(());
                }
                Told::Reload => {
                    tracing::warn!("SIGHUP: this version can't reload its configuration; restart to change it");
                }
            },
            _ = look.tick() => {
                anyhow::ensure!(!workers.iter().any(Worker::is_finished), "a worker has ended unexpectedly");
            }
        }
    }
}

async fn drain_workers(
    signals: &mut Signals,
    draining: &Draining,
    workers: Vec<Worker>,
    grace: Duration,
) -> anyhow::Result<End> {
    draining.begin();
    let ends = tokio::task::spawn_blocking(|| workers.into_iter().try_for_each(Worker::join));
    tokio::select! {
        ended = ends => {
            ended??;
            tracing::info!("drained");
            Ok(End::Drained)
        }
        () = tokio::time::sleep(grace) => {
            tracing::warn!("connections were still open after {grace:?}");
            Ok(End::Cut)
        }
        () = signals.interrupted() => {
            tracing::warn!("SIGINT: not waiting for open connections");
            Ok(End::Cut)
        }
    }
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("can't listen to signals");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End("SIGTERM"),
            _ = self.interrupt.recv() => Told::End("SIGINT"),
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    /// Waits for SIGINT alone: who stops a terminal's program twice is in a hurry. A second SIGTERM says nothing
    /// new; some supervisors send it to the process and to its group.
    async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }
}
