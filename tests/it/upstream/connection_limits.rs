//! Limits on connections to upstream servers, and waiting for a free one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::setup::{OK, PLAIN, among, metric, of, silent, started_with};
use crate::support::{Client, Upstream, eventually, get};

#[test]
fn max_connections_applies_over_all_workers() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let may_respond = Arc::new(AtomicBool::new(false));
    let (seen, gate) = (Arc::clone(&most), Arc::clone(&may_respond));
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            eventually("the server may respond", || gate.load(Ordering::SeqCst));
            now.fetch_sub(1, Ordering::SeqCst);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = among(&[&server], "max_connections = 3\npending_timeout = \"10s\"");
    let clients: Vec<_> = (0..24)
        .map(|_| {
            let address = proxy.addr();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                [(); 5].map(|()| client.get("/", &[]).status())
            })
        })
        .collect();
    eventually("three requests have a connection, and the others wait", || {
        server.received() == 3 && metric(&proxy, "pending_requests", "") == 21
    });
    may_respond.store(true, Ordering::SeqCst);
    for client in clients {
        assert_eq!(client.join().unwrap(), [200; 5]);
    }
    assert_eq!((most.load(Ordering::SeqCst), server.requests().len()), (3, 120));
    eventually("connections are counted", || metric(&proxy, "connections", &of(&server)) <= 3);
}

#[test]
fn an_idle_connection_is_closed_for_another_worker() {
    let server = Upstream::echo();
    let proxy = among(&[&server], "max_connections = 1\npending_timeout = \"9s\"");
    for _ in 0..40 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(server.connections() > 1, "all connections came to one worker");
}

#[test]
fn requests_wait_up_to_max_pending_and_pending_timeout() {
    let server = silent();
    let proxy = among(&[&server], "max_connections = 1\nmax_pending = 1\npending_timeout = \"9s\"");
    let pending =
        |count| eventually("that many requests wait", || metric(&proxy, "pending_requests", "") == count);
    let assert_rejected = || {
        let response = get(proxy.addr(), "/", &[]);
        assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")));
        assert!(
            response.text().contains("all connections to the upstream are in use"),
            "{}",
            response.text()
        );
    };
    let mut first = Client::connect(proxy.addr());
    first.send(PLAIN);
    eventually("the server has the request", || server.requests().len() == 1);
    let mut second = Client::connect(proxy.addr());
    second.send(PLAIN);
    pending(1);
    assert_rejected();
    // A client that disconnects stops waiting.
    drop(second);
    pending(0);
    let mut third = Client::connect(proxy.addr());
    third.send(PLAIN);
    pending(1);
    drop(first);
    eventually("the server has the next request", || server.requests().len() == 2);
    pending(0);
    assert_eq!(metric(&proxy, "refusals_total", ""), 1);
    // The wait is bounded in time.
    let proxy = among(&[&server], "max_connections = 1\npending_timeout = \"100ms\"");
    let mut first = Client::connect(proxy.addr());
    first.send(PLAIN);
    eventually("the server has the request", || server.requests().len() == 3);
    let response = get(proxy.addr(), "/", &[]);
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")));
}

#[test]
fn another_server_is_preferred_to_waiting() {
    let (busy, free) = (silent(), Upstream::echo());
    // One worker, since idle connections belong to a worker.
    let servers = format!("\"{}\", \"{}\"", busy.url(), free.url());
    let proxy = started_with(1, &servers, "max_connections = 1\npending_timeout = \"9s\"");
    let mut held = Vec::new();
    while busy.requests().is_empty() {
        let mut client = Client::connect(proxy.addr());
        client.send(PLAIN);
        let before = free.received();
        eventually("the request has arrived", || busy.received() + free.received() > before);
        held.push(client);
    }
    for _ in 0..20 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert_eq!(busy.requests().len(), 1);
}

#[test]
fn a_waiting_request_takes_the_first_free_server() {
    let busy = silent();
    let (slow, release) = Upstream::gated(OK);
    let servers = format!("\"{}\", \"{}\"", busy.url(), slow.url());
    let proxy = started_with(2, &servers, "max_connections = 1\nmax_pending = 6\npending_timeout = \"9s\"");
    let ask = || {
        let mut client = Client::connect(proxy.addr());
        client.send(PLAIN);
        client
    };
    let mut held = vec![ask(), ask()];
    eventually("both servers are busy", || busy.requests().len() + slow.requests().len() == 2);
    held.extend((0..6).map(|_| ask()));
    eventually("all requests wait", || metric(&proxy, "pending_requests", "") == 6);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503, "no more requests may wait");
    drop(release);
    // All but the request at the silent server.
    eventually("the other requests are forwarded", || slow.requests().len() == 7);
    assert_eq!(busy.requests().len(), 1);
    drop(held);
    eventually("no request waits", || metric(&proxy, "pending_requests", "") == 0);
    eventually("the permits are released", || {
        let open = |server| metric(&proxy, "connections", &of(server));
        open(&busy) == 0 && open(&slow) <= 1
    });
}

#[test]
fn workers_competing_for_one_server_use_the_others() {
    const SERVERS: usize = 4;
    // Each server responds when all have a request, and closes the connection.
    let arrived = Arc::new(AtomicUsize::new(0));
    let servers: Vec<Upstream> = (0..SERVERS)
        .map(|_| {
            let arrived = Arc::clone(&arrived);
            Upstream::scripted(move |caller| {
                let _ = caller.request();
                let round = arrived.fetch_add(1, Ordering::SeqCst) / SERVERS + 1;
                eventually("all servers have a request", || {
                    arrived.load(Ordering::SeqCst) >= round * SERVERS
                });
                let _ =
                    caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            })
        })
        .collect();
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    let proxy = started_with(SERVERS, &urls.join(", "), "max_connections = 1\npending_timeout = \"30s\"");
    for _ in 0..100 {
        let mut clients = [(); SERVERS].map(|()| Client::connect(proxy.addr()));
        for client in &mut clients {
            client.send(PLAIN);
        }
        assert_eq!(clients.map(|mut client| client.read().status()), [200; SERVERS]);
    }
}
