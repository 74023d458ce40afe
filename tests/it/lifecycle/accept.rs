//! More connections than the process can accept.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::{Client, Tidegate, eventually, free_address, get, timed};

/// Connections that a client of a flood has at once.
const AT_ONCE: usize = 64;

fn own(settings: &str) -> String {
    format!("workers = 1\n{settings}\n[[routes]]\npath = \"/*\"\nrespond = {{ body = \"hello\" }}\n")
}

/// Connects again and again, and resets the connections.
fn flood(address: SocketAddr, count: &AtomicUsize, is_over: &AtomicBool) {
    let mut kept = Vec::new();
    // The flood ends also when the test fails.
    let end = Instant::now() + Duration::from_secs(15);
    while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // From another address: while nothing listens on `address`, the kernel could choose its port for the client.
        // The client would then connect to itself, and keep the port from the proxy.
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Closing resets, and leaves no port in use.
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        // The handshake is in progress, or the accept queue is full.
        let _ = socket.connect(&address.into());
        kept.push(socket);
        count.fetch_add(1, Ordering::Relaxed);
        if kept.len() == AT_ONCE {
            kept.clear();
        }
    }
}

/// Runs `work` while a few clients flood an address with connections.
fn under_flood(address: SocketAddr, work: impl FnOnce()) {
    let (count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| flood(address, &count, &is_over));
        }
        eventually("the flood has begun", || count.load(Ordering::Relaxed) > 5_000);
        work();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_connection_flood_does_not_block_a_drain() {
    let mut proxy = Tidegate::start(&own("shutdown_grace = \"5s\""));
    let address = proxy.addr();
    let mut client = Client::connect(address);
    assert_eq!(client.get("/", &[]).status(), 200);
    under_flood(address, || {
        proxy.signal("TERM");
        client.expect_close();
        assert_eq!(proxy.wait().code(), Some(0));
    });
    assert_eq!(proxy.logged("connections were still open"), 0);
}

#[test]
fn a_removed_listener_can_be_added_again_at_once() {
    let [kept, other] = [(); 2].map(|()| free_address());
    let config = |addresses: &[SocketAddr]| {
        let listeners = addresses.iter().map(|address| format!("[[listeners]]\naddress = \"{address}\"\n"));
        own(&listeners.collect::<Vec<_>>().concat())
    };
    let proxy = Tidegate::start(&config(&[kept, other]));
    under_flood(other, || {
        for round in 1..=5 {
            let ((), took) = timed(|| proxy.reload(&config(&[kept])));
            // The reload waits for up to a second until the worker has closed its socket. A busy machine may need longer.
            if took > Duration::from_millis(900) {
                eventually("the socket is closed", || TcpListener::bind(other).is_ok());
            }
            proxy.write(&config(&[kept, other]));
            proxy.signal("HUP");
            eventually("the file is read", || {
                assert_eq!(proxy.logged("serving the previous configuration"), 0);
                proxy.logged("was reloaded") == 2 * round
            });
        }
    });
    for address in [kept, other] {
        assert_eq!(get(address, "/", &[]).text(), "hello");
    }
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn accept_failures_without_file_descriptors_are_logged_once() {
    let proxy = Tidegate::start(&own(""));
    proxy.limit_files(60);
    let clients: Vec<Client> = (0..100).map(|_| Client::connect(proxy.addr())).collect();
    let message = "can't accept connections on";
    assert!(proxy.wait_log(message).ends_with("Too many open files (os error 24)"));
    // Real time is tested: the proxy goes on trying, and must not log that.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(proxy.logged(message), 1);
    drop(clients);
    eventually("connections are accepted again", || get(proxy.addr(), "/", &[]).text() == "hello");
    assert_eq!(proxy.stop().code(), Some(0));
}

/// Huge pages would double the memory of idle connections.
#[test]
fn transparent_huge_pages_are_disabled() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = {}\n");
    assert_eq!(proxy.status("THP_enabled:"), 0);
}

#[test]
fn the_limit_on_open_files_is_raised_to_the_hard_limit() {
    let own = own("");
    for (hard, is_enough) in [(12_000, true), (4_000, false)] {
        let proxy =
            Tidegate::builder(&own).ulimits(&format!("ulimit -S -n 100; ulimit -H -n {hard}")).start();
        let said = format!(
            "`max_connections` allows 10000 client connections, but this process may open only {hard} files"
        );
        if is_enough {
            assert_eq!(proxy.logged("open files"), 0);
        } else {
            proxy.wait_log(&said);
        }
        let mut clients: Vec<Client> = (0..200).map(|_| Client::connect(proxy.addr())).collect();
        assert_eq!(clients.last_mut().unwrap().get("/", &[]).status(), 200);
        assert_eq!(proxy.logged("can't accept"), 0);
    }
}
