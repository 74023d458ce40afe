//! Bodies of requests to servers of HTTP/2 that do not take them, or take their time.

use std::future::poll_fn;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Response;

use super::*;
use crate::support::Http2Server;

/// More than a server takes that does not read.
const LARGE: usize = 16 << 20;

/// What a server has seen of a request.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Asked,
    /// It has been taken back.
    Reset,
    /// So many bytes, to their end.
    Read(usize),
}

/// A server that tells what it sees. It reads the body of `/read` and of nothing else; to `/silent` it says nothing, to
/// `/early` all, and to others how its answer begins.
fn server() -> (Http2Server, Receiver<Seen>) {
    let (tell, told) = channel();
    let tell = Arc::new(Mutex::new(tell));
    let server = Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let tell = tell.lock().unwrap().clone();
        async move {
            let path = request.uri().path().to_owned();
            let mut body = request.into_body();
            tell.send(Seen::Asked).unwrap();
            if path == "/silent" {
                let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
                return tell.send(Seen::Reset).unwrap();
            }
            let kind = if path == "/call" { "application/grpc" } else { "text/plain" };
            let answer = Response::builder().header("content-type", kind).body(()).unwrap();
            let mut said = respond.send_response(answer, false).unwrap();
            said.send_data("so".into(), path == "/early").unwrap();
            if path != "/read" {
                let _ = poll_fn(|cx| said.poll_reset(cx)).await;
                return tell.send(Seen::Reset).unwrap();
            }
            let mut length = 0;
            while let Some(Ok(data)) = body.data().await {
                length += data.len();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            tell.send(Seen::Read(length)).unwrap();
            said.send_data(" it is".into(), true).unwrap();
        }
    });
    (server, told)
}

fn before(server: &Http2Server, lines: &str) -> Tidegate {
    Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n{lines}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    ))
}

/// Asks with a large body, and sends as much of it as can be sent.
fn upload(proxy: &Tidegate, path: &str) -> Client {
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"));
    client.stream().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = client.try_send(vec![b'x'; LARGE]);
    client
}

fn upload_over_http2(sender: &mut SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let asked = request("POST", path).body(()).unwrap();
    let (answer, mut body) = sender.send_request(asked, false).unwrap();
    body.send_data(vec![b'x'; LARGE].into(), true).unwrap();
    (answer, body)
}

#[test]
fn a_server_that_takes_nothing_is_504() {
    let (server, told) = server();
    let proxy = before(&server, "stall_timeout = \"500ms\"");
    assert_eq!(upload(&proxy, "/silent").read().status(), 504);
    assert_eq!(
        [told.recv_timeout(PATIENCE).unwrap(), told.recv_timeout(PATIENCE).unwrap()],
        [Seen::Asked, Seen::Reset]
    );
    let client = Http2::connect(proxy.addr());
    let status = client.block_on(async |sender| {
        let (answer, _body) = upload_over_http2(sender, "/silent");
        answer.await.unwrap().status()
    });
    assert_eq!(status, 504);
}

#[test]
fn one_that_has_begun_to_answer_is_left_too() {
    let (server, told) = server();
    let proxy = before(&server, "stall_timeout = \"500ms\"");
    for path in ["/begun", "/call"] {
        let mut client = upload(&proxy, path);
        let answer = client.read_to_close();
        assert!(!answer.ends_with(b"0\r\n\r\n"), "what is cut is no answer");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Seen::Asked);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Seen::Reset, "{path}");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_client_that_goes_takes_along_what_its_server_has_not_taken() {
    let (server, told) = server();
    let proxy = before(&server, "");
    for path in ["/silent", "/begun", "/call"] {
        let client = Http2::connect(proxy.addr());
        let _asked = client.block_on(async |sender| upload_over_http2(sender, path));
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Seen::Asked);
        drop(client);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Seen::Reset, "{path}");
    }
}

#[test]
fn what_nobody_takes_after_the_whole_answer_is_given_up() {
    let (server, told) = server();
    let proxy = before(&server, "stall_timeout = \"500ms\"");
    let mut client = upload(&proxy, "/early");
    assert_eq!(client.read_response("POST").unwrap().text(), "so");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Seen::Asked);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Seen::Reset);
    client.expect_close();
}

#[test]
fn a_server_that_still_reads_need_not_say_more_yet() {
    let (server, told) = server();
    let proxy = before(&server, "stall_timeout = \"1s\"");
    let mut client = Client::connect(proxy.addr());
    client.send("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    for _ in 0..10 {
        // In all longer than a server may be silent that owes us something.
        std::thread::sleep(Duration::from_millis(200));
        client.send("x");
    }
    assert_eq!(client.read().text(), "so it is");
    assert_eq!(
        [told.recv_timeout(PATIENCE).unwrap(), told.recv_timeout(PATIENCE).unwrap()],
        [Seen::Asked, Seen::Read(10)]
    );
}
