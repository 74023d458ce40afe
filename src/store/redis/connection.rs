//! The connection to Redis: how fred is set up, and what happens when it gives up.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::RespVersion;
use fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, Server, ServerConfig, TcpConfig,
    UnresponsiveConfig,
};

use tokio::sync::oneshot;

use super::{Endpoint, RedisSpec};

/// How long connecting, and whatever fred asks a server by itself, may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// After this silence of a server that owes an answer the connection is given up.
const UNRESPONSIVE: Duration = Duration::from_millis(300);
/// Before a client that has ended is built anew.
const REBUILD_PAUSE: Duration = Duration::from_millis(500);

/// A client that is not connected yet.
pub(super) fn build(spec: &RedisSpec) -> Client {
    let server = match &spec.target.endpoint {
        Endpoint::Tcp { host, port } => {
            ServerConfig::Centralized { server: Server::new(host.as_str(), *port) }
        }
        Endpoint::Unix(path) => ServerConfig::Unix { path: path.clone() },
    };
    let config = Config {
        server,
        username: spec.target.username.clone(),
        password: spec.target.password.clone(),
        database: Some(spec.target.database).filter(|number| *number > 0),
        version: RespVersion::RESP3,
        // Start without Redis, and go on trying.
        fail_fast: false,
        ..Config::default()
    };
    let connection = ConnectionConfig {
        connection_timeout: PATIENCE,
        internal_command_timeout: PATIENCE,
        max_command_attempts: 1,
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
