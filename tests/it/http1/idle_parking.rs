//! Connections that have been idle for a while hold nothing but their socket, and serve on as if they had never rested.

use std::time::{Duration, Instant};

use rustls::version::{TLS12, TLS13};

use crate::support::{Authority, Client, Message, Tidegate, TlsClient, Upstream, eventually};

/// A connection rests after half an idle second, and nothing that a client can see says so.
const UNTIL_IT_RESTS: Duration = Duration::from_millis(800);
/// Times a connection rests here.
const ROUNDS: usize = 2;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn before(server: &Upstream, listener: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ))
}

/// Lets all connections rest.
fn rest() {
    // Resting is a matter of time alone, and the clock of a process can't be moved from here.
    std::thread::sleep(UNTIL_IT_RESTS);
}

/// A connection that has been served once, and rests.
fn rested(proxy: &Tidegate) -> Client {
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask(GET).status(), 200);
    rest();
    client
}

#[test]
fn a_connection_serves_on_after_each_rest() {
    let echo = Upstream::echo();
    let plain = before(&echo, "");
    let proxied = before(&echo, "proxy_protocol = true");
    let mut clients = [plain.addr(), plain.addr(), proxied.addr()].map(Client::connect);
    clients[2].send("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n");
    let old = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    let whose = |answer: Message| answer.echoed().header("x-forwarded-for").unwrap().to_owned();
    for round in 0..=ROUNDS {
        if round > 0 {
            rest();
        }
        assert_eq!(whose(clients[0].ask(GET)), "127.0.0.1");
        assert_eq!(whose(clients[1].ask(old)), "127.0.0.1");
        assert_eq!(whose(clients[2].ask(GET)), "192.0.2.7");
    }
    // Bodies and pipelined requests as well, and the last request still is.
    rest();
    clients[0].send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi".to_owned() + GET + GET);
    assert_eq!(clients[0].read().echoed().text(), "hi");
    for _ in 0..2 {
        assert_eq!(clients[0].read().status(), 200);
    }
    rest();
    let last = clients[0].ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(last.header("connection"), Some("close"));
    clients[0].expect_close();
}

#[test]
fn a_connection_over_tls_keeps_its_session_and_its_certificate() {
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
            rest();
        }
        for client in &mut clients {
            assert_eq!(client.get("/").unwrap().text(), "hello");
        }
    }
    // All were counted as one client's, by its certificate.
    assert_eq!(clients[0].get("/").unwrap().status(), 429);
    // Two requests in one record: both are answered after the rest, though nothing comes for the second.
    rest();
    clients[0].ask_twice("/").unwrap();
    assert_eq!([(); 2].map(|()| clients[0].read().unwrap().status()), [429; 2]);
    rest();
    clients[0].finish().unwrap();
    assert!(clients[0].is_ended().unwrap());
}

#[test]
fn half_a_head_is_kept_whenever_it_comes() {
    let echo = Upstream::echo();
    let proxy = before(&echo, "");
    let (half, other) = GET.split_at(10);
    // Before a rest, after it, and behind a request that was answered.
    let mut first = Client::connect(proxy.addr());
    first.send(half);
    let mut piped = Client::connect(proxy.addr());
    piped.send(GET.to_owned() + half);
    assert_eq!(piped.read().status(), 200);
    let mut later = rested(&proxy);
    later.send(half);
    rest();
    for mut client in [first, piped, later] {
        assert_eq!(client.ask(other).status(), 200);
        assert_eq!(client.ask(GET).status(), 200);
    }
}

#[test]
fn half_a_head_has_its_time_after_a_rest() {
    let echo = Upstream::echo();
    let proxy = before(&echo, "header_timeout = \"500ms\"");
    let mut piped = Client::connect(proxy.addr());
    piped.send(GET.to_owned() + "GET / HT");
    assert_eq!(piped.read().status(), 200);
    let mut client = rested(&proxy);
    let begun = Instant::now();
    client.send("GET / HT");
    client.expect_close();
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    piped.expect_close();
    // A whole one has as long as it takes.
    let mut client = rested(&proxy);
    assert_eq!(client.ask(GET).status(), 200);
}

#[test]
fn a_resting_connection_ends_when_either_side_wants_it() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            // Long enough for the proxy to see the end of what the client sends.
            std::thread::sleep(Duration::from_millis(200));
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = before(&server, "idle_timeout = \"6s\"");
    let mut clients = [(); 5].map(|()| Client::connect(proxy.addr()));
    let [gone, asking, cut, again, idle] = &mut clients;
    for client in [&mut *gone, asking, cut, again] {
        assert_eq!(client.ask(GET).status(), 200);
    }
    let idle_since = Instant::now();
    assert_eq!(idle.ask(GET).status(), 200);
    rest();
    let again_since = Instant::now();
    assert_eq!(again.ask(GET).status(), 200);
    // One closes its side at once, one behind a request, and one behind half a request.
    gone.finish();
    asking.send(GET);
    asking.finish();
    cut.send(&GET[..10]);
    cut.finish();
    assert_eq!(asking.read().text(), "ok");
    for client in [gone, asking, cut] {
        client.expect_close();
    }
    idle.expect_close();
    assert!(idle_since.elapsed() >= Duration::from_secs(6), "{:?}", idle_since.elapsed());
    again.expect_close();
    assert!(again_since.elapsed() >= Duration::from_secs(6), "{:?}", again_since.elapsed());
}

#[test]
fn resting_connections_are_drained() {
    let echo = Upstream::echo();
    let mut proxy = before(&echo, "");
    let mut silent = Client::connect(proxy.addr());
    let mut idle = Client::connect(proxy.addr());
    assert_eq!(idle.ask(GET).status(), 200);
    let mut asking = rested(&proxy);
    // A request that is on its way when the drain begins.
    proxy.signal("STOP");
    asking.send(GET);
    proxy.signal("TERM");
    proxy.signal("CONT");
    assert_eq!(asking.read().status(), 200);
    for client in [&mut silent, &mut idle, &mut asking] {
        client.expect_close();
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

/// Connections of a memory test.
const CROWD: u64 = 2_000;

#[test]
fn idle_and_silent_connections_take_little_memory() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = { status = 200, body = \"ok\" }\n");
    let connect = || Client::connect(proxy.addr());
    // Whatever the first connections need once for all.
    drop((0..50).map(|_| connect().ask(GET)).collect::<Vec<_>>());
    let before = proxy.memory();
    let mut silent: Vec<Client> = (0..CROWD).map(|_| connect()).collect();
    assert_eq!(connect().ask(GET).status(), 200);
    let each = || proxy.memory().saturating_sub(before) * 1024 / CROWD;
    assert!(each() < 4_096, "{} bytes for each silent connection", each());
    for client in &mut silent {
        assert_eq!(client.ask(GET).status(), 200);
    }
    eventually("they need little more when they rest", || each() < 8_192);
    // None of them was closed.
    for client in &mut silent {
        assert_eq!(client.ask(GET).status(), 200);
    }
}
