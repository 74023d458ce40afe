//! A process without requests sleeps.

use std::time::Duration;

use crate::support::{RedisServer, Tidegate, get};

/// How often the process may be woken in four seconds: more than it is, and far less than with timers that no event needs.
const FEW: u64 = 40;

const CONFIG: &str = r#"
workers = 4
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[limits.rate]
rate = "100/s"
[limits.slots]
algorithm = "concurrency"
max_in_flight = 5
[[routes]]
path = "/*"
limits = ["rate", "slots"]
respond = { status = 200 }
"#;

/// The number of wake-ups in four seconds, once there are few; after half a minute the last number.
fn wake_ups(proxy: &Tidegate) -> u64 {
    let mut counted = u64::MAX;
    for _ in 0..8 {
        let before = proxy.sleeps();
        std::thread::sleep(Duration::from_secs(4));
        counted = proxy.sleeps() - before;
        if counted <= FEW {
            break;
        }
    }
    counted
}

#[test]
fn an_idle_process_is_seldom_woken() {
    let redis = RedisServer::start();
    for proxy in [Tidegate::start(CONFIG), Tidegate::start_with(&redis, CONFIG)] {
        (0..8).for_each(|_| assert_eq!(get(proxy.addr(), "/", &[]).status(), 200));
        let count = wake_ups(&proxy);
        assert!(count <= FEW, "{count} wake-ups in four seconds");
    }
}
