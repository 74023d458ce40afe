//! Counts in Redis. The only place that knows fred.
//!
//! All charges of a request go to the server in one call of one script, which decides and charges them
//! atomically. A take is never sent again once it may have been run: a lost reply must not charge twice.

mod apart;
mod cluster;
mod connection;
mod script;
mod tls;
mod url;
mod wire;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike;
use fred::types::config::Options;
use fred::types::{ClusterHash, CustomCommand, Value};
use tokio::sync::oneshot;

pub use script::{CHANGE, Script, TAKE};
pub use tls::{Tls, TlsError, TlsSpec};
pub use url::{Endpoint, Node, Target, UrlError};
pub use wire::stored_key;

use super::{Change, Decisions, StoreError};
use crate::limit::{Charge, Key, Policy, PolicyId, Quota};
use crate::time::{Clock, Timestamp, monotonic};

/// How many charges are settled in one call: it must not keep the server from others.
const SETTLED_AT_ONCE: usize = 256;
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
    client: ArcSwap<Client>,
    prefix: Box<str>,
    timeout: Duration,
    clock: TakeClock,
    /// Whether keys lie on several nodes.
    is_cluster: bool,
    /// Dropped with the last clone: then the supervisor ends the connection.
    _wants: oneshot::Sender<()>,
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<Bytes, StoreError>> + Send + 'a>>;

/// Whose clock decides.
#[derive(Debug)]
enum TakeClock {
    Server,
    Sent { clock: Arc<Clock>, extra_ttl: Duration },
}

impl Redis {
    /// Starts to connect and returns at once; must be called within a runtime.
    #[must_use]
    pub fn connect(spec: &RedisSpec) -> Self {
        let clock = if spec.client_clock {
            // Clocks that differ by up to a second must not make a state vanish early.
            TakeClock::Sent { clock: Arc::new(Clock::System), extra_ttl: Duration::from_secs(1) }
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
        let client = connection::build(spec);
        let (wants, wanted) = oneshot::channel();
        let shared = Arc::new(Shared {
            client: ArcSwap::from_pointee(client.clone()),
            prefix: spec.prefix.clone(),
            timeout: spec.timeout,
            clock,
            is_cluster: matches!(spec.target.endpoint, Endpoint::Cluster(_)),
            _wants: wants,
        });
        let adopter = Arc::downgrade(&shared);
        tokio::spawn(connection::supervise(spec.clone(), client, wanted, move |client| {
            if let Some(shared) = adopter.upgrade() {
                shared.client.store(Arc::new(client));
            }
        }));
        Self { shared }
    }

    /// Whether it is connected, waiting at most `patience` for it.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn reach(&self, patience: Duration) -> Result<(), StoreError> {
        let client = self.shared.client.load_full();
        match tokio::time::timeout(patience, client.wait_for_connect()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(store_error(&error)),
            Err(_) => Err(StoreError::Away),
        }
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
    pub async fn take(&self, policies: &[Policy], charges: &[Charge]) -> Result<Decisions, StoreError> {
        if self.shared.is_cluster && apart::is_apart(charges) {
            let taken = apart::take(self, policies, charges);
            return tokio::time::timeout(self.shared.timeout, taken)
                .await
                .map_err(|_| StoreError::Deadline)?;
        }
        let mut call = wire::Call::default();
        call.add(&self.shared.prefix, policies, charges, self.shared.clock.now());
        self.run(call, policies, charges).await
    }

    /// Does each charge by itself; see [`super::Store::settle`].
    ///
    /// # Errors
    /// When no answer came within the deadline, or one that is none.
    pub async fn settle(&self, policies: &[Policy], charges: &[Charge]) -> Result<Decisions, StoreError> {
        let mut decisions = Decisions::new();
        for some in charges.chunks(SETTLED_AT_ONCE) {
            if self.shared.is_cluster && apart::is_apart(some) {
                decisions.extend(apart::settle(self, policies, some).await?);
                continue;
            }
            let mut call = wire::Call::default();
            for charge in some {
                call.add(
                    &self.shared.prefix,
                    policies,
                    std::slice::from_ref(charge),
                    self.shared.clock.now(),
                );
            }
            decisions.extend(self.run(call, policies, some).await?);
        }
        Ok(decisions)
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
            let policy = &policies[policy.0 as usize];
            let names =
                Quota::LETTERS.map(|letter| wire::stored_key(&self.shared.prefix, policy, *key, letter));
            let arguments = vec![Bytes::from_static(what.as_bytes()), Bytes::from(length.clone())];
            let reply = self.eval(&CHANGE, names.map(Bytes::from).to_vec(), arguments).await?;
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
        let client = self.shared.client.load_full();
        for node in cluster::nodes(&client) {
            self.scan(&client, &Options { cluster_node: node, ..options() }, policy, max, &mut found).await?;
        }
        found.truncate(max);
        Ok(found)
    }

    async fn scan(
        &self,
        client: &Client,
        node: &Options,
        policy: &Policy,
        max: usize,
        found: &mut Vec<Key>,
    ) -> Result<(), StoreError> {
        let mut cursor = String::from("0");
        let pattern = Bytes::from(wire::pattern(&self.shared.prefix, policy));
        for _ in 0..SCANS {
            let args: Vec<Value> = vec![
                cursor.into(),
                "MATCH".into(),
                Value::Bytes(pattern.clone()),
                "COUNT".into(),
                "1000".into(),
            ];
            let command = CustomCommand::new_static("SCAN", ClusterHash::FirstKey, false);
            let asked = async {
                client.with_options(node).custom::<(String, Vec<Bytes>), Value>(command, args).await
            };
            let reply = tokio::time::timeout(self.shared.timeout, asked).await;
            let (next, names) =
                reply.map_err(|_| StoreError::Deadline)?.map_err(|error| store_error(&error))?;
            found.extend(names.iter().filter_map(|name| wire::key_of(&self.shared.prefix, name)));
            if next == "0" || found.len() >= max {
                break;
            }
            cursor = next;
        }
        Ok(())
    }

    async fn run(
        &self,
        call: wire::Call,
        policies: &[Policy],
        charges: &[Charge],
    ) -> Result<Decisions, StoreError> {
        wire::decisions(&self.call(call).await?, policies, charges)
    }

    /// One call of the script, whose keys have one tag.
    async fn call(&self, call: wire::Call) -> Result<Bytes, StoreError> {
        let arguments = vec![call.policies.into(), call.requests.into()];
        // In a box, or the compiler loses count of the futures within futures.
        let running: Calling<'_> = Box::pin(self.eval(&TAKE, call.keys, arguments));
        running.await
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn prefix(&self) -> &str {
        &self.shared.prefix
    }

    /// Runs a script by its hash, and with its whole text where the server doesn't know it. That is the one
    /// call that may go twice: NOSCRIPT says that nothing was run.
    async fn eval(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        arguments: Vec<Bytes>,
    ) -> Result<Bytes, StoreError> {
        let client = self.shared.client.load_full();
        let args = self.arguments(keys, arguments);
        let running = async {
            match eval(&client, "EVALSHA", script.sha.as_str().into(), args.clone()).await {
                Err(error) if error.details().starts_with("NOSCRIPT") => {
                    eval(&client, "EVAL", script.source.into(), args).await
                }
                other => other,
            }
        };
        let reply = tokio::time::timeout(self.shared.timeout, running).await;
        // It has waited: time has passed.
        let _ = monotonic();
        reply.map_err(|_| StoreError::Deadline)?.map_err(|error| store_error(&error))
    }

    fn arguments(&self, keys: Vec<Bytes>, own: Vec<Bytes>) -> Vec<Value> {
        let (now, extra_ttl) = match &self.shared.clock {
            TakeClock::Server => (String::new(), Duration::ZERO),
            TakeClock::Sent { clock, extra_ttl } => (clock.now().0.to_string(), *extra_ttl),
        };
        let mut arguments = Vec::with_capacity(keys.len() + own.len() + 4);
        arguments.push(Value::Null); // The script's place.
        arguments.push(keys.len().to_string().into());
        arguments.extend(keys.into_iter().chain(own).map(Value::Bytes));
        arguments.push(now.into());
        arguments.push(extra_ttl.as_millis().to_string().into());
        arguments
    }
}

impl TakeClock {
    /// The time as this proxy knows it.
    fn now(&self) -> Timestamp {
        match self {
            Self::Server => Clock::System.now(),
            Self::Sent { clock, .. } => clock.now(),
        }
    }
}

/// One EVAL or EVALSHA. It goes through fred's custom commands because only those honour the options: fail
/// at once while there is no connection, and never send again.
async fn eval(
    client: &Client,
    command: &'static str,
    script: Value,
    mut args: Vec<Value>,
) -> Result<Bytes, Error> {
    if let Some(place) = args.first_mut() {
        *place = script;
    }
    let reply = cluster::send(client, command, args, &options()).await?;
    reply.into_bytes().ok_or_else(|| Error::new(ErrorKind::Parse, "the script's reply is no string"))
}

fn options() -> Options {
    Options { fail_fast: true, max_attempts: Some(1), ..Options::default() }
}

fn store_error(error: &Error) -> StoreError {
    match error.kind() {
        ErrorKind::Timeout => StoreError::Deadline,
        ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Routing | ErrorKind::Backpressure => {
            StoreError::Away
        }
        ErrorKind::Parse | ErrorKind::Protocol => StoreError::Garbled(error.details().to_owned()),
        _ => StoreError::Refused(error.details().to_owned()),
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.shared.prefix).finish_non_exhaustive()
    }
}
