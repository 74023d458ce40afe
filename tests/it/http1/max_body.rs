//! Bodies above `max_body`.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::support::{Client, Tidegate, Upstream, eventually, patience};

/// A route for bodies of eight bytes at most, and a limit of ten requests that shows how many were counted.
fn small(server: &Upstream) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.ten]\nrate = \"10/hour\"\n[[routes]]\npath = \"/*\"\nmax_body = 8\nlimits = [\"ten\"]\n\
         upstream = \"{}\"\n",
        server.url()
    ))
}

#[test]
fn a_content_length_above_max_body_is_rejected_and_not_charged() {
    let server = Upstream::echo();
    let proxy = small(&server);
    let mut client = Client::connect(proxy.addr());
    let response = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789");
    assert_eq!((response.status(), response.header("connection")), (413, None));
    assert!(
        response.text().contains("the request body is larger than the route allows"),
        "{}",
        response.text()
    );
    // The short body is drained, and the connection is reused.
    let passed = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n12345678");
    assert_eq!(passed.echoed().text(), "12345678");
    assert_eq!(passed.header("x-ratelimit-remaining"), Some("9"));
    for length in ["100000", "99999999999999999999999"] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert!(matches!(client.read().status(), 400 | 413), "{length}");
        client.expect_close();
    }
    let mut expecting = Client::connect(proxy.addr());
    expecting.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    let response = expecting.read();
    assert_eq!((response.status(), response.interim.len()), (413, 0));
    expecting.expect_close();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_chunked_body_above_max_body_is_cut_off() {
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
    let response = chunked(&mut client, "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n");
    assert_eq!((response.status(), response.header("connection")), (413, Some("close")));
    client.expect_close();
    // The server sees a truncated body, not its end.
    was_cut.recv_timeout(patience()).unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_started_response_is_cut_off_with_its_request() {
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
