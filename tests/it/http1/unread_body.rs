//! Local replies to requests whose body has not arrived.

use std::time::{Duration, Instant};

use crate::support::frames::{END_HEADERS, HEADERS};
use crate::support::{Client, Frames, Tidegate, block, is_within, scaled};

/// A proxy with a route for each kind of local reply.
fn local_replies() -> Tidegate {
    Tidegate::start(
        "[limits.one]\nrate = \"1/hour\"\n[limits.keyed]\nrate = \"10/hour\"\nkey = \"header:x-key\"\n\
         on_missing = \"deny\"\n\
         [[routes]]\npath = \"/429\"\nlimits = [\"one\"]\nrespond = { status = 200 }\n\
         [[routes]]\npath = \"/403\"\nlimits = [\"keyed\"]\nrespond = { status = 200 }\n\
         [[routes]]\npath = \"/413\"\nmax_body = 8\nrespond = { status = 200 }\n\
         [[routes]]\npath = \"/200\"\nrespond = { status = 200, body = \"ok\" }\n",
    )
}

fn post(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

/// Less than the second for which the proxy drains a body.
const AT_ONCE: Duration = Duration::from_millis(900);

const ALL: [(&str, u16); 6] =
    [("/429", 429), ("/403", 403), ("/413", 413), ("/404", 404), ("/200", 200), ("/%zz", 400)];

#[test]
fn a_local_reply_does_not_wait_for_the_body() {
    let proxy = local_replies();
    let _ = Client::connect(proxy.addr()).get("/429", &[]);
    for (path, status) in ALL {
        let is_at_once = is_within(AT_ONCE, || {
            let mut client = Client::connect(proxy.addr());
            let began = Instant::now();
            client.send(post(path, 1000));
            assert_eq!(client.read().status(), status, "{path}");
            let responded = began.elapsed();
            client.expect_close();
            assert!(began.elapsed() < scaled(Duration::from_secs(6)), "{path}: {:?}", began.elapsed());
            responded
        });
        assert!(is_at_once, "{path}");
    }
}

#[test]
fn a_local_reply_over_http_2_does_not_wait_for_the_body() {
    let proxy = local_replies();
    let _ = Client::connect(proxy.addr()).get("/429", &[]);
    let mut client = Frames::connect(proxy.addr(), &[]);
    let mut streams = (1..).step_by(2);
    for (path, status) in ALL {
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
            ("content-length", "1000"),
        ];
        let is_at_once = is_within(AT_ONCE, || {
            let (stream, began) = (streams.next().unwrap(), Instant::now());
            client.send(HEADERS, END_HEADERS, stream, &block(&head));
            assert_eq!(client.status(stream), Some(Ok(status)), "{path}");
            began.elapsed()
        });
        assert!(is_at_once, "{path}");
    }
}

#[test]
fn a_dripping_body_is_drained_for_at_most_a_second() {
    let proxy = local_replies();
    let mut client = Client::connect(proxy.addr());
    let began = Instant::now();
    client.send(post("/404", 60_000));
    assert_eq!(client.read().status(), 404);
    // Real time is tested: there is never a long pause between bytes.
    let mut sender = client.stream().try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        use std::io::Write as _;
        while sender.write_all(b"x").is_ok() && began.elapsed() < scaled(Duration::from_secs(20)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    client.expect_close();
    let ended = began.elapsed();
    assert!(ended >= Duration::from_millis(900) && ended < scaled(Duration::from_secs(6)), "{ended:?}");
    let _ = client.stream().shutdown(std::net::Shutdown::Both);
    dripping.join().unwrap();
}

#[test]
fn a_body_that_arrives_within_a_second_keeps_the_connection() {
    let proxy = local_replies();
    let mut clients = Vec::new();
    for (path, status) in [("/403", 403), ("/413", 413), ("/404", 404), ("/200", 200)] {
        let mut client = Client::connect(proxy.addr());
        for pause in [0, 0, 300] {
            client.send(post(path, 1000));
            if pause > 0 {
                // The response comes before the body.
                let response = client.read();
                assert_eq!((response.status(), response.header("connection")), (status, None), "{path}");
                client.send(vec![b'x'; 400]);
                // Real time is tested: a part of the second.
                std::thread::sleep(Duration::from_millis(pause));
                client.send(vec![b'x'; 600]);
            } else {
                client.send(vec![b'x'; 1000]);
                let response = client.read();
                assert_eq!((response.status(), response.header("connection")), (status, None), "{path}");
            }
        }
        clients.push((path, client));
    }
    // Real time is tested: the timeout of draining no longer applies to the idle connections.
    std::thread::sleep(Duration::from_millis(1_200));
    for (path, mut client) in clients {
        assert_eq!(client.get("/200", &[]).text(), "ok", "{path}");
    }
}

#[test]
fn a_body_is_not_drained_before_connection_close() {
    let proxy = local_replies();
    assert!(is_within(AT_ONCE, || {
        let mut client = Client::connect(proxy.addr());
        let began = Instant::now();
        client.send("POST /404 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n");
        assert_eq!(client.read().status(), 404);
        client.expect_close();
        began.elapsed()
    }));
}
