//! Streams that are stopped when the units of their key are used up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use http::Request;

use super::setup::{CAPACITY, chunk, config, logged, outcome, own};
use crate::support::{Client, Http2, Tidegate, Upstream, eventually, over_both_stores, patience};

/// Tokens after which more are taken.
const STEP: usize = 256;
/// Events that may pass during the round trip of a step.
const IN_FLIGHT: usize = 100;

/// A stream that goes on until it is cancelled, each part once the test has allowed it.
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

/// Reads a stream to its end, and allows each next part. Returns what has arrived, and whether it has ended cleanly.
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

/// What is written in the log about the stop, and that the exchange with the server was cancelled.
fn stopped(proxy: &Tidegate, stream: &Stream, before: usize) {
    let line = logged(proxy, "/stream");
    assert_eq!((&line["status"], line["error"].is_string()), (&200.into(), true), "{line}");
    // The server's next parts find no connection.
    eventually("the exchange with the server is cancelled", || {
        let _ = stream.next.send(());
        stream.cancelled.load(Ordering::SeqCst) > before
    });
}

/// The form of an event with a token of content, and the last event of the proxy.
const DIALECTS: [(&str, &str, &str, &str); 5] = [
    (
        "OpenAI chat",
        "text/event-stream",
        "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n",
        "\"code\": \"rate_limit_exceeded\"}}\n\ndata: [DONE]\n\n",
    ),
    (
        "OpenAI responses",
        "text/event-stream",
        "event: response.output_text.delta\ndata: {\"type\": \"response.output_text.delta\", \"sequence_number\": NUMBER, \"delta\": \"a\"}\n\n",
        "\"code\": \"rate_limit_exceeded\"}}\n\n",
    ),
    (
        "Anthropic",
        "text/event-stream",
        "event: content_block_delta\ndata: {\"type\": \"content_block_delta\", \"index\": 0, \"delta\": {\"type\": \"text_delta\", \"text\": \"a\"}}\n\n",
        "\"error\": {\"type\": \"rate_limit_error\", \"message\": \"the rate limit of this request is used up\"}}\n\n",
    ),
    (
        "Gemini",
        "text/event-stream",
        "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"a\"}]}}]}\n\n",
        "\"status\": \"RESOURCE_EXHAUSTED\"}}\n\n",
    ),
    (
        "Ollama",
        "application/x-ndjson",
        "{\"message\": {\"content\": \"a\"}, \"done\": false}\n",
        "{\"error\": \"the rate limit of this request is used up\"}\n",
    ),
];

#[test]
fn a_stream_ends_with_an_error_of_its_dialect() {
    for (name, media_type, event, end) in DIALECTS {
        let stream = Stream::start(media_type, move |number| event.replace("NUMBER", &number.to_string()));
        let limit = "cost = \"llm_tokens\"\ndefault_output = 10\nstop_streams = true";
        over_both_stores(&config(limit, &stream.upstream.url()), |proxy| {
            let before = stream.cancelled.load(Ordering::SeqCst);
            let (parts, is_clean) = read(&mut Client::connect(proxy.addr()), &stream.next);
            assert!(is_clean, "{name}: it ends cleanly");
            let (last, events) = parts.split_last().unwrap();
            assert!(last.ends_with(end), "{name}: {last}");
            let prefix = &event[..event.find("NUMBER").unwrap_or(event.len())];
            assert!(events.iter().all(|one| one.starts_with(prefix)), "{name}");
            if name == "OpenAI responses" {
                assert!(last.contains(&format!("\"sequence_number\": {}", events.len())), "{last}");
            }
            let capacity = usize::try_from(CAPACITY).unwrap();
            // Four tokens of input are estimated.
            let bounds = capacity - 4..=capacity + STEP + IN_FLIGHT;
            println!("{name}: {} events of a budget of {CAPACITY}", events.len());
            assert!(bounds.contains(&events.len()), "{name}: {} events", events.len());
            eventually("it is settled", || own(proxy, "k") == (0, 0));
            let line = logged(proxy, "/stream");
            let cost = line["cost"]["units"].as_u64().unwrap();
            assert_eq!(cost, events.len() as u64 + 4, "{name}: {line}");
            assert_eq!(outcome(proxy, "settled"), cost);
            stopped(proxy, &stream, before);
        });
    }
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
