//! `WebSocket` tunnels to HTTP/2 servers (RFC 8441).

use super::upstream::{proxy_for, status};
use super::*;
use crate::support::Http2Server;

const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[test]
fn a_websocket_is_opened_with_extended_connect() {
    let server = Http2Server::start(
        h2::server::Builder::new().enable_connect_protocol().clone(),
        None,
        |(request, mut respond)| async move {
            assert_eq!(request.method(), "CONNECT");
            let protocol = request.extensions().get::<h2::ext::Protocol>().unwrap();
            assert_eq!((protocol.as_str(), request.uri().path()), ("websocket", "/chat"));
            assert!(!request.headers().contains_key("sec-websocket-key"));
            let mut upload = request.into_body();
            let mut body = respond.send_response(status(200), false).unwrap();
            while let Some(Ok(data)) = upload.data().await {
                upload.flow_control().release_capacity(data.len()).unwrap();
                let _ = body.send_data(data, false);
            }
            let _ = body.send_data(Bytes::new(), true);
        },
    );
    let proxy = proxy_for(&server.url(), "[log]\naccess = \"text\"");
    let mut client = Client::connect(proxy.addr());
    client.send(HANDSHAKE);
    let head = client.read_head().unwrap().unwrap();
    assert_eq!(head.status(), 101);
    assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for text in ["hello", "again"] {
        client.send(text);
        assert_eq!(client.take(5).unwrap(), text.as_bytes());
    }
    client.finish();
    client.expect_close();
    let line = proxy.accesses(1).remove(0);
    let fields = format!(r#" upstream="u" server="{}" upstream_us=""#, server.url());
    assert!(line.contains("/chat\" 101 10B ") && line.contains(&fields), "{line}");
}

#[test]
fn a_websocket_to_a_server_without_extended_connect_is_502() {
    let server = Http2Server::echo();
    let proxy = proxy_for(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(HANDSHAKE);
    assert_eq!(response.status(), 502);
}
