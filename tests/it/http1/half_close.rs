//! Clients that close their sending side, and early responses.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use crate::support::{Client, Tidegate, Upstream, eventually, get, patience, settled};

const MIB: usize = 1024 * 1024;

#[test]
fn a_half_closed_client_gets_its_response() {
    let (release, released) = channel();
    let released = Mutex::new(released);
    // Responds with the target and the body of each request, once that is released.
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            let text =
                request.start.split(' ').nth(1).unwrap().to_owned() + &String::from_utf8_lossy(&request.body);
            let _ = released.lock().unwrap().recv_timeout(patience());
            let _ =
                caller.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()));
        }
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    for (pieces, responses) in [
        (&["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"][..], &["/a"][..]),
        (&["GET /a HTTP/1.0\r\n\r\n"], &["/a"]),
        (&["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"], &["/ahi"]),
        (&["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n", "hi"], &["/ahi"]),
        (
            &["POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"],
            &["/ahi"],
        ),
        (&["GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"], &["/a", "/b"]),
        (&["GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHo"], &["/a"]),
    ] {
        let mut client = Client::connect(proxy.addr());
        for piece in pieces {
            client.send(piece);
            proxy.wait_read();
        }
        client.finish();
        // The server responds after the proxy has read the end of what the client sends.
        proxy.wait_read();
        for response in responses {
            release.send(()).unwrap();
            assert_eq!(client.read().text(), *response, "{pieces:?}");
        }
        client.expect_close();
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_half_closed_client_gets_a_large_response() {
    // More than the buffers between server and client hold.
    const LENGTH: usize = 48 * MIB;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.request();
        let _ = caller.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"));
        let mut stream = caller.stream();
        let piece = vec![b'x'; 64 * 1024];
        while counter.fetch_add(piece.len(), Ordering::SeqCst) < LENGTH && stream.write_all(&piece).is_ok() {}
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.finish();
    client.read_head().unwrap().unwrap();
    // The client does not read until the proxy has to wait for it.
    assert!(settled(&sent) < LENGTH);
    assert_eq!(client.take(LENGTH).unwrap().len(), LENGTH);
    client.expect_close();
}

#[test]
fn a_half_closed_client_gets_a_local_reply() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = { status = 200, body = \"ok\" }\n");
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        let mut client = Client::connect(proxy.addr());
        client.send(request);
        client.finish();
        assert_eq!(client.read().text(), "ok", "{request:?}");
        client.expect_close();
    }
}

#[test]
fn an_incomplete_body_is_never_forwarded_as_complete() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    for half in ["Content-Length: 100000\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{half}"));
        eventually("the request head is forwarded", || server.open() == 1);
        client.finish();
        let response = client.read_to_close();
        let response = String::from_utf8_lossy(&response);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 400 "), "{half:?}: {response}");
        eventually("the upstream connection is closed", || server.open() == 0);
    }
    assert!(server.requests().is_empty());
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
}

/// Sends a large body and only then reads the response, as many clients do.
#[track_caller]
fn upload(proxy: &Tidegate, framing: &str, body: &[u8]) -> u16 {
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST /upload HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
    client.try_send(body).expect("the proxy reads the body, although it is discarded");
    let response = client.read_response("POST").expect("the response arrives");
    client.expect_close();
    response.status()
}

#[test]
fn an_early_response_reaches_a_client_that_sends_everything_first() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.read_head();
        let _ = caller.try_send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
        caller.read_to_close();
    });
    let proxy =
        Tidegate::start(&format!("[[routes]]\npath = \"/upload\"\nupstream = \"{}\"\n", server.url()));
    let own = Tidegate::start("[[routes]]\npath = \"/elsewhere\"\nrespond = { status = 200 }\n");
    let body = vec![b'x'; 16 * MIB];
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let length = format!("Content-Length: {}", body.len());
    assert_eq!(upload(&proxy, &length, &body), 413);
    assert_eq!(upload(&proxy, "Transfer-Encoding: chunked", &chunked), 413);
    assert_eq!(upload(&own, &length, &body), 404);
    assert_eq!(upload(&own, "Transfer-Encoding: chunked", &chunked), 404);
    assert_eq!(upload(&own, "Content-Length: x", &body), 400);
    // The proxy does not wait for the rest of a body that it discards.
    let mut client = Client::connect(own.addr());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\nsome"));
    assert_eq!(client.read().status(), 404);
    client.expect_close();
}

#[test]
fn a_truncated_response_to_http_1_0_resets_the_connection() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.0\r\n\r\n");
    let mut read = Vec::new();
    let error = client.stream().read_to_end(&mut read).expect_err("the connection is reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{}", String::from_utf8_lossy(&read));
}

#[test]
fn an_endless_body_is_not_drained_forever() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/elsewhere\"\nrespond = { status = 200 }\n");
    let client = Client::connect(proxy.addr());
    let mut stream = client.stream();
    let length = 1024 * MIB;
    write!(stream, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").unwrap();
    let piece = vec![b'x'; MIB];
    let sent = (0..1024).take_while(|_| stream.write_all(&piece).is_ok()).count();
    // The proxy reads some of it, and the kernel's buffers hold some.
    assert!(sent < 128, "{sent} MiB");
    let _ = stream.read(&mut [0; 512]);
}
