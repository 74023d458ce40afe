//! A running server: what outlives a configuration, and how the next one is taken up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::{self, Admin, AdminListener, AdminSpec, GaugeSources};
use crate::config::{Change, Config, Part};
use crate::jwt::{Refresher, Verifier};
use crate::limiter::Shared;
use crate::proxy::{ConfigSnapshot, ProxyConfig};
use crate::server::{
    self, InheritedSockets, Lifecycle, ListenError, Listener, ListenerHandle, ListenerSpec, Worker,
    WorkerUpdate,
};
use crate::store::{Memory, Store, StoreSpec};
use crate::telemetry::{
    AccessLog, AccessOutput, DroppedLines, LogSpec, Metrics, UpstreamCounts, dropped_log_lines,
};
use crate::time::Clock;
use crate::upstream::{HealthMonitor, ServerSpec, SharedUpstream, UpstreamSpec};

/// The in-process store is swept in so many parts, one a second.
const SWEEP_PARTS: usize = 60;

/// A running server.
pub(super) struct Running {
    workers: Vec<Worker>,
    listeners: Vec<ListenerHandle>,
    inherited: InheritedSockets,
    memory: Arc<Memory>,
    metrics: Arc<Metrics>,
    stage: watch::Receiver<Lifecycle>,
    access: Option<AccessOutput>,
    /// Of the access log, and of the log.
    losses: [DroppedLines; 2],
    admin: Option<(AdminSpec, Arc<ArcSwap<Admin>>)>,
    refreshing: Option<JoinHandle<()>>,
    sweeping: JoinHandle<()>,
    /// What is served.
    site: Arc<ConfigSnapshot>,
    upstreams: Vec<Arc<SharedUpstream>>,
    /// What is done for them beside requests.
    keeping: JoinSet<()>,
    store: StoreSpec,
    shared: Shared,
    /// The main thread's own connection to the store.
    control: Store,
    log: LogSpec,
    shutdown_delay: Duration,
    shutdown_grace: Duration,
    max_keys: usize,
}

impl Running {
    /// Starts to serve.
    pub async fn start(
        config: Config,
        inherited: InheritedSockets,
        stage: watch::Receiver<Lifecycle>,
    ) -> anyhow::Result<Self> {
        inherited.warn_of_others(|address| {
            config.listeners.iter().any(|spec| spec.address == address)
                || config.admin.as_ref().is_some_and(|spec| spec.address.tcp() == Some(address))
        });
        let (listeners, sockets) = listen(&config.listeners, config.workers, &inherited, &[])?;
        let admin = config
            .admin
            .map(|spec| admin::listen(&spec.address, &inherited).map(|listener| (spec, listener)));
        let admin = admin.transpose().context("[admin]")?;
        let memory = Arc::new(Memory::new(config.max_keys, Clock::Monotonic));
        let shared = Shared::new(Arc::clone(&memory), config.site.gate.limits.instances);
        let refreshing = refresh(config.site.gate.jwt.as_ref()).await;
        let upstreams: Vec<_> = config.site.upstreams.iter().map(SharedUpstream::new).collect();
        let mut running = Self {
            workers: Vec::new(),
            listeners,
            inherited,
            metrics: Arc::new(Metrics::new(Clock::System.now())),
            stage,
            access: None,
            losses: [
                DroppedLines::of("access log", "standard output"),
                DroppedLines::of("log", "standard error"),
            ],
            admin: None,
            refreshing,
            sweeping: tokio::spawn(sweep(Arc::clone(&memory))),
            keeping: keep(&upstreams).await,
            upstreams,
            site: Arc::new(config.site),
            control: Store::open(&config.store, &memory),
            store: config.store,
            shared,
            memory,
            log: config.log,
            shutdown_delay: config.shutdown_delay,
            shutdown_grace: config.shutdown_grace,
            max_keys: config.max_keys,
        };
        running.begin_access_log();
        for (number, listeners) in sockets.into_iter().enumerate() {
            let update = WorkerUpdate { config: running.generation(number), listeners };
            let worker = Worker::start(number, update, running.stage.clone());
            running.workers.push(worker.context("can't start a worker")?);
        }
        for listener in &running.listeners {
            running.say_listening(listener);
        }
        running.describe_store();
        if let Some((spec, listener)) = admin {
            tracing::info!("the admin interface is at {}", listener.address().url());
            let admin = Arc::new(ArcSwap::from_pointee(running.admin(spec.clone())));
            tokio::spawn(administer(Arc::clone(&admin), listener));
            running.admin = Some((spec, admin));
        }
        Ok(running)
    }

    /// Takes up another configuration, in which these parts are others.
    ///
    /// # Errors
    /// When a new address can't be had; then nothing has changed.
    pub async fn reload(
        &mut self,
        mut config: Config,
        changes: &[(Part, Change)],
    ) -> Result<(), ListenError> {
        let has_changed =
            |table: &str| changes.iter().any(|(part, _)| *part == Part::Table(table.to_owned()));
        let (kept, new) = self.matched(std::mem::take(&mut config.listeners));
        let ours: Vec<SocketAddr> = self.listeners.iter().map(ListenerHandle::address).collect();
        let (mut listeners, sockets) = listen(&new, self.workers.len(), &self.inherited, &ours)?;
        self.name_what_waits(&config);
        if has_changed("jwt") {
            let refreshing = refresh(config.site.gate.jwt.as_ref()).await;
            std::mem::replace(&mut self.refreshing, refreshing).inspect(JoinHandle::abort);
        } else {
            config.site.gate.jwt.clone_from(&self.site.gate.jwt);
        }
        if has_changed("store") {
            let next = Shared::new(Arc::clone(&self.memory), config.site.gate.limits.instances);
            self.shared = match &config.store {
                // Whoever counts from now on is paid what was admitted while the other was away.
                StoreSpec::Redis(_) => Shared { ledger: Arc::clone(&self.shared.ledger), ..next },
                StoreSpec::Memory => next,
            };
            self.control = Store::open(&config.store, &self.memory);
            self.store = config.store;
            self.describe_store();
        }
        self.upstreams = self.next_upstreams(&config.site, changes);
        self.keeping = keep(&self.upstreams).await;
        self.site = Arc::new(config.site);
        self.log = config.log;
        (self.shutdown_delay, self.shutdown_grace) = (config.shutdown_delay, config.shutdown_grace);
        self.begin_access_log();
        let workers = self.workers.iter().zip(sockets).enumerate();
        join_all(workers.map(|(number, (worker, listeners))| {
            worker.apply(WorkerUpdate { config: self.generation(number), listeners })
        }))
        .await;
        // What was refused by other numbers must not be refused by heart.
        self.shared.denials.clear();
        for listener in &listeners {
            self.say_listening(listener);
        }
        let mut earlier: Vec<_> = std::mem::take(&mut self.listeners).into_iter().map(Some).collect();
        for (place, spec) in kept {
            if let Some(listener) = earlier[place].take() {
                listener.update(spec);
                listeners.push(listener);
            }
        }
        self.listeners = listeners;
        // Their addresses can be had again when the next file asks for them.
        join_all(earlier.into_iter().flatten().map(ListenerHandle::close)).await;
        let upstreams = self.upstreams.iter().map(|upstream| upstream.spec().label());
        self.metrics.reloaded(&self.site.gate.limits.policies, self.routes(), upstreams);
        if let Some((spec, admin)) = &self.admin {
            // Where it is to be somewhere else, it goes on as it was: whether it needs a token depends on the address.
            let spec = config.admin.filter(|new| new.address == spec.address).unwrap_or_else(|| spec.clone());
            admin.store(Arc::new(self.admin(spec)));
        }
        Ok(())
    }

    /// A configuration was refused.
    pub fn refused_reload(&self) {
        self.metrics.refused_reload();
    }

    /// Whether a worker has ended.
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(Worker::is_finished)
    }

    /// How long it serves on when it is to end, so that others notice, and how long it may take to drain then.
    pub fn patience(&self) -> (Duration, Duration) {
        (self.shutdown_delay, self.shutdown_grace)
    }

    /// Ends what is not needed for what has begun; gives the workers, and who writes the access log.
    pub fn stop(self) -> (Vec<Worker>, Option<AccessOutput>) {
        self.sweeping.abort();
        self.refreshing.inspect(JoinHandle::abort);
        (self.workers, self.access)
    }

    /// Says how many lines of the logs were dropped, if it was not said a moment ago.
    pub fn tell_of_dropped_lines(&mut self) {
        let [access, log] = &mut self.losses;
        access.tell(self.access.as_ref().map_or(0, AccessOutput::dropped));
        log.tell(dropped_log_lines());
    }

    /// Which listeners there are already, by their places, and which are new.
    fn matched(&self, specs: Vec<ListenerSpec>) -> (Vec<(usize, ListenerSpec)>, Vec<ListenerSpec>) {
        let (mut kept, mut new): (Vec<(usize, ListenerSpec)>, _) = (Vec::new(), Vec::new());
        for spec in specs {
            let is_same = |(place, listener): &(usize, &ListenerHandle)| {
                listener.spec().address == spec.address && kept.iter().all(|(other, _)| other != place)
            };
            match self.listeners.iter().enumerate().find(is_same) {
                Some((place, _)) => kept.push((place, spec)),
                None => new.push(spec),
            }
        }
        (kept, new)
    }

    /// The upstreams of another configuration: those that have not changed are the same as before.
    fn next_upstreams(&self, site: &ConfigSnapshot, changes: &[(Part, Change)]) -> Vec<Arc<SharedUpstream>> {
        let has_changed =
            |name: &str| changes.iter().any(|(part, _)| *part == Part::Upstream(name.to_owned()));
        let next = |spec: &UpstreamSpec| match self.upstreams.iter().find(|own| own.spec().name == spec.name)
        {
            Some(own) if has_changed(&spec.name) => SharedUpstream::after(own, spec),
            Some(own) => Arc::clone(own),
            None => SharedUpstream::new(spec),
        };
        site.upstreams.iter().map(next).collect()
    }

    /// Says what takes effect only with the next start.
    fn name_what_waits(&self, config: &Config) {
        let admin = self.admin.as_ref().map(|(spec, _)| &spec.address);
        let waits = [
            ("the number of `workers`", config.workers != self.workers.len()),
            ("`listen` or `mode` of [admin]", config.admin.as_ref().map(|spec| &spec.address) != admin),
            ("`max_keys` of [store]", config.max_keys != self.max_keys),
        ];
        for (what, _) in waits.iter().filter(|(_, waits)| *waits) {
            tracing::warn!(
                "{what} is another in the file: that takes a restart, and stays as it is until then"
            );
        }
    }

    /// What a worker is to serve with.
    fn generation(&self, worker: usize) -> ProxyConfig {
        ProxyConfig {
            site: Arc::clone(&self.site),
            upstreams: self.upstreams.iter().map(|upstream| self.counted(worker, upstream)).collect(),
            store: self.store.clone(),
            shared: self.shared.clone(),
            counts: Arc::new(self.metrics.counts(worker, &self.site.gate.limits.policies, self.routes())),
            access: self.access.as_ref().and_then(|output| output.writer(self.log)),
        }
    }

    /// An upstream, and where a worker counts what becomes of its requests.
    fn counted(
        &self,
        worker: usize,
        upstream: &Arc<SharedUpstream>,
    ) -> (Arc<SharedUpstream>, UpstreamCounts) {
        let servers: Vec<String> = upstream.spec().servers.iter().map(ServerSpec::label).collect();
        let servers = servers.iter().map(String::as_str);
        (Arc::clone(upstream), self.metrics.upstream_counts(worker, upstream.spec().label(), servers))
    }

    fn routes(&self) -> impl Iterator<Item = &str> {
        self.site.gate.routes.routes().iter().map(|route| &*route.name)
    }

    /// Starts the thread that writes the access log, when the first configuration wants one.
    fn begin_access_log(&mut self) {
        if self.log.access != AccessLog::Off && self.access.is_none() {
            self.access = AccessOutput::start();
        }
    }

    fn admin(&self, spec: AdminSpec) -> Admin {
        let listeners = self.listeners.iter().map(|listener| (listener.address(), listener.limiter()));
        Admin {
            spec,
            site: Arc::clone(&self.site),
            store: self.control.clone(),
            denials: Arc::clone(&self.shared.denials),
            metrics: Arc::clone(&self.metrics),
            gauges: GaugeSources {
                listeners: listeners.collect(),
                breakers: Arc::clone(&self.shared.breakers),
                memory: Arc::clone(&self.memory),
                ledger: Arc::clone(&self.shared.ledger),
                access: self.access.clone(),
                upstreams: self.upstreams.clone(),
            },
            stage: self.stage.clone(),
            clock: Clock::System,
        }
    }

    fn say_listening(&self, listener: &ListenerHandle) {
        let plural = if self.workers.len() == 1 { "" } else { "s" };
        let tls = if listener.spec().tls.is_some() { " by TLS" } else { "" };
        tracing::info!("listening on {}{tls} with {} worker{plural}", listener.address(), self.workers.len());
    }

    /// Says where limits are counted; whether it is there is said by those who count.
    fn describe_store(&self) {
        match &self.store {
            StoreSpec::Memory => tracing::info!("limits are counted in this process"),
            StoreSpec::Redis(spec) => tracing::info!("limits are counted in {}", spec.target),
        }
    }
}

/// Listens on these addresses: the sockets of each worker.
fn listen(
    specs: &[ListenerSpec],
    workers: usize,
    inherited: &InheritedSockets,
    ours: &[SocketAddr],
) -> Result<(Vec<ListenerHandle>, Vec<Vec<Listener>>), ListenError> {
    let mut handles = Vec::new();
    let mut sockets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    for spec in specs {
        let (handle, listeners) = server::listen(spec, workers, inherited, ours)?;
        handles.push(handle);
        sockets.iter_mut().zip(listeners).for_each(|(worker, listener)| worker.push(listener));
    }
    Ok((handles, sockets))
}

/// Fetches the keys of tokens, and goes on doing so. Those that connect meanwhile wait a moment: without keys their
/// tokens would count as missing.
async fn refresh(verifier: Option<&Arc<Verifier>>) -> Option<JoinHandle<()>> {
    let mut refresher = verifier.and_then(Refresher::new)?;
    refresher.fetch().await;
    Some(tokio::spawn(refresher.run()))
}

/// Resolves the names of servers, in two seconds at most, and begins to keep them and to check who is well.
async fn keep(upstreams: &[Arc<SharedUpstream>]) -> JoinSet<()> {
    let mut keeper = HealthMonitor::new(upstreams);
    keeper.resolve().await;
    keeper.start()
}

async fn administer(admin: Arc<ArcSwap<Admin>>, listener: AdminListener) {
    if let Err(error) = admin::serve(&admin, listener).await {
        tracing::error!("the admin interface has ended: {error}");
    }
}

async fn sweep(memory: Arc<Memory>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    for part in (0..SWEEP_PARTS).cycle() {
        tick.tick().await;
        memory.sweep(part, SWEEP_PARTS);
    }
}
