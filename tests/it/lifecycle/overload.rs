//! Overload: pauses after refused requests while a worker is saturated.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use crate::support::{Client, Tidegate, Upstream, eventually};

const CONNECTIONS: usize = 16;
/// Requests of each connection that wait in the kernel, so that the worker always has something to do.
const AT_ONCE: usize = 200;

/// A proxy with a limit that denies all requests to `/full` but the first one, whose response is outstanding.
struct FullProxy {
    proxy: Tidegate,
    _upstream: Upstream,
    /// Its drop ends the request.
    _held: Sender<()>,
    _first: Client,
}

impl FullProxy {
    fn start(limit: &str, client_ip: &str) -> Self {
        let (held, end) = channel::<()>();
        let end = Mutex::new(end);
        let upstream = Upstream::scripted(move |caller| {
            let _ = caller.request();
            let _ = end.lock().unwrap().recv();
        });
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n{client_ip}\
             [limits.a]\n{limit}\nkey = \"route\"\n\
             [[routes]]\npath = \"/full\"\nlimits = [\"a\"]\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/free\"\nlimits = []\nrespond = {{ status = 200 }}\n",
            upstream.url()
        );
        let proxy = Tidegate::start(&config);
        let mut first = Client::connect(proxy.addr());
        first.send("GET /full HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the request is forwarded", || upstream.received() == 1);
        Self { proxy, _upstream: upstream, _held: held, _first: first }
    }

    fn pauses(&self) -> u64 {
        self.proxy.metric("tidegate_refusal_pause_seconds_count")
    }
}

/// Sends many requests at once over several connections, of which the limit denies all, and reads all responses.
fn flood(proxy: &FullProxy) {
    let flood_one = || {
        let mut stream = TcpStream::connect(proxy.proxy.addr()).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let mut responses = String::new();
            reader.read_to_string(&mut responses).unwrap();
            responses.matches("HTTP/1.1 429 ").count()
        });
        let request = |last| format!("GET /full HTTP/1.1\r\nHost: a\r\n{last}\r\n");
        stream.write_all(request("").repeat(AT_ONCE - 1).as_bytes()).unwrap();
        stream.write_all(request("Connection: close\r\n").as_bytes()).unwrap();
        reading.join().unwrap()
    };
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(flood_one)).collect();
        // A pause delays requests, and loses none.
        for flood in floods {
            assert_eq!(flood.join().unwrap(), AT_ONCE);
        }
    });
}

#[test]
fn a_saturated_worker_pauses_after_requests_that_find_no_slot() {
    let proxy = FullProxy::start("algorithm = \"concurrency\"\nmax_in_flight = 1", "");
    let mut client = Client::connect(proxy.proxy.addr());
    assert_eq!(client.get("/full", &[]).status(), 429);
    assert_eq!(proxy.pauses(), 0);
    eventually("connections are paused", || {
        flood(&proxy);
        proxy.pauses() > 0
    });
    // After a pause a connection is read again.
    assert_eq!(client.get("/full", &[]).status(), 429);
    assert_eq!(client.get("/free", &[]).status(), 200);
}

/// Their connections carry requests of many clients.
#[test]
fn connections_of_trusted_proxies_are_not_paused() {
    let trusted = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let proxy = FullProxy::start("algorithm = \"concurrency\"\nmax_in_flight = 1", trusted);
    flood(&proxy);
    assert_eq!(proxy.pauses(), 0);
}

/// A pause frees no unit of theirs.
#[test]
fn requests_over_a_rate_are_denied_without_a_pause() {
    let proxy = FullProxy::start("rate = \"1/hour\"", "");
    flood(&proxy);
    assert_eq!(proxy.pauses(), 0);
}
