//! TLS with clients: versions, ALPN, sessions, handshakes.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::channel;

use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, NamedGroup};
use tidegate::tls::ServerTls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::frames::{GOAWAY, SETTINGS, frame};
use crate::support::{Authority, Client, Tidegate, TlsClient, Upstream, curl, eventually, scaled, timed};

/// A listener with these certificates and further keys, and a route with this line.
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

/// The arguments for curl to connect to a name at this address, and to trust this authority.
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
fn curl_connects_with_tls_1_2_and_1_3() {
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
        let (status, response, _) = curl(&arguments);
        assert_eq!(status, 200, "{version}");
        let seen = response.echoed();
        let host = format!("a.test:{}", proxy.addr().port());
        assert_eq!(seen.header("host"), Some(&*host));
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
        assert_eq!(seen.header("forwarded"), Some(&*format!("for=127.0.0.1;host=\"{host}\";proto=https")));
    }
}

/// As browsers offer it: first, with a key share.
#[test]
fn the_key_exchange_is_post_quantum_if_the_client_offers_it() {
    let authority = Authority::new();
    authority.sign("a.test");
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", RESPOND));
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519];
    let client =
        ClientConfig::builder_with_provider(provider.into()).with_protocol_versions(&[&TLS13]).unwrap();
    let client = client.with_root_certificates(authority.roots()).with_no_client_auth();
    let client = TlsClient::connect(&client.into(), "a.test", proxy.addr()).unwrap();
    assert_eq!(client.key_exchange(), Some(NamedGroup::X25519MLKEM768));
}

#[test]
fn large_bodies_pass_unchanged() {
    let authority = Authority::new();
    authority.sign("a.test");
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&echo)));
    // No two records are alike.
    let mixed = |number: u64| format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
    let body: Vec<u8> = (0..150_000).flat_map(mixed).collect();
    let file = authority.file("body");
    std::fs::write(&file, &body).unwrap();
    let data = format!("@{}", file.display());
    for more in [&["--data-binary", &data][..], &["-H", "Transfer-Encoding: chunked", "--data-binary", &data]]
    {
        let to = named(&authority, "a.test", proxy.addr());
        let (status, response, _) = curl(&[more, &["-H", "Expect:", "--raw"], &strs(&to)].concat());
        assert_eq!(status, 200);
        if more.len() == 2 {
            assert!(response.echoed().body == body);
        }
        assert!(echo.requests().last().unwrap().body == body);
    }
}

#[test]
fn alpn_follows_the_protocols_of_the_listener() {
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

/// RFC 9113 §3.2 and §3.3.
#[test]
fn alpn_prefers_http_2() {
    let authority = Authority::new();
    authority.sign("a.test");
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&echo)));
    let to = named(&authority, "a.test", proxy.addr());
    for (option, start) in [("--http2", "HTTP/2 200 "), ("--http1.1", "HTTP/1.1 200 OK")] {
        let (_, response, _) = curl(&[&[option][..], &strs(&to)].concat());
        assert_eq!(response.start, start, "{option}");
        assert_eq!(response.echoed().header("x-forwarded-proto"), Some("https"));
    }
    // Without ALPN the protocol is HTTP/1.1.
    let mut client = TlsClient::connect(&authority.client(None, &[&TLS13]), "a.test", proxy.addr()).unwrap();
    assert_eq!(client.get("/").unwrap().start, "HTTP/1.1 200 OK");
}

/// Offers this protocol alone, sends `bytes`, and returns everything that it reads until the connection is closed.
pub fn exchange(authority: &Authority, proxy: SocketAddr, protocol: &str, bytes: &[u8]) -> Vec<u8> {
    let mut config = (*authority.client(None, &[&TLS13])).clone();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let mut client = TlsClient::connect(&config.into(), "a.test", proxy).unwrap();
    assert_eq!(client.protocol(), Some(protocol.as_bytes()));
    client.stream().write_all(bytes).unwrap();
    let mut said = Vec::new();
    // EOF without close_notify is an error.
    client
        .stream()
        .read_to_end(&mut said)
        .unwrap_or_else(|error| panic!("{protocol}: {error}, after {said:?}"));
    said
}

/// RFC 9113 §3.2, §3.3.
#[test]
fn a_protocol_other_than_the_negotiated_one_closes_the_connection() {
    let authority = Authority::new();
    authority.sign("a.test");
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", RESPOND));
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let said = exchange(&authority, proxy.addr(), "h2", request.as_bytes());
        // SETTINGS, and GOAWAY with PROTOCOL_ERROR.
        assert_eq!(
            (said[3], said[12], &said[18..]),
            (SETTINGS, GOAWAY, &[0, 0, 0, 0, 0, 0, 0, 1][..]),
            "{said:?}"
        );
    }
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    let said = exchange(&authority, proxy.addr(), "http/1.1", &preface);
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 "), "{said:?}");
}

/// RFC 8446 §6.1: without `close_notify` an attacker may have truncated the connection.
#[test]
fn a_header_timeout_sends_close_notify() {
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
            assert!(time < scaled(std::time::Duration::from_secs(2)), "{time:?}");
        }
        // The same without a single byte.
        assert!(connect().is_ended().unwrap());
    }
}

#[test]
fn sessions_are_resumed_on_any_worker() {
    let authority = Authority::new();
    authority.sign("a.test");
    let config = config(&[authority.pair("a.test")], " }", RESPOND);
    let proxy = Tidegate::start(&format!("workers = 3\n{config}"));
    for version in [&TLS13, &TLS12] {
        let client = authority.client(None, &[version]);
        for number in 0..6 {
            let mut connection = TlsClient::connect(&client, "a.test", proxy.addr()).unwrap();
            assert_eq!(connection.is_resumed(), number > 0, "connection {number}, {version:?}");
            // A ticket arrives with the first response at the latest.
            assert_eq!(connection.get("/").unwrap().status(), 200);
        }
    }
}

#[test]
fn garbage_on_a_tls_port_closes_only_its_connection() {
    let authority = Authority::new();
    authority.sign("a.test");
    let config = config(&[authority.pair("a.test")], " }", RESPOND);
    let proxy = Tidegate::start(&(config + "[log]\nlevel = \"debug\"\naccess = \"off\"\n"));
    let tls = authority.client(None, &[&TLS13]);
    let mut before = TlsClient::connect(&tls, "a.test", proxy.addr()).unwrap();
    for bytes in [
        &b"\x16\x03\x01\xff\xff"[..],
        b"get / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        &[0; 600],
        b"\x15\x03\x01\x00\x02\x02\x00",
    ] {
        let mut client = Client::connect(proxy.addr());
        client.send(bytes);
        client.finish();
        // An alert, or nothing.
        let response = client.read_to_close();
        assert!(response.is_empty() || response[0] == 0x15, "{response:?}");
    }
    proxy.wait_log("TLS handshake failed: ");
    assert_eq!(before.get("/").unwrap().status(), 200);
}

#[test]
fn plain_http_on_a_tls_port_gets_a_response_that_says_so() {
    let authority = Authority::new();
    authority.sign("a.test");
    let config = config(&[authority.pair("a.test")], " }", RESPOND);
    let proxy = Tidegate::start(&(config + "[log]\nlevel = \"debug\"\naccess = \"off\"\n"));
    let (status, response, text) = curl(&[&format!("http://{}/", proxy.addr())]);
    assert_eq!((status, &*text), (400, "This port expects TLS: begin the URL with https\n"));
    assert_eq!(response.header("connection"), Some("close"));
    proxy.wait_log("TLS handshake failed: the client speaks plain HTTP");
    // A client that does not read the response is not waited for.
    let mut silent = Client::connect(proxy.addr());
    silent.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\n");
    assert!(silent.read_to_close().starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
}

#[test]
fn a_half_closed_tls_client_gets_its_response() {
    let authority = Authority::new();
    authority.sign("a.test");
    let (slow, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
    let proxy = Tidegate::start(&config(&[authority.pair("a.test")], " }", &forward(&slow)));
    let tls = authority.client(None, &[&TLS13]);
    let mut client = TlsClient::connect(&tls, "a.test", proxy.addr()).unwrap();
    client.ask("/").unwrap();
    client.finish().unwrap();
    // The only worker has read the end when it has answered a later request.
    let mut later = TlsClient::connect(&tls, "a.test", proxy.addr()).unwrap();
    assert_eq!(later.get("/%00").unwrap().status(), 400);
    release.send(()).unwrap();
    assert_eq!(client.read().unwrap().body, b"late");
}

#[test]
fn a_handshake_is_bounded_and_counts_as_a_connection() {
    let authority = Authority::new();
    authority.sign("a.test");
    let more = " }\nhandshake_timeout = \"300ms\"\nmax_connections = 1";
    let config = config(&[authority.pair("a.test")], more, RESPOND);
    let proxy = Tidegate::start(&config);
    let tls = authority.client(None, &[&TLS13]);
    let mut silent = Client::connect(proxy.addr());
    // No second connection is allowed.
    assert!(TlsClient::connect(&tls, "a.test", proxy.addr()).is_err());
    silent.expect_close();
    // Single bytes do not extend the timeout.
    let mut slow = Client::connect(proxy.addr());
    eventually("the connection is closed", || {
        let sent = slow.try_send(b"\x16");
        // Real time is tested: the pauses are much shorter than the timeout.
        std::thread::sleep(std::time::Duration::from_millis(20));
        sent.is_err()
    });
    eventually("a new connection is accepted", || TlsClient::connect(&tls, "a.test", proxy.addr()).is_ok());
}

/// The TLS settings of a listener that requires client certificates of this authority.
pub fn read(authority: &Authority, file: &str, client_ca: &Authority) -> ServerTls {
    let more = format!(", client_ca = \"{}\" }}", client_ca.file("ca.pem").display());
    let text = config(&[authority.pair(file)], &more, RESPOND);
    let loaded = tidegate::config::parse(&text, "tidegate.toml", &|_| None)
        .unwrap_or_else(|report| panic!("{report}"));
    loaded.config.listeners[0].tls.clone().unwrap()
}

/// Serves connections with these TLS settings until the test ends, and returns the address.
pub fn serve(tls: ServerTls) -> SocketAddr {
    let (sender, address) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Ok(Some(mut stream)) = tls.accept_or_validate(stream).await else { return };
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
