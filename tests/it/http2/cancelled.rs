//! Requests to HTTP/2 servers that their clients cancel.

use std::future::poll_fn;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::upstream::{proxy_for, respond_with};
use super::*;
use crate::support::{Http2Server, Process, TOOLS, command, connect_from, settled};

/// The address of the client that cancels its requests.
const CANCELLING: &str = "127.0.0.2";
/// Resets that the proxy sends over a connection at once, and how often it sends one more.
const BURST: usize = 16;
const INTERVAL: Duration = Duration::from_millis(250);

/// A server that works on `/slow` until its stream is reset, and responds to all others. It counts requests and resets.
fn server() -> (Http2Server, Arc<[AtomicUsize; 2]>) {
    let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let counted = Arc::clone(&counts);
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(48);
    let server = Http2Server::start(builder, None, move |(request, mut respond)| {
        let counts = Arc::clone(&counted);
        async move {
            if request.uri().path() != "/slow" {
                return respond_with((request, respond), "fast");
            }
            counts[0].fetch_add(1, Ordering::SeqCst);
            let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
            counts[1].fetch_add(1, Ordering::SeqCst);
        }
    });
    (server, counts)
}

/// Sends requests over a connection of HTTP/2, with the begin of a body if they are uploads.
fn send(client: &mut Frames, streams: &[u32], is_upload: bool) {
    for &stream in streams {
        if is_upload {
            let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/slow")];
            client.send(frames::HEADERS, frames::END_HEADERS, stream, &block(&head));
            client.send(frames::DATA, 0, stream, b"x");
        } else {
            client.get(stream, "/slow");
        }
    }
}

/// Waits until the proxy has read, and acted upon, all frames so far.
fn wait(client: &mut Frames) {
    for _ in 0..2 {
        client.send(frames::PING, 0, 0, &[0; 8]);
        while client.find(frames::PING).unwrap().flags == 0 {}
    }
}

#[test]
fn cancelled_requests_keep_their_places_beyond_a_budget_of_resets() {
    for is_upload in [false, true] {
        let (server, counts) = server();
        let [received, reset] = [0, 1].map(|index| {
            let counts = Arc::clone(&counts);
            move || counts[index].load(Ordering::SeqCst)
        });
        let proxy = proxy_for(&server.url(), "");
        let mut client = Frames::over(connect_from(CANCELLING, proxy.addr()).unwrap()).begin(&[]);
        let streams: Vec<u32> = (0..32).map(|number| 2 * number + 1).collect();
        send(&mut client, &streams, is_upload);
        eventually("the server has all requests", || received() == 32);
        let cancelled = Instant::now();
        for stream in &streams {
            client.cancel(*stream);
        }
        eventually("the burst is sent", || reset() >= BURST);
        let more = usize::try_from(cancelled.elapsed().as_millis() / INTERVAL.as_millis()).unwrap();
        assert!(reset() <= BURST + more + 1, "{} with uploads: {is_upload}", reset());
        // Others take 32 places: the 16 that were never used, and those of the burst. The next ones need a connection.
        let others: Vec<u32> = (100..148).map(|number| 2 * number + 1).collect();
        send(&mut client, &others, is_upload);
        eventually("the server has all requests", || received() == 80);
        assert_eq!(server.connections(), 2, "with uploads: {is_upload}");
        assert_eq!(get(proxy.addr(), "/", &[]).text(), "fast");
        eventually("all cancelled requests are reset", || reset() == 32);
    }
}

#[test]
fn a_cancelled_request_with_a_response_needs_no_reset() {
    let (release, released) = tokio::sync::watch::channel(false);
    let (received, reset) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&received), Arc::clone(&reset));
    let server = Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let ((received, reset), mut released) = (counts.clone(), released.clone());
        async move {
            received.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                _ = released.wait_for(|released| *released) => respond_with((request, respond), "late"),
                _ = poll_fn(|cx| respond.poll_reset(cx)) => { reset.fetch_add(1, Ordering::SeqCst); }
            }
        }
    });
    let proxy = proxy_for(&server.url(), "");
    let mut client = Frames::over(connect_from(CANCELLING, proxy.addr()).unwrap()).begin(&[]);
    let streams: Vec<u32> = (0..60).map(|number| 2 * number + 1).collect();
    send(&mut client, &streams, false);
    eventually("the server has all requests", || received.load(Ordering::SeqCst) == 60);
    let cancelled = Instant::now();
    for stream in &streams {
        client.cancel(*stream);
    }
    wait(&mut client);
    eventually("the burst is sent", || reset.load(Ordering::SeqCst) >= BURST);
    release.send(true).unwrap();
    let more = usize::try_from(cancelled.elapsed().as_millis() / INTERVAL.as_millis()).unwrap();
    let resets = settled(&reset);
    assert!(resets < BURST + more + 10, "{resets}");
}

/// A program in Go, ended on drop.
struct GoServer {
    _process: Process,
    url: String,
}

impl GoServer {
    fn start() -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (program, source) =
            (directory.join("go-http2"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http2/cancelled.go"));
        // Debian's Go counts no cancelled requests, so a later one is used; see scripts/setup.
        let mut build = command(Path::new(TOOLS).join("go/go/bin/go"));
        build.env("GOCACHE", directory.join("go")).envs([("GO111MODULE", "off"), ("GOFLAGS", "")]);
        let output = build.arg("build").arg("-o").arg(&program).arg(source).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut process = Process::start(command(program).stdout(Stdio::piped()));
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { _process: process, url: format!("http://{}", address.trim()) }
    }
}

#[test]
fn a_client_that_cancels_requests_to_a_go_server_ends_no_connection_of_others() {
    let server = GoServer::start();
    let proxy = proxy_for(&server.url, "");
    let good: Vec<_> = (0..30)
        .map(|_| {
            let address = proxy.addr();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                [(); 4].map(|()| client.ask("POST / HTTP/1.1\r\nHost: a\r\n\r\n").status())
            })
        })
        .collect();
    // Go ends a connection with 250 requests at work and 1,000 more whose streams are closed.
    let mut attackers: Vec<Frames> = Vec::new();
    for _ in 0..20 {
        let mut client = Frames::over(connect_from(CANCELLING, proxy.addr()).unwrap()).begin(&[]);
        let streams: Vec<u32> = (0..90).map(|number| 2 * number + 1).collect();
        send(&mut client, &streams, false);
        wait(&mut client);
        for stream in &streams {
            client.cancel(*stream);
        }
        wait(&mut client);
        attackers.push(client);
    }
    for good in good {
        assert_eq!(good.join().unwrap(), [200; 4]);
    }
}
