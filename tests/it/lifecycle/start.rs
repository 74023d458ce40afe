//! The start of the process, and inherited sockets.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::drain::OWN;
use crate::support::{Client, RedisServer, Tidegate, eventually, get};

/// Fails to start on an address on which another process listens.
#[track_caller]
fn is_in_use(address: SocketAddr) {
    let (status, lines) = Tidegate::fails(&format!("listen = \"{address}\"\n{OWN}"));
    let error = format!("error: can't listen on {address}: Address already in use (os error 98)");
    assert_eq!((status.code(), &lines[0]), (Some(1), &error));
    // The user depends on who runs the test.
    let command = format!("` uses it; ss -ltnp 'sport = :{}' shows the process that uses it", address.port());
    assert!(
        lines[1].starts_with("help: a process of the user `") && lines[1].contains(&command),
        "{lines:?}"
    );
}

#[test]
fn a_port_in_use_is_reported_and_fails_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    is_in_use(taken.local_addr().unwrap());
    // Also if the other process is a tidegate, whose port could be shared.
    let proxy = Tidegate::start(&format!("workers = 2\n{OWN}"));
    let address = proxy.addr();
    is_in_use(address);
    assert_eq!(get(address, "/", &[]).status(), 200);
}

#[test]
fn an_address_of_another_host_is_reported() {
    let (status, lines) = Tidegate::fails(&format!("listen = \"192.0.2.1:1\"\n{OWN}"));
    let expected = [
        "error: can't listen on 192.0.2.1:1: Cannot assign requested address (os error 99)",
        "help: this machine does not have the address 192.0.2.1; 0.0.0.0:1 listens on all that it has",
    ];
    assert_eq!((status.code(), lines), (Some(1), expected.map(str::to_owned).to_vec()));
}

#[test]
fn the_start_logs_listeners_and_store() {
    let proxy = Tidegate::start(&format!(
        "workers = 2\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"[::1]:0\"\n{OWN}"
    ));
    assert!(proxy.wait_log("listening on 127.0.0.1:").ends_with(" with 2 workers"));
    let second = proxy.wait_log("listening on [::1]:");
    proxy.wait_log("limits are counted in this process");
    let address = second.split("listening on ").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(get(address.parse().unwrap(), "/", &[]).status(), 200);
    let redis = RedisServer::start();
    let proxy = Tidegate::start(&format!("[store]\nurl = \"{}\"\n{OWN}", redis.url()));
    proxy.wait_log(&format!("limits are counted in {}", redis.url()));
}

#[test]
fn the_start_logs_what_is_served() {
    let config = r#"
        listen = "127.0.0.1:0"
        [admin]
        listen = "127.0.0.1:0"
        [limits.per-key]
        rate = "100/minute"
        key = "header:x-api-key"
        [upstreams.api]
        servers = ["http://127.0.0.1:9/hush"]
        [[routes]]
        path = "/*"
        upstream = "api"
        limits = ["per-key"]
    "#;
    let proxy = Tidegate::start(config);
    proxy.wait_log("/tidegate.toml: 1 route, 1 limit and 1 upstream");
    proxy.wait_log("limit per-key: 100/minute (token_bucket) by header:x-api-key");
    proxy.wait_log("upstream api: http://127.0.0.1:9");
    proxy.wait_log("the admin interface is at http://127.0.0.1:");
    assert_eq!(proxy.logged("hush"), 0);
}

#[test]
fn every_worker_serves() {
    let proxy = Tidegate::start(&format!("workers = 4\n{OWN}"));
    for _ in 0..40 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
}

/// The parent process keeps the socket, so that no connection is refused and no request is lost.
#[test]
fn an_inherited_socket_survives_restarts_under_load() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = |text: &str| {
        format!(
            "listen = \"{address}\"\nworkers = 2\n[[routes]]\npath = \"/*\"\nrespond = {{ body = \"{text}\" }}\n"
        )
    };
    let mut old = Tidegate::builder(&config("0")).socket(&socket).start();
    let (is_over, last) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let response = get(address, "/", &["Connection: close"]);
                    last.store(response.text().parse().unwrap(), Ordering::Relaxed);
                }
            });
        }
        for generation in 1..=5 {
            let new = Tidegate::builder(&config(&generation.to_string())).socket(&socket).start();
            assert_eq!(std::mem::replace(&mut old, new).stop().code(), Some(0));
            eventually("the new process responds", || last.load(Ordering::Relaxed) == generation);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Without a process, connections wait in the backlog.
    assert_eq!(old.stop().code(), Some(0));
    let mut early = Client::connect(address);
    early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let next = Tidegate::builder(&config("next")).socket(&socket).start();
    assert_eq!(early.read().text(), "next");
    // A listener that is removed and added again gets the inherited socket again.
    next.reload(&config("next").replace(&address.to_string(), "127.0.0.1:0"));
    next.reload(&config("again"));
    assert_eq!(get(address, "/", &[]).text(), "again");
}

#[test]
fn an_unused_inherited_socket_responds_with_503() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let warning = format!("no listener of the configuration has the address {address}");
    let unused = || {
        let response = get(address, "/", &[]);
        (response.status(), response.text().to_owned())
            == (503, "no listener of tidegate has this address\n".to_owned())
    };
    let proxy = Tidegate::builder(OWN).socket(&socket).start();
    assert!(proxy.wait_log(&warning).contains("systemctl edit tidegate.socket"));
    assert!(unused());
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    // A reload that adds the listener serves it, and one that removes it says so again.
    proxy.reload(&format!("listen = \"{address}\"\n{OWN}"));
    eventually("the listener is served", || get(address, "/", &[]).status() == 200);
    assert_eq!(proxy.logged(&warning), 1);
    proxy.reload(OWN);
    eventually("the listener is closed", unused);
    assert_eq!(proxy.logged(&warning), 2);
}

#[test]
fn a_killed_process_can_be_restarted_at_once() {
    let mut proxy = Tidegate::start(OWN);
    let address = proxy.addr();
    let mut client = Client::connect(address);
    assert_eq!(client.get("/", &[]).status(), 200);
    proxy.signal("KILL");
    proxy.wait();
    // The connection of the killed process is in TIME-WAIT.
    let next = Tidegate::start(&format!("listen = \"{address}\"\n{OWN}"));
    assert_eq!((next.addr(), get(address, "/", &[]).status()), (address, 200));
}
