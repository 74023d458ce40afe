//! Estimates that are too low: the limit is exceeded by the errors of the requests in flight, and by no more.

use super::setup::{config, ok};
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get};

const BUDGET: u64 = 1_000;
const STREAMS: u64 = 200;

/// Reserves 10 units for each of 200 requests in parallel, of which each costs 37.
fn exceed(proxies: &[Tidegate], server: &Upstream, release: &std::sync::mpsc::Sender<()>) {
    let before = server.received();
    let mut clients: Vec<Client> = (0..STREAMS)
        .map(|index| {
            let proxy = &proxies[usize::try_from(index).unwrap() % proxies.len()];
            let mut client = Client::connect(proxy.addr());
            client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n");
            client
        })
        .collect();
    // The reservations of 100 requests are the budget.
    eventually("as many as fit are at the server", || server.received() == before + 100);
    for _ in 0..100 {
        release.send(()).unwrap();
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.read().status()).collect();
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!((admitted, server.received()), (100, before + 100));
    // 3,700 are used: 2,700 more than the budget are owed, and are paid by time. A unit comes back in a day.
    let days = |proxy: &Tidegate| {
        let denied = get(proxy.addr(), "/", &["X-Key: k"]);
        assert_eq!(denied.status(), 429);
        denied.header("retry-after").unwrap().parse::<u64>().unwrap().div_ceil(86_400)
    };
    // For ten units besides.
    let expected = 100 * 37 - BUDGET + 10;
    eventually("all errors are owed, and nothing else", || {
        proxies.iter().all(|proxy| (expected - 1..=expected).contains(&days(proxy)))
    });
    assert_eq!(server.received(), before + 100);
}

fn configuration(server: &Upstream) -> String {
    let limit = "cost = { reserve = 10, settle = \"header:x-cost\" }";
    config(limit, &server.url()).replace(
        "algorithm = \"fixed_window\"\nalign = \"first_request\"\nrate = \"1000/day\"",
        "algorithm = \"token_bucket\"\nrate = \"1000/1000d\"",
    )
}

#[test]
fn the_excess_is_the_sum_of_the_errors() {
    let (server, release) = Upstream::gated(ok("X-Cost: 37\r\n", "ok"));
    let config = configuration(&server);
    exceed(&[Tidegate::start(&config)], &server, &release);
    for count in [1, 2, 4] {
        let redis = RedisServer::start();
        let proxies: Vec<Tidegate> = (0..count).map(|_| Tidegate::start_with(&redis, &config)).collect();
        exceed(&proxies, &server, &release);
    }
}
