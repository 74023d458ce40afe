//! Overload: pauses after refused requests while a worker is saturated.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{Tidegate, eventually, get};

const CONFIG: &str = "listen = \"127.0.0.1:0\"\nworkers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n\
    [limits.a]\nrate = \"1/hour\"\nkey = \"header:x-user\"\n\
    [[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = { status = 200 }\n";
const CONNECTIONS: usize = 16;
/// Requests of each connection that wait in the kernel, so that the worker always has something to do.
const AT_ONCE: usize = 100;

/// Sends many requests at once over a connection, and reads their responses: how many of them are denied by the limit, and how
/// many are refused since they have waited for the end of a pause.
fn flood(proxy: &Tidegate) -> [usize; 2] {
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: a\r\nX-User: eve\r\n\r\n".repeat(AT_ONCE - 1);
    let last = "GET / HTTP/1.1\r\nHost: a\r\nX-User: eve\r\nConnection: close\r\n\r\n";
    let reading = std::thread::spawn(move || {
        let mut responses = String::new();
        reader.read_to_string(&mut responses).unwrap();
        ["HTTP/1.1 429 ", "HTTP/1.1 503 "].map(|start| responses.matches(start).count())
    });
    stream.write_all((requests + last).as_bytes()).unwrap();
    reading.join().unwrap()
}

/// Floods a proxy over several connections at once; the sums of [`flood`].
fn flood_all(proxy: &Tidegate) -> [usize; 2] {
    let counts: Vec<[usize; 2]> = std::thread::scope(|scope| {
        let floods: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| flood(proxy))).collect();
        floods.into_iter().map(|flood| flood.join().unwrap()).collect()
    });
    // A pause delays requests, and loses none.
    assert!(counts.iter().all(|[denied, refused]| denied + refused == AT_ONCE), "{counts:?}");
    counts.into_iter().fold([0, 0], |sums, counts| [sums[0] + counts[0], sums[1] + counts[1]])
}

#[test]
fn a_saturated_worker_pauses_after_refused_requests() {
    let proxy = Tidegate::start(CONFIG);
    let pauses = || proxy.metric("tidegate_refusal_pause_seconds_count");
    assert_eq!(get(proxy.addr(), "/", &["X-User: eve"]).status(), 200);
    assert_eq!(get(proxy.addr(), "/", &["X-User: eve"]).status(), 429);
    assert_eq!(pauses(), 0);
    let mut refused = 0;
    eventually("requests are paused, and refused after the pause", || {
        refused += flood_all(&proxy)[1];
        pauses() > 0 && refused > 0
    });
    assert_eq!(get(proxy.addr(), "/", &["X-User: bob"]).status(), 200);
}

/// Their connections carry requests of many clients.
#[test]
fn connections_of_trusted_proxies_are_not_paused() {
    let proxy = Tidegate::start(&CONFIG.replacen(
        "[admin]",
        "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n[admin]",
        1,
    ));
    assert_eq!(get(proxy.addr(), "/", &["X-User: eve"]).status(), 200);
    for _ in 0..3 {
        assert_eq!(flood_all(&proxy), [CONNECTIONS * AT_ONCE, 0]);
    }
    assert_eq!(proxy.metric("tidegate_refusal_pause_seconds_count"), 0);
}
