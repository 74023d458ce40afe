//! Answers that begin before their request is whole, to clients that write everything before they read anything.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use rustls::version::TLS13;

use crate::support::{
    Authority, Caller, Client, Http2, PATIENCE, Tidegate, TlsClient, Upstream, eventually, http2, settled,
};

const MIB: usize = 1024 * 1024;

/// More than there is room for on the way.
const SIZE: usize = 40 * MIB;

/// What is sent, either way.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let all: Vec<u8> = (0..=250).collect();

    let mut bytes = all.repeat(SIZE.div_ceil(all.len()));

    bytes.truncate(SIZE);

    bytes
});

/// A server that answers as soon as it has a head.
struct Eager {
    server: Upstream,
    answered: Arc<AtomicUsize>,
    whole: Receiver<()>,
}

impl Eager {
    fn start() -> Self {
        let (tell, whole) = channel();
        let answered = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&answered);
        let server = Upstream::scripted(move |caller| {
            while let Ok(Some(head)) = caller.read_head() {
                counter.store(0, Ordering::SeqCst);
                let (writer, counter) = (caller.stream().try_clone().unwrap(), Arc::clone(&counter));
                let answering = std::thread::spawn(move || answer(&writer, &counter));
                if read_body(caller, head.header("transfer-encoding").is_some()) {
                    let _ = tell.send(());
                }
                let _ = answering.join().unwrap();
            }
        });
        Self { server, answered, whole }
    }

    /// Waits until nobody takes any more of its answer.
    fn wait_stuck(&self) {
        let answered = settled(&self.answered);
        assert!((1..SIZE).contains(&answered), "{answered} bytes are under way");
    }

    /// Waits until it has the whole request.
    #[track_caller]
    fn wait_whole(&self) {
        self.whole.recv_timeout(PATIENCE).expect("the server has the whole request");
    }
}

/// Sends an answer, and counts.
fn answer(mut writer: &TcpStream, sent: &AtomicUsize) -> io::Result<()> {
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")?;
    for piece in BYTES.chunks(64 * 1024) {
        writer.write_all(piece)?;
        sent.fetch_add(piece.len(), Ordering::SeqCst);
    }
    Ok(())
}

/// Reads the body of a request; says whether it is what is to be sent.
fn read_body(caller: &mut Caller, is_chunked: bool) -> bool {
    if !is_chunked {
        return caller.take(SIZE).is_ok_and(|body| body == *BYTES);
    }
    let mut body = Vec::new();
    while let Ok(chunk) = caller.read_chunk() {
        if chunk.is_empty() {
            return caller.read_trailers().is_ok() && body == *BYTES;
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
        if is_chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {SIZE}") };
    let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let body = if is_chunked {
        BYTES.chunks(MIB).flat_map(chunk).chain(*b"0\r\n\r\n").collect::<Vec<u8>>().into()
    } else {
        BYTES.as_slice().into()
    };
    (format!("POST / HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"), body)
}

#[test]
fn a_long_answer_that_nobody_reads_yet_holds_up_no_upload() {
    let eager = Eager::start();
    let proxy = Tidegate::start(&route(&eager.server.url()));
    let memory = proxy.memory();
    let mut client = Client::connect(proxy.addr());
    for is_chunked in [false, true] {
        let (head, body) = upload(is_chunked);
        client.send(head);
        eager.wait_stuck();
        client.try_send(body).expect("all of it is taken");
        eager.wait_whole();
        let grown = proxy.memory().saturating_sub(memory);
        assert!(grown < 16 * 1024, "{grown} KiB more");
        let answer = client.read();
        assert_eq!(answer.status(), 200);
        assert!(answer.body == *BYTES);
    }
    assert_eq!(eager.server.connections(), 1, "the connection is kept after that");
}

#[test]
fn it_holds_up_no_upload_over_tls_either() {
    let authority = Authority::new();
    authority.sign("localhost");
    let eager = Eager::start();
    let tls = format!("tls = {{ certificates = [{{ {} }}] }}", authority.pair("localhost"));
    let listener = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{tls}\n");
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
    eager.wait_stuck();
    client.stream().write_all(&body).expect("all of it is taken");
    eager.wait_whole();
    assert!(client.read().unwrap().body == *BYTES);
}

/// Sends a body over HTTP/2 before it reads any of the answer.
async fn upload_over_http2(eager: &Eager, sender: &mut SendRequest<Bytes>) -> Result<Vec<u8>, h2::Error> {
    let request = Request::post("http://localhost/").body(()).unwrap();
    let (response, mut stream) = sender.send_request(request, false)?;
    let response = response.await?;
    tokio::task::block_in_place(|| eager.wait_stuck());
    let mut body = Bytes::from_static(&BYTES);
    while !body.is_empty() {
        stream.reserve_capacity(body.len().min(64 * 1024));
        let Some(capacity) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { break };
        let piece = body.split_to(capacity?.min(body.len()));
        stream.send_data(piece, body.is_empty())?;
    }
    tokio::task::block_in_place(|| eager.wait_whole());
    Ok(http2::read(response).await?.body)
}

#[test]
fn it_holds_up_no_upload_over_http_2_either() {
    let eager = Eager::start();
    let proxy = Tidegate::start(&route(&eager.server.url()));
    let client = Http2::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.block_on(async |sender| upload_over_http2(&eager, sender).await.unwrap());
        assert!(answer == *BYTES);
    }
    assert_eq!(eager.server.connections(), 1);
    client.end().unwrap();
}

/// Before a server, to which it may have one connection.
fn alone(server: &Upstream, listener: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}[upstreams.one]\nservers = [\"{}\"]\nmax_connections = 1\n{settings}{}",
        server.url(),
        route("one")
    ))
}

/// Asks with the head of an upload, and waits until nobody takes any more of its answer.
fn begin(eager: &Eager, proxy: &Tidegate) -> Client {
    let mut client = Client::connect(proxy.addr());
    client.send(upload(false).0);
    eager.wait_stuck();
    client
}

#[test]
fn a_client_that_still_sends_need_not_read_yet() {
    let eager = Eager::start();
    let proxy = alone(&eager.server, "idle_timeout = \"2s\"\n", "stall_timeout = \"2s\"\n");
    let mut client = Client::connect(proxy.addr());
    client.send(upload(false).0);
    for piece in BYTES.chunks(SIZE / 16) {
        client.send(piece);
        // In all longer than an answer may wait that nobody reads, and each time shorter.
        std::thread::sleep(Duration::from_millis(250));
    }
    eager.wait_whole();
    assert!(client.read().body == *BYTES);
}

#[test]
fn a_server_that_still_reads_need_not_say_more_yet() {
    // A tenth of a body that is too large to be read before it goes on.
    const PIECE: usize = 10_000;
    let server = Upstream::scripted(|caller| {
        caller.read_head().unwrap().unwrap();
        caller.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndone");
        let is_whole = caller.take(10 * PIECE).is_ok();
        let _ = caller.try_send(if is_whole { " all" } else { " no!" });
        // And then it stalls.
        let _ = caller.request();
    });
    let proxy = alone(&server, "", "stall_timeout = \"1s\"\n");
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 10 * PIECE));
    assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
    for _ in 0..10 {
        // In all longer than a server may be silent that owes us something.
        std::thread::sleep(Duration::from_millis(200));
        client.send([b'x'; PIECE]);
    }
    assert_eq!(client.take(8).unwrap(), b"done all");
    client.expect_close();
    eventually("a server that stalls is left", || server.open() == 0);
}

#[test]
fn whoever_stops_in_the_middle_frees_the_other_side() {
    let eager = Eager::start();
    let proxy = alone(&eager.server, "body_timeout = \"1s\"\n", "");
    // The client goes.
    drop(begin(&eager, &proxy));
    eventually("the server is free", || eager.server.open() == 0);
    // It sends nothing more.
    let mut client = begin(&eager, &proxy);
    eventually("the server is free", || eager.server.open() == 0);
    assert!(client.read_to_close().len() < SIZE, "what is cut is no answer");
    assert_eq!(eager.server.connections(), 2, "each in the place of the one before");

    // The server reads nothing more, and then goes.
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.read_head();
        let mut writer = caller.stream();
        let _ = write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
        for _ in 0..SIZE / MIB {
            if writer.write_all(&BYTES[..MIB]).is_err() {
                return;
            }
            counter.fetch_add(MIB, Ordering::SeqCst);
        }
    });
    let proxy = alone(&server, "", "stall_timeout = \"1s\"\n");
    let mut client = Client::connect(proxy.addr());
    client.send(upload(false).0);
    settled(&sent);
    // Its own answer is stuck, and so it takes nothing.
    client.stream().set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let _ = client.try_send(&*BYTES);
    eventually("the server is left", || server.open() == 0);
    assert!(client.read_to_close().len() < SIZE, "what is cut is no answer");
}
