//! Large bodies, unread bodies and disconnects.

use std::future::poll_fn;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use h2::{RecvStream, SendStream};
use http::Response;

use super::*;
use crate::support::{Authority, Http2Server, command, patience, steady};

/// The length of a large body: more than the memory that the proxy may use.
const SIZE: usize = 24 << 20;
/// How much is sent at a time.
const PART: usize = 64 << 10;

/// An HTTP/1.1 server that sends a large body for `/large`, and reads the bodies of other requests.
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

/// The same over HTTP/2, which reports whether each large body was sent completely.
fn large_h2(report: std::sync::mpsc::Sender<bool>) -> Http2Server {
    let report = Arc::new(Mutex::new(report));
    Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let report = Arc::clone(&report);
        async move {
            if request.uri().path() == "/large" {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                let is_complete = send_large(&mut body).await;
                let _ = report.lock().unwrap().send(is_complete);
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

/// Sends a large body, and returns whether it is complete.
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

/// A proxy in front of both.
fn proxy_for(server: &Upstream, other: &Http2Server, listener: &str) -> Tidegate {
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

/// The status, and how much curl has sent and received.
fn transfer(arguments: &[&str]) -> String {
    let output = command("curl")
        .args(["-q", "--silent", "--show-error", "--noproxy", "*", "--insecure", "--max-time"])
        .arg((6 * patience()).as_secs().to_string())
        .args(["--output", "/dev/null", "--write-out", "%{http_code} %{size_upload} %{size_download}"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn large_bodies_stream_in_constant_memory_over_each_protocol() {
    let authority = Authority::new();
    authority.sign("localhost");
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE as u64).unwrap();
    let file = file.path().to_str().unwrap();
    let (server, other) = (large_h1(), large_h2(channel().0));
    let plain = proxy_for(&server, &other, "");
    let tls = authority.listener("localhost");
    let tls = proxy_for(&server, &other, &tls);
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
            format!("200 {SIZE} 4"),
            "{version} {server}"
        );
        let grown = proxy.peak_memory().saturating_sub(before);
        assert!(grown < 16 * 1024, "{grown} KiB for {version}");
    }
}

#[test]
fn unread_responses_do_not_block_a_shared_upstream_connection() {
    let (report, _reports) = channel();
    let (server, other) = (large_h1(), large_h2(report));
    let proxy = proxy_for(&server, &other, "");
    // Together these responses are larger than any window of a connection.
    let stalled: Vec<_> = (0..40)
        .map(|_| {
            let mut frames = Frames::connect(proxy.addr(), &[]);
            frames.get(1, "/h2/large");
            assert_eq!(frames.status(1), Some(Ok(200)));
            frames
        })
        .collect();
    // Until the proxy buffers no more of them.
    steady(|| proxy.memory());
    let client = Http2::connect(proxy.addr());
    for _ in 0..20 {
        assert_eq!(client.ask(request("POST", "/h2/small").body(()).unwrap(), &vec![0; PART]).text(), "done");
    }
    assert_eq!(other.connections(), 1);
    drop(stalled);
}

#[test]
fn a_client_disconnect_during_a_response_frees_the_server() {
    let (report, reports) = channel();
    let (server, other) = (large_h1(), large_h2(report));
    let proxy = proxy_for(&server, &other, "");
    let cancel = |path: &str| {
        let mut frames = Frames::connect(proxy.addr(), &[]);
        frames.get(1, path);
        assert_eq!(frames.status(1), Some(Ok(200)));
        frames.cancel(1);
        frames
    };
    let connection = cancel("/h1/large");
    eventually("the upstream connection is closed", || server.open() == 0);
    drop(connection);
    // On a route with a concurrency limit the proxy reads the response to its end, and holds the slot until then.
    for is_reset in [true, false, true] {
        let mut frames = None;
        eventually("the slot is free", || {
            let mut next = Frames::connect(proxy.addr(), &[]);
            next.get(1, "/one/large");
            let is_admitted = next.status(1) == Some(Ok(200));
            frames = is_admitted.then_some(next);
            is_admitted
        });
        let mut frames = frames.unwrap();
        if is_reset {
            frames.cancel(1);
        }
        drop(frames);
        assert!(reports.recv_timeout(patience()).unwrap());
    }
    // A disconnect resets all streams of the connection.
    let mut frames = Frames::connect(proxy.addr(), &[]);
    for stream in [1, 3, 5] {
        frames.get(stream, "/h2/large");
    }
    for _ in 0..3 {
        assert!(frames.find(frames::HEADERS).is_some());
    }
    drop(frames);
    for _ in 0..3 {
        assert!(!reports.recv_timeout(patience()).unwrap());
    }
    assert_eq!(other.connections(), 1);
}

/// RFC 9113 §8.1.
#[test]
fn an_early_response_ends_an_upload() {
    let (server, other) = (large_h1(), large_h2(channel().0));
    let proxy = proxy_for(&server, &other, "");
    let client = Http2::connect(proxy.addr());
    let (status, body) = client.block_on(async |sender| {
        let (response, _stream) =
            sender.send_request(request("POST", "/h2/early").body(()).unwrap(), false).unwrap();
        let response = crate::support::http2::read(response.await.unwrap()).await.unwrap();
        (response.status(), response.text().to_owned())
    });
    assert_eq!((status, &*body), (403, "no"));
    assert_eq!(client.ask(request("POST", "/h2/small").body(()).unwrap(), &vec![0; PART]).text(), "done");
}

#[test]
fn curl_gets_a_local_reply_while_it_uploads() {
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
                // curl reports a stream that is reset after the response as broken, and loses an empty response while it
                // sends.
                let report = transfer(&["--http2-prior-knowledge", "--data-binary", &body, &proxy.url(path)]);
                assert!(report.starts_with(&status.to_string()), "{path} {length}: {report}");
            }
        }
    }
}

#[test]
fn curl_gets_an_early_response_while_it_uploads() {
    let server = Tidegate::start(
        "[[routes]]\npath = \"/empty\"\nrespond = { status = 401 }\n\
         [[routes]]\npath = \"/own\"\nrespond = { status = 403, body = \"no\" }\n",
    );
    let proxy =
        Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"http://{}\"\n", server.addr()));
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 << 20).unwrap();
    let body = format!("@{}", file.path().to_str().unwrap());
    for (path, status) in [("/empty", "401"), ("/own", "403")] {
        for _ in 0..20 {
            let report = transfer(&["--http2-prior-knowledge", "--data-binary", &body, &proxy.url(path)]);
            assert!(report.starts_with(status), "{path}: {report}");
        }
    }
}

#[test]
fn curl_gets_100_continue_over_each_protocol() {
    let (server, other) = (large_h1(), large_h2(channel().0));
    let proxy = proxy_for(&server, &other, "");
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 << 20).unwrap();
    let file = file.path().to_str().unwrap();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for path in ["/h1/upload", "/h2/upload"] {
            // Without 100 Continue, curl would wait for longer than its timeout.
            let ask = ["-H", "Expect: 100-continue", "--expect100-timeout", "50", "--max-time", "20"];
            let report = transfer(&[&[version, "-T", file, &proxy.url(path)], &ask[..]].concat());
            assert_eq!(report, format!("200 {} 4", 4 << 20), "{version} {path}");
        }
    }
}

#[test]
fn a_drain_waits_for_a_response_blocked_on_flow_control() {
    const WINDOW: usize = 65_535;
    const LENGTH: usize = 100_000;
    let mut proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/*\"\nrespond = {{ status = 200, body = \"{}\" }}\n",
        "x".repeat(LENGTH)
    ));
    let mut client = Frames::connect(proxy.addr(), &[]);
    client.get(1, "/");
    let mut received = 0;
    while received < WINDOW {
        received += client.find(frames::DATA).unwrap().payload.len();
    }
    proxy.signal("TERM");
    proxy.wait_log("draining");
    // Real time is tested: connections without an unread response are closed after a second.
    std::thread::sleep(Duration::from_millis(1_700));
    for stream in [0, 1] {
        client.send(frames::WINDOW_UPDATE, 0, stream, &(1_u32 << 20).to_be_bytes());
    }
    let rest = client.read_to_close();
    received += rest
        .iter()
        .filter(|frame| frame.kind == frames::DATA)
        .map(|frame| frame.payload.len())
        .sum::<usize>();
    assert_eq!(received, LENGTH);
    assert_eq!(proxy.wait().code(), Some(0));
}
