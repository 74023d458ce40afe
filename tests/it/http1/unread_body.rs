//! Responses of the proxy's own to requests whose body has not come.

use std::time::{Duration, Instant};

use crate::support::frames::{END_HEADERS, HEADERS};
use crate::support::{Client, Frames, Tidegate, block};

/// Refuses requests for each of its reasons.
fn refusing() -> Tidegate {
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

const ALL: [(&str, u16); 6] =
    [("/429", 429), ("/403", 403), ("/413", 413), ("/404", 404), ("/200", 200), ("/%zz", 400)];

#[test]
fn a_refusal_does_not_wait_for_the_body() {
    let proxy = refusing();
    let _ = Client::connect(proxy.addr()).get("/429", &[]);
    for (path, status) in ALL {
        let mut client = Client::connect(proxy.addr());
        let began = Instant::now();
        client.send(post(path, 1000));
        let answer = client.read();
        assert_eq!(answer.status(), status, "{path}");
        // Far sooner than a second, but for a busy machine.
        assert!(began.elapsed() < Duration::from_millis(900), "{path}: {:?}", began.elapsed());
        // The response does not wait for a body that does not come.
        client.expect_close();
        assert!(began.elapsed() < Duration::from_secs(6), "{path}: {:?}", began.elapsed());
    }
}

#[test]
fn over_http_2_neither() {
    let proxy = refusing();
    let _ = Client::connect(proxy.addr()).get("/429", &[]);
    let mut client = Frames::connect(proxy.addr(), &[]);
    for (number, (path, status)) in (0_u32..).zip(ALL) {
        let stream = 2 * number + 1;
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
            ("content-length", "1000"),
        ];
        let began = Instant::now();
        client.send(HEADERS, END_HEADERS, stream, &block(&head));
        assert_eq!(client.status(stream), Some(Ok(status)), "{path}");
        assert!(began.elapsed() < Duration::from_millis(900), "{path}: {:?}", began.elapsed());
    }
}

#[test]
fn a_body_that_drips_is_not_read_for_longer_than_a_second() {
    let proxy = refusing();
    let mut client = Client::connect(proxy.addr());
    let began = Instant::now();
    client.send(post("/404", 60_000));
    assert_eq!(client.read().status(), 404);
    // Each byte in time for the one before, and all of them together not.
    let mut sender = client.stream().try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        use std::io::Write as _;
        while sender.write_all(b"x").is_ok() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    client.expect_close();
    let ended = began.elapsed();
    assert!(ended >= Duration::from_millis(900) && ended < Duration::from_secs(6), "{ended:?}");
    let _ = client.stream().shutdown(std::net::Shutdown::Both);
    dripping.join().unwrap();
}

#[test]
fn a_body_that_comes_within_a_second_keeps_the_connection() {
    let proxy = refusing();
    for (path, status) in [("/403", 403), ("/413", 413), ("/404", 404), ("/200", 200)] {
        let mut client = Client::connect(proxy.addr());
        for pause in [0, 0, 300] {
            client.send(post(path, 1000));
            if pause > 0 {
                // The response is there before the body.
                let answer = client.read();
                assert_eq!((answer.status(), answer.header("connection")), (status, None), "{path}");
                client.send(vec![b'x'; 400]);
                std::thread::sleep(Duration::from_millis(pause));
                client.send(vec![b'x'; 600]);
            } else {
                client.send(vec![b'x'; 1000]);
                let answer = client.read();
                assert_eq!((answer.status(), answer.header("connection")), (status, None), "{path}");
            }
        }
        // The connection is as good as any: idle for a while, and then asked again.
        std::thread::sleep(Duration::from_millis(1_200));
        assert_eq!(client.get("/200", &[]).text(), "ok", "{path}");
    }
}

#[test]
fn a_connection_that_closes_anyway_is_not_read_on() {
    let proxy = refusing();
    let mut client = Client::connect(proxy.addr());
    let began = Instant::now();
    client.send("POST /404 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!(client.read().status(), 404);
    client.expect_close();
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}
