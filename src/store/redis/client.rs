//! A line to Redis: the client of the moment, and how a script is run over it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike;
use fred::types::config::{Options, Server};
use fred::types::{ClusterHash, CustomCommand, FromValue, Value};
use tokio::time::Instant;

use super::cluster;
use super::script::Script;
use super::{Endpoint, RedisSpec};
use crate::store::StoreError;
use crate::time::{Clock, monotonic};

/// What is asked over one connection.
pub(super) struct RedisClient {
    client: ArcSwap<Client>,
    /// Why there was no connection last.
    fault: ArcSwap<String>,
    prefix: Box<str>,
    timeout: Duration,
    is_cluster: bool,
    clock: TakeClock,
}

/// Whose clock decides.
#[derive(Debug)]
pub(super) enum TakeClock {
    /// The server's.
    Server,
    /// The wall clock of one that is sent along; states are kept for so much longer.
    Sent {
        /// The clock.
        clock: Arc<Clock>,
        /// What is added to every time to live.
        extra_ttl: Duration,
    },
}

impl RedisClient {
    pub fn new(client: Client, spec: &RedisSpec, clock: TakeClock) -> Self {
        let fault = ArcSwap::from_pointee("it was never tried".to_owned());
        let is_cluster = matches!(spec.target.endpoint, Endpoint::Cluster(_));
        let (client, prefix) = (ArcSwap::from_pointee(client), spec.prefix.clone());
        Self { client, fault, prefix, timeout: spec.timeout, is_cluster, clock }
    }

    /// Takes up another client.
    pub fn adopt(&self, client: Client) {
        self.client.store(Arc::new(client));
    }

    /// Notes why there is no connection.
    pub fn broke(&self, error: &Error) {
        self.fault.store(Arc::new(reason(error)));
    }

    /// That there is no connection, and why.
    pub fn away(&self) -> StoreError {
        StoreError::Away(self.fault.load().to_string())
    }

    pub fn client(&self) -> Arc<Client> {
        self.client.load_full()
    }

    /// The first part of every stored key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The longest that anything is waited for.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The deadline of what is asked now.
    pub fn deadline(&self) -> Instant {
        monotonic() + self.timeout
    }

    /// This proxy's clock: late charges have an age by it, and calendar windows follow its wall clock.
    pub fn clock(&self) -> &Clock {
        match &self.clock {
            TakeClock::Server => &Clock::Monotonic,
            TakeClock::Sent { clock, .. } => clock,
        }
    }

    /// Runs a script by its hash, and with its whole text where the server doesn't know it. That is the one
    /// call that may go twice: NOSCRIPT says that nothing was run. `deadline` is that of the first who waits for it.
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
        self.within(running).await
    }

    /// Asks one command of a node of a cluster, or of the one server that there is.
    pub async fn ask<R: FromValue>(
        &self,
        name: &'static str,
        args: Vec<Value>,
        node: Option<&Server>,
    ) -> Result<R, StoreError> {
        let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
        let client = self.client();
        let options = Options { cluster_node: node.cloned(), ..options() };
        self.within(async { client.with_options(&options).custom::<R, Value>(command, args).await }).await
    }

    async fn within<T>(&self, asking: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
        let reply = tokio::time::timeout(self.timeout, asking).await;
        // It has waited: time has passed.
        let _ = monotonic();
        reply.map_err(|_| StoreError::Deadline)?.map_err(|error| self.store_error(&error))
    }

    /// What became of a call. fred's own errors can be told from the server's by their words alone.
    fn store_error(&self, error: &Error) -> StoreError {
        match (error.kind(), error.details()) {
            _ if cluster::is_try_again(error) => StoreError::SlotMoving,
            // What had been written would have been answered with the end of its connection, so this still waited in fred
            // for the next one. A cluster has several connections, and this need not be the one that is missing.
            (ErrorKind::Timeout, _) if !self.is_cluster && !self.client().is_connected() => self.away(),
            (ErrorKind::Timeout, _) => StoreError::Deadline,
            // The second when its client was built anew.
            (ErrorKind::IO, _)
            | (ErrorKind::Unknown, "Too many failed write attempts." | "channel closed") => StoreError::Lost,
            (ErrorKind::Canceled | ErrorKind::Routing | ErrorKind::Backpressure, _)
            | (ErrorKind::Unknown, "Failed to route command." | "Client is not initialized.") => self.away(),
            (ErrorKind::Parse | ErrorKind::Protocol, details) => StoreError::Garbled(details.to_owned()),
            // Of the script Redis says where it was; that is no news to whoever reads it.
            (_, details) => {
                StoreError::Refused(sentence(details.split(" script: ").next().unwrap_or(details)))
            }
        }
    }

    /// One EVAL or EVALSHA. It goes through fred's custom commands because only those honour the options: fail
    /// at once while there is no connection, and never send again.
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

/// What fred says of a connection, for people: it has system errors as their debug output.
fn reason(error: &Error) -> String {
    let details = error.details();
    let message = details.split_once("message: \"").and_then(|(_, rest)| rest.split_once('"'));
    match error.kind() {
        ErrorKind::Timeout => "it does not answer".to_owned(),
        _ => sentence(message.map_or(details, |(message, _)| message)),
    }
}

/// Words that may stand within a sentence.
fn sentence(words: &str) -> String {
    words.trim_end_matches('.').to_owned()
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
