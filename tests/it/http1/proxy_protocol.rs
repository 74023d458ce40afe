//! The PROXY protocol: a load balancer sends the address of the client.

use std::io::Write as _;
use std::net::TcpStream;

use rustls::version::TLS13;

use crate::support::{Authority, Client, Message, Tidegate, TlsClient, Upstream};

const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn config(echo: &Upstream, more: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n{more}\n\
         [client_ip]\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\n\
         [limits.one]\nrate = \"3/hour\"\n\
         [[routes]]\npath = \"/limited\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        echo.url()
    )
}

/// A header of version 2 with this command, address family and rest.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [V2, &[command, family], &length, block].concat()
}

/// A request after this header, as the server receives it.
fn seen(proxy: &Tidegate, header: &[u8], headers: &[&str]) -> Message {
    let mut client = Client::connect(proxy.addr());
    client.send(header);
    client.get("/", headers).echoed()
}

#[test]
fn both_versions_set_the_client_address() {
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&echo, ""));
    let v6 = [&[0x20, 1, 0x0d, 0xb8], &[0; 11][..], &[7], &[0; 15], &[1], &[0x12, 0x67, 1, 0xbb]].concat();
    let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 0xbb];
    let tlvs = [&v4[..], &[3, 0, 4, 1, 2, 3, 4], &[0xe0, 0x0f, 0xa0], &[9; 4000]].concat();
    for (header, client) in [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n".to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 443\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 4711 443\r\n".to_vec(), "192.0.2.7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (b"PROXY UNKNOWN 1 2 3 4\r\n".to_vec(), "127.0.0.1"),
        (v2(0x21, 0x11, &v4), "192.0.2.7"),
        (v2(0x21, 0x11, &tlvs), "192.0.2.7"),
        (v2(0x21, 0x21, &v6), "2001:db8::7"),
        (v2(0x21, 0x00, &[]), "127.0.0.1"),
        (v2(0x21, 0x31, &[0; 216]), "127.0.0.1"),
        (v2(0x20, 0x00, &[]), "127.0.0.1"),
        (v2(0x20, 0x11, &v4), "127.0.0.1"),
    ] {
        assert_eq!(seen(&proxy, &header, &[]).header("x-forwarded-for"), Some(client), "{header:?}");
    }
}

#[test]
fn a_proxy_header_may_arrive_with_the_request_or_in_pieces() {
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&echo, ""));
    let v1 = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n".to_vec();
    for header in [v1, v2(0x21, 0x11, &[192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 0xbb])] {
        let mut whole = Client::connect(proxy.addr());
        // No byte of the two requests behind the header may be lost.
        whole.send([&header[..], REQUEST.as_bytes(), REQUEST.as_bytes()].concat());
        for _ in 0..2 {
            assert_eq!(whole.read().echoed().header("x-forwarded-for"), Some("192.0.2.7"));
        }
        let mut pieces = Client::connect(proxy.addr());
        for byte in header {
            pieces.send([byte]);
        }
        assert_eq!(pieces.ask(REQUEST).echoed().header("x-forwarded-for"), Some("192.0.2.7"));
    }
}

#[test]
fn a_connection_without_a_valid_proxy_header_is_closed() {
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&echo, "handshake_timeout = \"300ms\""));
    let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 100], b"\r\n".to_vec()].concat();
    for header in [
        REQUEST.as_bytes().to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.1 4711\r\n".to_vec(),
        b"PROXY TCP4 1.2.3 10.0.0.1 4711 443\r\n".to_vec(),
        b"PROXY\r\n\r\n\r\n\r\n".to_vec(),
        long,
        v2(0x11, 0x11, &[0; 12]),
        v2(0x22, 0x11, &[0; 12]),
        v2(0x21, 0x41, &[0; 12]),
        v2(0x21, 0x11, &[0; 11]),
        v2(0x21, 0x21, &[0; 35]),
        [V2, &[0x21, 0x11, 0xff, 0xff]].concat(),
        // Incomplete headers, which are closed after the timeout.
        b"PROXY TCP4 192.0.2.7 10.0.0.1".to_vec(),
        V2.to_vec(),
        b"GET / ".to_vec(),
        Vec::new(),
    ] {
        let mut client = Client::connect(proxy.addr());
        // The proxy may close the connection before everything is sent.
        let _ = client.try_send(&header);
        client.expect_close();
    }
    assert!(echo.requests().is_empty());
}

#[test]
fn connections_of_untrusted_peers_are_closed() {
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&echo, ""));
    let mut untrusted = Client::connect_from("127.0.0.2", proxy.addr());
    let _ = untrusted.try_send(format!("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n{REQUEST}"));
    untrusted.expect_close();
}

#[test]
fn forwarding_headers_are_trusted_by_the_address_in_the_proxy_header() {
    let echo = Upstream::echo();
    let proxy = Tidegate::start(&config(&echo, ""));
    let forwarded = ["X-Forwarded-For: 203.0.113.9"];
    let untrusted = seen(&proxy, b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n", &forwarded);
    assert_eq!(untrusted.header("x-forwarded-for"), Some("192.0.2.7"));
    let trusted = seen(&proxy, b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 443\r\n", &forwarded);
    assert_eq!(trusted.header("x-forwarded-for"), Some("203.0.113.9, 10.1.2.3"));
    let ask = |client: &str| {
        let mut connection = Client::connect(proxy.addr());
        connection.send(format!("PROXY TCP4 {client} 10.0.0.1 4711 443\r\n"));
        connection.get("/limited", &forwarded).header("x-ratelimit-remaining").unwrap().to_owned()
    };
    assert_eq!([ask("192.0.2.7"), ask("192.0.2.7"), ask("192.0.2.8")], ["2", "1", "2"]);
    // Behind a trusted proxy, X-Forwarded-For names the client.
    assert_eq!([ask("10.1.2.3"), ask("10.1.2.4")], ["2", "1"]);
}

#[test]
fn tls_starts_after_the_proxy_header() {
    let authority = Authority::new();
    authority.sign("a.test");
    let echo = Upstream::echo();
    let tls = authority.listener("a.test");
    let proxy = Tidegate::start(&config(&echo, &tls));
    let client = authority.client(None, &[&TLS13]);
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n").unwrap();
    let seen = TlsClient::over(stream, &client, "a.test").unwrap().get("/").unwrap().echoed();
    assert_eq!(seen.header("x-forwarded-for"), Some("192.0.2.7"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert!(TlsClient::connect(&client, "a.test", proxy.addr()).is_err());
}
