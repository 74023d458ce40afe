//! The state that the admin interface reports and changes, and the task that records the activity of the process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::activity::{LIVE_SECONDS, ProcessActivity};
use super::client::Operator;
use super::control::ConfigControl;
use super::keys::KeyOperations;
use super::spec::AdminSpec;
use crate::acme::AcmeStatus;
use crate::limiter::SharedState;
use crate::proxy::ConfigSnapshot;
use crate::server::{ConnectionLimiter, Lifecycle, ListenerHandle};
use crate::store::{Memory, Servers, Store};
use crate::telemetry::{
    AccessOutput, AcmeCounts, GaugeValues, ListenerValues, Metrics, SpanCounts, TopKeys, UpstreamValues,
    dropped_log_lines,
};
use crate::time::{Clock, periodic};
use crate::tls::ServerTls;
use crate::upstream::SharedUpstream;

/// The state that the admin interface reports and changes, for one configuration.
#[derive(Debug)]
pub struct Admin {
    /// The address, TLS and the tokens.
    pub spec: AdminSpec,
    /// The file of the configuration, and how to reload it.
    pub control: ConfigControl,
    /// The configuration that is served.
    pub snapshot: Arc<ConfigSnapshot>,
    /// The servers of the store of its limits.
    pub store: Servers<StoreServer>,
    /// The address of that store, if it is another process.
    pub store_address: Option<String>,
    /// The workers' counters.
    pub metrics: Arc<Metrics>,
    /// The recent activity of the process.
    pub activity: Arc<ProcessActivity>,
    /// The most frequent keys.
    pub top: Option<Arc<TopKeys>>,
    /// Whether the values of keys may be shown.
    pub shows_key_names: bool,
    /// Sources of values that are read at each scrape.
    pub gauges: GaugeSources,
    /// The certificates of an ACME server.
    pub acme: Option<AcmeStatus>,
    /// Whether the server is serving, not ready any more, or draining.
    pub lifecycle: watch::Receiver<Lifecycle>,
    /// The wall clock.
    pub clock: Clock,
}

/// Sources of values that are read at each scrape.
#[derive(Debug)]
pub struct GaugeSources {
    /// The listeners of clients.
    pub listeners: Vec<ListenerSource>,
    /// The in-process store.
    pub memory: Arc<Memory>,
    /// The access log, if there is one: counts its dropped lines.
    pub access: Option<AccessOutput>,
    /// Exported and dropped spans.
    pub spans: Arc<SpanCounts>,
    /// Certificates from an ACME server.
    pub acme: Arc<AcmeCounts>,
    /// The upstreams.
    pub upstreams: Vec<Arc<SharedUpstream>>,
}

/// A server of the store, or the store of this process.
#[derive(Clone, Debug)]
pub struct StoreServer {
    /// The connection of the main thread.
    pub store: Store,
    /// The state that the workers share about it.
    pub shared: SharedState,
}

impl StoreServer {
    /// A server with its connection and its state.
    #[must_use]
    pub fn of((store, shared): &(&Store, &SharedState)) -> Self {
        Self { store: (*store).clone(), shared: (*shared).clone() }
    }
}

/// Source of the values of a listener.
#[derive(Debug)]
pub struct ListenerSource {
    /// Its address.
    pub address: SocketAddr,
    /// Its connections.
    pub limiter: Arc<ConnectionLimiter>,
    /// Its certificates.
    pub tls: Option<ServerTls>,
}

impl From<&ListenerHandle> for ListenerSource {
    fn from(listener: &ListenerHandle) -> Self {
        let tls = listener.spec().tls.clone();
        Self { address: listener.address(), limiter: listener.limiter(), tls }
    }
}

impl Admin {
    /// The operations of this operator on keys.
    pub(super) fn keys<'a>(&'a self, operator: &'a Operator) -> KeyOperations<'a> {
        KeyOperations {
            gate: &self.snapshot.gate,
            store: &self.store,
            top: self.top.as_deref(),
            operator,
            clock: &self.clock,
        }
    }

    /// Whether limits are counted in Redis.
    pub(super) fn is_redis(&self) -> bool {
        matches!(self.store.first().store, Store::Redis(_))
    }

    /// The state of each server of the store.
    pub(super) fn shared(&self) -> impl Iterator<Item = &SharedState> {
        self.store.iter().map(|server| &server.shared)
    }

    /// How many servers of the store a worker finds unavailable.
    pub(super) fn servers_down(&self) -> usize {
        self.shared().filter(|shared| shared.breakers.open() > 0).count()
    }

    /// Reads the gauges other than the numbers of denied keys and the granted units, which take long if there are many.
    pub(super) fn gauge_values(&self) -> GaugeValues {
        let GaugeSources { listeners, memory, access, spans, acme, upstreams } = &self.gauges;
        let listener = |ListenerSource { address, limiter, tls }: &ListenerSource| {
            let [over_limit, over_client_limit] = limiter.refused();
            ListenerValues {
                address: *address,
                connections: limiter.open(),
                over_limit,
                over_client_limit,
                counts: limiter.counts().values(),
                certificates: tls.as_ref().map(ServerTls::expiries).unwrap_or_default(),
            }
        };
        GaugeValues {
            listeners: listeners.iter().map(listener).collect(),
            store_servers: SharedState::servers_up(self.shared()),
            store: self.is_redis().then(|| SharedState::store_values(self.shared())),
            keys: memory.len(),
            evictions: memory.evictions(),
            spans: spans.totals(),
            acme: acme.values(),
            denied_keys: BTreeMap::new(),
            grants: BTreeMap::new(),
            dropped_log_lines: dropped_log_lines(),
            dropped_lines: access.as_ref().map_or(0, AccessOutput::dropped),
            upstreams: UpstreamValues::merged(upstreams.iter().map(|upstream| upstream.values()).collect()),
        }
    }
}

/// The time between two checks while no client watches: the frames of the history have a multiple of it.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);

/// Makes the frames of the history and of event streams, until it is dropped. Counters and gauges are read on a blocking
/// thread, since there may be many routes and servers.
pub async fn record_activity(current: &ArcSwap<Admin>) {
    let activity = Arc::clone(&current.load().activity);
    let mut live = periodic(Duration::from_secs(LIVE_SECONDS));
    let mut idle = periodic(IDLE_INTERVAL);
    loop {
        let is_watched = activity.is_watched();
        tokio::select! {
            _ = live.tick(), if is_watched => {}
            _ = idle.tick(), if !is_watched => {}
            () = activity.subscribed() => {}
        }
        let (due, admin) = (activity.due(), current.load_full());
        if due.any() {
            let update = move || {
                admin.activity.update(due, &admin.metrics, &admin.gauge_values(), admin.clock.now());
            };
            // It can only fail if the process ends.
            let _ = tokio::task::spawn_blocking(update).await;
        }
    }
}
