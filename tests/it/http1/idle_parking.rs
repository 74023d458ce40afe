//! Idle connections are parked: they keep nothing but their socket until the next byte arrives.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustls::version::{TLS12, TLS13};

use crate::support::{Authority, Client, Message, Tidegate, TlsClient, Upstream, eventually};

/// Longer than the half second after which an idle connection is parked.
const PARK_DELAY: Duration = Duration::from_millis(800);
/// How often a connection is parked.
const ROUNDS: usize = 2;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn proxy_for(server: &Upstream, listener: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ))
}

/// Waits until all idle connections are parked.
fn park() {
    // Real time is tested: parking depends on nothing else, and is visible nowhere.
    std::thread::sleep(PARK_DELAY);
}

/// A connection that has been served once, and is parked.
fn parked(proxy: &Tidegate) -> Client {
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask(GET).status(), 200);
    park();
    client
}

#[test]
fn a_parked_connection_serves_the_next_request() {
    let echo = Upstream::echo();
    let plain = proxy_for(&echo, "");
    let proxied = proxy_for(&echo, "proxy_protocol = true");
    let mut clients = [plain.addr(), plain.addr(), proxied.addr()].map(Client::connect);
    clients[2].send("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n");
    let http_1_0 = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    let client_of = |response: Message| response.echoed().header("x-forwarded-for").unwrap().to_owned();
    for round in 0..=ROUNDS {
        if round > 0 {
            park();
        }
        assert_eq!(client_of(clients[0].ask(GET)), "127.0.0.1");
        assert_eq!(client_of(clients[1].ask(http_1_0)), "127.0.0.1");
        assert_eq!(client_of(clients[2].ask(GET)), "192.0.2.7");
    }
    // Bodies, pipelined requests and `Connection: close` work after parking, too.
    park();
    clients[0].send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi".to_owned() + GET + GET);
    assert_eq!(clients[0].read().echoed().text(), "hi");
    for _ in 0..2 {
        assert_eq!(clients[0].read().status(), 200);
    }
    park();
    let last = clients[0].ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(last.header("connection"), Some("close"));
    clients[0].expect_close();
}

#[test]
fn a_parked_tls_connection_keeps_its_session_and_client_certificate() {
    let authority = Authority::new();
    authority.sign("a.test");
    authority.sign_client("alice");
    let ca = authority.file("ca.pem");
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificates = [{{ {} }}], client_ca = \"{}\" }}\n\
         [limits.each]\nrate = \"{}/hour\"\nkey = [\"tls:subject\"]\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = {{ status = 200, body = \"hello\" }}\n",
        authority.pair("a.test"),
        ca.display(),
        2 * (ROUNDS + 1),
    ));
    let mut clients = [&TLS13, &TLS12].map(|version| {
        let config = authority.client(Some("alice"), &[version]);
        TlsClient::connect(&config, "a.test", proxy.addr()).unwrap()
    });
    for round in 0..=ROUNDS {
        if round > 0 {
            park();
        }
        for client in &mut clients {
            assert_eq!(client.get("/").unwrap().text(), "hello");
        }
    }
    // All requests were counted for one client, by its certificate.
    assert_eq!(clients[0].get("/").unwrap().status(), 429);
    // Two requests in one TLS record: the second is read, although no further bytes arrive.
    park();
    clients[0].ask_twice("/").unwrap();
    assert_eq!([(); 2].map(|()| clients[0].read().unwrap().status()), [429; 2]);
    park();
    clients[0].finish().unwrap();
    assert!(clients[0].is_ended().unwrap());
}

#[test]
fn a_partial_head_survives_parking() {
    let echo = Upstream::echo();
    let proxy = proxy_for(&echo, "");
    let (half, rest) = GET.split_at(10);
    // Half a head before parking, after it, and behind a request.
    let mut first = Client::connect(proxy.addr());
    first.send(half);
    let mut piped = Client::connect(proxy.addr());
    piped.send(GET.to_owned() + half);
    assert_eq!(piped.read().status(), 200);
    let mut later = parked(&proxy);
    later.send(half);
    park();
    for mut client in [first, piped, later] {
        assert_eq!(client.ask(rest).status(), 200);
        assert_eq!(client.ask(GET).status(), 200);
    }
}

#[test]
fn header_timeout_applies_after_parking() {
    let echo = Upstream::echo();
    let proxy = proxy_for(&echo, "header_timeout = \"500ms\"");
    let mut piped = Client::connect(proxy.addr());
    piped.send(GET.to_owned() + "GET / HT");
    assert_eq!(piped.read().status(), 200);
    let mut client = parked(&proxy);
    let begun = Instant::now();
    client.send("GET / HT");
    client.expect_close();
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    piped.expect_close();
    // A complete head is served.
    let mut client = parked(&proxy);
    assert_eq!(client.ask(GET).status(), 200);
}

#[test]
fn a_parked_connection_closes_on_eof_and_on_idle_timeout() {
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let ask = |client: &mut Client, release: &Sender<()>| {
        release.send(()).unwrap();
        assert_eq!(client.ask(GET).status(), 200);
    };
    let proxy = proxy_for(&server, "idle_timeout = \"6s\"");
    let mut clients = [(); 5].map(|()| Client::connect(proxy.addr()));
    let [closed, half_closed, truncated, reused, idle] = &mut clients;
    for client in [&mut *closed, half_closed, truncated, reused] {
        ask(client, &release);
    }
    let idle_since = Instant::now();
    ask(idle, &release);
    park();
    let reused_since = Instant::now();
    ask(reused, &release);
    // EOF without a request, after a request, and after half a request.
    closed.finish();
    half_closed.send(GET);
    half_closed.finish();
    truncated.send(&GET[..10]);
    truncated.finish();
    // The server responds after the proxy has read the end of what the client sends.
    proxy.wait_read();
    release.send(()).unwrap();
    assert_eq!(half_closed.read().text(), "ok");
    for client in [closed, half_closed, truncated] {
        client.expect_close();
    }
    idle.expect_close();
    assert!(idle_since.elapsed() >= Duration::from_secs(6), "{:?}", idle_since.elapsed());
    reused.expect_close();
    assert!(reused_since.elapsed() >= Duration::from_secs(6), "{:?}", reused_since.elapsed());
}

#[test]
fn parked_connections_are_drained() {
    let echo = Upstream::echo();
    let mut proxy = proxy_for(&echo, "");
    let mut silent = Client::connect(proxy.addr());
    let mut idle = Client::connect(proxy.addr());
    assert_eq!(idle.ask(GET).status(), 200);
    let mut active = parked(&proxy);
    // A request that arrives just before the drain begins.
    proxy.signal("STOP");
    active.send(GET);
    proxy.signal("TERM");
    proxy.signal("CONT");
    assert_eq!(active.read().status(), 200);
    for client in [&mut silent, &mut idle, &mut active] {
        client.expect_close();
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

/// Connections of the memory test.
const CROWD: u64 = 2_000;

#[test]
fn idle_and_silent_connections_use_little_memory() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = { status = 200, body = \"ok\" }\n");
    let connect = || Client::connect(proxy.addr());
    // Memory that only the first connections allocate.
    drop((0..50).map(|_| connect().ask(GET)).collect::<Vec<_>>());
    let before = proxy.memory();
    let mut silent: Vec<Client> = (0..CROWD).map(|_| connect()).collect();
    assert_eq!(connect().ask(GET).status(), 200);
    let each = || proxy.memory().saturating_sub(before) * 1024 / CROWD;
    assert!(each() < 4_096, "{} bytes for each silent connection", each());
    for client in &mut silent {
        assert_eq!(client.ask(GET).status(), 200);
    }
    eventually("parked connections use little more memory", || each() < 8_192);
    // No connection was closed.
    for client in &mut silent {
        assert_eq!(client.ask(GET).status(), 200);
    }
}
