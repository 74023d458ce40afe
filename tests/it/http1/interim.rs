//! Interim responses of servers, such as `103 Early Hints`.

use std::sync::mpsc::{Sender, channel};

use crate::support::{Client, Tidegate, Upstream, curl};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Hop: 1\r\nConnection: x-hop\r\nX-Inner: 1\r\n\r\n";
const FINAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that sends these interim responses at once, and the final one when it is told to.
fn held(interim: String) -> (Upstream, Sender<()>) {
    let (release, held) = channel();
    let held = std::sync::Mutex::new(held);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            caller.send(&interim);
            let _ = held.lock().unwrap().recv();
            if caller.try_send(FINAL).is_err() {
                return;
            }
        }
    });
    (server, release)
}

#[test]
fn early_hints_arrive_before_the_response() {
    let (server, release) =
        held(format!("HTTP/1.1 100 Continue\r\n\r\n{HINTS}HTTP/1.1 102 Processing\r\n\r\n"));
    // A request that holds a slot is sent by a task of its own.
    let slots = "[limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 9\n";
    for limits in ["", "limits = [\"slots\"]\n"] {
        let proxy = Tidegate::start(&format!(
            "{slots}[[routes]]\npath = \"/*\"\nupstream = \"{}\"\nresponse_headers = {{ remove = [\"x-inner\"] }}\n{limits}",
            server.url()
        ));
        let mut client = Client::connect(proxy.addr());
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let hints = client.read_head().unwrap().unwrap();
            assert_eq!(hints.start, "HTTP/1.1 103 Early Hints");
            assert_eq!(hints.headers, [("link".to_owned(), "</a.css>; rel=preload".to_owned())]);
            assert_eq!(client.read_head().unwrap().unwrap().start, "HTTP/1.1 102 Processing");
            release.send(()).unwrap();
            let response = client.read();
            assert_eq!((response.text(), response.interim.len()), ("ok", 0));
        }
    }
}

#[test]
fn names_of_their_headers_have_the_case_of_the_listener() {
    let (server, release) = held(HINTS.repeat(2));
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nheader_case = \"title\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    release.send(()).unwrap();
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..2 {
        let hints = client.read_head().unwrap().unwrap();
        assert_eq!((&*hints.start, &*hints.headers[0].0), ("HTTP/1.1 103 Early Hints", "Link"));
    }
}

#[test]
fn at_most_16_interim_responses_of_64_kib_are_forwarded() {
    let large = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "a".repeat(30_000));
    for (interim, forwarded) in [(HINTS.repeat(20), 16), (large.repeat(3), 2)] {
        let (server, release) = held(interim);
        let proxy = Tidegate::forwarding_to(&server.url());
        release.send(()).unwrap();
        let response = Client::connect(proxy.addr()).get("/", &[]);
        assert_eq!((response.status(), response.interim.len()), (200, forwarded));
    }
}

#[test]
fn clients_without_interim_responses_get_none() {
    let (server, release) = held(HINTS.to_owned());
    let proxy = Tidegate::forwarding_to(&server.url());
    release.send(()).unwrap();
    let response = Client::connect(proxy.addr()).ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!((response.status(), response.interim.len(), response.header("link")), (200, 0, None));
    release.send(()).unwrap();
    let (status, _, body) = curl(&["--http2-prior-knowledge", &proxy.url("/")]);
    assert_eq!((status, &*body), (200, "ok"));
}
