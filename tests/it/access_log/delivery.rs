//! When lines of the access log are written, and in how many system calls.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Client, Tidegate, Upstream, eventually, is_within, patience};

const LOG: &str = "workers = 1\n[log]\naccess = \"json\"\n";
const RESPOND: &str = "[[routes]]\npath = \"/*\"\nrespond = { status = 200 }\n";

/// Sends pipelined requests for these targets, and reads their responses.
fn ask_all(proxy: &Tidegate, targets: &[String]) {
    let mut client = Client::connect(proxy.addr());
    let request = |target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(targets.iter().map(request).collect::<Vec<_>>().concat());
    for _ in targets {
        assert_eq!(client.read().status(), 200);
    }
}

fn targets(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/{number}")).collect()
}

fn target(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    line["target"].as_str().unwrap().to_owned()
}

#[test]
fn many_lines_are_written_in_few_writes() {
    // Each write is a datagram.
    let (output, reader) = UnixDatagram::pair().unwrap();
    reader.set_read_timeout(Some(patience())).unwrap();
    let targets = targets(400);
    let count = targets.len();
    let reading = std::thread::spawn(move || {
        let (mut writes, mut lines, mut datagram) = (0, Vec::new(), vec![0; 256 * 1024]);
        while lines.len() < count {
            let length = reader.recv(&mut datagram).unwrap();
            let text = str::from_utf8(&datagram[..length]).unwrap();
            assert!(text.ends_with('\n'), "{text}");
            lines.extend(text.lines().map(target));
            writes += 1;
        }
        (writes, lines)
    });
    let proxy = Tidegate::builder(&format!("{LOG}{RESPOND}")).stdout(OwnedFd::from(output)).start();
    ask_all(&proxy, &targets);
    let (writes, lines) = reading.join().unwrap();
    assert_eq!(lines, targets);
    assert!(writes * 8 <= count, "{writes} writes");
}

#[test]
fn a_single_request_is_logged_at_once() {
    let proxy = Tidegate::start(&format!("{LOG}{RESPOND}"));
    let mut client = Client::connect(proxy.addr());
    let mut lines = 0;
    assert!(is_within(Duration::from_millis(50), || {
        client.get("/", &[]);
        let responded = Instant::now();
        lines += 1;
        proxy.accesses(lines);
        responded.elapsed()
    }));
}

#[test]
fn buffered_lines_are_written_before_the_exit() {
    let held = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    });
    for (grace, is_held) in [("10s", false), ("50ms", true)] {
        let mut proxy = Tidegate::start(&format!(
            "shutdown_grace = \"{grace}\"\n{LOG}[[routes]]\npath = \"/held\"\nupstream = \"{}\"\n{RESPOND}",
            held.url()
        ));
        let mut client = Client::connect(proxy.addr());
        if is_held {
            // The worker still has a request when the process exits.
            client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
            eventually("the server has the request", || held.requests().len() == 1);
        }
        let targets = targets(200);
        ask_all(&proxy, &targets);
        proxy.signal("TERM");
        assert_eq!(proxy.wait().code(), Some(0));
        let lines = proxy.accesses(targets.len());
        assert_eq!(lines.iter().map(|line| target(line)).collect::<Vec<_>>(), targets);
    }
}
