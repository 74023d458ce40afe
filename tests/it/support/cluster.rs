//! A Redis Cluster.

use std::time::Duration;

use super::{RedisServer, command, eventually, scaled};

/// Three masters, of which the first has a replica.
pub struct Cluster {
    /// The masters, each with a third of the slots.
    pub masters: Vec<RedisServer>,
    /// The replica of the first.
    pub replica: RedisServer,
}

impl Cluster {
    /// Starts one, and waits until all of it is there.
    #[track_caller]
    pub fn start() -> Self {
        let node = || {
            RedisServer::start_as(|_| {
                // A healthy node of a busy machine may not respond for so long.
                let timeout = scaled(Duration::from_secs(1)).as_millis();
                let options = format!(
                    "--cluster-enabled yes --cluster-node-timeout {timeout} \
                     --cluster-require-full-coverage no --repl-diskless-sync-delay 0"
                );
                options.split_whitespace().map(str::to_owned).collect()
            })
        };
        let cluster = Self { masters: vec![node(), node(), node()], replica: node() };
        let addresses: Vec<String> = cluster.masters.iter().map(|node| node.addr().to_string()).collect();
        create(&addresses);
        let port = cluster.masters[0].addr().port().to_string();
        cluster.replica.cli(&["cluster", "meet", "127.0.0.1", &port]);
        let id = cluster.id(0);
        eventually("the replica knows its master", || {
            cluster.replica.cli(&["cluster", "nodes"]).contains(&id)
        });
        eventually("all nodes know each other", || {
            let known = |node: &RedisServer| node.cli(&["cluster", "info"]).contains("cluster_known_nodes:4");
            cluster.masters.iter().all(known) && known(&cluster.replica)
        });
        cluster.replica.cli(&["cluster", "replicate", &id]);
        eventually("the replica has what its master has", || {
            cluster.replica.cli(&["info", "replication"]).contains("master_link_status:up")
        });
        // Until then they list it as a master without slots.
        eventually("the masters know that it is a replica", || {
            let replica = cluster.replica.addr().to_string();
            let is_replica = |line: &str| line.contains(&replica) && line.contains("slave");
            let knows = |node: &RedisServer| node.cli(&["cluster", "nodes"]).lines().any(is_replica);
            cluster.masters.iter().all(knows)
        });
        eventually("all slots are served", || {
            cluster.masters.iter().all(|node| node.cli(&["cluster", "info"]).contains("cluster_state:ok"))
        });
        cluster
    }

    /// Its URL, with all masters.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.masters.iter().map(|node| node.addr().to_string()).collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// The id of a master.
    #[track_caller]
    pub fn id(&self, master: usize) -> String {
        self.masters[master].cli(&["cluster", "myid"])
    }

    /// The index of the master that has the slot of this key, and the slot.
    #[track_caller]
    pub fn locate(&self, name: &str) -> (usize, String) {
        let slot = self.masters[0].cli(&["cluster", "keyslot", name]);
        let number: usize = slot.parse().unwrap();
        // redis-cli cuts the 16,384 slots into thirds.
        (usize::from(number > 5460) + usize::from(number > 10922), slot)
    }
}

#[track_caller]
fn create(addresses: &[String]) {
    let mut command = command("redis-cli");
    let output = command.args(["--cluster", "create"]).args(addresses).arg("--cluster-yes").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
