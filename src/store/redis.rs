//! Counts in Redis. Only this module uses fred.
//!
//! All charges of a request are sent to the server in one call of one script, which decides and makes them
//! atomically. A take is never sent again once it may have been run: a lost reply must not charge twice.

mod batcher;
mod client;
mod cluster;
mod connection;
mod cross_slot;
mod patience;
mod raises;
mod reply;
mod script;
mod url;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::Value;
use fred::types::config::Server;
use futures_util::future::{join, join_all, select_ok};
use smallvec::SmallVec;
use tokio::sync::{Notify, Semaphore, oneshot};

pub use self::script::{CHANGE, RAISES, Script, TAKE};
pub use self::url::{Node, RedisAddress, RedisSpec, RedisTarget, UrlError};
pub use self::wire::stored_key;

use self::batcher::Batcher;
use self::client::{RedisClient, TakeClock};
use self::connection::Reconnector;
use self::patience::wait_for_reply;
use self::wire::ChargesWithGrants;
use super::types::{Decisions, Granted, RaiseChange, RaiseError, RaiseList, StateChange, StoreError};
use crate::limit::{Charge, ChargeKind, Grant, GrantRequest, Key, Policy, PolicyId, Quota, Rate};
use crate::telemetry::StoreCounts;
use crate::time::{Clock, Micros};

/// How many charges are applied in one call: it must not block the server for long, nor take longer than a take
/// may. Renewing one of thousands of slots of a key takes the server most of a millisecond.
const APPLIED_AT_ONCE: usize = 32;
/// The most late charges of one call: each of them costs about as much as a take.
const LATE_AT_ONCE: usize = 128;
/// The most records that are read at the same time over one connection.
const MAX_RECORDS: usize = 1_024;
/// The most SCAN calls for one list of keys, each over a thousand names.
const MAX_SCANS: usize = 1_000;
/// How many other keys are probed in a cluster if the node of the first replies with an error: hardly all of them are there.
const OTHER_PROBES: u8 = 16;
/// How long a change by an operator waits for a connection, which a process that has just started does not have yet.
const FIRST_CONNECTION: Duration = Duration::from_millis(500);

/// A connection to Redis, maintained in the background for as long as a clone of it lives.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    client: Arc<RedisClient>,
    batcher: Arc<Batcher>,
    /// Whether keys lie on several nodes.
    is_cluster: bool,
    /// Makes the reconnector replace the connection.
    reconnect: Arc<Notify>,
    /// Bounds the records that are being read.
    records: Semaphore,
}

impl Redis {
    /// Starts to connect and returns at once; must be called within a runtime.
    #[must_use]
    pub fn connect(spec: &RedisSpec) -> Self {
        Self::connect_counted(spec, StoreCounts::default())
    }

    /// Like [`Redis::connect`], and counts its calls.
    #[must_use]
    pub fn connect_counted(spec: &RedisSpec, counts: StoreCounts) -> Self {
        let clock = if spec.client_clock {
            // The clocks of proxies may differ by a second, and a state must not expire early.
            TakeClock::Sent { clock: Arc::new(Clock::Monotonic), extra_ttl: Duration::from_secs(1) }
        } else {
            TakeClock::Server
        };
        Self::start(spec, clock, counts)
    }

    /// Like [`Redis::connect`], but decides by a clock that the caller moves. Redis itself expires keys by real
    /// time, so states are kept for an hour longer.
    #[must_use]
    pub fn connect_at(spec: &RedisSpec, clock: Arc<Clock>) -> Self {
        Self::start(
            spec,
            TakeClock::Sent { clock, extra_ttl: Duration::from_hours(1) },
            StoreCounts::default(),
        )
    }

    fn start(spec: &RedisSpec, clock: TakeClock, counts: StoreCounts) -> Self {
        let reconnector = Reconnector::new(spec);
        let (sender, dropped) = oneshot::channel();
        let client = Arc::new(RedisClient::new(reconnector.client(), spec, (clock, counts), sender));
        let reconnect = Arc::default();
        tokio::spawn(reconnector.run(Arc::downgrade(&client), Arc::clone(&reconnect), dropped));
        let is_cluster = matches!(spec.target.address, RedisAddress::Cluster(_));
        let batcher = Arc::new(Batcher::new(Arc::clone(&client), is_cluster));
        Self {
            inner: Arc::new(Inner {
                client,
                batcher,
                is_cluster,
                reconnect,
                records: Semaphore::new(MAX_RECORDS),
            }),
        }
    }

    /// Waits at most `timeout` for a connection, and no longer than until it fails.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn wait_connected(&self, timeout: Duration) -> Result<(), StoreError> {
        let client = self.inner.client.client();
        let mut failures = client.error_rx();
        let connecting = async {
            tokio::select! {
                connected = client.wait_for_connect() => connected,
                Ok((error, _)) = failures.recv() => Err(error),
            }
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.inner.client.record_failure(&error);
                Err(self.inner.client.not_connected())
            }
            Err(_) => Err(StoreError::NotConnected(self.inner.client.no_reply().to_owned())),
        }
    }

    /// Replaces the connection, unless one is being made.
    pub fn reconnect(&self) {
        // Only if the reconnector waits for it now: a stored permit would replace a later connection that works.
        self.inner.reconnect.notify_waiters();
    }

    /// Whether a request's charges are made one after the other, and refunded if one is denied, so that a denial may soon
    /// be outdated and must not be cached.
    #[must_use]
    pub fn may_roll_back(&self) -> bool {
        self.has_several_nodes()
    }

    /// Whether the keys are on several nodes, which fail independently.
    #[must_use]
    pub fn has_several_nodes(&self) -> bool {
        self.inner.is_cluster
    }

    /// Takes all charges or none; see `Store::take`.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn take(&self, policies: &Arc<[Policy]>, charges: &[Charge]) -> Result<Decisions, StoreError> {
        self.run(policies, charges, false).await
    }

    /// Applies each charge independently; see `Store::apply`.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn apply(&self, policies: &Arc<[Policy]>, charges: &[Charge]) -> Result<Decisions, StoreError> {
        let mut decisions = Decisions::new();
        let are_late = charges.iter().all(|charge| charge.kind == ChargeKind::Late);
        for some in charges.chunks(if are_late { LATE_AT_ONCE } else { APPLIED_AT_ONCE }) {
            decisions.extend(self.run(policies, some, true).await?);
        }
        Ok(decisions)
    }

    /// Takes all charges or none, and gets grants; see `Store::take_with_grants`.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn take_with_grants(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Result<Granted, StoreError> {
        if !(self.inner.is_cluster && cross_slot::spans_slots(charges)) {
            let batcher = &self.inner.batcher;
            let request = ChargesWithGrants { charges, grant_requests: requests };
            return batcher.submit(policies, request, false, batcher.deadline()).await;
        }
        // A grant that was made in a round that fails could not be undone, so grants are requested by calls of their own.
        let (granting, taking) = cross_slot::split_grant_requests(charges);
        let granted = Box::pin(self.apply_with_grants(policies, &granting, requests));
        let (granted, decisions) = join(granted, self.take(policies, &taking)).await;
        let none = || SmallVec::from_elem(Grant::default(), granting.len());
        Ok(Granted {
            decisions: decisions?,
            grants: granted.map_or_else(|_| none(), |granted| granted.grants),
        })
    }

    /// Applies each charge independently, and gets grants; see `Store::apply_with_grants`.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn apply_with_grants(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Result<Granted, StoreError> {
        let spans_slots = self.inner.is_cluster && cross_slot::spans_slots(charges);
        let (batcher, mut all) = (&self.inner.batcher, Granted::default());
        for part in (ChargesWithGrants { charges, grant_requests: requests }).chunks(APPLIED_AT_ONCE) {
            // On a cluster each tag has a call of its own.
            let calls = part.chunks(if spans_slots { 1 } else { APPLIED_AT_ONCE });
            let deadline = batcher.deadline();
            let calls = calls.map(|request| batcher.submit(policies, request, true, deadline));
            for granted in join_all(calls).await {
                let Granted { decisions, grants } = granted?;
                all.decisions.extend(decisions);
                all.grants.extend(grants);
            }
        }
        Ok(all)
    }

    /// Takes from a quota of its own, so that a server which can't run scripts or write fails the probe as well. If a node of
    /// a cluster replies with an error, the others are probed: one that decides is enough.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn probe(&self) -> Result<(), StoreError> {
        match self.probe_key(0).await {
            Err(StoreError::ErrorReply(_)) if self.inner.is_cluster => {
                let others = (1..=OTHER_PROBES).map(|key| Box::pin(self.probe_key(key)));
                select_ok(others).await.map(|((), _)| ())
            }
            reply => reply,
        }
    }

    async fn probe_key(&self, key: u8) -> Result<(), StoreError> {
        static POLICIES: LazyLock<Arc<[Policy]>> = LazyLock::new(|| {
            // More than can be used up; no limit can have this name.
            let quota =
                Rate::new(1_000_000, Micros::SECOND).and_then(|rate| Quota::token_bucket(rate, 1_000_000));
            quota.into_iter().map(|quota| Policy::new("+probe", quota)).collect()
        });
        let charge = Charge::take(PolicyId(0), Key([key; 16]), 1);
        self.run(&POLICIES, &[charge], false).await.map(drop)
    }

    /// Has the script decide charges: together, or each by itself if they are `independent`.
    async fn run(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        independent: bool,
    ) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(Decisions::new());
        }
        let deadline = self.inner.client.deadline();
        if !(self.inner.is_cluster && cross_slot::spans_slots(charges)) {
            let request = ChargesWithGrants::charges_only(charges);
            let granted = self.inner.batcher.submit(policies, request, independent, deadline).await?;
            return Ok(granted.decisions);
        }
        let decide = if independent { cross_slot::apply } else { cross_slot::take };
        let deciding = decide(&self.inner.batcher, policies, charges, deadline);
        wait_for_reply(deadline, deciding).await.unwrap_or(Err(StoreError::Deadline))
    }

    /// Changes these keys by hand; see `Store::change`.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn change(
        &self,
        policies: &[Policy],
        keys: &[(PolicyId, Key)],
        change: StateChange,
    ) -> Result<usize, StoreError> {
        let (action, length) = match change {
            StateChange::Block(length) => ("block", length.0.to_string()),
            StateChange::Unblock => ("unblock", String::new()),
            StateChange::Reset => ("reset", String::new()),
        };
        self.wait_connected(FIRST_CONNECTION).await?;
        let mut known = 0;
        for (policy, key) in keys {
            let policy = &policies[*policy];
            let names = Policy::LETTERS
                .map(|letter| wire::stored_key(self.inner.client.prefix(), policy, *key, letter));
            let arguments = vec![Bytes::from_static(action.as_bytes()), Bytes::from(length.clone())];
            let names = names.map(Bytes::from).to_vec();
            let deadline = self.inner.client.deadline();
            let reply = Box::pin(self.inner.client.eval(&CHANGE, names, arguments, deadline)).await?;
            let count = std::str::from_utf8(&reply).ok().and_then(|text| text.parse::<usize>().ok());
            let count = count.ok_or_else(|| StoreError::Malformed("the reply is not a count".to_owned()))?;
            known += usize::from(count > 0);
        }
        Ok(known)
    }

    /// The fields of the record `PREFIX:consumer:HASH`; none if there is no such record.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline, or too many records are being read.
    pub async fn consumer_record(&self, hash: &str) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let _permit = self.inner.records.try_acquire().map_err(|_| StoreError::QueueFull)?;
        let name = format!("{}:consumer:{hash}", self.inner.client.prefix());
        let fields: HashMap<Bytes, Bytes> =
            self.inner.client.command("HGETALL", vec![name.into()], None).await?;
        Ok(fields.into_iter().collect())
    }

    /// All raises, unless they still have the version `known`.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn raises(&self, known: u64) -> Result<Option<RaiseList>, StoreError> {
        raises::read(&self.inner.client, known).await
    }

    /// Changes the raises, and returns all.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline; within that, why the raises can't be changed so.
    pub async fn change_raises(
        &self,
        change: &RaiseChange,
    ) -> Result<Result<RaiseList, RaiseError>, StoreError> {
        self.wait_connected(FIRST_CONNECTION).await?;
        raises::change(&self.inner.client, change).await
    }

    /// The keys of `policy`, at most `max`, among about a million names of each node.
    ///
    /// # Errors
    /// If there was no well-formed reply within the deadline.
    pub async fn keys(&self, policy: &Policy, max: usize) -> Result<Vec<Key>, StoreError> {
        let mut found = Vec::new();
        for node in cluster::nodes(&self.inner.client.client()) {
            found.extend(self.scan(node.as_ref(), policy, max.saturating_sub(found.len())).await?);
        }
        found.truncate(max);
        Ok(found)
    }

    /// The keys of `policy` on one node, each once; stops when there are `max`.
    async fn scan(&self, node: Option<&Server>, policy: &Policy, max: usize) -> Result<Vec<Key>, StoreError> {
        let (mut found, mut cursor) = (Vec::new(), String::from("0"));
        let pattern = Bytes::from(wire::pattern(self.inner.client.prefix(), policy));
        for _ in 0..MAX_SCANS {
            let args: Vec<Value> = vec![
                cursor.into(),
                "MATCH".into(),
                Value::Bytes(pattern.clone()),
                "COUNT".into(),
                "1000".into(),
            ];
            let (next, names): (String, Vec<Bytes>) = self.inner.client.command("SCAN", args, node).await?;
            found.extend(names.iter().filter_map(|name| wire::key_of(self.inner.client.prefix(), name)));
            // SCAN may return a name more than once, as while Redis resizes its table.
            found.sort_unstable();
            found.dedup();
            if next == "0" || found.len() >= max {
                break;
            }
            cursor = next;
        }
        Ok(found)
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("client", &self.inner.client).finish_non_exhaustive()
    }
}
