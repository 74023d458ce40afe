//! Responses that begin before the end of their request, to clients that send everything before they read anything.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Request, Response};
use rustls::version::TLS13;

use crate::support::{
    Authority, Caller, Client, Http2, Tidegate, TlsClient, Upstream, eventually, patience, settled,
};

const MIB: usize = 1024 * 1024;

/// The length of a response: more than the buffers between server and client hold.
const RESPONSE: usize = 40 * MIB;

/// The length of an upload.
const UPLOAD: usize = 4 * MIB;

/// The body of a response; an upload is the beginning of it.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let period: Vec<u8> = (0..=250).collect();
    let mut bytes = period.repeat(RESPONSE.div_ceil(period.len()));
    bytes.truncate(RESPONSE);
    bytes
});

/// A server that responds as soon as it has a request head.
struct Eager {
    server: Upstream,
    /// How much of the present response is sent.
    sent: Arc<AtomicUsize>,
    /// A message for each complete upload.
    complete: Receiver<()>,
}

impl Eager {
    fn start() -> Self {
        let (report, complete) = channel();
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let server = Upstream::scripted(move |caller| {
            // The client may take long to read a response before it sends the next request.
            caller.stream().set_read_timeout(None).unwrap();
            while let Ok(Some(head)) = caller.read_head() {
                counter.store(0, Ordering::SeqCst);
                let (writer, counter) = (caller.stream().try_clone().unwrap(), Arc::clone(&counter));
                let responding = std::thread::spawn(move || respond(&writer, &counter));
                if read_body(caller, head.header("transfer-encoding").is_some()) {
                    let _ = report.send(());
                }
                let _ = responding.join().unwrap();
            }
        });
        Self { server, sent, complete }
    }

    /// Waits until the response is blocked, since all buffers up to the client are full.
    fn wait_blocked(&self) {
        let sent = settled(&self.sent);
        assert!((1..RESPONSE).contains(&sent), "{sent} bytes are sent");
    }

    /// Waits until the server has the complete request.
    #[track_caller]
    fn wait_complete(&self) {
        self.complete.recv_timeout(patience()).expect("the server has the complete request");
    }
}

/// Sends a response, and counts its bytes.
fn respond(mut writer: &TcpStream, sent: &AtomicUsize) -> io::Result<()> {
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {RESPONSE}\r\n\r\n")?;
    for piece in BYTES.chunks(64 * 1024) {
        writer.write_all(piece)?;
        sent.fetch_add(piece.len(), Ordering::SeqCst);
    }
    Ok(())
}

/// Reads the body of a request, and returns whether it is the upload.
fn read_body(caller: &mut Caller, is_chunked: bool) -> bool {
    if !is_chunked {
        return caller.take(UPLOAD).is_ok_and(|body| body == BYTES[..UPLOAD]);
    }
    let mut body = Vec::new();
    while let Ok(chunk) = caller.read_chunk() {
        if chunk.is_empty() {
            return caller.read_trailers().is_ok() && body == BYTES[..UPLOAD];
        }
        body.extend(chunk);
    }
    false
}

fn route(url: &str) -> String {
    format!("[[routes]]\npath = \"/*\"\nupstream = \"{url}\"\n")
}

/// The head of an upload, and its body.
fn upload(is_chunked: bool) -> (String, Cow<'static, [u8]>) {
    let framing =
        if is_chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {UPLOAD}") };
    let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let body = if is_chunked {
        BYTES[..UPLOAD].chunks(MIB).flat_map(chunk).chain(*b"0\r\n\r\n").collect::<Vec<u8>>().into()
    } else {
        BYTES[..UPLOAD].into()
    };
    (format!("POST / HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"), body)
}

#[test]
fn an_unread_early_response_does_not_block_the_upload() {
    let eager = Eager::start();
    let proxy = Tidegate::start(&route(&eager.server.url()));
    let memory = proxy.memory();
    let mut client = Client::connect(proxy.addr());
    for is_chunked in [false, true] {
        let (head, body) = upload(is_chunked);
        client.send(head);
        eager.wait_blocked();
        client.try_send(body).expect("the proxy reads the whole upload");
        eager.wait_complete();
        let grown = proxy.memory().saturating_sub(memory);
        assert!(grown < 16 * 1024, "{grown} KiB more");
        let response = client.read();
        assert_eq!(response.status(), 200);
        assert!(response.body == *BYTES);
    }
    assert_eq!(eager.server.connections(), 1, "the connection is reused");
}

#[test]
fn an_unread_early_response_does_not_block_the_upload_over_tls() {
    let authority = Authority::new();
    authority.sign("localhost");
    let eager = Eager::start();
    let listener = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{}\n", authority.listener("localhost"));
    let behind = Tidegate::start(&format!("{listener}{}", route(&eager.server.url())));
    let proxy = Tidegate::start(&format!(
        "{listener}[upstreams.tls]\nservers = [\"https://localhost:{}\"]\nconnect_timeout = \"5s\"\n\
         tls = {{ ca = \"{}\" }}\n{}",
        behind.addr().port(),
        authority.file("ca.pem").display(),
        route("tls"),
    ));
    let config = authority.client(None, &[&TLS13]);
    let mut client = TlsClient::connect(&config, "localhost", proxy.addr()).unwrap();
    let (head, body) = upload(false);
    client.stream().write_all(head.as_bytes()).unwrap();
    eager.wait_blocked();
    client.stream().write_all(&body).expect("the proxy reads the whole upload");
    eager.wait_complete();
    assert!(client.read().unwrap().body == *BYTES);
}

/// Uploads over HTTP/2 before it reads any of the response.
async fn upload_over_http2(
    eager: &Eager,
    sender: &mut SendRequest<Bytes>,
) -> Result<Response<RecvStream>, h2::Error> {
    let request = Request::post("http://localhost/").body(()).unwrap();
    let (response, mut stream) = sender.send_request(request, false)?;
    let response = response.await?;
    tokio::task::block_in_place(|| eager.wait_blocked());
    let mut body = Bytes::from_static(&BYTES[..UPLOAD]);
    while !body.is_empty() {
        stream.reserve_capacity(body.len().min(64 * 1024));
        let Some(capacity) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { break };
        let piece = body.split_to(capacity?.min(body.len()));
        stream.send_data(piece, body.is_empty())?;
    }
    tokio::task::block_in_place(|| eager.wait_complete());
    Ok(response)
}

#[test]
fn an_unread_early_response_does_not_block_the_upload_over_http_2() {
    let eager = Eager::start();
    let proxy = Tidegate::start(&route(&eager.server.url()));
    let client = Http2::connect(proxy.addr());
    for _ in 0..2 {
        let response = client.block_on(async |sender| upload_over_http2(&eager, sender).await.unwrap());
        let (mut stream, mut body) = (response.into_body(), Vec::new());
        // The client waits for each piece of the body on its own, since the whole may take long.
        while let Some(data) = client.block_on(async |_| stream.data().await) {
            let data = data.unwrap();
            stream.flow_control().release_capacity(data.len()).unwrap();
            body.extend(data);
        }
        assert!(body == *BYTES);
    }
    assert_eq!(eager.server.connections(), 1);
    client.end().unwrap();
}

/// A proxy that may have one connection to this server.
fn with_one_connection(server: &Upstream, listener: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}[upstreams.one]\nservers = [\"{}\"]\nmax_connections = 1\n{settings}{}",
        server.url(),
        route("one")
    ))
}

/// Sends the head of an upload, and waits until its response is blocked.
fn begin(eager: &Eager, proxy: &Tidegate) -> Client {
    let mut client = Client::connect(proxy.addr());
    client.send(upload(false).0);
    eager.wait_blocked();
    client
}

#[test]
fn a_client_that_is_still_sending_is_not_idle() {
    let eager = Eager::start();
    let proxy = with_one_connection(&eager.server, "idle_timeout = \"4s\"\n", "stall_timeout = \"4s\"\n");
    let mut client = Client::connect(proxy.addr());
    client.send(upload(false).0);
    for piece in BYTES[..UPLOAD].chunks(UPLOAD / 12) {
        client.send(piece);
        // Real time is tested: each pause is shorter than the timeouts, and all together are longer.
        std::thread::sleep(Duration::from_millis(400));
    }
    eager.wait_complete();
    assert!(client.read().body == *BYTES);
}

#[test]
fn a_server_that_is_still_reading_is_not_stalled() {
    // A tenth of a body that is too large to be buffered before it is forwarded.
    const PIECE: usize = 10_000;
    let server = Upstream::scripted(|caller| {
        caller.read_head().unwrap().unwrap();
        caller.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndone");
        let is_whole = caller.take(10 * PIECE).is_ok();
        let _ = caller.try_send(if is_whole { " all" } else { " no!" });
        // After that the server stalls.
        let _ = caller.request();
    });
    let proxy = with_one_connection(&server, "", "stall_timeout = \"2s\"\n");
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 10 * PIECE));
    assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
    for _ in 0..10 {
        // Real time is tested: each pause is shorter than the stall timeout, and all together are longer.
        std::thread::sleep(Duration::from_millis(250));
        client.send([b'x'; PIECE]);
    }
    assert_eq!(client.take(8).unwrap(), b"done all");
    client.expect_close();
    eventually("the connection to the stalled server is closed", || server.open() == 0);
}

#[test]
fn an_aborted_or_stalled_side_closes_the_other_side() {
    let eager = Eager::start();
    let proxy = with_one_connection(&eager.server, "body_timeout = \"1s\"\n", "");
    // The client disconnects.
    drop(begin(&eager, &proxy));
    eventually("the upstream connection is closed", || eager.server.open() == 0);
    // The client sends nothing more.
    let mut client = begin(&eager, &proxy);
    eventually("the upstream connection is closed", || eager.server.open() == 0);
    assert!(client.read_to_close().len() < RESPONSE, "the response is truncated");
    assert_eq!(eager.server.connections(), 2, "the second took the permit of the first");

    // The server reads nothing, and its response is blocked.
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.read_head();
        let mut writer = caller.stream();
        let _ = write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {RESPONSE}\r\n\r\n");
        for _ in 0..RESPONSE / MIB {
            if writer.write_all(&BYTES[..MIB]).is_err() {
                return;
            }
            counter.fetch_add(MIB, Ordering::SeqCst);
        }
    });
    let proxy = with_one_connection(&server, "", "stall_timeout = \"1s\"\n");
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {RESPONSE}\r\n\r\n"));
    settled(&sent);
    client.stream().set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let _ = client.try_send(&*BYTES);
    eventually("the upstream connection is closed", || server.open() == 0);
    assert!(client.read_to_close().len() < RESPONSE, "the response is truncated");
}
