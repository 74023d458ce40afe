//! Bounds on connections to upstream servers, and waiting for a free one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::setup::{PLAIN, among, metric, of, silent, started_with};
use crate::support::{Client, Upstream, eventually, get};

#[test]
fn connections_are_bounded_over_all_workers() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Long enough that requests meet.
            std::thread::sleep(Duration::from_millis(5));
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
    for client in clients {
        assert_eq!(client.join().unwrap(), [200; 5]);
    }
    assert_eq!((most.load(Ordering::SeqCst), server.requests().len()), (3, 120));
    eventually("connections are counted", || metric(&proxy, "connections", &of(&server)) <= 3);
}

/// One worker keeps the only connection, and another one needs it.
#[test]
fn a_kept_connection_makes_room_for_other_workers() {
    let server = Upstream::echo();
    let proxy = among(&[&server], "max_connections = 1\npending_timeout = \"9s\"");
    for _ in 0..40 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(server.connections() > 1, "all connections came to one worker");
}

#[test]
fn who_finds_no_room_waits_and_then_hears_of_it() {
    let server = silent();
    let proxy = among(&[&server], "max_connections = 1\nmax_pending = 1\npending_timeout = \"9s\"");
    let pending = |count| eventually("that many wait", || metric(&proxy, "pending", "") == count);
    let refused = || {
        let answer = get(proxy.addr(), "/", &[]);
        assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
        assert!(answer.text().contains("all connections to the upstream are in use"), "{}", answer.text());
    };
    let mut first = Client::connect(proxy.addr());
    first.send(PLAIN);
    eventually("it is there", || server.requests().len() == 1);
    let mut second = Client::connect(proxy.addr());
    second.send(PLAIN);
    pending(1);
    refused();
    // Who goes away leaves its place in the line.
    drop(second);
    pending(0);
    let mut third = Client::connect(proxy.addr());
    third.send(PLAIN);
    pending(1);
    drop(first);
    eventually("the next one is there", || server.requests().len() == 2);
    pending(0);
    assert_eq!(metric(&proxy, "refusals_total", ""), 1);
    // Nobody waits longer than for a connection.
    let proxy = among(&[&server], "max_connections = 1\npending_timeout = \"100ms\"");
    let mut first = Client::connect(proxy.addr());
    first.send(PLAIN);
    eventually("it is there", || server.requests().len() == 3);
    let answer = get(proxy.addr(), "/", &[]);
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
}

#[test]
fn another_server_is_better_than_to_wait() {
    let (busy, free) = (silent(), Upstream::echo());
    // One worker: what another one keeps would have to be waited for.
    let servers = format!("\"{}\", \"{}\"", busy.url(), free.url());
    let proxy = started_with(1, &servers, "max_connections = 1\npending_timeout = \"9s\"");
    let mut held = Vec::new();
    while busy.requests().is_empty() {
        let mut client = Client::connect(proxy.addr());
        client.send(PLAIN);
        let asked = free.requests().len();
        eventually("it has arrived", || busy.requests().len() + free.requests().len() > asked);
        held.push(client);
    }
    for _ in 0..20 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert_eq!(busy.requests().len(), 1);
}

#[test]
fn who_waits_gets_whichever_server_is_free_first() {
    let busy = silent();
    let may_answer = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&may_answer);
    let slow = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            eventually("it may answer", || gate.load(Ordering::SeqCst));
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let servers = format!("\"{}\", \"{}\"", busy.url(), slow.url());
    let proxy = started_with(2, &servers, "max_connections = 1\nmax_pending = 6\npending_timeout = \"9s\"");
    let ask = || {
        let mut client = Client::connect(proxy.addr());
        client.send(PLAIN);
        client
    };
    let mut held = vec![ask(), ask()];
    eventually("both are busy", || busy.requests().len() + slow.requests().len() == 2);
    held.extend((0..6).map(|_| ask()));
    eventually("all wait", || metric(&proxy, "pending", "") == 6);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503, "no more may wait than that");
    may_answer.store(true, Ordering::SeqCst);
    // All but the one that is at the silent server.
    eventually("the others are answered", || slow.requests().len() == 7);
    assert_eq!(busy.requests().len(), 1);
    drop(held);
    eventually("nobody waits any more", || metric(&proxy, "pending", "") == 0);
    eventually("the places are free", || {
        let open = |server| metric(&proxy, "connections", &of(server));
        open(&busy) == 0 && open(&slow) <= 1
    });
}

/// Workers that choose the same server in the same moment: who finds it taken must go to the other.
#[test]
fn workers_that_want_the_same_place_do_not_leave_another_one_empty() {
    const SERVERS: usize = 4;
    // Each answers when all have a request, and keeps no connection.
    let arrived = Arc::new(AtomicUsize::new(0));
    let servers: Vec<Upstream> = (0..SERVERS)
        .map(|_| {
            let arrived = Arc::clone(&arrived);
            Upstream::scripted(move |caller| {
                let _ = caller.request();
                let round = arrived.fetch_add(1, Ordering::SeqCst) / SERVERS + 1;
                eventually("all have one", || arrived.load(Ordering::SeqCst) >= round * SERVERS);
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
