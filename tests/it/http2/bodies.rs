//! Large bodies, and those that come to no end.

use std::future::poll_fn;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use h2::{RecvStream, SendStream};
use http::Response;

use super::*;
use crate::support::{Authority, Http2Server};

const SIZE: usize = 64 << 20;
/// What is sent at a time.
const PART: usize = 64 << 10;

/// A server that sends a large body to those that GET and reads one of others, over HTTP/1.1.
fn large_h1() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(head)) = caller.read_head() {
            if head.start.starts_with("GET /large") {
                let _ = caller.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
                let part = vec![b'x'; PART];
                if !(0..SIZE / PART).all(|_| caller.try_send(&part).is_ok()) {
                    return;
                }
                continue;
            }
            let length: usize = head.header("content-length").map_or(0, |length| length.parse().unwrap());
            if !(0..length / PART).all(|_| caller.take(PART).is_ok()) {
                return;
            }
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        }
    })
}

/// The same over HTTP/2, which says in the end how each sending of a large body went.
fn large_h2(end: std::sync::mpsc::Sender<bool>) -> Http2Server {
    let end = Arc::new(Mutex::new(end));
    Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let end = Arc::clone(&end);
        async move {
            if request.uri().path() == "/large" {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                let is_sent = send_large(&mut body).await;
                let _ = end.lock().unwrap().send(is_sent);
                return;
            }
            if request.uri().path() == "/early" {
                let refused = Response::builder().status(403).body(()).unwrap();
                respond.send_response(refused, false).unwrap().send_data("no".into(), true).unwrap();
                return;
            }
            read_all(request.into_body()).await;
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data("done".into(), true).unwrap();
        }
    })
}

/// Sends a large body as fast as it is taken; says whether all of it was.
async fn send_large(body: &mut SendStream<Bytes>) -> bool {
    let part = Bytes::from(vec![b'x'; PART]);
    for left in (0..SIZE / PART).rev() {
        body.reserve_capacity(PART);
        while body.capacity() < PART {
            if !matches!(poll_fn(|cx| body.poll_capacity(cx)).await, Some(Ok(_))) {
                return false;
            }
        }
        if body.send_data(part.clone(), left == 0).is_err() {
            return false;
        }
    }
    true
}

async fn read_all(mut body: RecvStream) {
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
}

/// A proxy before both.
fn before(server: &Upstream, other: &Http2Server, listener: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [limits.one]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n\
         [[routes]]\npath = \"/h2/*\"\nupstream = \"u\"\nrewrite = {{ strip_prefix = \"/h2\" }}\n\
         [[routes]]\npath = \"/one/*\"\nlimits = [\"one\"]\nupstream = \"u\"\nrewrite = {{ strip_prefix = \"/one\" }}\n\
         [[routes]]\npath = \"/h1/*\"\nupstream = \"{}\"\nrewrite = {{ strip_prefix = \"/h1\" }}\n",
        other.url(),
        server.url()
    ))
}

/// What curl has sent and received, and the status.
fn transfer(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "60", "--insecure"])
        .args(["--output", "/dev/null", "--write-out", "%{http_code} %{size_upload} %{size_download}"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    assert!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn large_bodies_pass_in_little_memory_whatever_is_spoken() {
    let authority = Authority::new();
    authority.sign("localhost");
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE as u64).unwrap();
    let file = file.path().to_str().unwrap();
    let (server, other) = (large_h1(), large_h2(channel().0));
    let plain = before(&server, &other, "");
    let tls = format!("tls = {{ certificates = [{{ {} }}] }}", authority.pair("localhost"));
    let tls = before(&server, &other, &tls);
    for (version, proxy, scheme, server) in [
        ("--http2-prior-knowledge", &plain, "http", "h1"),
        ("--http2", &tls, "https", "h2"),
        ("--http1.1", &plain, "http", "h2"),
    ] {
        let before = proxy.memory();
        let url = format!("{scheme}://{}/{server}/large", proxy.addr());
        assert_eq!(transfer(&[version, &url]), format!("200 0 {SIZE}"), "{version} {server}");
        assert_eq!(
            transfer(&[version, "-T", file, &url.replace("large", "upload")]),
            format!("200 {SIZE} 4")
        );
        let grown = proxy.peak_memory().saturating_sub(before);
        assert!(grown < 16 * 1024, "{grown} KiB for {version}");
    }
}

#[test]
fn those_who_do_not_read_hold_up_nobody_on_their_servers_connection() {
    let (tell, _told) = channel();
    let (server, other) = (large_h1(), large_h2(tell));
    let proxy = before(&server, &other, "");
    // More than any window of a connection has room for is waiting for these.
    let stalled: Vec<_> = (0..40)
        .map(|_| {
            let mut frames = Frames::connect(proxy.addr(), &[]);
            frames.get(1, "/h2/large");
            assert_eq!(frames.status(1), Some(Ok(200)));
            frames
        })
        .collect();
    // Until nothing more comes for them.
    let mut last = 0;
    eventually("all of them are stalled", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut last, proxy.memory()) == last
    });
    let client = Http2::connect(proxy.addr());
    for _ in 0..20 {
        assert_eq!(client.ask(request("POST", "/h2/small").body(()).unwrap(), &vec![0; PART]).text(), "done");
    }
    assert_eq!(other.connections(), 1);
    drop(stalled);
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_body_frees_the_server() {
    let (tell, told) = channel();
    let (server, other) = (large_h1(), large_h2(tell));
    let proxy = before(&server, &other, "");
    let take_back = |path: &str| {
        let mut frames = Frames::connect(proxy.addr(), &[]);
        frames.get(1, path);
        assert_eq!(frames.status(1), Some(Ok(200)));
        frames.send(frames::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        frames
    };
    let connection = take_back("/h1/large");
    eventually("the server's connection is closed", || server.open() == 0);
    drop(connection);
    // A route with a concurrency limit has it finish first, and keeps the slot until then.
    for is_reset in [true, false, true] {
        let mut frames = None;
        eventually("the slot is free", || {
            let mut next = Frames::connect(proxy.addr(), &[]);
            next.get(1, "/one/large");
            let is_in = next.status(1) == Some(Ok(200));
            frames = is_in.then_some(next);
            is_in
        });
        let mut frames = frames.unwrap();
        if is_reset {
            frames.send(frames::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        }
        drop(frames);
        assert!(told.recv_timeout(PATIENCE).unwrap());
    }
    // A whole connection that goes takes all of its requests along.
    let mut frames = Frames::connect(proxy.addr(), &[]);
    for stream in [1, 3, 5] {
        frames.get(stream, "/h2/large");
    }
    for _ in 0..3 {
        assert!(frames.find(frames::HEADERS).is_some());
    }
    drop(frames);
    for _ in 0..3 {
        assert!(!told.recv_timeout(PATIENCE).unwrap());
    }
    assert_eq!(other.connections(), 1);
}

#[test]
fn an_upload_that_is_not_wanted_is_answered_before_its_end() {
    let (server, other) = (large_h1(), large_h2(channel().0));
    let proxy = before(&server, &other, "");
    let client = Http2::connect(proxy.addr());
    let (status, body) = client.block_on(async |sender| {
        let (answer, _stream) =
            sender.send_request(request("POST", "/h2/early").body(()).unwrap(), false).unwrap();
        let answer = crate::support::http2::read(answer.await.unwrap()).await.unwrap();
        (answer.status(), answer.text().to_owned())
    });
    assert_eq!((status, &*body), (403, "no"));
    assert_eq!(client.ask(request("POST", "/h2/small").body(()).unwrap(), &vec![0; PART]).text(), "done");
}

#[test]
fn curl_is_answered_though_nobody_wants_what_it_sends() {
    let proxy = Tidegate::start(
        "[[routes]]\npath = \"/empty\"\nrespond = { status = 200 }\n\
         [[routes]]\npath = \"/own\"\nrespond = { status = 403, body = \"no\" }\n",
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    for (path, status, lengths) in
        [("/empty", 200, &[10, 60_000][..]), ("/own", 403, &[10, 60_000, 200_000, SIZE])]
    {
        for length in lengths {
            file.as_file().set_len(*length as u64).unwrap();
            let body = format!("@{}", file.path().to_str().unwrap());
            for _ in 0..20 {
                // It takes a stream that is reset behind its answer for broken, and loses an empty answer while it sends.
                let said = transfer(&["--http2-prior-knowledge", "--data-binary", &body, &proxy.url(path)]);
                assert!(said.starts_with(&status.to_string()), "{said} of {length}");
            }
        }
    }
}

#[test]
fn curl_that_asks_first_is_answered_whatever_is_spoken() {
    let (server, other) = (large_h1(), large_h2(channel().0));
    let proxy = before(&server, &other, "");
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 << 20).unwrap();
    let file = file.path().to_str().unwrap();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for path in ["/h1/upload", "/h2/upload"] {
            // Were it not told to go on, it would wait for longer than it may take.
            let ask = ["-H", "Expect: 100-continue", "--expect100-timeout", "50", "--max-time", "20"];
            let said = transfer(&[&[version, "-T", file, &proxy.url(path)], &ask[..]].concat());
            assert_eq!(said, format!("200 {} 4", 4 << 20), "{version} {path}");
        }
    }
}

/// All of an answer is in the proxy, and the client has not yet said that it takes the end of it.
#[test]
fn the_end_of_an_answer_waits_for_its_window_in_a_drain() {
    const WINDOW: usize = 65_535;
    const LENGTH: usize = 100_000;
    let mut proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/*\"\nrespond = {{ status = 200, body = \"{}\" }}\n",
        "x".repeat(LENGTH)
    ));
    let mut client = Frames::connect(proxy.addr(), &[]);
    client.get(1, "/");
    let mut came = 0;
    while came < WINDOW {
        came += client.find(frames::DATA).unwrap().payload.len();
    }
    proxy.signal("TERM");
    proxy.wait_log("draining");
    // Who has nothing left to take is given up after a second, as time alone decides.
    std::thread::sleep(Duration::from_millis(1_700));
    for stream in [0, 1] {
        client.send(frames::WINDOW_UPDATE, 0, stream, &(1_u32 << 20).to_be_bytes());
    }
    let rest = client.read_to_close();
    came += rest
        .iter()
        .filter(|frame| frame.kind == frames::DATA)
        .map(|frame| frame.payload.len())
        .sum::<usize>();
    assert_eq!(came, LENGTH);
    assert_eq!(proxy.wait().code(), Some(0));
}
