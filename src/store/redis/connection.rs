//! The connection to Redis: fred's configuration, and its replacement when it gives up.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, ClusterInterface as _, EventInterface};
use fred::types::config::{
    ClusterDiscoveryPolicy, Config, ConnectionConfig, Options, PerformanceConfig, ReconnectPolicy, Server,
    ServerConfig, TcpConfig, TlsConfig, TlsConnector, TlsHostMapping, UnresponsiveConfig,
};
use fred::types::{ClusterHash, CustomCommand, RespVersion, Value};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, oneshot};

use super::client::{RedisClient, unresponsive_timeout};
use super::patience::fred_timeout;
use super::script::options;
use super::url::{Node, RedisAddress, RedisSpec};
use crate::time::monotonic;

/// The bounds of the timeout of connecting, and of fred's own commands.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many times the timeout of a call connecting may take, since it takes several round trips.
const CONNECT_FACTOR: u32 = 5;
/// The pause before a client that did not connect, or has ended, is replaced.
const REBUILD_PAUSE: Duration = Duration::from_millis(500);
/// The longest that a connection attempt may take. It is shorter, unless many nodes of a cluster do not respond.
const MAX_ATTEMPT: Duration = Duration::from_secs(10);

/// Runs a client, and replaces it when it no longer works.
pub(super) struct Reconnector {
    spec: RedisSpec,
    client: Client,
    /// Which of several Sentinels is tried first.
    turn: usize,
    /// The masters of a cluster that a previous client knew: those of the configuration may be gone by now.
    known: Vec<Server>,
}

/// A client that is not connected.
fn build(spec: &RedisSpec, turn: usize, known: &[Server]) -> Client {
    let target = &spec.target;
    let config = Config {
        server: server(&target.address, turn, known),
        username: target.username.clone(),
        password: target.password.clone(),
        database: Some(target.database).filter(|number| *number > 0),
        version: RespVersion::RESP3,
        // Start without Redis, and keep trying to connect.
        fail_fast: false,
        tls: target.tls.as_ref().map(|tls| TlsConfig {
            connector: TlsConnector::Rustls(tls.connector()),
            hostnames: TlsHostMapping::None,
        }),
        ..Config::default()
    };
    // A slow server may still reply within the timeout of a call.
    let timeout = (spec.timeout * CONNECT_FACTOR).clamp(MIN_CONNECT_TIMEOUT, MAX_CONNECT_TIMEOUT);
    let connection = ConnectionConfig {
        connection_timeout: timeout,
        internal_command_timeout: timeout,
        // A command that may have been run is never sent again. fred would send it again after MOVED and ASK, and
        // after ASK to the wrong node; so fred returns the redirection, and `cluster` sends the command again.
        max_command_attempts: 1,
        max_redirections: 0,
        // Zero means no bound; with a bound fred ends its routing task for good when it is reached. Commands in flight are
        // bounded by `MAX_PENDING` of the batcher.
        max_command_buffer_len: 0,
        unresponsive: UnresponsiveConfig {
            max_timeout: Some(unresponsive_timeout(spec.timeout)),
            // fred also checks whenever its task wakes up, which `RedisClient::watch_silence` sees to.
            interval: Duration::from_hours(1),
        },
        tcp: TcpConfig {
            nodelay: Some(true),
            user_timeout: Some(Duration::from_secs(1)),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    };
    let performance = PerformanceConfig {
        default_command_timeout: fred_timeout(spec.timeout),
        ..PerformanceConfig::default()
    };
    // A closed connection is replaced at once, since until then fred takes it for connected; the delay of further attempts
    // grows to half a second.
    let mut reconnect = ReconnectPolicy::new_exponential(0, 1, 500, 4);
    reconnect.set_jitter(10);
    Client::new(config, Some(performance), Some(connection), Some(reconnect))
}

fn server(address: &RedisAddress, turn: usize, known: &[Server]) -> ServerConfig {
    let one = |node: &Node| Server::new(node.host.as_str(), node.port);
    match address {
        RedisAddress::Tcp(node) => ServerConfig::Centralized { server: one(node) },
        RedisAddress::Unix(path) => ServerConfig::Unix { path: path.clone() },
        RedisAddress::Sentinel { nodes, service, username, password } => {
            let mut hosts: Vec<Server> = nodes.iter().map(one).collect();
            // fred always uses the first that accepts a connection, even if that one hangs. The next client starts with another.
            let first = turn.checked_rem(hosts.len()).unwrap_or(0);
            hosts.rotate_left(first);
            let (username, password) = (username.clone(), password.clone());
            ServerConfig::Sentinel { hosts, service_name: service.clone(), username, password }
        }
        RedisAddress::Cluster(nodes) => {
            let mut hosts: Vec<Server> = nodes.iter().map(one).collect();
            let more = known.iter().filter(|server| !hosts.contains(server)).cloned();
            hosts.extend(more.collect::<Vec<_>>());
            ServerConfig::Clustered { hosts, policy: ClusterDiscoveryPolicy::UseCache }
        }
    }
}

impl Reconnector {
    /// A reconnector whose client is not connected yet.
    pub fn new(spec: &RedisSpec) -> Self {
        let turn = fastrand::usize(..=usize::from(u16::MAX));
        Self { spec: spec.clone(), client: build(spec, turn, &[]), turn, known: Vec::new() }
    }

    /// The present client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Runs clients one after the other and hands them to `redis`, until the sender of `dropped` is dropped. `reconnect`
    /// requests the next client.
    pub async fn run(
        mut self,
        redis: Weak<RedisClient>,
        reconnect: Arc<Notify>,
        mut dropped: oneshot::Receiver<()>,
    ) {
        let is_cluster = matches!(self.spec.target.address, RedisAddress::Cluster(_));
        loop {
            let connections = self.client.reconnect_rx();
            let mut running = self.client.connect();
            let has_ended = tokio::select! {
                _ = &mut dropped => {
                    running.abort();
                    return;
                }
                // fred has given up, which its configuration forbids.
                _ = &mut running => true,
                () = self.record_failures(&redis) => false,
                () = name_connections(&self.client, connections, is_cluster) => false,
                () = until_useless(&self.client, is_cluster, &reconnect) => false,
            };
            // This closes its connections, and fails the calls in flight.
            running.abort();
            self.turn += 1;
            let state = self.client.cached_cluster_state();
            if let Some(nodes) =
                state.map(|state| state.unique_primary_nodes()).filter(|nodes| !nodes.is_empty())
            {
                self.known = nodes;
            }
            self.client = build(&self.spec, self.turn, &self.known);
            let Some(redis) = redis.upgrade() else { return };
            redis.replace(self.client());
            drop(redis);
            if has_ended {
                tokio::time::sleep(REBUILD_PAUSE).await;
            }
        }
    }

    /// Records why there is no connection, until the next client would start with another Sentinel. Without Sentinels another
    /// client would do no better, so this one keeps trying.
    async fn record_failures(&self, redis: &Weak<RedisClient>) {
        let has_others = match &self.spec.target.address {
            RedisAddress::Sentinel { nodes, .. } => nodes.len() > 1,
            _ => false,
        };
        let started = monotonic();
        let mut failures = self.client.error_rx();
        loop {
            match (failures.recv().await, redis.upgrade()) {
                (Ok((error, _)), Some(redis)) => redis.record_failure(&error),
                // Some errors were missed; more will follow.
                (Err(RecvError::Lagged(_)), Some(_)) => {}
                _ => return,
            }
            // An attempt has just failed, so none is interrupted.
            if has_others && !self.client.is_connected() && started + REBUILD_PAUSE <= monotonic() {
                return;
            }
        }
    }
}

/// Gives each connection a name for CLIENT LIST and ACL LOG, which says whose it is; never returns.
async fn name_connections(client: &Client, mut connections: Receiver<Server>, is_cluster: bool) {
    let thread = std::thread::current();
    let name = format!("tidegate-{}", thread.name().unwrap_or("thread"));
    loop {
        match connections.recv().await {
            Ok(server) => {
                let options = Options { cluster_node: is_cluster.then_some(server), ..options() };
                // A user without the permission for this has connections without a name.
                let command = CustomCommand::new_static("CLIENT", ClusterHash::FirstKey, false);
                let _: Result<Value, Error> =
                    client.with_options(&options).custom(command, vec!["SETNAME", &name]).await;
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits until another client is requested while this one neither connects nor fails with an error. A client of a cluster
/// may have an outdated map of slots, so it is replaced also after an error.
async fn until_useless(client: &Client, is_cluster: bool, reconnect: &Notify) {
    loop {
        reconnect.notified().await;
        if client.is_connected() {
            // It is connected, and still no call got a reply.
            return;
        }
        let mut failures = client.error_rx();
        let attempt = async {
            tokio::select! {
                connected = client.wait_for_connect() => connected.is_ok(),
                _ = failures.recv() => false,
            }
        };
        match tokio::time::timeout(MAX_ATTEMPT, attempt).await {
            Ok(is_connected) if is_connected || !is_cluster => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_client_of_a_cluster_knows_what_the_last_one_did() {
        let node = |port| Node { host: "a".into(), port };
        let known = [2, 3].map(|port| Server::new("a", port));
        let config = server(&RedisAddress::Cluster(vec![node(1), node(2)]), 0, &known);
        let ports: Vec<u16> = config.hosts().iter().map(|server| server.port).collect();
        assert_eq!(ports, [1, 2, 3]);
    }
}
