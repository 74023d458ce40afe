//! `WebSocket` tunnels whose both ends send and receive at once.

use futures_util::{SinkExt as _, StreamExt as _};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use super::*;
use crate::support::{Authority, get, patience};

/// The messages that each side sends, and their length.
const MESSAGES: usize = 100;
const LENGTH: usize = 100_000;

/// The URL of a server, and the control messages that it receives.
struct Server {
    url: String,
    control: Receiver<Said>,
}

/// A server that sends many messages and as many pings, while it echoes messages.
async fn busy() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (report, control) = channel(1000);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let report = report.clone();
            tokio::spawn(async move {
                let (mut say, mut hear) = accept_async(stream).await.unwrap().split();
                let (echo, mut echoed) = channel(1);
                tokio::spawn(async move {
                    for _ in 0..MESSAGES {
                        say.send(Said::binary(vec![b's'; LENGTH])).await.unwrap();
                        say.send(Said::Ping("there?".into())).await.unwrap();
                    }
                    while let Some(message) = echoed.recv().await {
                        if say.send(message).await.is_err() {
                            return;
                        }
                    }
                });
                while let Some(Ok(message)) = hear.next().await {
                    if message.is_text() || message.is_binary() {
                        let _ = echo.send(message).await;
                    } else {
                        report.send(message).await.unwrap();
                    }
                }
            });
        }
    });
    Server { url, control }
}

fn configuration(server: &Server, tls: &str) -> String {
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n{tls}\n\
         [limits.many]\nrate = \"100/hour\"\n\
         [[routes]]\nname = \"chat\"\npath = \"/chat\"\nlimits = [\"many\"]\nupstream = \"{}\"\n",
        server.url
    )
}

/// Sends and receives at once, until both ends have sent everything.
async fn assert_both_send<S>(mut socket: WebSocketStream<S>, server: &mut Server)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let work = async {
        socket.send(Said::text("hello")).await.unwrap();
        let (mut say, mut hear) = socket.split();
        let saying = tokio::spawn(async move {
            for _ in 1..MESSAGES {
                say.send(Said::binary(vec![b'c'; LENGTH])).await.unwrap();
            }
            say
        });
        let (mut theirs, mut ours, mut pings) = (0, 0, 0);
        while theirs < MESSAGES || ours < MESSAGES {
            match hear.next().await.unwrap().unwrap() {
                Said::Binary(bytes) if bytes.len() == LENGTH && bytes[0] == b's' => theirs += 1,
                Said::Binary(bytes) if bytes.len() == LENGTH && bytes[0] == b'c' => ours += 1,
                Said::Text(text) if text.as_str() == "hello" => ours += 1,
                Said::Ping(_) => pings += 1,
                other => panic!("{} bytes", other.len()),
            }
        }
        assert_eq!(pings, MESSAGES);
        let mut socket = saying.await.unwrap().reunite(hear).unwrap();
        let bye = CloseFrame { code: CloseCode::Library(4001), reason: "bye".into() };
        socket.close(Some(bye.clone())).await.unwrap();
        // The server echoes the close frame.
        let response = socket.next().await.unwrap().unwrap();
        assert_eq!(response, Said::Close(Some(bye.clone())));
        assert!(socket.next().await.is_none());
        // The library responses several pings with one pong.
        loop {
            match server.control.recv().await.unwrap() {
                Said::Pong(bytes) => assert_eq!(bytes, "there?"),
                Said::Close(said) => break assert_eq!(said, Some(bye.clone())),
                other => panic!("{other}"),
            }
        }
    };
    timeout(patience(), work).await.expect("the connection closes in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn both_sides_send_at_once() {
    let mut server = busy().await;
    let proxy = Tidegate::start(&configuration(&server, ""));
    let stream = TcpStream::connect(proxy.addr()).await.unwrap();
    let (socket, _) = client_async("ws://localhost/chat", stream).await.unwrap();
    assert_both_send(socket, &mut server).await;
    // All messages together are one request.
    let metrics = get(proxy.admin(), "/metrics", &[]);
    for row in [
        "tidegate_requests_total{route=\"chat\",status=\"1xx\"} 1\n",
        "tidegate_decisions_total{limit=\"many\",outcome=\"allowed\",source=\"memory\"} 1\n",
    ] {
        assert!(metrics.text().contains(row), "{row}{}", metrics.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn both_sides_send_at_once_over_tls_across_a_reload() {
    let mut server = busy().await;
    let authority = Authority::new();
    authority.sign("localhost");
    let tls = authority.listener("localhost");
    let config = configuration(&server, &tls);
    let proxy = Tidegate::start(&config);
    let stream = TcpStream::connect(proxy.addr()).await.unwrap();
    let connector = TlsConnector::from(authority.client(None, &[&rustls::version::TLS13]));
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let (socket, _) = client_async("wss://localhost/chat", stream).await.unwrap();
    // The tunnel stays open although its route is removed.
    proxy.reload(&config.replace("path = \"/chat\"", "path = \"/other\""));
    assert_eq!(proxy.logged("was reloaded"), 1);
    assert_both_send(socket, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn both_sides_send_at_once_over_http_2() {
    let mut server = busy().await;
    let proxy = Tidegate::start(&configuration(&server, ""));
    let stream = TcpStream::connect(proxy.addr()).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    eventually("the proxy's SETTINGS allow extended CONNECT", || {
        sender.is_extended_connect_protocol_enabled()
    });
    let (opened, say) = sender.send_request(super::connect("/chat", "websocket"), false).unwrap();
    let opened = opened.await.unwrap();
    assert_eq!(opened.status(), 200);
    let socket = WebSocketStream::from_raw_socket(piped(say, opened.into_body()), Role::Client, None).await;
    assert_both_send(socket, &mut server).await;
}

/// An HTTP/2 stream as a byte stream.
fn piped(mut say: h2::SendStream<Bytes>, mut hear: h2::RecvStream) -> DuplexStream {
    let (ours, theirs) = duplex(64 << 10);
    let (mut read, mut write) = tokio::io::split(theirs);
    tokio::spawn(async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length) = read.read(&mut buffer).await
            && length > 0
        {
            say.reserve_capacity(length);
            while say.capacity() < length {
                if !matches!(std::future::poll_fn(|cx| say.poll_capacity(cx)).await, Some(Ok(_))) {
                    return;
                }
            }
            say.send_data(Bytes::copy_from_slice(&buffer[..length]), false).unwrap();
        }
        let _ = say.send_data(Bytes::new(), true);
    });
    tokio::spawn(async move {
        while let Some(Ok(data)) = hear.data().await {
            let _ = hear.flow_control().release_capacity(data.len());
            if write.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    });
    ours
}

#[test]
fn compressed_messages_pass_unchanged() {
    // A compressed message sets RSV1 (RFC 7692 §7.2.3.1: "Hello", with a mask of zeros).
    const HELLO: &[u8] = b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0";
    let server = scripted(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n\r\n",
        |caller| {
            let heard = caller.take(HELLO.len()).unwrap();
            let _ = caller.try_send(heard);
            let _ = caller.read_to_close();
        },
    );
    let proxy = proxy_for(&server, "", "");
    let asked = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits";
    let (mut client, head) = shake(&proxy, &HANDSHAKE.replace("Host", &format!("{asked}\r\nHost")));
    assert_eq!(
        head.header("sec-websocket-extensions"),
        Some("permessage-deflate; server_no_context_takeover")
    );
    let seen = server.requests().pop().unwrap();
    assert_eq!(seen.header("sec-websocket-extensions"), Some("permessage-deflate; client_max_window_bits"));
    client.send(HELLO);
    assert_eq!(client.take(HELLO.len()).unwrap(), HELLO);
}
