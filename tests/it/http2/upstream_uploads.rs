//! Uploads to HTTP/2 servers that read them slowly or not at all.

use std::future::poll_fn;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Response;

use super::*;
use crate::support::{Http2Server, patience};

/// More than the flow-control windows and the buffers hold.
const LARGE: usize = 16 << 20;

/// An event of a request at a server.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Received,
    Reset,
    /// A complete body of this length.
    Read(usize),
}

/// A server that reports its events. It reads only the body of `/read`. It sends no response to `/silent`, a complete one
/// to `/early`, and the beginning of one to other paths.
fn server() -> (Http2Server, Receiver<Seen>) {
    let (report, events) = channel();
    let report = Arc::new(Mutex::new(report));
    let server = Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let report = report.lock().unwrap().clone();
        async move {
            let path = request.uri().path().to_owned();
            let mut body = request.into_body();
            report.send(Seen::Received).unwrap();
            if path == "/silent" {
                let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
                return report.send(Seen::Reset).unwrap();
            }
            let kind = if path == "/call" { "application/grpc" } else { "text/plain" };
            let response = Response::builder().header("content-type", kind).body(()).unwrap();
            let mut said = respond.send_response(response, false).unwrap();
            said.send_data("so".into(), path == "/early").unwrap();
            if path != "/read" {
                let _ = poll_fn(|cx| said.poll_reset(cx)).await;
                return report.send(Seen::Reset).unwrap();
            }
            let mut length = 0;
            while let Some(Ok(data)) = body.data().await {
                length += data.len();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            report.send(Seen::Read(length)).unwrap();
            said.send_data(" it is".into(), true).unwrap();
        }
    });
    (server, events)
}

fn proxy_for(server: &Http2Server, lines: &str) -> Tidegate {
    Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n{lines}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    ))
}

/// Sends the head of a request with a large body, and as much of the body as the proxy reads.
fn upload(proxy: &Tidegate, path: &str) -> Client {
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"));
    client.stream().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = client.try_send(vec![b'x'; LARGE]);
    client
}

fn upload_over_http2(sender: &mut SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let asked = request("POST", path).body(()).unwrap();
    let (response, mut body) = sender.send_request(asked, false).unwrap();
    body.send_data(vec![b'x'; LARGE].into(), true).unwrap();
    (response, body)
}

#[test]
fn an_upload_to_a_server_that_reads_nothing_is_504() {
    let (server, events) = server();
    let proxy = proxy_for(&server, "stall_timeout = \"500ms\"");
    assert_eq!(upload(&proxy, "/silent").read().status(), 504);
    assert_eq!(
        [events.recv_timeout(patience()).unwrap(), events.recv_timeout(patience()).unwrap()],
        [Seen::Received, Seen::Reset]
    );
    let client = Http2::connect(proxy.addr());
    let status = client.block_on(async |sender| {
        let (response, _body) = upload_over_http2(sender, "/silent");
        response.await.unwrap().status()
    });
    assert_eq!(status, 504);
}

#[test]
fn a_started_response_is_cut_off_when_the_upload_stalls() {
    let (server, events) = server();
    let proxy = proxy_for(&server, "stall_timeout = \"500ms\"");
    for path in ["/begun", "/call"] {
        let mut client = upload(&proxy, path);
        let response = client.read_to_close();
        assert!(!response.ends_with(b"0\r\n\r\n"), "{path}: the response is truncated");
        assert_eq!(events.recv_timeout(patience()).unwrap(), Seen::Received);
        assert_eq!(events.recv_timeout(patience()).unwrap(), Seen::Reset, "{path}");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_client_disconnect_resets_the_upload() {
    let (server, events) = server();
    let proxy = proxy_for(&server, "");
    for path in ["/silent", "/begun", "/call"] {
        let client = Http2::connect(proxy.addr());
        let _asked = client.block_on(async |sender| upload_over_http2(sender, path));
        assert_eq!(events.recv_timeout(patience()).unwrap(), Seen::Received);
        drop(client);
        assert_eq!(events.recv_timeout(patience()).unwrap(), Seen::Reset, "{path}");
    }
}

#[test]
fn an_unread_upload_is_reset_after_a_complete_response() {
    let (server, events) = server();
    let proxy = proxy_for(&server, "stall_timeout = \"500ms\"");
    let mut client = upload(&proxy, "/early");
    assert_eq!(client.read_response("POST").unwrap().text(), "so");
    assert_eq!(events.recv_timeout(patience()).unwrap(), Seen::Received);
    assert_eq!(events.recv_timeout(patience()).unwrap(), Seen::Reset);
    client.expect_close();
}

#[test]
fn a_server_that_is_still_reading_is_not_stalled() {
    let (server, events) = server();
    let proxy = proxy_for(&server, "stall_timeout = \"2s\"");
    let mut client = Client::connect(proxy.addr());
    client.send("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    for _ in 0..10 {
        // Real time is tested: each pause is shorter than the stall timeout, and all together are longer.
        std::thread::sleep(Duration::from_millis(250));
        client.send("x");
    }
    assert_eq!(client.read().text(), "so it is");
    assert_eq!(
        [events.recv_timeout(patience()).unwrap(), events.recv_timeout(patience()).unwrap()],
        [Seen::Received, Seen::Read(10)]
    );
}
