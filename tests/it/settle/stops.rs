//! Streams that are stopped when the units of their key are used up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use http::Request;

use super::setup::{CAPACITY, chunk, config, logged, own};
use crate::support::{Client, Http2, Tidegate, Upstream, eventually, over_both_stores, patience};

/// An endless stream. The server sends each part when the test allows it.
struct Stream {
    upstream: Upstream,
    next: Sender<()>,
    /// Streams that were cancelled.
    cancelled: Arc<AtomicUsize>,
}

impl Stream {
    /// A stream of this type whose parts are these.
    fn start(media_type: &str, part: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        let (next, allowed) = channel();
        let (allowed, cancelled): (Mutex<Receiver<()>>, Arc<AtomicUsize>) =
            (Mutex::new(allowed), Arc::default());
        let (head, ended) = (format!("Content-Type: {media_type}\r\n"), Arc::clone(&cancelled));
        let upstream = Upstream::scripted(move |caller| {
            let Ok(Some(_)) = caller.request() else { return };
            let _ = caller.try_send(format!("HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n"));
            for number in 0.. {
                if caller.try_send(chunk(&part(number))).is_err() {
                    break;
                }
                let _ = allowed.lock().unwrap().recv_timeout(patience());
            }
            ended.fetch_add(1, Ordering::SeqCst);
        });
        Self { upstream, next, cancelled }
    }
}

/// Reads a stream to its end, and allows the next part after each. Returns the parts, and whether the response is complete.
fn read(client: &mut Client, next: &Sender<()>) -> (Vec<String>, bool) {
    client.send("POST /stream HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"stream\": true }");
    assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
    let mut parts = Vec::new();
    loop {
        match client.read_chunk() {
            Ok(part) if part.is_empty() => return (parts, client.read_trailers().is_ok()),
            Ok(part) => parts.push(String::from_utf8(part).unwrap()),
            Err(_) => return (parts, false),
        }
        let _ = next.send(());
    }
}

/// Checks that the access log has an error, and that the exchange with the server is cancelled.
fn stopped(proxy: &Tidegate, stream: &Stream, before: usize) {
    let line = logged(proxy, "/stream");
    assert_eq!((&line["status"], line["error"].is_string()), (&200.into(), true), "{line}");
    // The server notices it when it sends the next part.
    eventually("the exchange with the server is cancelled", || {
        let _ = stream.next.send(());
        stream.cancelled.load(Ordering::SeqCst) > before
    });
}

/// Without a known dialect a client must not take the stream for complete.
#[test]
fn other_streams_end_abnormally() {
    let event = |number: usize| format!("data: {{\"used\": {}}}\n\n", number * 3);
    let bytes = |_| "x".repeat(10);
    let json = "cost = { reserve = 10, settle = \"json:/used\" }\nstop_streams = true";
    let measured = "cost = { reserve = 10, settle = \"response_bytes\" }\nstop_streams = true";
    for (limit, stream) in [
        (json, Stream::start("text/event-stream", event)),
        (measured, Stream::start("text/event-stream", bytes)),
        (measured, Stream::start("application/octet-stream", bytes)),
    ] {
        over_both_stores(&config(limit, &stream.upstream.url()), |proxy| {
            let before = stream.cancelled.load(Ordering::SeqCst);
            let (parts, is_clean) = read(&mut Client::connect(proxy.addr()), &stream.next);
            assert!(!is_clean, "{limit}: it has ended as if it were complete");
            assert!(parts.len() > 99, "{} parts", parts.len());
            eventually("it is settled", || own(proxy, "k") == (0, 0));
            stopped(proxy, &stream, before);
        });
    }
}

/// What has passed is charged, and the stream stopped, although no other part follows.
#[test]
fn a_stream_that_falls_silent_is_stopped() {
    let server = Upstream::scripted(|caller| {
        let Ok(Some(_)) = caller.request() else { return };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = caller.try_send(format!("{head}{}", chunk(&"x".repeat(2_000))));
        // Until the connection is closed.
        let _ = caller.request();
    });
    let limit = "cost = { reserve = 10, settle = \"response_bytes\" }\nstop_streams = true";
    over_both_stores(&config(limit, &server.url()), |proxy| {
        let mut client = Client::connect(proxy.addr());
        client.send("GET /stream HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n");
        assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
        eventually("it is settled", || own(proxy, "k") == (0, 0));
        let line = logged(proxy, "/stream");
        assert_eq!(line["error"], "stopped", "{line}");
    });
}

/// A response whose status is not charged takes no more units while it is sent.
#[test]
fn a_stream_with_a_status_that_is_not_charged_takes_nothing() {
    let (next, allowed) = channel::<()>();
    let allowed = Mutex::new(allowed);
    let events = chunk("data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n").repeat(700);
    let server = Upstream::scripted(move |caller| {
        let Ok(Some(_)) = caller.request() else { return };
        let head =
            "HTTP/1.1 500 Oops\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = caller.try_send(format!("{head}{events}"));
        // The response is cut once the client has what was sent.
        let _ = allowed.lock().unwrap().recv_timeout(patience());
    });
    let limit = "cost = \"llm_tokens\"\ndefault_output = 10\nstop_streams = true\ncharge_on = [\"2xx\"]";
    over_both_stores(&config(limit, &server.url()), |proxy| {
        let mut client = Client::connect(proxy.addr());
        client.send("POST /stream HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"stream\": true }");
        assert_eq!(client.read_head().unwrap().unwrap().status(), 500);
        let mut received = 0;
        while received < 700 {
            received += String::from_utf8(client.read_chunk().unwrap()).unwrap().matches("content").count();
        }
        next.send(()).unwrap();
        assert!(client.read_chunk().is_err());
        eventually("it is settled", || own(proxy, "k") == (CAPACITY, 0));
        assert_eq!(logged(proxy, "/stream")["cost"]["units"], 0);
    });
}

/// Over HTTP/2 the stream is reset.
#[test]
fn a_stream_over_http2_is_reset() {
    let stream = Stream::start("application/octet-stream", |_| "x".repeat(10));
    let limit = "cost = { reserve = 10, settle = \"response_bytes\" }\nstop_streams = true";
    over_both_stores(&config(limit, &stream.upstream.url()), |proxy| {
        let before = stream.cancelled.load(Ordering::SeqCst);
        let client = Http2::connect(proxy.addr());
        let request = Request::get("http://a/stream").header("x-key", "k").body(()).unwrap();
        let next = stream.next.clone();
        let error = client.block_on(async |sender| {
            let (response, _) = sender.send_request(request, true).unwrap();
            let mut body = response.await.unwrap().into_body();
            loop {
                let _ = next.send(());
                match body.data().await {
                    Some(Ok(data)) => body.flow_control().release_capacity(data.len()).unwrap(),
                    Some(Err(error)) => break error,
                    None => panic!("it has ended as if it were complete"),
                }
            }
        });
        assert!(error.is_reset(), "{error}");
        stopped(proxy, &stream, before);
    });
}

/// A stream within the budget takes what it needs in steps, and ends by itself.
#[test]
fn a_stream_within_the_budget_is_not_touched() {
    let events = 700;
    let event = "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n";
    let body: String = (0..events).map(|_| chunk(event)).collect();
    let usage =
        chunk("data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 4, \"completion_tokens\": 700}}\n\n");
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{body}{usage}0\r\n\r\n"
    );
    let server = Upstream::answering(response);
    let limit = "cost = \"llm_tokens\"\ndefault_output = 10\nstop_streams = true";
    over_both_stores(&config(limit, &server.url()), |proxy| {
        let (parts, is_clean) = read(&mut Client::connect(proxy.addr()), &channel().0);
        let all: String = parts.concat();
        assert!(is_clean && all.matches("content").count() == events && all.ends_with("700}}\n\n"));
        eventually("it is settled", || own(proxy, "k") == (CAPACITY - 704, 0));
        let line = logged(proxy, "/stream");
        assert_eq!(
            (&line["cost"]["units"], &line["error"]),
            (&704.into(), &serde_json::Value::Null),
            "{line}"
        );
    });
}
