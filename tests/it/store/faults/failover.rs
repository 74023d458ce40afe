//! Failover of a service behind Sentinel and of a Cluster, and other faults of their nodes.

use std::net::TcpListener;

use super::{Ahead, Expected, Trial, try_fault};
use crate::support::{Cluster, RedisServer, Watched, eventually};

#[test]
fn a_sentinel_promotes_the_replica_of_a_killed_master() {
    try_fault(|ahead| {
        let mut service = Watched::start("hush");
        let sentinel = service.sentinel.addr();
        let url = format!(
            "url = \"redis-sentinel://:hush@{sentinel}/?service=gate\"\nsentinel_password = \"watch-hush\""
        );
        let trial = Trial::start("Sentinel failover", ahead, &url);
        service.master.kill();
        service.wait_failover();
        trial.end(&Expected { reasons: &["not connected: "], keeps: false });
    });
}

/// A Sentinel that accepts connections and never replies: the next client begins with the next Sentinel.
#[test]
fn a_hanging_sentinel_is_skipped() {
    let redis = RedisServer::start();
    let port = redis.addr().port();
    // Without a password, since fred skips only a Sentinel that does not reply to AUTH.
    let sentinel = RedisServer::start_sentinel(&format!("sentinel monitor gate 127.0.0.1 {port} 1\n"));
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hanging, working) = (hangs.local_addr().unwrap(), sentinel.addr());
    // The trial starts when both workers count in Redis.
    let url = format!("url = \"redis-sentinel://{hanging},{working}/?service=gate\"");
    Trial::start("a hanging Sentinel", Ahead::Off, &url).end(&Expected { reasons: &[], keeps: true });
}

#[test]
fn a_cluster_promotes_the_replica_of_a_killed_master() {
    try_fault(|ahead| {
        let mut cluster = Cluster::start();
        let trial = Trial::start("Cluster, master killed", ahead, &format!("url = \"{}\"", cluster.url()));
        cluster.masters[0].kill();
        let replica = cluster.replica.addr().to_string();
        eventually("the other nodes know the new master", || {
            let knows = |line: &str| line.contains(&replica) && line.contains(" master ");
            cluster.masters[1..].iter().all(|node| node.cli(&["cluster", "nodes"]).lines().any(knows))
        });
        trial.end(&Expected {
            reasons: &[
                "not connected: ",
                "CLUSTERDOWN",
                "the connection ended",
                "no reply within the deadline",
            ],
            keeps: false,
        });
    });
}

/// The index of the master that has the key of this limit, and the key.
#[track_caller]
fn locate(cluster: &Cluster, limit: &str) -> (usize, String) {
    let has = |node: &RedisServer| node.keys().into_iter().find(|key| key.contains(&format!(":{limit}:")));
    (0..3).find_map(|node| Some((node, has(&cluster.masters[node])?))).unwrap()
}

/// Limits whose keys are on other nodes are still counted there.
#[test]
fn a_node_of_a_cluster_is_out_of_memory() {
    try_fault(|ahead| {
        let cluster = Cluster::start();
        let trial = Trial::with_cluster("Cluster, -OOM of one node", ahead, &cluster);
        let (node, _) = locate(&cluster, "deny");
        cluster.masters[node].cli(&["config", "set", "maxmemory", "1"]);
        trial.proxy.wait_log("some calls to the store fail");
        cluster.masters[node].cli(&["config", "set", "maxmemory", "0"]);
        trial.end(&Expected {
            reasons: &["OOM command not allowed when used memory > 'maxmemory';"],
            keeps: true,
        });
    });
}

#[test]
fn a_slot_of_a_cluster_is_migrated() {
    try_fault(|ahead| {
        let cluster = Cluster::start();
        let trial = Trial::with_cluster("Cluster, slot migrated", ahead, &cluster);
        let (from, name) = locate(&cluster, "local");
        let to = (from + 1) % 3;
        let slot = cluster.masters[from].cli(&["cluster", "keyslot", &name]);
        let (from_id, to_id) = (cluster.id(from), cluster.id(to));
        let set = |node: usize, change: &[&str]| {
            assert_eq!(cluster.masters[node].cli(&[&["cluster", "setslot", &slot], change].concat()), "OK");
        };
        set(to, &["importing", &from_id]);
        set(from, &["migrating", &to_id]);
        let port = cluster.masters[to].addr().port().to_string();
        let migrate = ["migrate", "127.0.0.1", &port, &name, "0", "10000"];
        assert_eq!(cluster.masters[from].cli(&migrate), "OK");
        let redirections = || cluster.masters[from].errors("ASK");
        let before = redirections();
        eventually("requests are redirected with ASK", || redirections() >= before + 20);
        for node in [to, from, (to + 1) % 3] {
            set(node, &["node", &to_id]);
        }
        trial.end(&Expected { reasons: &[], keeps: true });
    });
}
