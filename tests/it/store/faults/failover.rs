//! A Sentinel's service and a cluster, of which a part fails.

use std::net::TcpListener;
use std::time::Duration;

use super::{Expected, Trial};
use crate::support::{Cluster, RedisServer, Watched, eventually};

#[test]
fn a_master_fails_over() {
    let mut service = Watched::start("hush");
    let sentinel = service.sentinel.addr();
    let url = format!(
        "url = \"redis-sentinel://:hush@{sentinel}/?service=gate\"\nsentinel_password = \"watch-hush\""
    );
    let trial = Trial::of("Sentinel failover", &url);
    service.master.kill();
    service.wait_failover();
    trial.end(&Expected { reasons: &["not connected: "], keeps: false });
}

/// One that accepts connections, and says nothing: the next client begins with the next Sentinel.
#[test]
fn a_sentinel_that_hangs_is_passed_over() {
    let redis = RedisServer::start();
    let port = redis.addr().port();
    // Without a password: fred itself passes over one that does not answer to AUTH, and over no other.
    let sentinel = RedisServer::start_sentinel(&format!("sentinel monitor gate 127.0.0.1 {port} 1\n"));
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hanging, answering) = (hangs.local_addr().unwrap(), sentinel.addr());
    // It waits until both workers count in Redis.
    let url = format!("url = \"redis-sentinel://{hanging},{answering}/?service=gate\"");
    Trial::of("a hanging Sentinel", &url).end(&Expected { reasons: &[], keeps: true });
}

#[test]
fn a_cluster_loses_a_master() {
    let mut cluster = Cluster::start();
    let trial = Trial::of("Cluster, master killed", &format!("url = \"{}\"", cluster.url()));
    cluster.masters[0].kill();
    let replica = cluster.replica.addr().to_string();
    eventually("the others know who is the master now", || {
        let knows = |line: &str| line.contains(&replica) && line.contains(" master ");
        cluster.masters[1..].iter().all(|node| node.cli(&["cluster", "nodes"]).lines().any(knows))
    });
    trial.end(&Expected {
        reasons: &["not connected: ", "CLUSTERDOWN", "the connection ended"],
        keeps: false,
    });
}

/// The master that has the key of this limit, and the key.
#[track_caller]
fn place(cluster: &Cluster, limit: &str) -> (usize, String) {
    let has = |node: &RedisServer| node.keys().into_iter().find(|key| key.contains(&format!(":{limit}:")));
    (0..3).find_map(|node| Some((node, has(&cluster.masters[node])?))).unwrap()
}

/// Who counts elsewhere goes on counting there.
#[test]
fn a_node_of_a_cluster_refuses() {
    let cluster = Cluster::start();
    let trial = Trial::of("Cluster, -OOM of one node", &format!("url = \"{}\"", cluster.url()));
    let (node, _) = place(&cluster, "deny");
    cluster.masters[node].cli(&["config", "set", "maxmemory", "1"]);
    trial.proxy.wait_log("the store refuses some calls");
    cluster.masters[node].cli(&["config", "set", "maxmemory", "0"]);
    trial.end(&Expected {
        reasons: &["OOM command not allowed when used memory > 'maxmemory';"],
        keeps: true,
    });
}

#[test]
fn a_slot_moves() {
    let cluster = Cluster::start();
    let trial = Trial::of("Cluster, slot migrated", &format!("url = \"{}\"", cluster.url()));
    let (from, name) = place(&cluster, "local");
    let to = (from + 1) % 3;
    let slot = cluster.masters[from].cli(&["cluster", "keyslot", &name]);
    let (from_id, to_id) = (cluster.id(from), cluster.id(to));
    let set = |node: usize, change: &[&str]| {
        assert_eq!(cluster.masters[node].cli(&[&["cluster", "setslot", &slot], change].concat()), "OK");
    };
    set(to, &["importing", &from_id]);
    set(from, &["migrating", &to_id]);
    let port = cluster.masters[to].addr().port().to_string();
    cluster.masters[from].cli(&["migrate", "127.0.0.1", &port, &name, "0", "1000"]);
    // Meanwhile each request meets ASK.
    std::thread::sleep(Duration::from_millis(300));
    for node in [to, from, (to + 1) % 3] {
        set(node, &["node", &to_id]);
    }
    trial.end(&Expected { reasons: &[], keeps: true });
}
