//! Bodies that are larger than their route lets pass.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::support::{Client, PATIENCE, Tidegate, Upstream, eventually};

/// A route for bodies of eight bytes at most, and a limit of ten requests that shows how many were counted.
fn small(server: &Upstream) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.ten]\nrate = \"10/hour\"\n[[routes]]\npath = \"/*\"\nmax_body = 8\nlimits = [\"ten\"]\n\
         upstream = \"{}\"\n",
        server.url()
    ))
}

#[test]
fn a_body_that_says_it_is_too_large_goes_nowhere_and_costs_nothing() {
    let server = Upstream::echo();
    let proxy = small(&server);
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789");
    assert_eq!((answer.status(), answer.header("connection")), (413, None));
    assert!(answer.text().contains("the request body is larger than the route allows"), "{}", answer.text());
    // What is short is read, and the connection goes on.
    let passed = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n12345678");
    assert_eq!(passed.echoed().text(), "12345678");
    assert_eq!(passed.header("x-ratelimit-remaining"), Some("9"));
    for length in ["100000", "99999999999999999999999"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert!(matches!(client.read().status(), 400 | 413));
        client.expect_close();
    }
    let mut asking = Client::connect(proxy.addr());
    asking.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    let answer = asking.read();
    assert_eq!((answer.status(), answer.interim.len()), (413, 0));
    asking.expect_close();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_body_that_turns_out_too_large_is_cut() {
    let (cut, was_cut) = channel();
    let cut = Mutex::new(cut);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
        let _ = cut.lock().unwrap().send(());
    });
    let proxy = small(&server);
    let chunked = |client: &mut Client, chunks: &str| {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
        client.read()
    };
    let mut client = Client::connect(proxy.addr());
    assert_eq!(chunked(&mut client, "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n").status(), 200);
    let answer = chunked(&mut client, "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n");
    assert_eq!((answer.status(), answer.header("connection")), (413, Some("close")));
    client.expect_close();
    // The server has not been told that this was all of it.
    was_cut.recv_timeout(PATIENCE).unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_answer_that_has_begun_is_cut_with_its_request() {
    let server = Upstream::scripted(|caller| {
        let Ok(Some(_)) = caller.read_head() else { return };
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        let _ = caller.read_to_close();
    });
    let proxy = small(&server);
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n");
    assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
    assert_eq!(client.take(4).unwrap(), b"half");
    client.send("5\r\n56789\r\n");
    client.expect_close();
    eventually("the server's connection is closed", || server.open() == 0);
}
