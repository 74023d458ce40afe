//! How connections end: clients that close one side, and answers that come before the request is whole.

use std::io::Read as _;
use std::time::Duration;

use crate::support::{Caller, Client, Tidegate, Upstream, eventually, get};

const MIB: usize = 1024 * 1024;

fn before(server: &Upstream) -> Tidegate {
    Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()))
}

/// Answers each request with its target, after a while.
fn slowly(caller: &mut Caller) {
    while let Ok(Some(request)) = caller.request() {
        // Long enough for the proxy to see the end of what the client sends.
        std::thread::sleep(Duration::from_millis(200));
        let target =
            request.start.split(' ').nth(1).unwrap().to_owned() + &String::from_utf8_lossy(&request.body);
        let _ =
            caller.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}", target.len()));
    }
}

#[test]
fn a_client_that_closes_its_sending_side_gets_its_answer() {
    let server = Upstream::scripted(slowly);
    let proxy = before(&server);
    for (requests, answers) in [
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
        for piece in requests {
            client.send(piece);
            // So that a body comes apart from its head; together it comes in the other cases.
            std::thread::sleep(Duration::from_millis(20));
        }
        client.finish();
        for answer in answers {
            assert_eq!(client.read().text(), *answer, "{requests:?}");
        }
        client.expect_close();
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_long_answer_reaches_a_client_that_has_closed_its_sending_side() {
    const LENGTH: usize = 16 * MIB;
    let server = Upstream::answering(
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes(), &vec![b'x'; LENGTH]]
            .concat(),
    );
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.finish();
    client.read_head().unwrap().unwrap();
    // It takes pauses, so that the proxy has to wait with what it has.
    for _ in 0..8 {
        assert_eq!(client.take(LENGTH / 8).unwrap().len(), LENGTH / 8);
        std::thread::sleep(Duration::from_millis(50));
    }
    client.expect_close();
}

#[test]
fn an_own_answer_reaches_a_client_that_has_closed_its_sending_side() {
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
fn half_a_body_is_none_whoever_closes_behind_it() {
    let server = Upstream::echo();
    let proxy = before(&server);
    for half in ["Content-Length: 100000\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{half}"));
        eventually("the server is asked", || server.open() == 1);
        client.finish();
        let answer = client.read_to_close();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
        eventually("the server is free", || server.open() == 0);
    }
    assert!(server.requests().is_empty());
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
}

/// Sends a large body and only then looks for the answer, as many clients do.
#[track_caller]
fn upload(proxy: &Tidegate, framing: &str, body: &[u8]) -> u16 {
    let mut client = Client::connect(proxy.addr());
    client.send(format!("POST /upload HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
    client.try_send(body).expect("the proxy takes what is sent, also when nobody wants it");
    let answer = client.read_response("POST").expect("the answer arrives");
    client.expect_close();
    answer.status()
}

#[test]
fn an_answer_that_comes_early_reaches_a_client_that_sends_everything_first() {
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
    // Nobody waits for the rest of a body who does not want it: the end is there at once.
    let mut client = Client::connect(own.addr());
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\nsome"));
    assert_eq!(client.read().status(), 404);
    client.expect_close();
}

#[test]
fn a_broken_response_is_seen_to_be_broken_whatever_its_end_is() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
    });
    let proxy = before(&server);
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.0\r\n\r\n");
    let mut read = Vec::new();
    let error = client.stream().read_to_end(&mut read).expect_err("the connection is reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{}", String::from_utf8_lossy(&read));
}

#[test]
fn what_is_sent_without_end_is_not_read_without_end() {
    let proxy = Tidegate::start("[[routes]]\npath = \"/elsewhere\"\nrespond = { status = 200 }\n");
    let client = Client::connect(proxy.addr());
    let mut stream = client.stream();
    let length = 1024 * MIB;
    std::io::Write::write_all(
        &mut stream,
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
    )
    .unwrap();
    let piece = vec![b'x'; MIB];
    let sent = (0..1024).take_while(|_| std::io::Write::write_all(&mut stream, &piece).is_ok()).count();
    // What the proxy reads, and what lies in the kernel's buffers.
    assert!(sent < 128, "{sent} MiB");
    let _ = stream.read(&mut [0; 512]);
}
