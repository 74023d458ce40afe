//! TLS to clients.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::channel;

use rustls::version::{TLS12, TLS13};
use tidegate::tls::ServerTls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::frames::{GOAWAY, SETTINGS, frame};
use crate::support::{Authority, Client, Tidegate, TlsClient, Upstream, curl, eventually, timed};

/// A listener with these certificates and more of its keys, and a route that does this.
pub fn config(certificates: &[String], more: &str, route: &str) -> String {
    let certificates: Vec<String> = certificates.iter().map(|pair| format!("{{ {pair} }}")).collect();
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{}]{more}\n\
         [[routes]]\npath = \"/*\"\n{route}\n",
        certificates.join(", "),
    )
}

pub const RESPOND: &str = "respond = { status = 200, body = \"hello\\n\" }";

pub fn forward(upstream: &Upstream) -> String {
    format!("upstream = \"{}\"", upstream.url())
}

/// What curl needs to reach a name here, and to trust this authority.
pub fn named(authority: &Authority, name: &str, address: SocketAddr) -> [String; 5] {
    let port = address.port();
    [
        "--resolve".into(),
        format!("{name}:{port}:127.0.0.1"),
        "--cacert".into(),
        authority.file("ca.pem").display().to_string(),
        format!("https://{name}:{port}/a"),
    ]
}

pub fn strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn curl_speaks_tls() {
    let authority = Authority::new();
    authority.sign("a.test");
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&echo)));
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let (option, value) = version.split_once('=').unwrap_or((version, ""));
        let mut arguments = vec![option];
        arguments.extend(Some(value).filter(|value| !value.is_empty()));
        let to = named(&authority, "a.test", proxy.addr());
        arguments.extend(strs(&to));
        let (status, answer, _) = curl(&arguments);
        assert_eq!(status, 200);
        let seen = answer.echoed();
        let host = format!("a.test:{}", proxy.addr().port());
        assert_eq!(seen.header("host"), Some(&*host));
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
        assert_eq!(seen.header("forwarded"), Some(&*format!("for=127.0.0.1;host=\"{host}\";proto=https")));
    }
}

/// Large bodies cross in many records, both ways at once.
#[test]
fn large_bodies_pass_unchanged() {
    let authority = Authority::new();
    authority.sign("a.test");
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&echo)));
    // No record is like another.
    let mixed = |number: u64| format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
    let body: Vec<u8> = (0..150_000).flat_map(mixed).collect();
    let file = authority.file("body");
    std::fs::write(&file, &body).unwrap();
    let data = format!("@{}", file.display());
    for more in [&["--data-binary", &data][..], &["-H", "Transfer-Encoding: chunked", "--data-binary", &data]]
    {
        let to = named(&authority, "a.test", proxy.addr());
        let (status, answer, _) = curl(&[more, &["-H", "Expect:", "--raw"], &strs(&to)].concat());
        assert_eq!(status, 200);
        if more.len() == 2 {
            assert!(answer.echoed().body == body);
        }
        assert!(echo.requests().last().unwrap().body == body);
    }
}

#[test]
fn protocols_are_agreed_on() {
    let authority = Authority::new();
    authority.sign("a.test");
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }\nprotocols = [\"h1\"]", RESPOND));
    let agreed = |offered: &[&str]| {
        let mut client = (*authority.client(None, &[&TLS13])).clone();
        client.alpn_protocols = offered.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let client = TlsClient::connect(&client.into(), "a.test", proxy.addr());
        client.map(|client| client.protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned()))
    };
    assert_eq!(agreed(&["h2", "http/1.1"]).unwrap().as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&[]).unwrap(), None);
    // RFC 7301 §3.2: nothing in common.
    assert!(agreed(&["h2"]).unwrap_err().to_string().contains("NoApplicationProtocol"));
}

#[test]
fn http_2_is_agreed_on_where_there_is_a_choice() {
    let authority = Authority::new();
    authority.sign("a.test");
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&echo)));
    let to = named(&authority, "a.test", proxy.addr());
    for (option, start) in [("--http2", "HTTP/2 200 "), ("--http1.1", "HTTP/1.1 200 OK")] {
        let (_, answer, _) = curl(&[&[option][..], &strs(&to)].concat());
        assert_eq!(answer.start, start);
        assert_eq!(answer.echoed().header("x-forwarded-proto"), Some("https"));
    }
    // Who agrees on nothing speaks HTTP/1.1.
    let mut client = TlsClient::connect(&authority.client(None, &[&TLS13]), "a.test", proxy.addr()).unwrap();
    assert_eq!(client.get("/").unwrap().start, "HTTP/1.1 200 OK");
}

/// A client that offers this protocol alone, and what it reads up to the end of the connection after it has sent `bytes`.
pub fn spoken(authority: &Authority, proxy: SocketAddr, protocol: &str, bytes: &[u8]) -> Vec<u8> {
    let mut config = (*authority.client(None, &[&TLS13])).clone();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let mut client = TlsClient::connect(&config.into(), "a.test", proxy).unwrap();
    assert_eq!(client.protocol(), Some(protocol.as_bytes()));
    client.stream().write_all(bytes).unwrap();
    let mut said = Vec::new();
    // An end without close_notify is an error.
    client
        .stream()
        .read_to_end(&mut said)
        .unwrap_or_else(|error| panic!("{protocol}: {error}, after {said:?}"));
    said
}

/// RFC 9113 §3.2, §3.3: what was agreed on is spoken, or nothing is.
#[test]
fn another_protocol_than_the_one_agreed_on_ends_the_connection() {
    let authority = Authority::new();
    authority.sign("a.test");
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", RESPOND));
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let said = spoken(&authority, proxy.addr(), "h2", request.as_bytes());
        // SETTINGS, and GOAWAY with PROTOCOL_ERROR.
        assert_eq!(
            (said[3], said[12], &said[18..]),
            (SETTINGS, GOAWAY, &[0, 0, 0, 0, 0, 0, 0, 1][..]),
            "{said:?}"
        );
    }
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    let said = spoken(&authority, proxy.addr(), "http/1.1", &preface);
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 "), "{said:?}");
}

/// RFC 8446 §6.1: without a `close_notify` an end may be an attacker's.
#[test]
fn a_head_that_does_not_come_in_time_ends_with_close_notify() {
    let authority = Authority::new();
    authority.sign("a.test");
    let more = " }\nheader_timeout = \"300ms\"\nidle_timeout = \"2s\"";
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], more, RESPOND));
    for version in [&TLS12, &TLS13] {
        let tls = authority.client(None, &[version]);
        let connect = || TlsClient::connect(&tls, "a.test", proxy.addr()).unwrap();
        for requests in 0..2 {
            let mut client = connect();
            for _ in 0..requests {
                assert_eq!(client.get("/").unwrap().body, b"hello\n");
            }
            client.stream().write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
            let (ended, time) = timed(|| client.is_ended());
            assert!(matches!(ended, Ok(true)), "after {requests} requests: {ended:?}");
            assert!(time.as_secs() < 2, "{time:?}");
        }
        // The same where not a byte comes.
        assert!(connect().is_ended().unwrap());
    }
}

/// Whichever worker a connection comes to.
#[test]
fn sessions_are_resumed() {
    let authority = Authority::new();
    authority.sign("a.test");
    let config = config(&[authority.pair("a.test")], " }", RESPOND);
    let proxy = Tidegate::start(&format!("workers = 3\n{config}"));
    for version in [&TLS13, &TLS12] {
        let client = authority.client(None, &[version]);
        for number in 0..6 {
            let mut connection = TlsClient::connect(&client, "a.test", proxy.addr()).unwrap();
            assert_eq!(connection.is_resumed(), number > 0, "connection {number}, {version:?}");
            // A ticket comes with the first answer at the latest.
            assert_eq!(connection.get("/").unwrap().status(), 200);
        }
    }
}

#[test]
fn what_is_no_tls_is_closed_and_nobody_else_suffers() {
    let authority = Authority::new();
    authority.sign("a.test");
    let config = config(&[authority.pair("a.test")], " }", RESPOND);
    let proxy = Tidegate::start(&(config + "[log]\nlevel = \"debug\"\naccess = \"off\"\n"));
    let tls = authority.client(None, &[&TLS13]);
    let mut before = TlsClient::connect(&tls, "a.test", proxy.addr()).unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"[..],
        b"\x16\x03\x01\xff\xff",
        &[0; 600],
        b"\x15\x03\x01\x00\x02\x02\x00",
    ] {
        let mut client = Client::connect(proxy.addr());
        client.send(bytes);
        client.finish();
        // An alert, or nothing.
        let answer = client.read_to_close();
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
    }
    proxy.wait_log("TLS handshake failed: ");
    assert_eq!(before.get("/").unwrap().status(), 200);
}

#[test]
fn a_client_that_closes_its_side_is_answered() {
    let authority = Authority::new();
    authority.sign("a.test");
    let slow = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            // The end of the client's side comes well before the answer.
            std::thread::sleep(std::time::Duration::from_millis(200));
            caller.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
        }
    });
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&slow)));
    let tls = authority.client(None, &[&TLS13]);
    let mut client = TlsClient::connect(&tls, "a.test", proxy.addr()).unwrap();
    client.ask("/").unwrap();
    client.finish().unwrap();
    assert_eq!(client.read().unwrap().body, b"late");
}

#[test]
fn a_handshake_has_its_time_and_its_place_among_connections() {
    let authority = Authority::new();
    authority.sign("a.test");
    let more = " }\nhandshake_timeout = \"300ms\"\nmax_connections = 1";
    let config = config(&[authority.pair("a.test")], more, RESPOND);
    let proxy = Tidegate::start(&config);
    let tls = authority.client(None, &[&TLS13]);
    let mut silent = Client::connect(proxy.addr());
    // There is no room beside it.
    assert!(TlsClient::connect(&tls, "a.test", proxy.addr()).is_err());
    silent.expect_close();
    // One byte after the other does not help.
    let mut slow = Client::connect(proxy.addr());
    eventually("it is closed", || {
        let sent = slow.try_send(b"\x16");
        // Slow on purpose, and still far quicker than one time-out for each byte.
        std::thread::sleep(std::time::Duration::from_millis(20));
        sent.is_err()
    });
    eventually("there is room again", || TlsClient::connect(&tls, "a.test", proxy.addr()).is_ok());
}

/// The TLS of a file's only listener, which asks for certificates of this authority.
pub fn read(authority: &Authority, file: &str, client_ca: &Authority) -> ServerTls {
    let more = format!(", client_ca = \"{}\" }}", client_ca.file("ca.pem").display());
    let text = config(&[authority.pair(file)], &more, RESPOND);
    let loaded = tidegate::config::parse(&text, "tidegate.toml", &|_| None)
        .unwrap_or_else(|report| panic!("{report}"));
    loaded.config.listeners[0].tls.clone().unwrap()
}

/// Answers each request on connections with this TLS, until the test ends; says where.
pub fn serve(tls: ServerTls) -> SocketAddr {
    let (say, address) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            say.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = tls.accept(stream).await else { return };
                    let mut head = [0; 1024];
                    while matches!(stream.read(&mut head).await, Ok(1..)) {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                        let _ = stream.flush().await;
                    }
                });
            }
        });
    });
    address.recv().unwrap()
}
