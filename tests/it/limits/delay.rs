//! Limits that delay requests: leaky buckets with a queue.

use std::time::{Duration, Instant};

use crate::support::{Client, Tidegate, Upstream, get, over_both_stores};

#[test]
fn queued_requests_are_delayed_to_the_rate() {
    let config = r#"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "20/s"
        queue = 4
        key = "global"
        [[routes]]
        path = "/*"
        limits = ["even"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let began = Instant::now();
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let mut client = Client::connect(proxy.addr());
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        // All of them are answered, the last after four turns of 50 ms: never sooner, whatever the machine does.
        for mut client in clients {
            assert_eq!(client.read().status(), 200);
        }
        assert!(began.elapsed() >= Duration::from_millis(199));
    });
}

#[test]
fn delayed_requests_of_disconnected_clients_are_not_forwarded() {
    let upstream = Upstream::echo();
    let config = format!(
        r#"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "2/s"
        queue = 3
        key = "global"
        [[routes]]
        path = "/*"
        limits = ["even"]
        upstream = "{}"
        "#,
        upstream.url()
    );
    let proxy = Tidegate::start(&config);
    assert_eq!(get(proxy.addr(), "/first", &[]).status(), 200);
    let mut leaving = Client::connect(proxy.addr());
    leaving.send("GET /leaving HTTP/1.1\r\nHost: a\r\n\r\n");
    // Time for the proxy to read it; its turn comes later. Were it not read yet, it would not go on either.
    std::thread::sleep(Duration::from_millis(100));
    drop(leaving);
    // So does one that has sent a body, which is not read yet.
    let mut leaving = Client::connect(proxy.addr());
    leaving.send("POST /leaving HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    std::thread::sleep(Duration::from_millis(100));
    drop(leaving);
    // The turn of this one comes after that.
    assert_eq!(get(proxy.addr(), "/last", &[]).status(), 200);
    let paths: Vec<String> = upstream.requests().iter().map(|request| request.start.clone()).collect();
    assert_eq!(paths, ["GET /first HTTP/1.1", "GET /last HTTP/1.1"]);
}
