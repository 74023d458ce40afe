//! Redis loses state while units are held. This alone admits more than the limit, by at most what is held, besides the counts
//! that are lost.

use super::{FIXED, held, proxy, proxy_at, spend, spend_all, spend_until_held, units};
use crate::limits::setup::limited;
use crate::support::{RedisServer, Relay, Tidegate, Watched, eventually, steady};

#[test]
fn a_flush_admits_at_most_the_held_units_besides() {
    let redis = RedisServer::start();
    let (first, second) = (proxy(&redis, FIXED), proxy(&redis, FIXED));
    spend_until_held(&first);
    redis.cli(&["flushall"]);
    let held = held(&first);
    let (others, rest) = (spend_all(&second), spend_all(&first));
    // What was admitted before is lost with the counts.
    assert!((2_001..=2_000 + held).contains(&(others + rest)), "{others} and {rest} of {held}");
}

/// A replica is promoted that has nothing of what has been admitted and granted.
#[test]
fn a_failover_to_an_old_replica_admits_at_most_the_held_units_besides() {
    let master = RedisServer::start();
    let port = master.addr().port().to_string();
    let replica = RedisServer::start_as(|_| ["--replicaof", "127.0.0.1", &port].map(str::to_owned).to_vec());
    eventually("the replica has what the master has", || {
        replica.cli(&["info", "replication"]).contains("master_link_status:up")
    });
    assert_eq!(replica.cli(&["replicaof", "no", "one"]), "OK");
    let relay = Relay::to(master.addr());
    let limit = format!("{FIXED}\non_store_failure = \"deny\"");
    let [first, second] = [0; 2].map(|_| proxy_at(&relay.url(), "5s", &limit));
    spend_until_held(&first);
    relay.replace_server(replica.addr());
    [&first, &second].into_iter().for_each(Tidegate::wait_ready);
    let held = held(&first);
    let (others, rest) = (spend_all(&second), spend_all(&first));
    assert!((2_001..=2_000 + held).contains(&(others + rest)), "{others} and {rest} of {held}");
}

/// A replica has the grants of its master, also those that are still held.
#[test]
fn a_failover_that_loses_nothing_admits_no_more_than_the_limit() {
    let mut service = Watched::start("hush");
    let sentinel = service.sentinel.addr();
    let url = format!("redis-sentinel://:hush@{sentinel}/?service=gate");
    let config = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}",
        limited(&format!("{FIXED}\non_store_failure = \"deny\""))
    );
    let [first, second] = [0; 2].map(|_| {
        let store = "sentinel_password = \"watch-hush\"\ntimeout = \"2s\"";
        Tidegate::builder(&config).store_at(&url, store).start()
    });
    let mut spent = spend_until_held(&first);
    // No call is on its way.
    let held = steady(|| held(&first));
    assert_eq!(service.master.cli(&["-a", "hush", "wait", "1", "1000"]), "1");
    service.master.kill();
    assert_eq!(spend(&first, usize::try_from(held / 2).unwrap()), held / 2);
    service.wait_failover();
    [&first, &second].into_iter().for_each(Tidegate::wait_ready);
    spent += held / 2;
    let (others, rest) = (spend_all(&second), spend_all(&first));
    let total = spent + others + rest;
    // A failover that takes longer than the grants are held for ends them.
    let lapsed = units(&first, "lapsed");
    assert!(
        total <= 2_000 && total + lapsed >= 1_900,
        "{spent}, {others} and {rest}, and {lapsed} have lapsed"
    );
}
