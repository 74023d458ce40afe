//! A master, its replica, and the Sentinel that watches over them.

use std::time::Duration;

use super::{RedisServer, eventually, scaled};

/// A service whose master may fail.
pub struct Watched {
    /// The master, at first.
    pub master: RedisServer,
    /// Its replica.
    pub replica: RedisServer,
    /// Who watches.
    pub sentinel: RedisServer,
    password: String,
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
        // A healthy server of a busy machine may not respond for so long.
        let down_after = scaled(Duration::from_millis(500)).as_millis();
        let sentinel = RedisServer::start_sentinel(&format!(
            "sentinel monitor gate 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds gate {down_after}\n\
             sentinel failover-timeout gate 3000\n\
             sentinel auth-pass gate {password}\n\
             requirepass watch-{password}\n"
        ));
        let watched = Self { master, replica, sentinel, password: format!("watch-{password}") };
        eventually("the Sentinel knows the replica", || watched.ask("replicas").contains("127.0.0.1"));
        watched
    }

    /// Waits until the Sentinel says that the replica is the master. On a busy machine the replica may not answer it for half a
    /// second either; then it gives the failover up, and would not try again for twice its `failover-timeout`.
    #[track_caller]
    pub fn wait_failover(&self) {
        let port = self.replica.addr().port().to_string();
        eventually("the Sentinel says who is the master now", || {
            let is_over = self.ask("get-master-addr-by-name").contains(&port);
            let state = self.ask("master");
            if !is_over && state.contains("o_down") && !state.contains("failover_in_progress") {
                self.ask("failover");
            }
            is_over
        });
    }

    /// What the Sentinel says to a command about the service.
    #[track_caller]
    fn ask(&self, command: &str) -> String {
        self.sentinel.cli(&["-a", &self.password, "sentinel", command, "gate"])
    }
}
