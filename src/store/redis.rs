//! Counts in Redis. The only place that knows fred.
//!
//! All charges of a request go to the server in one call of one script, which decides and charges them
//! atomically. A take is never sent again once it may have been run: a lost reply must not charge twice.

mod batcher;
mod client;
mod cluster;
mod connection;
mod cross_slot;
mod script;
mod url;
mod wire;

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::Value;
use fred::types::config::Server;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub use script::{CHANGE, Script, TAKE};
pub use url::{Endpoint, Node, Target, UrlError};
pub use wire::stored_key;

use self::batcher::Batcher;
use self::client::{RedisClient, TakeClock};
use self::connection::Supervisor;
use super::{Change, Decisions, StoreError};
use crate::limit::{Charge, ChargeKind, Key, Policy, PolicyId, Quota, Rate};
use crate::time::{Clock, Micros, monotonic};

/// How many charges are settled in one call: it must not keep the server from others, nor take longer than a take
/// may. To renew one of thousands of slots of a key takes it most of a millisecond.
const SETTLED_AT_ONCE: usize = 32;
/// The same where all of them are late: each is about as cheap as a take.
const PAID_AT_ONCE: usize = 128;
/// How many times a list of keys goes on looking, a thousand names each.
const SCANS: usize = 1_000;

/// How Redis is reached and used.
#[derive(Clone, Debug)]
pub struct RedisSpec {
    /// Where it is, and as whom we speak to it.
    pub target: Target,
    /// The longest that a take may last.
    pub timeout: Duration,
    /// The first part of every stored key.
    pub prefix: Box<str>,
    /// Whether the proxy's clock is sent instead of asking the server for its own.
    pub client_clock: bool,
}

/// A connection to Redis, kept up in the background for as long as a clone of it lives.
#[derive(Clone)]
pub struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    line: Arc<RedisClient>,
    queue: Arc<Batcher>,
    /// Whether keys lie on several nodes.
    is_cluster: bool,
    /// Tells the supervisor to begin again.
    reconnect: Arc<Notify>,
    /// Dropped with the last clone: then the supervisor ends the connection.
    _wants: oneshot::Sender<()>,
}

impl Redis {
    /// Starts to connect and returns at once; must be called within a runtime.
    #[must_use]
    pub fn connect(spec: &RedisSpec) -> Self {
        let clock = if spec.client_clock {
            // Clocks that differ by up to a second must not make a state vanish early.
            TakeClock::Sent { clock: Arc::new(Clock::Monotonic), extra_ttl: Duration::from_secs(1) }
        } else {
            TakeClock::Server
        };
        Self::start(spec, clock)
    }

    /// Like [`Redis::connect`], but decides by a clock that the caller moves. Redis itself forgets by real
    /// time, so states are kept an hour longer.
    #[must_use]
    pub fn connect_at(spec: &RedisSpec, clock: Arc<Clock>) -> Self {
        Self::start(spec, TakeClock::Sent { clock, extra_ttl: Duration::from_hours(1) })
    }

    fn start(spec: &RedisSpec, clock: TakeClock) -> Self {
        let supervisor = Supervisor::new(spec);
        let line = RedisClient::new(supervisor.client(), spec, clock);
        let (line, reconnect, (wants, wanted)) = (Arc::new(line), Arc::default(), oneshot::channel());
        tokio::spawn(supervisor.run(Arc::downgrade(&line), Arc::clone(&reconnect), wanted));
        let is_cluster = matches!(spec.target.endpoint, Endpoint::Cluster(_));
        let queue = Batcher::over(Arc::clone(&line), is_cluster);
        Self { shared: Arc::new(Shared { line, queue, is_cluster, reconnect, _wants: wants }) }
    }

    /// Whether it is connected, waiting at most `patience` for it, and no longer than until it fails.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn reach(&self, patience: Duration) -> Result<(), StoreError> {
        let line = &self.shared.line;
        let client = line.client();
        let mut failures = client.error_rx();
        let connecting = async {
            tokio::select! {
                connected = client.wait_for_connect() => connected,
                Ok((error, _)) = failures.recv() => Err(error),
            }
        };
        match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                line.broke(&error);
                Err(line.away())
            }
            Err(_) => Err(StoreError::Away("it does not answer".to_owned())),
        }
    }

    /// Builds the connection anew, unless one is just being made.
    pub fn reconnect(&self) {
        // Not for later: by then there may be one.
        self.shared.reconnect.notify_waiters();
    }

    /// Whether a request's charges are made one after the other, and given back if one is refused, so that a denial may
    /// soon be wrong and is not to be remembered.
    #[must_use]
    pub fn may_give_back(&self) -> bool {
        self.shared.is_cluster
    }

    /// Takes all charges or none; see [`super::Store::take`].
    ///
    /// # Errors
    /// When no answer came within the deadline, or one that is none.
    pub async fn take(&self, policies: &Arc<[Policy]>, charges: &[Charge]) -> Result<Decisions, StoreError> {
        self.ask(policies, charges, false).await
    }

    /// Does each charge by itself; see [`super::Store::charge_late`].
    ///
    /// # Errors
    /// When no answer came within the deadline, or one that is none.
    pub async fn settle(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
    ) -> Result<Decisions, StoreError> {
        let mut decisions = Decisions::new();
        let are_late = charges.iter().all(|charge| charge.manner == ChargeKind::Late);
        for some in charges.chunks(if are_late { PAID_AT_ONCE } else { SETTLED_AT_ONCE }) {
            decisions.extend(self.ask(policies, some, true).await?);
        }
        Ok(decisions)
    }

    /// Takes from a quota of its own, so that a server which can't run scripts or write fails here as well.
    ///
    /// # Errors
    /// When no answer came within the deadline, or one that is none.
    pub async fn probe(&self) -> Result<(), StoreError> {
        static POLICIES: LazyLock<Arc<[Policy]>> = LazyLock::new(|| {
            // More than can be used up; the name is one that no limit can have.
            let quota =
                Rate::new(1_000_000, Micros::SECOND).and_then(|rate| Quota::token_bucket(rate, 1_000_000));
            quota.into_iter().map(|quota| Policy::new("+probe", quota)).collect()
        });
        let charge = Charge::take(PolicyId(0), Key([0; 16]), 1);
        self.ask(&POLICIES, &[charge], false).await.map(drop)
    }

    async fn ask(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        apart: bool,
    ) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(Decisions::new());
        }
        if !(self.shared.is_cluster && cross_slot::is_apart(charges)) {
            return self.shared.queue.ask(policies, charges, apart).await;
        }
        let asked = if apart { cross_slot::settle } else { cross_slot::take };
        let answer = tokio::time::timeout(self.shared.line.timeout(), asked(self, policies, charges)).await;
        answer.map_err(|_| {
            // It has waited: time has passed.
            let _ = monotonic();
            StoreError::Deadline
        })?
    }

    /// The deadline of what is asked now.
    fn deadline(&self) -> Instant {
        self.shared.line.deadline()
    }

    /// One call of the script, whose keys have one tag.
    async fn call(&self, call: wire::Call, deadline: Instant) -> Result<Bytes, StoreError> {
        let (keys, arguments) = call.into_parts();
        // In a box, or the compiler loses count of the futures within futures.
        let running: Pin<Box<dyn Future<Output = Result<Bytes, StoreError>> + Send + '_>> =
            Box::pin(self.shared.line.eval(&TAKE, keys, arguments, deadline));
        running.await
    }

    fn clock(&self) -> &Clock {
        self.shared.line.clock()
    }

    fn prefix(&self) -> &str {
        self.shared.line.prefix()
    }

    /// Changes what holds these keys back; see [`super::Store::change`].
    ///
    /// # Errors
    /// When no answer came within the deadline, or one that is none.
    pub async fn change(
        &self,
        policies: &[Policy],
        keys: &[(PolicyId, Key)],
        change: Change,
    ) -> Result<usize, StoreError> {
        let (what, length) = match change {
            Change::Block(length) => ("block", length.0.to_string()),
            Change::Unblock => ("unblock", String::new()),
            Change::Reset => ("reset", String::new()),
        };
        let mut known = 0;
        for (policy, key) in keys {
            let policy = &policies[*policy];
            let names = Quota::LETTERS
                .map(|letter| wire::stored_key(self.shared.line.prefix(), policy, *key, letter));
            let arguments = vec![Bytes::from_static(what.as_bytes()), Bytes::from(length.clone())];
            let names = names.map(Bytes::from).to_vec();
            let reply = Box::pin(self.shared.line.eval(&CHANGE, names, arguments, self.deadline())).await?;
            let count = std::str::from_utf8(&reply).ok().and_then(|text| text.parse::<usize>().ok());
            known += usize::from(count.unwrap_or(0) > 0);
        }
        Ok(known)
    }

    /// The keys of `policy` that are known, at most `max`; it looks at no more than about a million names of each node.
    ///
    /// # Errors
    /// When no answer came within the deadline, or one that is none.
    pub async fn keys(&self, policy: &Policy, max: usize) -> Result<Vec<Key>, StoreError> {
        let mut found = Vec::new();
        for node in cluster::nodes(&self.shared.line.client()) {
            self.scan(node.as_ref(), policy, max, &mut found).await?;
        }
        found.truncate(max);
        Ok(found)
    }

    async fn scan(
        &self,
        node: Option<&Server>,
        policy: &Policy,
        max: usize,
        found: &mut Vec<Key>,
    ) -> Result<(), StoreError> {
        let mut cursor = String::from("0");
        let line = &self.shared.line;
        let pattern = Bytes::from(wire::pattern(line.prefix(), policy));
        for _ in 0..SCANS {
            let args: Vec<Value> = vec![
                cursor.into(),
                "MATCH".into(),
                Value::Bytes(pattern.clone()),
                "COUNT".into(),
                "1000".into(),
            ];
            let (next, names): (String, Vec<Bytes>) = line.ask("SCAN", args, node).await?;
            found.extend(names.iter().filter_map(|name| wire::key_of(line.prefix(), name)));
            // SCAN may give a name more than once, as when Redis makes room for more.
            found.sort_unstable();
            found.dedup();
            if next == "0" || found.len() >= max {
                break;
            }
            cursor = next;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("line", &self.shared.line).finish_non_exhaustive()
    }
}
