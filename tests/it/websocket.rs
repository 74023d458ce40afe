//! WebSocket tunnels, with a library at both ends where it matters that they are real.

mod duplex;
mod tunnels;

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
    Caller, Client, Frames, Http2, Message, PATIENCE, Tidegate, Upstream, eventually, frames,
};

/// The key and the answer to it that the standard has as its example (RFC 6455 §1.3).
const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A proxy before a server, with these lines for its listener and for its route.
fn before(server: &Upstream, listener: &str, route: &str) -> Tidegate {
    Tidegate::start(&format!(
        "shutdown_grace = \"2s\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [limits.one]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n{route}\n",
        server.url()
    ))
}

/// A server that says what it hears, and agrees to the protocol `second`.
#[allow(clippy::result_large_err)] // The library's own error.
fn echo() -> Upstream {
    Upstream::scripted(|caller| {
        let agree = |_: &Opening, mut opened: Opened| {
            opened.headers_mut().insert("sec-websocket-protocol", "second".parse().unwrap());
            Ok(opened)
        };
        let Ok(mut socket) = tungstenite::accept_hdr(caller.stream(), agree) else { return };
        while let Ok(said) = socket.read() {
            if (said.is_text() || said.is_binary()) && socket.send(said).is_err() {
                return;
            }
        }
    })
}

/// Opens one over HTTP/1.1.
fn open(proxy: &Tidegate) -> Result<WebSocket<TcpStream>, u16> {
    let stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = format!("ws://{}/chat", proxy.addr()).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "first, second".parse().unwrap());
    match tungstenite::client(request, stream) {
        Ok((socket, opened)) => {
            assert_eq!(opened.headers()["sec-websocket-protocol"], "second");
            Ok(socket)
        }
        Err(tungstenite::HandshakeError::Failure(Error::Http(refused))) => Err(refused.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// A server that notes the handshake's head, answers it, and goes on as the script says.
fn scripted(answer: &'static str, then: impl Fn(&mut Caller) + Send + Sync + 'static) -> Upstream {
    Upstream::scripted(move |caller| {
        if let Ok(Some(_)) = caller.request()
            && caller.try_send(answer).is_ok()
        {
            then(caller);
        }
    })
}

/// Sends a handshake and reads the head of its answer.
fn shake(proxy: &Tidegate, handshake: &str) -> (Client, Message) {
    let mut client = Client::connect(proxy.addr());
    client.send(handshake);
    let head = client.read_head().unwrap().unwrap();
    (client, head)
}

/// A CONNECT of RFC 8441.
fn connect(path: &str, protocol: &'static str) -> Request<()> {
    let request = Request::connect(format!("http://localhost{path}"));
    request.extension(h2::ext::Protocol::from_static(protocol)).body(()).unwrap()
}
