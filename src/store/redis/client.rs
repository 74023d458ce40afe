//! The current client of a Redis, and how scripts and commands are run over it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use super::patience::wait_for_command;
use super::script::{Script, ScriptCall, TAKE, options};
use super::url::{RedisAddress, RedisSpec};
use super::wire::Call;
use crate::store::types::StoreError;
use crate::telemetry::StoreCounts;
use crate::time::{Clock, monotonic};
use crate::tls::HandshakeFault;

/// The connection is closed if a server that has a pending command is silent for so long: less than the interval of the circuit
/// breaker's probes, in which nothing is sent to the server.
const UNRESPONSIVE_TIMEOUT: Duration = Duration::from_millis(300);
/// How much longer than a call's timeout that is at least.
const UNRESPONSIVE_MARGIN: Duration = Duration::from_millis(200);
/// How much later fred is woken, to find that.
const WATCH_MARGIN: Duration = Duration::from_millis(10);

/// Calls over one connection, which the `Reconnector` replaces when it fails.
pub(super) struct RedisClient {
    client: ArcSwap<Client>,
    /// Why the last connection failed.
    last_error: ArcSwap<String>,
    prefix: Box<str>,
    timeout: Duration,
    is_cluster: bool,
    /// Whether connections are made over TCP without TLS.
    is_plain: bool,
    /// Why there is no connection if the server does not reply in time, and what to change.
    no_reply: String,
    clock: TakeClock,
    counts: StoreCounts,
    /// Whether fred is being woken, since the server may be silent.
    is_watched: AtomicBool,
    /// Dropped with this client: then the reconnector closes the connection.
    _dropped: oneshot::Sender<()>,
}

/// The outcome of a script call after the first reply of the server.
pub(super) enum Evaluated {
    /// The reply, or why there is none.
    Ended(Result<Bytes, StoreError>),
    /// It was not run, since a slot is being moved. The future sends it again and waits for the reply.
    Delayed(Pin<Box<dyn Future<Output = Result<Bytes, StoreError>> + Send>>),
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

/// Why there is no connection if the server does not reply in time, and what to change.
fn no_reply(spec: &RedisSpec) -> String {
    match &spec.target.address {
        // Redis takes a TLS handshake for the beginning of a command, and waits for more.
        _ if spec.target.tls.is_some() => {
            "no reply; if it does not speak TLS, its URL must begin with redis://".to_owned()
        }
        // fred waits for an address when a Sentinel does not know the service.
        RedisAddress::Sentinel { service, .. } => {
            format!(
                "no reply; correct the address of the Sentinel, or `service`: it has no `sentinel monitor {service}`"
            )
        }
        _ => "no reply".to_owned(),
    }
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
        let is_plain = spec.target.tls.is_none() && !matches!(spec.target.address, RedisAddress::Unix(_));
        let (client, prefix) = (ArcSwap::from_pointee(client), spec.prefix.clone());
        Self {
            client,
            last_error,
            prefix,
            timeout: spec.timeout,
            is_cluster,
            is_plain,
            no_reply: no_reply(spec),
            clock,
            counts,
            is_watched: AtomicBool::new(false),
            _dropped: dropped,
        }
    }

    /// Replaces the client.
    pub fn replace(&self, client: Client) {
        self.client.store(Arc::new(client));
    }

    /// Records why there is no connection.
    pub fn record_failure(&self, error: &Error) {
        let mut reason = match error.kind() {
            ErrorKind::Timeout => self.no_reply().to_owned(),
            _ => reason(error),
        };
        if self.is_plain && reason.contains("reset by peer") {
            reason.push_str("; if it expects TLS, its URL must begin with rediss://");
        }
        self.last_error.store(Arc::new(reason));
    }

    /// Why there is no connection if the server does not reply in time.
    pub fn no_reply(&self) -> &str {
        &self.no_reply
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

    /// Runs a script by its hash, or by its source if the server does not have it; waits for the reply. `deadline` is the
    /// earliest of the requests in the call.
    pub async fn eval(
        self: &Arc<Self>,
        script: &'static Script,
        keys: Vec<Bytes>,
        arguments: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Bytes, StoreError> {
        let args = self.arguments(keys, arguments);
        match self.evaluate(ScriptCall::new(self.client(), script, args), deadline).await {
            Evaluated::Ended(reply) => reply,
            Evaluated::Delayed(again) => again.await,
        }
    }

    /// Has a script decide the requests of a call; waits no longer than for the server's first reply.
    pub async fn take(self: &Arc<Self>, call: Call, deadline: Instant) -> Evaluated {
        let (keys, arguments) = call.into_parts();
        let args = self.arguments(keys, arguments);
        self.evaluate(ScriptCall::new(self.client(), &TAKE, args), deadline).await
    }

    async fn evaluate(self: &Arc<Self>, mut call: ScriptCall, deadline: Instant) -> Evaluated {
        let started = monotonic();
        let reply = wait_for_command(self.timeout, pin!(call.run())).await;
        match reply {
            Some(Err(error)) if cluster::may_be_retried(&error) => {
                let (client, ends) = (Arc::clone(self), started + self.timeout);
                Evaluated::Delayed(Box::pin(async move {
                    let reply = tokio::time::timeout_at(ends, call.run_again(error, deadline)).await;
                    client.ended(started, reply.ok())
                }))
            }
            reply => Evaluated::Ended(self.ended(started, reply)),
        }
    }

    /// Counts a call that has ended, and reads its reply; none if the deadline has passed.
    fn ended(
        self: &Arc<Self>,
        started: Instant,
        reply: Option<Result<Value, Error>>,
    ) -> Result<Bytes, StoreError> {
        // Also refreshes the thread's cached time after the wait.
        self.counts.record_call(monotonic() - started);
        let reply = self.watched(reply)?;
        let no_string = || StoreError::Malformed("the script's reply is no string".to_owned());
        reply.into_bytes().ok_or_else(no_string)
    }

    /// Waits until the server that has this hash slot replies to a script without effect, or its connection is replaced. A
    /// script, since a server whose writes are paused replies to some other commands.
    pub async fn wait_for_reply(self: &Arc<Self>, slot: u16) {
        let cluster_hash = Some(ClusterHash::Custom(slot));
        // Without a timeout: fred ends the command with its connection.
        let options = Options { timeout: Some(Duration::ZERO), cluster_hash, ..options() };
        let command = CustomCommand::new_static("EVAL", ClusterHash::FirstKey, false);
        let client = self.client();
        self.watch_silence(Duration::ZERO);
        // An error is a reply as well.
        let _: Result<Value, Error> =
            client.with_options(&options).custom(command, vec!["return 0", "0"]).await;
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
    }

    /// Counts its calls.
    pub fn counts(&self) -> &StoreCounts {
        &self.counts
    }

    /// The result of a call; none if the deadline has passed.
    fn watched<T>(self: &Arc<Self>, reply: Option<Result<T, Error>>) -> Result<T, StoreError> {
        let result =
            reply.map_or(Err(StoreError::Deadline), |reply| reply.map_err(|error| self.store_error(&error)));
        if let Err(StoreError::Deadline) = result {
            self.watch_silence(self.timeout);
        }
        result
    }

    /// Makes fred close the connection if its server stays silent, after a command that has been pending for `pending`. fred
    /// checks that only when its task wakes up, or periodically, also while nothing is pending. So its task is woken by further
    /// commands, until one has a reply or fails with the connection.
    fn watch_silence(self: &Arc<Self>, pending: Duration) {
        if self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let (client, silent) = (Arc::downgrade(self), unresponsive_timeout(self.timeout) + WATCH_MARGIN);
        tokio::spawn(async move {
            tokio::time::sleep(silent.saturating_sub(pending)).await;
            while let Some(client) = client.upgrade() {
                // A script, since a server whose writes are paused replies to some other commands.
                let script: Vec<Value> = vec!["return 0".into(), "0".into()];
                let reply = client.unwatched::<Value>("EVAL", script, None).await;
                if !matches!(reply, Err(StoreError::Deadline)) {
                    client.is_watched.store(false, Ordering::Relaxed);
                    return;
                }
                drop(client);
                tokio::time::sleep(silent).await;
            }
        });
    }

    /// Sends one command to a node of a cluster, or to the single server.
    pub async fn command<R: FromValue>(
        self: &Arc<Self>,
        name: &'static str,
        args: Vec<Value>,
        node: Option<&Server>,
    ) -> Result<R, StoreError> {
        let result = self.unwatched(name, args, node).await;
        if let Err(StoreError::Deadline) = result {
            self.watch_silence(self.timeout);
        }
        result
    }

    async fn unwatched<R: FromValue>(
        &self,
        name: &'static str,
        args: Vec<Value>,
        node: Option<&Server>,
    ) -> Result<R, StoreError> {
        let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
        let client = self.client();
        let options = Options { cluster_node: node.cloned(), ..options() };
        let running = pin!(async { client.with_options(&options).custom::<R, Value>(command, args).await });
        let reply = wait_for_command(self.timeout, running).await;
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        reply.ok_or(StoreError::Deadline)?.map_err(|error| self.store_error(&error))
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

    /// The arguments of a script's call, after the script.
    fn arguments(&self, keys: Vec<Bytes>, own: Vec<Bytes>) -> Vec<Value> {
        let (now, extra_ttl) = match &self.clock {
            TakeClock::Server => (String::new(), Duration::ZERO),
            TakeClock::Sent { clock, extra_ttl } => (clock.wall().0.to_string(), *extra_ttl),
        };
        let mut arguments = Vec::with_capacity(keys.len() + own.len() + 4);
        arguments.push(keys.len().to_string().into());
        arguments.extend(keys.into_iter().map(Value::Bytes));
        arguments.push(now.into());
        arguments.push(extra_ttl.as_millis().to_string().into());
        arguments.extend(own.into_iter().map(Value::Bytes));
        arguments
    }
}

/// After so long without a reply to a pending command a connection is closed, if the timeout of calls is `timeout`.
pub(super) fn unresponsive_timeout(timeout: Duration) -> Duration {
    UNRESPONSIVE_TIMEOUT.max(timeout + UNRESPONSIVE_MARGIN)
}

/// fred's error of a connection in readable form, with what to change: it has system errors in their debug format.
fn reason(error: &Error) -> String {
    let details = error.details();
    if let Some(fault) = HandshakeFault::of_debug(details).filter(|_| *error.kind() == ErrorKind::IO) {
        return format!("the TLS handshake failed: {}; {}", fault.what(), fault.cure());
    }
    if *error.kind() == ErrorKind::Protocol {
        return "the server does not reply as Redis does; correct the host and the port of its URL"
            .to_owned();
    }
    if details.contains("unknown command") && details.to_ascii_uppercase().contains("HELLO") {
        return "the server is older than Redis 6: it has no HELLO; upgrade it to 6.2 or later".to_owned();
    }
    let quoted = |start| details.split_once(start).and_then(|(_, rest)| rest.split_once('"'));
    let text = quoted("message: \"").or_else(|| quoted("error: \"")).map_or(details, |(text, _)| text);
    if text.contains("failed to lookup address") {
        let name = "correct it in the URL, or add it to the DNS or /etc/hosts of this machine";
        return format!("its host name is unknown ({}); {name}", sentence(text));
    }
    sentence(text)
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
