//! A master, its replica, and the Sentinel that watches over them.

use super::{RedisServer, eventually};

/// A service whose master may fail.
pub struct Watched {
    /// The master, at first.
    pub master: RedisServer,
    /// Its replica.
    pub replica: RedisServer,
    /// Who watches.
    pub sentinel: RedisServer,
}

impl Watched {
    /// Starts the three, and waits until the Sentinel knows the replica. All of them get `options`.
    #[track_caller]
    pub fn start(password: &str) -> Self {
        let options = |more: &[&str]| {
            let common =
                ["--requirepass", password, "--masterauth", password, "--repl-diskless-sync-delay", "0"];
            common.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>()
        };
        let master = RedisServer::start_as(|_| options(&[]));
        let port = master.addr().port().to_string();
        let replica = RedisServer::start_as(|_| options(&["--replicaof", "127.0.0.1", &port]));
        eventually("the replica has what the master has", || {
            replica.cli(&["-a", password, "info", "replication"]).contains("master_link_status:up")
        });
        let sentinel = RedisServer::start_sentinel(&format!(
            "sentinel monitor gate 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds gate 500\n\
             sentinel failover-timeout gate 3000\n\
             sentinel auth-pass gate {password}\n\
             requirepass watch-{password}\n"
        ));
        let auth = format!("watch-{password}");
        eventually("the Sentinel knows the replica", || {
            sentinel.cli(&["-a", &auth, "sentinel", "replicas", "gate"]).contains("127.0.0.1")
        });
        Self { master, replica, sentinel }
    }
}
