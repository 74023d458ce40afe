//! Limits with `ahead` on a cluster: keys of one request are on several nodes.

use crate::support::{Client, Cluster, Tidegate};

/// Keys, most likely of all nodes.
const KEYS: usize = 6;
const CONFIG: &str = r#"
    listen = "127.0.0.1:0"
    [admin]
    listen = "127.0.0.1:0"
    [limits.each]
    rate = "1/day"
    burst = 250
    key = "header:x-key"
    ahead = "10s"
    [limits.all]
    rate = "1/day"
    burst = 1000
    key = "global"
    ahead = "10s"
    [[routes]]
    path = "/"
    limits = ["each", "all"]
    respond = { status = 200 }
"#;

/// How many requests with each key are admitted; they end when `most` have been sent.
fn send(proxy: &Tidegate, most: usize) -> [u64; KEYS] {
    let mut client = Client::connect(proxy.addr());
    let mut admitted = [0; KEYS];
    for number in 0..most {
        let key = number % KEYS;
        match client.get("/", &[&format!("X-Key: {key}")]).status() {
            200 => admitted[key] += 1,
            429 => {}
            status => panic!("{status}"),
        }
    }
    admitted
}

#[test]
fn limits_on_several_nodes_are_not_exceeded_and_seldom_asked_for() {
    let cluster = Cluster::start();
    let start = || Tidegate::builder(CONFIG).store_at(&cluster.url(), "timeout = \"5s\"").start();
    let proxies = [start(), start()];
    let calls = || cluster.masters.iter().map(|node| node.calls("evalsha")).sum::<u64>();
    let before = calls();
    let mut admitted = [0; KEYS];
    let mut add = |some: [u64; KEYS]| admitted.iter_mut().zip(some).for_each(|(all, some)| *all += some);
    // As many as are surely admitted: no proxy holds more than an eighth of what is left.
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            proxies.iter().chain(&proxies).map(|proxy| scope.spawn(|| send(proxy, 150))).collect();
        for client in clients {
            add(client.join().unwrap());
        }
    });
    let made = calls() - before;
    println!("{made} calls for 600 requests");
    // Without grants each takes three calls at least.
    assert!(made <= 600, "{made} calls for 600 requests");
    for proxy in &proxies {
        add(send(proxy, 800));
    }
    // What they hold is returned, and can be spent.
    for proxy in proxies {
        assert!(proxy.stop().success());
    }
    add(send(&start(), 600));
    assert!(admitted.iter().all(|units| *units <= 250), "{admitted:?}");
    assert_eq!(admitted.iter().sum::<u64>(), 1_000, "{admitted:?}");
}
