//! Limits that delay requests: leaky buckets with a queue.

use std::time::{Duration, Instant};

use crate::support::{Client, Tidegate, Upstream, eventually, get, over_both_stores};

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
        let start = Instant::now();
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let mut client = Client::connect(proxy.addr());
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        // All of them are allowed, the last after four delays of 50 ms; a slow machine can only delay it more.
        for mut client in clients {
            assert_eq!(client.read().status(), 200);
        }
        assert!(start.elapsed() >= Duration::from_millis(199));
    });
}

#[test]
fn delayed_requests_of_disconnected_clients_are_not_forwarded() {
    let upstream = Upstream::echo();
    let config = format!(
        r#"
        listen = "127.0.0.1:0"
        [admin]
        listen = "127.0.0.1:0"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "1/s"
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
    let allowed = || proxy.decisions("even", "allowed") + proxy.decisions("even", "near_limit");
    assert_eq!(get(proxy.addr(), "/first", &[]).status(), 200);
    // The second request has a body, which is not read before the delay ends.
    let requests = [
        "GET /disconnected HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /disconnected HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
    ];
    for (request, count) in requests.iter().zip(2..) {
        let mut client = Client::connect(proxy.addr());
        client.send(request);
        eventually("the request is queued", || allowed() == count);
        drop(client);
    }
    // This request is delayed until after the others.
    assert_eq!(get(proxy.addr(), "/last", &[]).status(), 200);
    let paths: Vec<String> = upstream.requests().iter().map(|request| request.start.clone()).collect();
    assert_eq!(paths, ["GET /first HTTP/1.1", "GET /last HTTP/1.1"]);
}
