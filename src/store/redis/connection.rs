//! The connection to Redis: how fred is set up, and what happens when it gives up.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{ClientLike, ClusterInterface as _, EventInterface};
use fred::types::RespVersion;
use fred::types::config::{
    ClusterDiscoveryPolicy, Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, Server,
    ServerConfig, TcpConfig, TlsConfig, TlsConnector, TlsHostMapping, UnresponsiveConfig,
};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, oneshot};

use super::client::RedisClient;
use super::{Endpoint, Node, RedisSpec};
use crate::time::monotonic;

/// How long connecting, and then whatever fred asks a server by itself, may take at least, and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// So many answers fred waits for in that time.
const ANSWERS: u32 = 5;
/// After this silence of a server that owes an answer the connection is given up, or a little after the deadline of
/// what it was asked: less than the breaker's pause, which is without a word to the server.
const UNRESPONSIVE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(200));
/// How much sooner fred gives up than whoever asked it: what fred itself has given up it does not send any more.
const SOONER: Duration = Duration::from_millis(2);
/// How long a client that does not connect, or ends, is given before the next one.
const REBUILD_PAUSE: Duration = Duration::from_millis(500);
/// How long a new connection may be on its way. It ends sooner, unless a cluster has many nodes that do not answer.
const LONGEST_WAY: Duration = Duration::from_secs(10);

/// Runs a client, and a new one when that is of no use any more.
pub(super) struct Supervisor {
    spec: RedisSpec,
    client: Client,
    /// Which of several Sentinels is the first to be asked.
    turn: usize,
    /// The masters of a cluster that a client before this one knew: those of the file may be gone by now.
    known: Vec<Server>,
}

/// A client that is not connected yet.
fn build(spec: &RedisSpec, turn: usize, known: &[Server]) -> Client {
    let target = &spec.target;
    let config = Config {
        server: server(&target.endpoint, turn, known),
        username: target.username.clone(),
        password: target.password.clone(),
        database: Some(target.database).filter(|number| *number > 0),
        version: RespVersion::RESP3,
        // Start without Redis, and go on trying.
        fail_fast: false,
        tls: target.tls.as_ref().map(|tls| TlsConfig {
            connector: TlsConnector::Rustls(tls.connector()),
            hostnames: TlsHostMapping::None,
        }),
        ..Config::default()
    };
    // A server may answer late, and still in time for those who ask.
    let patience = (spec.timeout * ANSWERS).clamp(PATIENCE.0, PATIENCE.1);
    let connection = ConnectionConfig {
        connection_timeout: patience,
        internal_command_timeout: patience,
        // A command that may have been run is never sent again. fred would send it again after MOVED and ASK, and
        // after ASK to the wrong node; so it says where it was redirected, and we send it again.
        max_command_attempts: 1,
        max_redirections: 0,
        // Zero means no bound; a bound makes fred end its routing task for good when it is reached. What is
        // under way is bounded by the connections of clients, each of which waits for one answer at a time.
        max_command_buffer_len: 0,
        unresponsive: UnresponsiveConfig {
            max_timeout: Some(UNRESPONSIVE.0.max(spec.timeout + UNRESPONSIVE.1)),
            interval: Duration::from_millis(50),
        },
        tcp: TcpConfig {
            nodelay: Some(true),
            user_timeout: Some(Duration::from_secs(1)),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    };
    let default_command_timeout = spec.timeout.saturating_sub(SOONER).max(Duration::from_millis(1));
    let performance = PerformanceConfig { default_command_timeout, ..PerformanceConfig::default() };
    // A connection that was closed is made again at once, for until then fred believes that it has it; and none is
    // tried more often than twice a second for long.
    let mut reconnect = ReconnectPolicy::new_exponential(0, 1, 500, 4);
    reconnect.set_jitter(10);
    Client::new(config, Some(performance), Some(connection), Some(reconnect))
}

fn server(endpoint: &Endpoint, turn: usize, known: &[Server]) -> ServerConfig {
    let one = |node: &Node| Server::new(node.host.as_str(), node.port);
    match endpoint {
        Endpoint::Tcp(node) => ServerConfig::Centralized { server: one(node) },
        Endpoint::Unix(path) => ServerConfig::Unix { path: path.clone() },
        Endpoint::Sentinel { nodes, service, username, password } => {
            let mut hosts: Vec<Server> = nodes.iter().map(one).collect();
            // fred always begins with the first that accepts a connection, even if that one hangs. The next client
            // begins with another one.
            let first = turn.checked_rem(hosts.len()).unwrap_or(0);
            hosts.rotate_left(first);
            let (username, password) = (username.clone(), password.clone());
            ServerConfig::Sentinel { hosts, service_name: service.clone(), username, password }
        }
        Endpoint::Cluster(nodes) => {
            let mut hosts: Vec<Server> = nodes.iter().map(one).collect();
            let more = known.iter().filter(|server| !hosts.contains(server)).cloned();
            hosts.extend(more.collect::<Vec<_>>());
            ServerConfig::Clustered { hosts, policy: ClusterDiscoveryPolicy::UseCache }
        }
    }
}

impl Supervisor {
    /// One whose client is not connected yet.
    pub fn new(spec: &RedisSpec) -> Self {
        let turn = fastrand::usize(..=usize::from(u16::MAX));
        Self { spec: spec.clone(), client: build(spec, turn, &[]), turn, known: Vec::new() }
    }

    /// The client of the moment.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Runs clients one after the other, which `line` gets, until nobody wants one any more: that is when the other end
    /// of `wanted` is dropped. `reconnect` asks for the next one.
    pub async fn run(
        mut self,
        line: Weak<RedisClient>,
        reconnect: Arc<Notify>,
        mut wanted: oneshot::Receiver<()>,
    ) {
        let is_cluster = matches!(self.spec.target.endpoint, Endpoint::Cluster(_));
        loop {
            let mut running = self.client.connect();
            let has_ended = tokio::select! {
                _ = &mut wanted => {
                    running.abort();
                    return;
                }
                // fred has given up, which it must not.
                _ = &mut running => true,
                () = self.failed(&line) => false,
                () = useless(&self.client, is_cluster, &reconnect) => false,
            };
            // Its connections end with it, and whoever waits for an answer is told.
            running.abort();
            self.turn += 1;
            let state = self.client.cached_cluster_state();
            if let Some(nodes) =
                state.map(|state| state.unique_primary_nodes()).filter(|nodes| !nodes.is_empty())
            {
                self.known = nodes;
            }
            self.client = build(&self.spec, self.turn, &self.known);
            let Some(line) = line.upgrade() else { return };
            line.adopt(self.client());
            drop(line);
            if has_ended {
                tokio::time::sleep(REBUILD_PAUSE).await;
            }
        }
    }

    /// Notes why there is no connection, until the next client would begin with another Sentinel. No other would know
    /// more than this one: it is left to try again.
    async fn failed(&self, line: &Weak<RedisClient>) {
        let has_others = match &self.spec.target.endpoint {
            Endpoint::Sentinel { nodes, .. } => nodes.len() > 1,
            _ => false,
        };
        let begun = monotonic();
        let mut failures = self.client.error_rx();
        loop {
            match (failures.recv().await, line.upgrade()) {
                (Ok((error, _)), Some(line)) => line.broke(&error),
                // Too many at once; there will be more.
                (Err(RecvError::Lagged(_)), Some(_)) => {}
                _ => return,
            }
            // This is between two attempts.
            if has_others && !self.client.is_connected() && begun + REBUILD_PAUSE <= monotonic() {
                return;
            }
        }
    }
}

/// Waits until another client is asked for, and this one is neither about to connect nor told why it can't. Of a
/// cluster it may know what is no longer so: there another one is better in any case, if it is not about to connect.
async fn useless(client: &Client, is_cluster: bool, reconnect: &Notify) {
    loop {
        reconnect.notified().await;
        if client.is_connected() {
            // It believes so, but nobody is answered.
            return;
        }
        let mut failures = client.error_rx();
        let attempt = async {
            tokio::select! {
                connected = client.wait_for_connect() => connected.is_ok(),
                _ = failures.recv() => false,
            }
        };
        match tokio::time::timeout(LONGEST_WAY, attempt).await {
            Ok(is_there) if is_there || !is_cluster => {}
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
        let config = server(&Endpoint::Cluster(vec![node(1), node(2)]), 0, &known);
        let ports: Vec<u16> = config.hosts().iter().map(|server| server.port).collect();
        assert_eq!(ports, [1, 2, 3]);
    }
}
