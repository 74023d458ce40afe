//! Clients that use HTTP/2 to wear a server out: each is stopped, or costs little, and others are served all the
//! while.

use super::*;

/// Asserts that somebody else is served.
#[track_caller]
fn assert_serves(proxy: &Tidegate) {
    assert_eq!(get(proxy.addr(), "/own", &[]).status(), 200);
}

const ENHANCE_YOUR_CALM: u32 = 11;

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
fn requests_that_are_taken_back_at_once_end_the_connection() {
    let (proxy, server) = listening("");
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let head = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let mut flood = Vec::new();
    for number in 0..2000 {
        flood.extend(frames::frame(
            frames::HEADERS,
            frames::END_STREAM | frames::END_HEADERS,
            2 * number + 1,
            &block(&head),
        ));
        flood.extend(frames::frame(frames::RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let _ = frames.raw(&flood);
    assert!(matches!(frames.end(), Some(ENHANCE_YOUR_CALM) | None));
    assert!(server.requests().len() < 300, "{}", server.requests().len());
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
    while asked < 1000 && frames.find(frames::SETTINGS).is_some() {
        let stream = 2 * asked + 1;
        frames.get(stream, "/");
        let sent = frames.try_send(frames::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        if sent.and_then(|()| frames.try_send(frames::SETTINGS, 0, 0, &[])).is_err() {
            break;
        }
        asked += 1;
    }
    assert!((101..1000).contains(&asked), "{asked}");
    assert_serves(&proxy);
}

#[test]
fn streams_that_go_wrong_end_the_connection() {
    let (proxy, _server) = listening("");
    let mut frames = Frames::connect(proxy.addr(), &[]);
    // Each makes the proxy reset a stream by itself: data after the end (CVE-2025-8671).
    for number in 0..200 {
        let stream = 2 * number + 1;
        let head = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/own")];
        let head =
            frames::frame(frames::HEADERS, frames::END_STREAM | frames::END_HEADERS, stream, &block(&head));
        let window = frames::frame(frames::WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes());
        if frames.raw(&[head, window].concat()).is_err() {
            break;
        }
    }
    assert!(matches!(frames.end(), Some(ENHANCE_YOUR_CALM | 1) | None));
    assert_serves(&proxy);
}

#[test]
fn a_head_without_end_ends_the_connection() {
    let (proxy, server) = listening("");
    for part in [&block(&[("x", "y")]).repeat(100)[..], b""] {
        let mut frames = Frames::connect(proxy.addr(), &[]);
        frames.send(
            frames::HEADERS,
            frames::END_STREAM,
            1,
            &block(&[(":method", "GET"), (":scheme", "http")]),
        );
        let flood = frames::frame(frames::CONTINUATION, 0, 1, part).repeat(100);
        for _ in 0..1000 {
            if frames.raw(&flood).is_err() {
                break;
            }
        }
        assert!(frames.end().is_none_or(|code| code != 0));
    }
    assert!(server.requests().is_empty());
    assert_serves(&proxy);
}

#[test]
fn a_head_that_unfolds_to_more_than_may_be_is_431() {
    let (proxy, server) = listening("");
    let before = proxy.memory();
    let mut frames = Frames::connect(proxy.addr(), &[]);
    // A header that the table keeps (RFC 7541 §6.2.1), and then that one again and again, a byte each (§6.1).
    let mut bomb = block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    let value = "v".repeat(3000);
    let mut kept = block(&[("bomb", &value)]);
    kept[0] = 0x40;
    bomb.extend(kept);
    bomb.extend([0xbe].repeat(10_000));
    frames.send(frames::HEADERS, frames::END_STREAM | frames::END_HEADERS, 1, &bomb);
    assert!(matches!(frames.status(1), Some(Ok(431)) | None));
    let grown = proxy.memory().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB");
    assert!(server.requests().is_empty());
    assert_serves(&proxy);
}

/// Frames that have to be answered, or at least looked at, from somebody who reads no answer.
#[test]
fn floods_of_small_frames_take_no_memory() {
    let (proxy, _server) = listening("idle_timeout = \"2s\"");
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let ping = frames::frame(frames::PING, 0, 0, b"nonsense");
    let window = frames::frame(frames::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    let empty = frames::frame(frames::DATA, 0, 1, b"");
    let unknown = frames::frame(0xbe, 0, 0, &[0; 100]);
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    for flood in [settings, ping, window, empty, unknown] {
        let before = proxy.memory();
        let mut frames = Frames::connect(proxy.addr(), &[]);
        frames.send(frames::HEADERS, frames::END_HEADERS, 1, &block(&head));
        frames.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let flood = flood.repeat(1000);
        // Until the proxy stops reading, or closes, or has had enough of it.
        for _ in 0..200 {
            if frames.raw(&flood).is_err() {
                break;
            }
        }
        assert_serves(&proxy);
        let grown = proxy.memory().saturating_sub(before);
        assert!(grown < 8 * 1024, "{grown} KiB after {:?}", &flood[..9]);
    }
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
