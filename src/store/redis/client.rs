//! The current client of a Redis, and how scripts and commands are run over it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike;
use fred::types::config::{Options, Server};
use fred::types::{ClusterHash, CustomCommand, FromValue, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cluster;
use super::script::Script;
use super::spec::RedisSpec;
use super::url::RedisAddress;
use crate::store::types::StoreError;
use crate::telemetry::StoreCounts;
use crate::time::{Clock, cached_now, monotonic};

/// Calls over one connection, which the `Reconnector` replaces when it fails.
pub(super) struct RedisClient {
    client: ArcSwap<Client>,
    /// Why the last connection failed.
    last_error: ArcSwap<String>,
    prefix: Box<str>,
    timeout: Duration,
    is_cluster: bool,
    clock: TakeClock,
    counts: StoreCounts,
    /// Dropped with this client: then the reconnector closes the connection.
    _dropped: oneshot::Sender<()>,
}

/// The clock of decisions.
#[derive(Debug)]
pub(super) enum TakeClock {
    /// The server's.
    Server,
    /// The wall time of a clock is sent with each call; states are kept for longer.
    Sent {
        /// The clock.
        clock: Arc<Clock>,
        /// Added to every time to live.
        extra_ttl: Duration,
    },
}

impl RedisClient {
    pub fn new(
        client: Client,
        spec: &RedisSpec,
        (clock, counts): (TakeClock, StoreCounts),
        dropped: oneshot::Sender<()>,
    ) -> Self {
        let last_error = ArcSwap::from_pointee("no attempt yet".to_owned());
        let is_cluster = matches!(spec.target.address, RedisAddress::Cluster(_));
        let (client, prefix) = (ArcSwap::from_pointee(client), spec.prefix.clone());
        Self {
            client,
            last_error,
            prefix,
            timeout: spec.timeout,
            is_cluster,
            clock,
            counts,
            _dropped: dropped,
        }
    }

    /// Replaces the client.
    pub fn replace(&self, client: Client) {
        self.client.store(Arc::new(client));
    }

    /// Records why there is no connection.
    pub fn record_failure(&self, error: &Error) {
        self.last_error.store(Arc::new(reason(error)));
    }

    /// The error of calls while there is no connection.
    pub fn not_connected(&self) -> StoreError {
        StoreError::NotConnected(self.last_error.load().to_string())
    }

    pub fn client(&self) -> Arc<Client> {
        self.client.load_full()
    }

    /// The first part of every stored key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The longest that a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The deadline of a call that starts now.
    pub fn deadline(&self) -> Instant {
        monotonic() + self.timeout
    }

    /// This proxy's clock: for the age of late charges, and for calendar windows, which follow its wall clock.
    pub fn clock(&self) -> &Clock {
        match &self.clock {
            TakeClock::Server => &Clock::Monotonic,
            TakeClock::Sent { clock, .. } => clock,
        }
    }

    /// Runs a script by its hash, or by its source if the server does not have it. Only this call may be sent twice, since
    /// NOSCRIPT proves that nothing was run. `deadline` is the earliest of the requests in the call.
    pub async fn eval(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        arguments: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Bytes, StoreError> {
        let mut args = self.arguments(script.sha.as_str().into(), keys, arguments);
        let running = async {
            match self.run("EVALSHA", &args, deadline).await {
                Err(error) if error.details().starts_with("NOSCRIPT") => {
                    args[0] = script.source.into();
                    self.run("EVAL", &args, deadline).await
                }
                other => other,
            }
        };
        let started = monotonic();
        let result = self.with_timeout(running).await;
        self.counts.record_call(cached_now() - started);
        result
    }

    /// Counts its calls.
    pub fn counts(&self) -> &StoreCounts {
        &self.counts
    }

    /// Sends one command to a node of a cluster, or to the single server.
    pub async fn command<R: FromValue>(
        &self,
        name: &'static str,
        args: Vec<Value>,
        node: Option<&Server>,
    ) -> Result<R, StoreError> {
        let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
        let client = self.client();
        let options = Options { cluster_node: node.cloned(), ..options() };
        self.with_timeout(async { client.with_options(&options).custom::<R, Value>(command, args).await })
            .await
    }

    async fn with_timeout<T>(
        &self,
        running: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let reply = tokio::time::timeout(self.timeout, running).await;
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        reply.map_err(|_| StoreError::Deadline)?.map_err(|error| self.store_error(&error))
    }

    /// Classifies the error of a call. fred's own errors differ from the server's only in their texts.
    fn store_error(&self, error: &Error) -> StoreError {
        match (error.kind(), error.details()) {
            _ if cluster::is_try_again(error) => StoreError::SlotMoving,
            // A command that had been written would have failed with its connection, so this one was still queued in fred for
            // the next connection. A cluster has several connections, and another one may be missing.
            (ErrorKind::Timeout, _) if !self.is_cluster && !self.client().is_connected() => {
                self.not_connected()
            }
            (ErrorKind::Timeout, _) => StoreError::Deadline,
            // The latter when the client was replaced.
            (ErrorKind::IO, _)
            | (ErrorKind::Unknown, "Too many failed write attempts." | "channel closed") => StoreError::Lost,
            (ErrorKind::Canceled | ErrorKind::Routing | ErrorKind::Backpressure, _)
            | (ErrorKind::Unknown, "Failed to route command." | "Client is not initialized.") => {
                self.not_connected()
            }
            (ErrorKind::Parse | ErrorKind::Protocol, details) => StoreError::Malformed(details.to_owned()),
            // Redis appends the script's hash and line, which mean nothing to an operator.
            (_, details) => {
                StoreError::ErrorReply(sentence(details.split(" script: ").next().unwrap_or(details)))
            }
        }
    }

    /// One EVAL or EVALSHA. It is one of fred's custom commands because only these honour the options: fail at once while
    /// there is no connection, and never send again.
    async fn run(&self, name: &'static str, args: &[Value], deadline: Instant) -> Result<Bytes, Error> {
        let reply = cluster::send(&self.client(), name, args, &options(), deadline).await?;
        reply.into_bytes().ok_or_else(|| Error::new(ErrorKind::Parse, "the script's reply is no string"))
    }

    fn arguments(&self, script: Value, keys: Vec<Bytes>, own: Vec<Bytes>) -> Vec<Value> {
        let (now, extra_ttl) = match &self.clock {
            TakeClock::Server => (String::new(), Duration::ZERO),
            TakeClock::Sent { clock, extra_ttl } => (clock.wall().0.to_string(), *extra_ttl),
        };
        let mut arguments = Vec::with_capacity(keys.len() + own.len() + 4);
        arguments.push(script);
        arguments.push(keys.len().to_string().into());
        arguments.extend(keys.into_iter().map(Value::Bytes));
        arguments.push(now.into());
        arguments.push(extra_ttl.as_millis().to_string().into());
        arguments.extend(own.into_iter().map(Value::Bytes));
        arguments
    }
}

fn options() -> Options {
    Options { fail_fast: true, max_attempts: Some(1), ..Options::default() }
}

/// fred's error of a connection in readable form: it has system errors in their debug format.
fn reason(error: &Error) -> String {
    let details = error.details();
    let message = details.split_once("message: \"").and_then(|(_, rest)| rest.split_once('"'));
    match error.kind() {
        ErrorKind::Timeout => "no reply".to_owned(),
        _ => sentence(message.map_or(details, |(message, _)| message)),
    }
}

/// A text without its full stop, to be quoted within a sentence.
fn sentence(words: &str) -> String {
    words.trim_end_matches('.').to_owned()
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisClient").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
