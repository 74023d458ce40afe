//! What becomes of a client that uses HTTP/2 to wear a server out; what becomes of others meanwhile is in
//! [`crate::abuse`].

use super::*;

/// Asserts that somebody else is served.
#[track_caller]
fn assert_serves(proxy: &Tidegate) {
    assert_eq!(get(proxy.addr(), "/own", &[]).status(), 200);
}

#[test]
fn silence_has_an_end() {
    let (proxy, _server) = listening("idle_timeout = \"400ms\"\nheader_timeout = \"300ms\"");
    // Says nothing at all.
    assert!(Frames::silent(proxy.addr()).read_to_close().is_empty());
    // Does not finish its preface.
    let mut frames = Frames::silent(proxy.addr());
    frames.raw(b"PRI * HTT").unwrap();
    assert!(frames.read_to_close().is_empty());
    // Sends no settings.
    let mut frames = Frames::silent(proxy.addr());
    frames.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    frames.read_to_close();
    // Asks for nothing; and for something, but does not finish to ask.
    assert_eq!(Frames::connect(proxy.addr(), &[]).end(), Some(0));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.send(frames::HEADERS, 0, 1, &block(&[(":method", "GET")]));
    frames.read_to_close();
    // Has been answered.
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/own");
    assert_eq!(frames.status(1), Some(Ok(200)));
    assert_eq!(frames.end(), Some(0));
    assert_serves(&proxy);
}

#[test]
fn pings_do_not_keep_a_connection_that_does_nothing() {
    let (proxy, _server) = listening("idle_timeout = \"400ms\"");
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let mut pings = 0;
    // Until the proxy does not listen any more.
    while frames.try_send(frames::PING, 0, 0, b"nonsense").is_ok() && pings < 1000 {
        pings += 1;
        // A ping now and then, not a flood.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(pings < 1000);
}

#[test]
fn a_body_that_does_not_come_is_408() {
    let (proxy, server) = listening("body_timeout = \"300ms\"");
    let client = Http2::connect(proxy.addr());
    let status = client.block_on(async |sender| {
        let (response, mut body) =
            sender.send_request(request("POST", "/").body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(b"part"), false).unwrap();
        response.await.unwrap().status()
    });
    assert_eq!(status, 408);
    assert!(server.requests().is_empty());
    // The connection goes on.
    assert_eq!(client.ask(request("GET", "/own").body(()).unwrap(), b"").status(), 200);
}

#[test]
fn an_answer_that_is_not_read_is_given_up() {
    let server = Upstream::answering(
        [&b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n"[..], &vec![b'x'; 400_000]].concat(),
    );
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nidle_timeout = \"400ms\"\n\
         [[routes]]\npath = \"/own\"\nrespond = {{ status = 200, body = \"own\" }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    // No window at all for answers; the connection's own is open.
    let mut frames = Frames::connect(proxy.addr(), &[(4, 0)]);
    frames.get(1, "/large");
    assert_eq!(frames.status(1), Some(Ok(200)));
    assert_eq!(frames.status(1), Some(Err(8)), "CANCEL");
    eventually("the upstream is left alone", || server.open() == 0);
    // A small one is out of the upstream's hands at once, and holds the connection no longer than idleness may.
    let mut frames = Frames::connect(proxy.addr(), &[(4, 0)]);
    frames.get(1, "/own");
    frames.read_to_close();
    assert_serves(&proxy);
}

#[test]
fn requests_that_are_taken_back_one_by_one_end_the_connection() {
    let server = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/own\"\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let mut asked = 0;
    // Each only after the proxy has looked at the one before, which its answer to a ping shows.
    while asked < 1000 {
        let stream = 2 * asked + 1;
        frames.get(stream, "/");
        let sent = frames.try_send(frames::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        let sent = sent.and_then(|()| frames.try_send(frames::PING, 0, 0, b"nonsense"));
        if sent.is_err() || frames.find(frames::PING).is_none() {
            break;
        }
        asked += 1;
    }
    assert!((101..1000).contains(&asked), "{asked}");
    assert_serves(&proxy);
}

#[test]
fn no_more_streams_are_open_than_may_be() {
    let server = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/own\"\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    for number in 0..140 {
        frames.get(2 * number + 1, "/");
    }
    let refused = frames.find(frames::RST_STREAM).unwrap();
    assert_eq!(refused.payload, 7_u32.to_be_bytes(), "REFUSED_STREAM");
    eventually("those that may be are there", || server.requests().len() == 128);
    assert_serves(&proxy);
}
