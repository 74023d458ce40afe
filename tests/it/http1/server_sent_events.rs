//! Server-sent events, as curl hears them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;

use crate::support::{Authority, Http2Server, PATIENCE, Tidegate, Upstream, eventually};

/// Somebody who listens to events with curl.
struct Listener {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Listener {
    fn new(arguments: &[&str], url: &str) -> Self {
        let mut process = Command::new("curl")
            .args(["-q", "--silent", "--no-buffer", "--noproxy", "*", "--max-time", "20"])
            .args(arguments)
            .arg(url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl is installed");
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// The next event; curl ends by itself if none comes.
    fn next(&mut self) -> String {
        let mut event = String::new();
        while !event.ends_with("\n\n") && self.lines.read_line(&mut event).unwrap() > 0 {}
        event
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What is to be said next.
type Script = Arc<Mutex<Receiver<&'static str>>>;

fn script() -> (Sender<&'static str>, Script) {
    let (say, said) = channel();
    (say, Arc::new(Mutex::new(said)))
}

/// A server that says over HTTP/1.1 what it is told to.
fn speaking_h1(script: Script) -> Upstream {
    Upstream::scripted(move |caller| {
        let Ok(Some(_)) = caller.read_head() else { return };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = caller.try_send(head);
        let script = script.lock().unwrap();
        while let Ok(event) = script.recv_timeout(PATIENCE)
            && !event.is_empty()
        {
            let _ = caller.try_send(format!("{:x}\r\n{event}\r\n", event.len()));
        }
        // Until its caller is gone.
        let _ = caller.read_to_close();
    })
}

/// The same over HTTP/2, which says when its caller is gone.
fn speaking_h2(script: Script, gone: Sender<()>) -> Http2Server {
    let gone = Mutex::new(gone);
    Http2Server::start(h2::server::Builder::new(), None, move |(_, mut respond)| {
        let (script, gone) = (Arc::clone(&script), gone.lock().unwrap().clone());
        async move {
            let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            loop {
                let said = script.lock().unwrap().try_recv();
                match said {
                    Ok("") => break,
                    Ok(event) => body.send_data(Bytes::from_static(event.as_bytes()), false).unwrap(),
                    // The channel is not one that a task could wait for.
                    Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
            let _ = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
            gone.send(()).unwrap();
        }
    })
}

#[test]
fn each_event_comes_as_soon_as_it_is_said() {
    let authority = Authority::new();
    authority.sign("localhost");
    let (say_h1, h1) = script();
    let (say_h2, h2) = script();
    let (gone, is_gone) = channel();
    let (server, other) = (speaking_h1(h1), speaking_h2(h2, gone));
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
    let tls = proxy(&format!("tls = {{ certificates = [{{ {} }}] }}", authority.pair("localhost")));
    let ca = authority.file("ca.pem");
    for (version, proxy, scheme) in [
        ("--http1.1", &plain, "http"),
        ("--http2-prior-knowledge", &plain, "http"),
        ("--http1.1", &tls, "https"),
        ("--http2", &tls, "https"),
    ] {
        for (path, say) in [("h1", &say_h1), ("h2", &say_h2)] {
            let place = format!("localhost:{}:127.0.0.1", proxy.addr().port());
            let url = format!("{scheme}://localhost:{}/{path}", proxy.addr().port());
            let arguments = [version, "--cacert", ca.to_str().unwrap(), "--resolve", &place];
            let mut listener = Listener::new(&arguments, &url);
            for event in ["data: one\n\n", "data: two\n\n", "id: 3\ndata: three\n\n"] {
                say.send(event).unwrap();
                assert_eq!(listener.next(), event, "{version} {url}");
                if event.contains("one") {
                    // Longer than any other answer may be silent here.
                    std::thread::sleep(Duration::from_millis(900));
                }
            }
            say.send("").unwrap();
            // Whoever stops listening is heard of, and their slot comes free.
            drop(listener);
            if path == "h1" {
                eventually("the server is left", || server.open() == 0);
            } else {
                is_gone.recv_timeout(PATIENCE).unwrap();
            }
        }
    }
}
