//! Background tasks of the main thread, among them the admin interface and the export of traces.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::{self, Admin, AdminAddress, AdminListener, ProcessActivity};
use crate::jwt::{Refresher, Verifier};
use crate::limiter::{self, SharedState};
use crate::otlp::{Exporter, TracingSpec};
use crate::store::{Servers, Store};
use crate::telemetry::{SpanCounts, TopKeys, Tracer};
use crate::time::{monotonic, periodic};
use crate::upstream::{HealthMonitor, SharedUpstream};

/// The longest pause between two checks whether an earlier configuration is in use.
const MAX_DROP_PAUSE: Duration = Duration::from_mins(1);

/// Fetches the keys of tokens, and starts refreshing them. Listeners accept connections meanwhile, but serve them only
/// afterwards: without keys, tokens would count as missing.
pub(super) async fn refresh_keys(verifier: Option<&Arc<Verifier>>) -> Option<JoinHandle<()>> {
    let mut refresher = verifier.and_then(Refresher::new)?;
    refresher.fetch().await;
    Some(tokio::spawn(refresher.run()))
}

/// Resolves the names of servers, for two seconds at most, and starts resolving them regularly and checking their health.
pub(super) async fn monitor(upstreams: &[Arc<SharedUpstream>]) -> JoinSet<()> {
    let mut monitor = HealthMonitor::new(upstreams);
    monitor.resolve().await;
    monitor.start()
}

/// Keeps the raises of the workers up to date over the main thread's connections, until the returned value is dropped.
pub(super) fn keep_raises(stores: &Servers<Store>, shared: &Servers<SharedState>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (store, shared) in stores.iter().zip(shared.iter()) {
        let (store, shared) = (store.clone(), shared.clone());
        tasks.spawn(async move { limiter::keep_raises(&store, &shared).await });
    }
    tasks
}

/// Drops an earlier configuration on a thread of its own, once no worker uses it: a worker that drops 100,000 consumers responds
/// to no request meanwhile.
pub(super) async fn drop_unused<T: Send + Sync + 'static>(earlier: Arc<T>) {
    let mut pause = Duration::from_millis(100);
    // Requests that began before the reload are served with it.
    while Arc::strong_count(&earlier) > 1 {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_DROP_PAUSE);
    }
    tokio::task::spawn_blocking(move || drop(earlier));
}

/// Serves the admin interface, and records what it shows.
async fn serve_admin(admin: Arc<ArcSwap<Admin>>, listener: AdminListener) {
    let served = tokio::select! {
        served = admin::serve(&admin, listener) => served,
        () = admin::record_activity(&admin) => Ok(()),
    };
    if let Err(error) = served {
        tracing::error!("the admin interface has stopped: {error}");
    }
}

/// Counts the most frequent keys from now on.
pub(super) fn new_top_keys() -> Arc<TopKeys> {
    Arc::new(TopKeys::new(monotonic()))
}

/// Takes what the workers have counted for the most frequent keys, on a blocking thread since there may be many limits.
async fn take_top_keys(top: Arc<TopKeys>) {
    let mut tick = periodic(TopKeys::INTERVAL);
    loop {
        tick.tick().await;
        let top = Arc::clone(&top);
        // It can only fail if the process ends.
        let _ = tokio::task::spawn_blocking(move || top.take(monotonic())).await;
    }
}

/// The admin interface, which outlives a configuration. It stops listening when this is dropped.
#[derive(Debug)]
pub(super) struct AdminInterface {
    address: AdminAddress,
    current: Arc<ArcSwap<Admin>>,
    tasks: JoinSet<()>,
}

impl AdminInterface {
    /// Starts to serve this state.
    pub fn start(admin: Admin, listener: AdminListener) -> Self {
        let (url, credentials) = (admin.spec.url(listener.address()), admin.spec.credentials());
        tracing::info!("the admin interface is at {url}, and needs {credentials}");
        let mut tasks = JoinSet::new();
        admin.top.iter().for_each(|top| drop(tasks.spawn(take_top_keys(Arc::clone(top)))));
        let (address, current) = (admin.spec.address.clone(), Arc::new(ArcSwap::from_pointee(admin)));
        tasks.spawn(serve_admin(Arc::clone(&current), listener));
        Self { address, current, tasks }
    }

    /// Its address in the configuration.
    pub fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// What has happened so far.
    pub fn activity(&self) -> Arc<ProcessActivity> {
        Arc::clone(&self.current.load().activity)
    }

    /// Lets it listen until the process ends.
    pub fn detach(mut self) {
        self.tasks.detach_all();
    }

    /// Serves another state.
    pub fn serving(self, state: Admin) -> Self {
        self.current.store(Arc::new(state));
        self
    }
}

/// The tracing of the running server.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    tracer: Option<Tracer>,
    exporter: Option<Exporter>,
    counts: Arc<SpanCounts>,
}

impl Tracing {
    /// Starts the tracing of the first configuration, within the runtime of the main thread.
    pub fn start(spec: Option<TracingSpec>) -> Self {
        let mut tracing = Self::default();
        tracing.apply(spec);
        tracing
    }

    /// Applies the settings of another configuration. The earlier exporter exports the spans of requests that have started
    /// before.
    pub fn apply(&mut self, spec: Option<TracingSpec>) {
        self.tracer = None;
        self.exporter = None;
        let Some(TracingSpec { sampling, export }) = spec else { return };
        let started = export.map(|export| {
            tracing::info!("spans are exported to {}", export.endpoint);
            Exporter::start(export, Arc::clone(&self.counts))
        });
        let (exporter, queue) = started.unzip();
        (self.tracer, self.exporter) = (Some(Tracer::new(sampling, queue)), exporter);
    }

    /// Starts the traces of requests, if tracing is on.
    pub fn tracer(&self) -> Option<Tracer> {
        self.tracer.clone()
    }

    /// Counts of exported and dropped spans.
    pub fn counts(&self) -> &Arc<SpanCounts> {
        &self.counts
    }

    /// Exports the last spans, within `limit`.
    pub async fn shut_down(self, limit: Duration) {
        if let Some(exporter) = self.exporter
            && !exporter.flush(limit).await
        {
            tracing::warn!("the last spans are lost: the collector did not accept them in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use tokio::sync::oneshot;

    use super::*;

    /// Tells which thread drops it.
    struct Dropped(Option<oneshot::Sender<ThreadId>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.take().map(|dropped| dropped.send(thread::current().id()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_configuration_is_dropped_on_another_thread_once_no_request_uses_it() {
        let (sender, mut dropped) = oneshot::channel();
        let earlier = Arc::new(Dropped(Some(sender)));
        let used = Arc::clone(&earlier);
        tokio::spawn(drop_unused(earlier));
        tokio::time::sleep(Duration::from_hours(10)).await;
        assert!(dropped.try_recv().is_err());
        drop(used);
        assert_ne!(dropped.await, Ok(thread::current().id()));
    }
}
