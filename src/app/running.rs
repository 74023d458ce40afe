//! A running server: the parts that outlive a configuration, and how they adopt the next one.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::listeners::{KeptListeners, listen, match_listeners, respond_on_unused_sockets, tls_of};
use super::summary;
use super::tasks::{AdminInterface, Tracing, drop_unused, keep_raises, monitor, new_top_keys, refresh_keys};
use crate::acme::Acme;
use crate::admin::{
    self, Admin, AdminListener, AdminSpec, ConfigControl, GaugeSources, ListenerSource, ProcessActivity,
    StoreServer,
};
use crate::config::{Config, ConfigChange, ConfigPart};
use crate::limiter::SharedState;
use crate::proxy::{ConfigSnapshot, ProxyConfig};
use crate::server::{InheritedSockets, Lifecycle, Listener, ListenerHandle, Worker, WorkerUpdate};
use crate::store::{Memory, Servers, Store, StoreSpec, sweep_memory};
use crate::telemetry::{
    AccessFile, AccessOutput, AcmeCounts, DroppedLines, LogKeys, LogSpec, Metrics, StoreCounts, TopKeys,
    UpstreamCounts, dropped_log_lines,
};
use crate::time::{Clock, monotonic};
use crate::upstream::{ServerSpec, SharedUpstream, UpstreamSpec};

/// A running server.
pub(super) struct Running {
    workers: Vec<Worker>,
    listeners: Vec<ListenerHandle>,
    inherited: InheritedSockets,
    /// Responds on the inherited sockets that no listener uses.
    unused_sockets: JoinSet<()>,
    memory: Arc<Memory>,
    metrics: Arc<Metrics>,
    /// The most frequent keys, if there is an admin interface that shows them.
    top: Option<Arc<TopKeys>>,
    stage: watch::Receiver<Lifecycle>,
    access: Option<AccessOutput>,
    tracing: Tracing,
    /// The dropped lines of the access log, and those of the log.
    dropped_lines: [DroppedLines; 2],
    admin: Option<AdminInterface>,
    config_control: ConfigControl,
    key_refresh: Option<JoinHandle<()>>,
    sweeper: JoinHandle<()>,
    /// The configuration that is served.
    snapshot: Arc<ConfigSnapshot>,
    upstreams: Vec<Arc<SharedUpstream>>,
    /// Obtains certificates, if listeners ask for that.
    acme: Option<Acme>,
    acme_counts: Arc<AcmeCounts>,
    /// Name resolution and health checks of the upstreams.
    monitor: JoinSet<()>,
    store: StoreSpec,
    /// The state of each server of the store.
    shared: Servers<SharedState>,
    /// The main thread's own connections to the store.
    control: Servers<Store>,
    /// Reads the raises of keys over it.
    raises: JoinSet<()>,
    log: LogSpec,
    shutdown_delay: Duration,
    shutdown_grace: Duration,
    max_keys: usize,
}

impl Running {
    /// Starts serving. Fails if an address can't be bound, or a worker can't be started.
    pub async fn start(
        mut config: Config,
        inherited: InheritedSockets,
        stage: watch::Receiver<Lifecycle>,
        config_control: ConfigControl,
    ) -> anyhow::Result<Self> {
        let (listeners, sockets) = listen(&config.listeners, config.workers, &inherited, &[])?;
        let admin_listener =
            admin::listen_next(None, config.admin.as_ref(), &inherited).context("[admin]")?;
        let access_file = AccessFile::open(config.access_file.as_deref())?;
        let memory = Arc::new(Memory::new(config.max_keys, Clock::Monotonic));
        let instances = config.snapshot.gate.limits.instances;
        let shared = SharedState::of_servers(&config.store, &memory, instances);
        let key_refresh = refresh_keys(config.snapshot.gate.jwt.as_ref()).await;
        let upstreams: Vec<_> = config.snapshot.upstreams.iter().map(SharedUpstream::new).collect();
        config.snapshot.number_routes(&upstreams);
        let acme_counts = Arc::<AcmeCounts>::default();
        let control = Store::open(&config.store, &memory, &StoreCounts::default());
        let mut running = Self {
            workers: Vec::new(),
            inherited,
            unused_sockets: JoinSet::new(),
            metrics: Arc::new(Metrics::new(Clock::System.now())),
            top: config.admin.is_some().then(new_top_keys),
            stage,
            access: AccessOutput::next(None, &config.log, access_file),
            tracing: Tracing::start(config.tracing),
            dropped_lines: DroppedLines::of_logs(),
            admin: None,
            config_control,
            key_refresh,
            sweeper: tokio::spawn(sweep_memory(Arc::clone(&memory))),
            acme: Acme::next(None, config.acme, tls_of(&listeners), &acme_counts).await,
            acme_counts,
            monitor: monitor(&upstreams).await,
            listeners,
            upstreams,
            snapshot: Arc::new(config.snapshot),
            raises: keep_raises(&control, &shared),
            control,
            store: config.store,
            shared,
            memory,
            log: config.log,
            shutdown_delay: config.shutdown_delay,
            shutdown_grace: config.shutdown_grace,
            max_keys: config.max_keys,
        };
        running.start_workers(sockets)?;
        running.log_store();
        running.replace_admin(config.admin, admin_listener);
        running.respond_on_unused_sockets();
        Ok(running)
    }

    fn start_workers(&mut self, sockets: Vec<Vec<Listener>>) -> anyhow::Result<()> {
        for (number, listeners) in sockets.into_iter().enumerate() {
            let update = WorkerUpdate { config: self.proxy_config(number), listeners };
            let worker = Worker::start(number, update, self.stage.clone());
            self.workers.push(worker.context("can't start a worker")?);
        }
        self.log_listening(&self.listeners);
        Ok(())
    }

    /// Applies another configuration, of which these parts have changed; returns what takes effect only after a restart. Fails if
    /// a new address can't be bound; then nothing has changed.
    pub async fn reload(
        &mut self,
        mut config: Config,
        changes: &[(ConfigPart, ConfigChange)],
    ) -> anyhow::Result<Vec<String>> {
        let has_changed =
            |table: &str| changes.iter().any(|(part, _)| *part == ConfigPart::Table(table.to_owned()));
        // Steps that can fail come first, so that a failed reload changes nothing.
        let (kept, new) = match_listeners(&self.listeners, std::mem::take(&mut config.listeners));
        let ours: Vec<SocketAddr> = self.listeners.iter().map(ListenerHandle::address).collect();
        let (opened, sockets) = listen(&new, self.workers.len(), &self.inherited, &ours)?;
        let access_file = AccessFile::open(config.access_file.as_deref())?;
        // The last step that can fail, since it may change the permissions of the socket.
        let admin = (self.admin.as_ref().map(AdminInterface::address), config.admin.as_ref());
        let admin_listener = admin::listen_next(admin.0, admin.1, &self.inherited).context("[admin]")?;
        let pending = self.pending_changes(&config);
        let new_tls = kept.iter().filter_map(|(_, spec)| spec.tls.clone()).chain(tls_of(&opened)).collect();
        self.acme = Acme::next(self.acme.take(), config.acme.take(), new_tls, &self.acme_counts).await;
        if has_changed("jwt") {
            let key_refresh = refresh_keys(config.snapshot.gate.jwt.as_ref()).await;
            std::mem::replace(&mut self.key_refresh, key_refresh).inspect(JoinHandle::abort);
        } else {
            // The same verifier, with the keys that it has fetched and the tokens that it has verified.
            config.snapshot.gate.jwt.clone_from(&self.snapshot.gate.jwt);
        }
        let last = self.snapshot.gate.consumers.as_deref().filter(|_| !has_changed("store"));
        config.snapshot.gate.consumers.iter_mut().for_each(|rules| rules.inherit_stored(last));
        if has_changed("store") {
            self.replace_store(config.store, config.snapshot.gate.limits.instances);
        }
        if has_changed("tracing") {
            self.tracing.apply(config.tracing);
        }
        self.upstreams = self.next_upstreams(&config.snapshot, changes);
        config.snapshot.number_routes(&self.upstreams);
        self.monitor = monitor(&self.upstreams).await;
        let previous = std::mem::replace(&mut self.snapshot, Arc::new(config.snapshot));
        (self.log, self.shutdown_delay, self.shutdown_grace) =
            (config.log, config.shutdown_delay, config.shutdown_grace);
        self.access = AccessOutput::next(self.access.take(), &self.log, access_file);
        self.top = config.admin.as_ref().map(|_| self.top.take().unwrap_or_else(new_top_keys));
        self.apply_to_workers(sockets).await;
        // Drop cached denials: they were decided under the old limits.
        for shared in self.shared.iter() {
            shared.denials.clear();
            shared.grants.adopt(&self.snapshot.gate.limits.policies);
        }
        self.replace_listeners(opened, kept).await;
        // Listeners that are kept have adopted the settings of the new configuration.
        self.acme.iter().for_each(|acme| acme.set_listeners(tls_of(&self.listeners)));
        let upstreams = self.upstreams.iter().map(|upstream| upstream.spec().label());
        let policies = &self.snapshot.gate.limits.policies;
        self.metrics.record_reload(Clock::System.now(), policies, self.routes(), upstreams);
        self.top.iter().for_each(|top| top.retain(policies));
        self.replace_admin(config.admin, admin_listener);
        self.respond_on_unused_sockets();
        tokio::spawn(drop_unused(previous));
        Ok(pending)
    }

    fn respond_on_unused_sockets(&mut self) {
        let admin = self.admin.as_ref().and_then(|admin| admin.address().tcp());
        self.unused_sockets = respond_on_unused_sockets(&self.inherited, &self.listeners, admin);
    }

    /// Serves the admin interface of a configuration: with `listener`, unless its address is that of the present one.
    fn replace_admin(&mut self, spec: Option<AdminSpec>, listener: Option<AdminListener>) {
        let activity = self.admin.as_ref().map(AdminInterface::activity);
        let activity = activity.unwrap_or_else(|| Arc::new(ProcessActivity::new(monotonic())));
        let state = spec.map(|spec| self.admin_state(spec, activity));
        match (state, listener, self.admin.take()) {
            (Some(state), Some(listener), _) => self.admin = Some(AdminInterface::start(state, listener)),
            (Some(state), None, Some(current)) => self.admin = Some(current.serving(state)),
            (None, _, Some(closed)) => {
                tracing::info!("the admin interface at {} is closed", closed.address());
            }
            (_, None, None) | (None, Some(_), None) => {}
        }
    }

    fn replace_store(&mut self, store: StoreSpec, instances: NonZeroU64) {
        self.shared = SharedState::of_next(&self.shared, &store, instances);
        self.control = Store::open(&store, &self.memory, &StoreCounts::default());
        self.raises = keep_raises(&self.control, &self.shared);
        self.store = store;
        self.log_store();
    }

    /// Waits until all workers serve the current configuration.
    async fn apply_to_workers(&self, sockets: Vec<Vec<Listener>>) {
        let workers = self.workers.iter().zip(sockets).enumerate();
        join_all(workers.map(|(number, (worker, listeners))| {
            worker.apply(WorkerUpdate { config: self.proxy_config(number), listeners })
        }))
        .await;
    }

    /// Adds the listeners that were opened, changes the settings of those that are kept, and closes the others.
    async fn replace_listeners(&mut self, opened: Vec<ListenerHandle>, kept: KeptListeners) {
        self.log_listening(&opened);
        let mut previous: Vec<_> = std::mem::take(&mut self.listeners).into_iter().map(Some).collect();
        self.listeners = opened;
        for (index, spec) in kept {
            if let Some(listener) = previous[index].take() {
                listener.update(spec);
                self.listeners.push(listener);
            }
        }
        // Awaited, so that a later configuration can bind their addresses again.
        join_all(previous.into_iter().flatten().map(ListenerHandle::close)).await;
    }

    /// The output of the access log, unless that is off.
    pub fn access(&self) -> Option<&AccessOutput> {
        self.access.as_ref()
    }

    /// Records that a reload has failed.
    pub fn reload_failed(&self) {
        self.metrics.record_rejected_reload();
    }

    /// Whether a worker has ended.
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(Worker::is_finished)
    }

    /// `shutdown_delay` and `shutdown_grace`.
    pub fn shutdown_times(&self) -> (Duration, Duration) {
        (self.shutdown_delay, self.shutdown_grace)
    }

    /// Stops the background tasks that requests in progress do not need; returns the workers, the access log's
    /// output, and the tracing.
    pub fn stop(self) -> (Vec<Worker>, Option<AccessOutput>, Tracing) {
        self.sweeper.abort();
        self.key_refresh.inspect(JoinHandle::abort);
        // It responds until the process ends.
        self.admin.into_iter().for_each(AdminInterface::detach);
        (self.workers, self.access, self.tracing)
    }

    /// Logs how many lines of the logs were dropped, at most once in a while.
    pub fn report_dropped_lines(&mut self) {
        let [access, log] = &mut self.dropped_lines;
        access.report(self.access.as_ref().map_or(0, AccessOutput::dropped));
        log.report(dropped_log_lines());
    }

    /// The upstreams of another configuration. Unchanged ones are kept, with their connections and health.
    fn next_upstreams(
        &self,
        snapshot: &ConfigSnapshot,
        changes: &[(ConfigPart, ConfigChange)],
    ) -> Vec<Arc<SharedUpstream>> {
        let has_changed =
            |name: &str| changes.iter().any(|(part, _)| *part == ConfigPart::Upstream(name.to_owned()));
        let next = |spec: &UpstreamSpec| match self.upstreams.iter().find(|own| own.spec().name == spec.name)
        {
            Some(own) if has_changed(&spec.name) => SharedUpstream::after(own, spec),
            Some(own) => Arc::clone(own),
            None => SharedUpstream::new(spec),
        };
        snapshot.upstreams.iter().map(next).collect()
    }

    /// The changes that take effect only after a restart.
    fn pending_changes(&self, config: &Config) -> Vec<String> {
        let changed = [
            ("the number of `workers`", config.workers != self.workers.len()),
            ("`max_keys` of [store]", config.max_keys != self.max_keys),
        ];
        let changed = changed.into_iter().filter(|(_, has_changed)| *has_changed);
        changed
            .map(|(what, _)| format!("{what} has changed: this takes effect only after a restart"))
            .collect()
    }

    /// The parts that a worker needs to serve the current configuration.
    fn proxy_config(&self, worker: usize) -> ProxyConfig {
        let policies = &self.snapshot.gate.limits.policies;
        ProxyConfig {
            snapshot: Arc::clone(&self.snapshot),
            upstreams: self.upstreams.iter().map(|upstream| self.with_counts(worker, upstream)).collect(),
            store: self.store.clone(),
            shared: self.shared.clone(),
            counts: Arc::new(self.metrics.counts(worker, policies, self.routes())),
            top: self.top.as_ref().map(|top| top.recorder(worker, policies, self.log.keys)),
            access: self.access.as_ref().and_then(|output| output.writer(self.log)),
            tracer: self.tracing.tracer(),
            challenges: self.acme.as_ref().map(Acme::http_challenges),
        }
    }

    /// An upstream with a worker's counters for it.
    fn with_counts(
        &self,
        worker: usize,
        upstream: &Arc<SharedUpstream>,
    ) -> (Arc<SharedUpstream>, UpstreamCounts) {
        let servers: Vec<String> = upstream.spec().servers.iter().map(ServerSpec::label).collect();
        let servers = servers.iter().map(String::as_str);
        (Arc::clone(upstream), self.metrics.upstream_counts(worker, upstream.spec().label(), servers))
    }

    fn routes(&self) -> impl Iterator<Item = &str> {
        self.snapshot.gate.routes.routes().iter().map(|route| &*route.name)
    }

    fn admin_state(&self, spec: AdminSpec, activity: Arc<ProcessActivity>) -> Admin {
        Admin {
            spec,
            control: self.config_control.clone(),
            snapshot: Arc::clone(&self.snapshot),
            store: self.control.zip(&self.shared).map(StoreServer::of),
            store_address: self.store.address(),
            metrics: Arc::clone(&self.metrics),
            activity,
            top: self.top.clone(),
            shows_key_names: self.log.keys == LogKeys::Plain,
            gauges: GaugeSources {
                listeners: self.listeners.iter().map(ListenerSource::from).collect(),
                memory: Arc::clone(&self.memory),
                access: self.access.clone(),
                spans: Arc::clone(self.tracing.counts()),
                acme: Arc::clone(&self.acme_counts),
                upstreams: self.upstreams.clone(),
            },
            acme: self.acme.as_ref().map(Acme::status),
            lifecycle: self.stage.clone(),
            clock: Clock::System,
        }
    }

    fn log_listening(&self, listeners: &[ListenerHandle]) {
        for listener in listeners {
            tracing::info!("{}", summary::listening(listener, self.workers.len()));
        }
    }

    /// Logs where limits are counted. Whether the store is reachable is logged by the workers.
    fn log_store(&self) {
        match self.store.address() {
            None => tracing::info!("limits are counted in this process"),
            Some(address) => tracing::info!("limits are counted in {address}"),
        }
    }
}
