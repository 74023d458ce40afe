//! WebSocket tunnels.

mod bounds;
mod duplex;
mod tunnels;
mod upgrades;

use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::server::{Request as Opening, Response as Opened};
use tungstenite::protocol::Role;
use tungstenite::{Error, Message as Said, WebSocket};

use crate::support::{
    Caller, Client, Frames, Http2, Message, Tidegate, Upstream, connect_from, eventually, frames, patience,
};

/// The example of RFC 6455 §1.3.
const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A proxy in front of a server, with these lines in its listener and in its route.
fn proxy_for(server: &Upstream, listener: &str, route: &str) -> Tidegate {
    Tidegate::start(&format!(
        "shutdown_grace = \"2s\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [limits.one]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n{route}\n",
        server.url()
    ))
}

/// A server that echoes messages, and selects the subprotocol `second`.
#[allow(clippy::result_large_err)] // The library's own error.
fn echo() -> Upstream {
    Upstream::scripted(|caller| {
        let agree = |_: &Opening, mut opened: Opened| {
            opened.headers_mut().insert("sec-websocket-protocol", "second".parse().unwrap());
            Ok(opened)
        };
        let Ok(mut socket) = tungstenite::accept_hdr(caller.stream(), agree) else { return };
        while let Ok(message) = socket.read() {
            if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
                return;
            }
        }
    })
}

/// Opens a WebSocket over HTTP/1.1.
fn open(proxy: &Tidegate) -> Result<WebSocket<TcpStream>, u16> {
    open_from("127.0.0.1", proxy, &[])
}

/// The same, as a client at this address that sends these headers.
fn open_from(
    from: &str,
    proxy: &Tidegate,
    headers: &[(&'static str, &str)],
) -> Result<WebSocket<TcpStream>, u16> {
    let stream = connect_from(from, proxy.addr()).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    let mut request = format!("ws://{}/chat", proxy.addr()).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "first, second".parse().unwrap());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tungstenite::client(request, stream) {
        Ok((socket, opened)) => {
            assert_eq!(opened.headers()["sec-websocket-protocol"], "second");
            Ok(socket)
        }
        Err(tungstenite::HandshakeError::Failure(Error::Http(refused))) => Err(refused.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// A server that responses the handshake, and then runs the script.
fn scripted(response: &'static str, then: impl Fn(&mut Caller) + Send + Sync + 'static) -> Upstream {
    Upstream::scripted(move |caller| {
        if let Ok(Some(_)) = caller.request()
            && caller.try_send(response).is_ok()
        {
            then(caller);
        }
    })
}

/// Sends a handshake and reads the head of the response.
fn shake(proxy: &Tidegate, handshake: &str) -> (Client, Message) {
    let mut client = Client::connect(proxy.addr());
    client.send(handshake);
    let head = client.read_head().unwrap().unwrap();
    (client, head)
}

/// An extended CONNECT request (RFC 8441).
fn connect(path: &str, protocol: &'static str) -> Request<()> {
    let request = Request::connect(format!("http://localhost{path}"));
    request.extension(h2::ext::Protocol::from_static(protocol)).body(()).unwrap()
}
