//! Server-sent events, received by curl.

use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::{Authority, Http2Server, Process, Tidegate, Upstream, command, eventually, patience};

/// A curl that receives events.
struct Listener {
    _process: Process,
    lines: BufReader<ChildStdout>,
}

impl Listener {
    fn new(arguments: &[&str], url: &str) -> Self {
        let mut command = command("curl");
        command
            .args(["-q", "--silent", "--no-buffer", "--noproxy", "*", "--max-time"])
            .arg((2 * patience()).as_secs().to_string())
            .args(arguments)
            .arg(url);
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { _process: process, lines }
    }

    /// The next event; curl times out if there is none.
    fn next(&mut self) -> String {
        let mut event = String::new();
        while !event.ends_with("\n\n") && self.lines.read_line(&mut event).unwrap() > 0 {}
        event
    }
}

/// The events that a server is to send; an empty one is the last.
type Events = Arc<tokio::sync::Mutex<UnboundedReceiver<&'static str>>>;

fn events() -> (UnboundedSender<&'static str>, Events) {
    let (sender, events) = unbounded_channel();
    (sender, Arc::new(tokio::sync::Mutex::new(events)))
}

/// A server that sends these events over HTTP/1.1.
fn server_h1(events: Events) -> Upstream {
    Upstream::scripted(move |caller| {
        let Ok(Some(_)) = caller.read_head() else { return };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = caller.try_send(head);
        let mut events = events.blocking_lock();
        while let Some(event) = events.blocking_recv()
            && !event.is_empty()
        {
            let _ = caller.try_send(format!("{:x}\r\n{event}\r\n", event.len()));
        }
        let _ = caller.read_to_close();
    })
}

/// The same over HTTP/2, which reports that its stream is reset.
fn server_h2(events: Events, reset: Sender<()>) -> Http2Server {
    let reset = Mutex::new(reset);
    Http2Server::start(h2::server::Builder::new(), None, move |(_, mut respond)| {
        let (events, reset) = (Arc::clone(&events), reset.lock().unwrap().clone());
        async move {
            let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            let mut events = events.lock().await;
            while let Some(event) = events.recv().await
                && !event.is_empty()
            {
                body.send_data(Bytes::from_static(event.as_bytes()), false).unwrap();
            }
            let _ = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
            reset.send(()).unwrap();
        }
    })
}

#[test]
fn each_event_is_forwarded_at_once() {
    let authority = Authority::new();
    authority.sign("localhost");
    let (sender_h1, events_h1) = events();
    let (sender_h2, events_h2) = events();
    let (reset, is_reset) = channel();
    let (server, other) = (server_h1(events_h1), server_h2(events_h2, reset));
    let proxy = |tls: &str| {
        Tidegate::start(&format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\nidle_timeout = \"400ms\"\n{tls}\n\
             [limits.one]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
             [upstreams.h1]\nservers = [\"{}\"]\nstall_timeout = \"300ms\"\n\
             [upstreams.h2]\nservers = [\"{}\"]\nstall_timeout = \"300ms\"\nprotocol = \"h2\"\n\
             [[routes]]\npath = \"/h1\"\nlimits = [\"one\"]\nupstream = \"h1\"\n\
             [[routes]]\npath = \"/h2\"\nlimits = [\"one\"]\nupstream = \"h2\"\n",
            server.url(),
            other.url()
        ))
    };
    let plain = proxy("");
    let tls = proxy(&authority.listener("localhost"));
    let ca = authority.file("ca.pem");
    for (version, proxy, scheme) in [
        ("--http1.1", &plain, "http"),
        ("--http2-prior-knowledge", &plain, "http"),
        ("--http1.1", &tls, "https"),
        ("--http2", &tls, "https"),
    ] {
        for (path, sender) in [("h1", &sender_h1), ("h2", &sender_h2)] {
            let resolve = format!("localhost:{}:127.0.0.1", proxy.addr().port());
            let url = format!("{scheme}://localhost:{}/{path}", proxy.addr().port());
            let arguments = [version, "--cacert", ca.to_str().unwrap(), "--resolve", &resolve];
            let mut listener = Listener::new(&arguments, &url);
            for event in ["data: one\n\n", "data: two\n\n", "id: 3\ndata: three\n\n"] {
                sender.send(event).unwrap();
                assert_eq!(listener.next(), event, "{version} {url}");
                if event.contains("one") {
                    // Real time is tested: any other response would time out.
                    std::thread::sleep(Duration::from_millis(900));
                }
            }
            sender.send("").unwrap();
            // The server sees the disconnect, and the slot is released.
            drop(listener);
            if path == "h1" {
                eventually("the upstream connection is closed", || server.open() == 0);
            } else {
                is_reset.recv_timeout(patience()).unwrap();
            }
        }
    }
}
