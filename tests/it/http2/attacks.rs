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

#[test]
fn heads_that_wait_are_bounded_by_connection_and_by_client() {
    const ATTACKER: &str = "127.0.0.2";
    const FORM: &str = "application/x-www-form-urlencoded";
    let proxy = Tidegate::start(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nbody_timeout = \"1m\"\n\
         [limits.user]\nrate = \"1/hour\"\nkey = \"form:user\"\n\
         [[routes]]\npath = \"/own\"\nrespond = { status = 200 }\n\
         [[routes]]\npath = \"/form\"\nlimits = [\"user\"]\nrespond = { status = 200 }\n",
    );
    // A field that is added to the table (RFC 7541 §6.2.1), and its index (§6.1): one byte for 3,900.
    let mut added = block(&[("x", &*"v".repeat(3_900))]);
    added[0] = 0x40;
    let fields = |field: &[u8]| {
        let start = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/form")];
        [&block(&start)[..], &block(&[("content-type", FORM)]), field, &[0xbe; 6]].concat()
    };
    let send_heads = |connection: &mut Frames| {
        for stream in 0..128 {
            let field = if stream == 0 { &added[..] } else { &[0xbe] };
            connection.send(frames::HEADERS, frames::END_HEADERS, 2 * stream + 1, &fields(field));
        }
        // The first acknowledgement shows that all were read, and the next ones that all were begun.
        let mut refused = 0;
        for _ in 0..3 {
            connection.send(frames::PING, 0, 0, b"nonsense");
            while let Some(frame) = connection.read().filter(|frame| frame.kind != frames::PING) {
                if frame.kind == frames::RST_STREAM {
                    assert_eq!(frame.payload, 7_u32.to_be_bytes(), "REFUSED_STREAM");
                    refused += 1;
                }
            }
        }
        128 - refused
    };
    let connect = || Frames::over(connect_from(ATTACKER, proxy.addr()).unwrap()).begin(&[]);
    let before = proxy.memory();
    let mut connections: Vec<Frames> = (0..24).map(|_| connect()).collect();
    let held: Vec<usize> = connections.iter_mut().map(send_heads).collect();
    let grown = proxy.memory().saturating_sub(before);
    // Each has seven fields of 3,900 bytes, and its memory is a little more.
    let fit = |budget: usize| budget / (7 * 3_900);
    assert!(held.iter().all(|held| *held <= fit(1 << 20)), "{held:?}");
    assert!((fit(16 << 20) / 2..=fit(16 << 20)).contains(&held.iter().sum()), "{held:?}");
    assert!(grown < 40 * 1024, "{grown} KiB for {held:?}");
    // Others are served, and the budget is free again when the connections are closed.
    assert_serves(&proxy);
    let mut other = Frames::connect(proxy.addr(), &[]);
    assert_eq!(send_heads(&mut other), held[0]);
    drop(connections);
    eventually("the budget is free", || send_heads(&mut connect()) == held[0]);
}
