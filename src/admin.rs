//! The admin interface: metrics, readiness, the limits and their keys, over HTTP and for operators only.
//!
//! It has a listener of its own, and lives on the main thread: nothing that is asked here takes time from a
//! worker, but for the locks of the in-process store.

mod answer;
pub mod api;
mod client;
mod failures;
mod guard;
mod keys;
mod limits;
mod listen;
mod names;
mod serve;
mod sessions;
mod spec;

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::sync::watch;

pub use listen::{AdminListenError, AdminListener, listen};
pub use serve::serve;
pub use spec::{AdminAddress, AdminSpec, Token, TokenError};

use self::answer::{Answer, Refusal};
use self::sessions::Session;
use crate::gate::Gate;
use crate::limiter::{Breakers, DenialCache, OutageLedger};
use crate::proxy::ConfigSnapshot;
use crate::server::{ConnectionLimiter, Lifecycle};
use crate::store::{Memory, Store};
use crate::telemetry::{
    AccessOutput, CONTENT_TYPE, GaugeValues, ListenerValues, Metrics, UpstreamValues, dropped_log_lines,
};
use crate::time::Clock;
use crate::upstream::SharedUpstream;

/// What the interface can tell of, and change.
#[derive(Debug)]
pub struct Admin {
    /// Who may ask.
    pub spec: AdminSpec,
    /// The configuration that is served.
    pub site: Arc<ConfigSnapshot>,
    /// Where its limits are counted.
    pub store: Store,
    /// What the workers remember of the store's denials.
    pub denials: Arc<DenialCache>,
    /// What the workers have counted.
    pub metrics: Arc<Metrics>,
    /// What is read when somebody asks.
    pub gauges: GaugeSources,
    /// How far the server is on the way to its end.
    pub stage: watch::Receiver<Lifecycle>,
    /// What time it is.
    pub clock: Clock,
}

/// Values that others keep, and that are read when somebody asks.
#[derive(Debug)]
pub struct GaugeSources {
    /// Connections of clients, by listener.
    pub listeners: Vec<(SocketAddr, Arc<ConnectionLimiter>)>,
    /// The workers' breakers before the store.
    pub breakers: Arc<Breakers>,
    /// The in-process store.
    pub memory: Arc<Memory>,
    /// What is owed to the store.
    pub ledger: Arc<OutageLedger>,
    /// The access log, if there is one, which knows how many of its lines were dropped.
    pub access: Option<AccessOutput>,
    /// Where requests go.
    pub upstreams: Vec<Arc<SharedUpstream>>,
}

impl Admin {
    /// Answers a request.
    async fn handle(self: &Arc<Self>, session: &Session, request: Request<Incoming>) -> Answer {
        // It holds room for every kind of question, which few connections need at once.
        Box::pin(self.answer(session, request)).await.unwrap_or_else(Refusal::into_answer)
    }

    async fn answer(
        self: &Arc<Self>,
        session: &Session,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let (head, body) = request.into_parts();
        guard::host(&self.spec, &head)?;
        let query = head.uri.query().unwrap_or("");
        // A load balancer need not know a secret to find out whether to send requests.
        if head.uri.path() == "/ready" {
            guard::reads(&head)?;
            return Ok(self.ready());
        }
        guard::token(&self.spec, &head, session.client, session.failures())?;
        session.admit()?;
        match head.uri.path() {
            "/metrics" => {
                guard::reads(&head)?;
                let admin = Arc::clone(self);
                session.render(move || admin.metrics()).await
            }
            "/limits" => {
                guard::reads(&head)?;
                let admin = Arc::clone(self);
                session.render(move || answer::json(&limits::all(admin.gate()))).await
            }
            "/keys" => {
                guard::reads(&head)?;
                Ok(answer::json(&self.list(query).await?))
            }
            "/keys/peek" => {
                guard::reads(&head)?;
                Ok(answer::json(&self.peek(query).await?))
            }
            "/keys/reset" => Ok(answer::json(&self.reset(guard::posted(&head, body).await?).await?)),
            "/keys/block" => Ok(answer::json(&self.block(guard::posted(&head, body).await?).await?)),
            "/keys/unblock" => Ok(answer::json(&self.unblock(guard::posted(&head, body).await?).await?)),
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, "there is nothing here").help(
                "there are /metrics, /ready, /limits, /keys, /keys/peek, /keys/reset, /keys/block and \
                 /keys/unblock",
            )),
        }
    }

    fn gate(&self) -> &Gate {
        &self.site.gate
    }

    /// A store that is away makes nobody unready: each limit then does what its `on_store_failure` says.
    fn ready(&self) -> Answer {
        let (status, word) = match *self.stage.borrow() {
            Lifecycle::Serving => (StatusCode::OK, "ready"),
            Lifecycle::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "leaving"),
            Lifecycle::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        };
        let store = match (&self.store, self.gauges.breakers.open()) {
            (Store::Memory(_), _) => "in this process",
            (_, 0) => "up",
            _ => "away",
        };
        let refused = "config: the last reload was refused, as the log says; the one before is served\n";
        let note = if self.metrics.is_stale() { refused } else { "" };
        let text = format!("{word}\nstore: {store}\n{note}");
        answer::text(status, "text/plain; charset=utf-8", text)
    }

    fn metrics(&self) -> Answer {
        let policies = &self.gate().limits.policies;
        answer::text(StatusCode::OK, CONTENT_TYPE, self.metrics.text(self.levels(), policies))
    }

    fn levels(&self) -> GaugeValues {
        let GaugeSources { listeners, breakers, memory, ledger, access, upstreams } = &self.gauges;
        let listener = |(address, limiter): &(SocketAddr, Arc<ConnectionLimiter>)| {
            let [over_all, over_own] = limiter.refused();
            ListenerValues { address: *address, connections: limiter.open(), over_all, over_own }
        };
        GaugeValues {
            listeners: listeners.iter().map(listener).collect(),
            breakers_open: breakers.open(),
            breaker_openings: breakers.openings(),
            keys: memory.len(),
            evictions: memory.evictions(),
            owed_keys: ledger.len(),
            charge_back: ledger.units(),
            dropped_log_lines: dropped_log_lines(),
            dropped_lines: access.as_ref().map_or(0, AccessOutput::dropped),
            upstreams: UpstreamValues::merged(upstreams.iter().map(|upstream| upstream.levels()).collect()),
        }
    }
}
