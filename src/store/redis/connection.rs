//! The connection to Redis: how fred is set up, and what happens when it gives up.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::RespVersion;
use fred::types::config::{
    ClusterDiscoveryPolicy, Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, Server,
    ServerConfig, TcpConfig, TlsConfig, TlsConnector, TlsHostMapping, UnresponsiveConfig,
};

use tokio::sync::oneshot;

use super::{Endpoint, Node, RedisSpec};

/// How long connecting, and whatever fred asks a server by itself, may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// After this silence of a server that owes an answer the connection is given up.
const UNRESPONSIVE: Duration = Duration::from_millis(300);
/// Before a client that has ended is built anew.
const REBUILD_PAUSE: Duration = Duration::from_millis(500);

/// A client that is not connected yet.
pub(super) fn build(spec: &RedisSpec) -> Client {
    let target = &spec.target;
    let config = Config {
        server: server(&target.endpoint),
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
    let connection = ConnectionConfig {
        connection_timeout: PATIENCE,
        internal_command_timeout: PATIENCE,
        // A command that may have been run is never sent again. fred would send it again after MOVED and ASK, and
        // after ASK to the wrong node; so it says where it was redirected, and we send it again.
        max_command_attempts: 1,
        max_redirections: 0,
        // Zero means no bound; a bound makes fred end its routing task for good when it is reached. What is
        // under way is bounded by the connections of clients, each of which waits for one answer at a time.
        max_command_buffer_len: 0,
        unresponsive: UnresponsiveConfig {
            max_timeout: Some(UNRESPONSIVE),
            interval: Duration::from_millis(50),
        },
        tcp: TcpConfig {
            nodelay: Some(true),
            user_timeout: Some(Duration::from_secs(1)),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    };
    let performance =
        PerformanceConfig { default_command_timeout: spec.timeout, ..PerformanceConfig::default() };
    let reconnect = ReconnectPolicy::new_exponential(0, 50, 1000, 2);
    Client::new(config, Some(performance), Some(connection), Some(reconnect))
}

fn server(endpoint: &Endpoint) -> ServerConfig {
    let one = |node: &Node| Server::new(node.host.as_str(), node.port);
    match endpoint {
        Endpoint::Tcp(node) => ServerConfig::Centralized { server: one(node) },
        Endpoint::Unix(path) => ServerConfig::Unix { path: path.clone() },
        Endpoint::Sentinel { nodes, service, username, password } => {
            let mut hosts: Vec<Server> = nodes.iter().map(one).collect();
            // fred always begins with the first that accepts a connection, even if that one hangs. The next client
            // begins with another one.
            fastrand::shuffle(&mut hosts);
            let (username, password) = (username.clone(), password.clone());
            ServerConfig::Sentinel { hosts, service_name: service.clone(), username, password }
        }
        Endpoint::Cluster(nodes) => ServerConfig::Clustered {
            hosts: nodes.iter().map(one).collect(),
            policy: ClusterDiscoveryPolicy::UseCache,
        },
    }
}

/// Runs `client`, and a new one whenever it ends, which `adopt` gets; until nobody wants it any more, which
/// is when the other end of `wanted` is dropped.
pub(super) async fn supervise(
    spec: RedisSpec,
    mut client: Client,
    mut wanted: oneshot::Receiver<()>,
    adopt: impl Fn(Client) + Send + 'static,
) {
    loop {
        let mut running = client.connect();
        tokio::select! {
            _ = &mut wanted => {
                running.abort();
                return;
            }
            // fred has given up, which it must not: begin again.
            _ = &mut running => {}
        }
        tokio::time::sleep(REBUILD_PAUSE).await;
        client = build(&spec);
        adopt(client.clone());
    }
}
