//! Log messages about servers that are down.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};

use crate::support::{Authority, Tidegate, Upstream, free_address, get};
use crate::tls::upstream::scripted as tls_server;

fn proxy_for(url: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 2\n[upstreams.shop]\nservers = [\"{url}\"]\n[[routes]]\npath = \"/*\"\nupstream = \"shop\"\n"
    ))
}

fn ask(proxy: &Tidegate, times: usize) -> Vec<u16> {
    (0..times).map(|_| get(proxy.addr(), "/", &[]).status()).collect()
}

fn echo_at(address: SocketAddr) -> Upstream {
    Upstream::listening(TcpListener::bind(address).unwrap(), |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    })
}

#[test]
fn an_outage_and_its_recovery_are_each_logged_once() {
    let address = free_address();
    let proxy = proxy_for(&format!("http://{address}"));
    assert_eq!(ask(&proxy, 20), [502; 20]);
    let line = proxy.wait_log(&format!("upstream shop: {address} fails: "));
    assert!(line.contains("WARN") && line.contains("Connection refused (os error 111)"), "{line}");
    let server = echo_at(address);
    assert_eq!(ask(&proxy, 20), [200; 20]);
    let line = proxy.wait_log(&format!("upstream shop: {address} responds again"));
    assert!(line.contains("INFO"), "{line}");
    assert_eq!((proxy.logged("fails: "), proxy.logged("responds again")), (1, 1));
    // The next outage is logged again.
    drop(server);
    assert!(ask(&proxy, 20).iter().filter(|status| **status == 502).count() > 15);
    crate::support::eventually("the outage is logged", || proxy.logged("fails: ") == 2);
}

#[test]
fn a_tls_server_behind_a_plain_http_url_is_logged_once() {
    let authority = Authority::new();
    authority.sign("localhost");
    // Answers plain HTTP with an alert of TLS.
    let port = tls_server(&authority, |_, mut stream| drop(stream.flush()));
    let proxy = proxy_for(&format!("http://127.0.0.1:{port}"));
    assert_eq!(ask(&proxy, 10), [502; 10]);
    let line = proxy.wait_log(&format!("upstream shop: 127.0.0.1:{port} fails: "));
    assert!(line.contains("WARN") && line.contains("https://"), "{line}");
    assert_eq!(proxy.logged("fails: "), 1);
}

#[test]
fn an_unstable_server_does_not_flood_the_log() {
    let server = Upstream::scripted(|caller| {
        if caller.number() % 2 == 0 {
            let _ = caller.request();
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = proxy_for(&server.url());
    let statuses = ask(&proxy, 60);
    assert!(statuses.contains(&200) && statuses.contains(&502), "{statuses:?}");
    proxy.wait_log("fails: ");
    assert_eq!((proxy.logged("fails: "), proxy.logged("responds again")), (1, 0));
}
