//! Clients that abuse HTTP/2; for their effect on other clients see [`crate::abuse`].

use super::*;

/// A server that never responds, and a proxy with a local route and a route to this server.
fn silent_upstream() -> (Tidegate, Upstream) {
    let server = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/own\"\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    (proxy, server)
}

/// Asserts that another client is served.
#[track_caller]
fn assert_serves(proxy: &Tidegate) {
    assert_eq!(get(proxy.addr(), "/own", &[]).status(), 200);
}

#[test]
fn silent_connections_are_closed() {
    let (proxy, _server) = listening("idle_timeout = \"400ms\"\nheader_timeout = \"300ms\"");
    // Sends nothing.
    assert!(Frames::silent(proxy.addr()).read_to_close().is_empty());
    // Sends half a preface.
    let mut frames = Frames::silent(proxy.addr());
    frames.raw(b"PRI * HTT").unwrap();
    assert!(frames.read_to_close().is_empty());
    // Sends no settings.
    let mut frames = Frames::silent(proxy.addr());
    frames.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    frames.read_to_close();
    // Sends no request, and an unfinished header block.
    assert_eq!(Frames::connect(proxy.addr(), &[]).end(), Some(0));
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.send(frames::HEADERS, 0, 1, &block(&[(":method", "GET")]));
    frames.read_to_close();
    // Is idle after a response.
    let mut frames = Frames::connect(proxy.addr(), &[]);
    frames.get(1, "/own");
    assert_eq!(frames.status(1), Some(Ok(200)));
    assert_eq!(frames.end(), Some(0));
    assert_serves(&proxy);
}

#[test]
fn pings_do_not_extend_the_idle_timeout() {
    let (proxy, _server) = listening("idle_timeout = \"400ms\"");
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let mut pings = 0;
    // Until the proxy has closed the connection.
    while frames.try_send(frames::PING, 0, 0, b"nonsense").is_ok() && pings < 1000 {
        pings += 1;
        // Real time is tested: pings at intervals, not a flood.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(pings < 1000);
}

#[test]
fn a_stalled_request_body_is_408() {
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
    // The connection stays open.
    assert_eq!(client.ask(request("GET", "/own").body(()).unwrap(), b"").status(), 200);
}

#[test]
fn an_unread_response_is_reset() {
    let server = Upstream::answering(
        [&b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n"[..], &vec![b'x'; 400_000]].concat(),
    );
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nidle_timeout = \"400ms\"\n\
         [[routes]]\npath = \"/own\"\nrespond = {{ status = 200, body = \"own\" }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    // A window of zero for streams; that of the connection is open.
    let mut frames = Frames::connect(proxy.addr(), &[(4, 0)]);
    frames.get(1, "/large");
    assert_eq!(frames.status(1), Some(Ok(200)));
    assert_eq!(frames.status(1), Some(Err(8)), "CANCEL");
    eventually("the upstream connection is closed", || server.open() == 0);
    // A local reply that is not read holds the connection for no longer than the idle timeout.
    let mut frames = Frames::connect(proxy.addr(), &[(4, 0)]);
    frames.get(1, "/own");
    frames.read_to_close();
    assert_serves(&proxy);
}

#[test]
fn repeated_stream_resets_close_the_connection() {
    let (proxy, _server) = silent_upstream();
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let mut resets = 0;
    // The acknowledgement of a ping shows that the proxy has read the request and its reset.
    while resets < 1000 {
        let stream = 2 * resets + 1;
        frames.get(stream, "/");
        let sent = frames.try_send(frames::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        let sent = sent.and_then(|()| frames.try_send(frames::PING, 0, 0, b"nonsense"));
        if sent.is_err() || frames.find(frames::PING).is_none() {
            break;
        }
        resets += 1;
    }
    assert!((101..1000).contains(&resets), "{resets}");
    assert_serves(&proxy);
}

#[test]
fn streams_above_the_maximum_are_refused() {
    let (proxy, server) = silent_upstream();
    let mut frames = Frames::connect(proxy.addr(), &[]);
    for number in 0..140 {
        frames.get(2 * number + 1, "/");
    }
    let refused = frames.find(frames::RST_STREAM).unwrap();
    assert_eq!(refused.payload, 7_u32.to_be_bytes(), "REFUSED_STREAM");
    eventually("the allowed streams are forwarded", || server.received() == 128);
    assert_serves(&proxy);
}
