//! Opening, forwarding and closing of WebSocket tunnels.

use super::*;

#[test]
fn messages_pass_both_ways() {
    let server = echo();
    let proxy = proxy_for(&server, "", "");
    let mut socket = open(&proxy).unwrap();
    for said in [Said::text("hello"), Said::binary(vec![7; 3 << 20]), Said::text("and again")] {
        socket.send(said.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), said);
    }
    socket.close(None).unwrap();
    let end = std::iter::repeat_with(|| socket.read()).find_map(Result::err).unwrap();
    assert!(matches!(end, Error::ConnectionClosed), "{end}");
    eventually("the upstream connection is closed", || server.open() == 0);
}

#[test]
fn the_handshake_is_forwarded_without_other_hop_by_hop_headers() {
    let server = scripted(SWITCH, |_| {});
    let proxy = proxy_for(&server, "", "request_headers = { set = { \"x-set\" = \"1\" } }");
    let (_client, head) = shake(&proxy, &HANDSHAKE.replace("Host", "X-Drop: 1\r\nTE: trailers\r\nHost"));
    assert_eq!(head.start, "HTTP/1.1 101 Switching Protocols");
    assert_eq!((head.header("connection"), head.header("upgrade")), (Some("upgrade"), Some("websocket")));
    assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let seen = server.requests().pop().unwrap();
    assert_eq!((seen.header("connection"), seen.header("upgrade")), (Some("upgrade"), Some("websocket")));
    assert_eq!(seen.header("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    assert_eq!((seen.header("te"), seen.header("x-set")), (None, Some("1")));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[test]
fn a_tunnel_holds_one_slot_until_it_closes() {
    let server = echo();
    let proxy = proxy_for(&server, "", "limits = [\"one\"]");
    for _ in 0..2 {
        let mut socket = open(&proxy).unwrap();
        socket.send(Said::text("hello")).unwrap();
        assert_eq!(socket.read().unwrap(), Said::text("hello"));
        assert_eq!(open(&proxy).unwrap_err(), 429);
        drop(socket);
        eventually("the slot is released", || server.open() == 0);
    }
}

#[test]
fn bytes_sent_with_the_handshake_are_not_lost() {
    let server = scripted("", |caller| {
        let _ = caller.try_send(format!("{SWITCH}early"));
        let heard = caller.take(5).unwrap();
        let _ = caller.try_send(heard);
        let _ = caller.read_to_close();
    });
    let proxy = proxy_for(&server, "", "");
    let (mut client, head) = shake(&proxy, &format!("{HANDSHAKE}hasty"));
    assert_eq!(head.status(), 101);
    assert_eq!(client.take(10).unwrap(), b"earlyhasty");
}

#[test]
fn a_half_closed_tunnel_still_receives() {
    let server = scripted(SWITCH, |caller| {
        let all = caller.read_to_close();
        let _ = caller.try_send([b"heard: ", &all[..]].concat());
    });
    let proxy = proxy_for(&server, "", "");
    let (mut client, _) = shake(&proxy, HANDSHAKE);
    client.send("all");
    client.finish();
    assert_eq!(client.read_to_close(), b"heard: all");
}

#[test]
fn closing_one_end_closes_the_other() {
    let server = scripted(SWITCH, |caller| {
        let _ = caller.read_to_close();
    });
    let proxy = proxy_for(&server, "", "");
    let (client, _) = shake(&proxy, HANDSHAKE);
    drop(client);
    eventually("the upstream connection is closed", || server.open() == 0);
    let server = scripted(SWITCH, |_| {});
    let proxy = proxy_for(&server, "", "");
    let (mut client, _) = shake(&proxy, HANDSHAKE);
    client.expect_close();
}

#[test]
fn tunnel_timeout_needs_silence_in_both_directions() {
    let server = scripted(SWITCH, |caller| {
        for _ in 0..6 {
            // Real time is tested: each pause is shorter than the timeout, and all together are longer.
            std::thread::sleep(Duration::from_millis(250));
            let _ = caller.try_send("tick");
        }
        let _ = caller.read_to_close();
    });
    let proxy = proxy_for(&server, "tunnel_timeout = \"1s\"\nidle_timeout = \"100ms\"", "");
    let (mut client, _) = shake(&proxy, HANDSHAKE);
    assert_eq!(client.read_to_close(), b"tick".repeat(6));
    eventually("the upstream connection is closed", || server.open() == 0);
}

#[test]
fn a_tunnel_survives_a_drain_until_shutdown_grace_ends() {
    let server = echo();
    let mut proxy = proxy_for(&server, "", "");
    let mut socket = open(&proxy).unwrap();
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("the listener is closed", || TcpStream::connect(proxy.addr()).is_err());
    socket.send(Said::text("still here")).unwrap();
    assert_eq!(socket.read().unwrap(), Said::text("still here"));
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.wait_log("connections were still open");
    assert!(socket.read().is_err());
}

/// RFC 6455 §4.
#[test]
fn an_invalid_handshake_response_opens_no_tunnel() {
    for (response, status) in [
        (SWITCH.replace("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="), 502),
        (SWITCH.replace("Upgrade: websocket", "Upgrade: h2c"), 502),
        (SWITCH.replace("Upgrade: websocket", "Upgrade: websocket, h2c"), 502),
        (SWITCH.replace("Upgrade: websocket", "Upgrade: h2c, websocket"), 502),
        (SWITCH.replace("Upgrade: websocket", "Upgrade: websocket\r\nUpgrade: h2c"), 502),
        (SWITCH.replace("Connection: Upgrade\r\n", ""), 502),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n".into(), 502),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".into(), 403),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes".into(), 200),
    ] {
        let server = Upstream::answering(response.clone());
        let proxy = proxy_for(&server, "", "");
        let mut client = Client::connect(proxy.addr());
        for _ in 0..2 {
            // The client connection stays usable.
            assert_eq!(client.ask(HANDSHAKE).status(), status, "{response}");
        }
    }
}

/// RFC 9110 §7.8.
#[test]
fn an_incomplete_handshake_is_a_plain_request() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "", "");
    for handshake in [
        HANDSHAKE.replace("WebSocket\r\n", "h2c\r\n"),
        HANDSHAKE.replace("keep-alive, Upgrade", "keep-alive"),
        HANDSHAKE.replace("Sec-WebSocket-Key", "X-Key"),
        HANDSHAKE.replace("GET", "POST"),
        HANDSHAKE.replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        let (_client, head) = shake(&proxy, &handshake);
        assert_eq!(head.status(), 200, "{handshake}");
        let seen = server.requests().pop().unwrap();
        assert_eq!((seen.header("upgrade"), seen.header("connection")), (None, None), "{handshake}");
    }
}

#[test]
fn a_tunnel_is_logged_when_it_closes() {
    let server = echo();
    let proxy = proxy_for(&server, "", "[log]\naccess = \"json\"");
    let mut socket = open(&proxy).unwrap();
    socket.send(Said::text("hello")).unwrap();
    socket.read().unwrap();
    drop(socket);
    let line = proxy.accesses(1).remove(0);
    assert!(line.contains("\"status\":101") && line.contains("\"bytes\":7"), "{line}");
    assert!(line.contains(&format!("\"server\":\"{}\"", server.url())), "{line}");
    assert!(line.contains("\"protocol\":\"HTTP/1.1\"") && line.contains("\"upstream_us\":"), "{line}");
}

#[test]
fn extended_connect_opens_a_tunnel() {
    let server = echo();
    let proxy = proxy_for(&server, "", "limits = [\"one\"]");
    // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3).
    let mut frames = Frames::connect(proxy.addr(), &[]);
    let settings = frames.find(frames::SETTINGS).unwrap().payload;
    assert!(settings.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]), "{settings:?}");
    let client = Http2::connect(proxy.addr());
    // A masked message, as it is sent over the wire.
    let (say, said) = channel();
    std::thread::spawn(move || {
        let mut socket = WebSocket::from_raw_socket(std::io::Cursor::new(Vec::new()), Role::Client, None);
        socket.send(Said::text("over HTTP/2")).unwrap();
        say.send(socket.get_ref().get_ref().clone()).unwrap();
    });
    let hello = Bytes::from(said.recv().unwrap());
    client.block_on(async |sender| {
        let (opened, mut stream) = sender.send_request(connect("/chat", "websocket"), false).unwrap();
        let opened = opened.await.unwrap();
        assert_eq!(opened.status(), 200);
        assert_eq!(opened.headers()["sec-websocket-protocol"], "second");
        for name in ["connection", "upgrade", "sec-websocket-accept"] {
            assert!(!opened.headers().contains_key(name), "{name}");
        }
        stream.send_data(hello, false).unwrap();
        let mut heard = opened.into_body();
        // A text of eleven bytes, unmasked.
        assert_eq!(heard.data().await.unwrap().unwrap(), &b"\x81\x0bover HTTP/2"[..]);
        assert_eq!(open(&proxy).unwrap_err(), 429);
        // END_STREAM closes the tunnel.
        stream.send_data(Bytes::new(), true).unwrap();
        while let Some(rest) = heard.data().await {
            rest.unwrap();
        }
    });
    eventually("the slot is released", || server.open() == 0);
    open(&proxy).unwrap();
}

#[test]
fn a_rejected_extended_connect_has_a_status() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let status = if request.start.contains("/no") { "403 Forbidden" } else { "200 OK" };
            let last = if request.start.contains("/last") { "Connection: close\r\n" } else { "" };
            let _ = caller.try_send(format!("HTTP/1.1 {status}\r\n{last}Content-Length: 2\r\n\r\nhi"));
        }
    });
    let proxy = proxy_for(&server, "", "");
    let client = Http2::connect(proxy.addr());
    for (path, protocol, status) in [
        ("/no", "websocket", 403),
        ("/plain", "websocket", 502),
        ("/last", "websocket", 502),
        ("/", "connect-udp", 405),
    ] {
        let found = client.block_on(async |sender| {
            let (response, _stream) = sender.send_request(connect(path, protocol), false).unwrap();
            response.await.unwrap().status().as_u16()
        });
        assert_eq!(found, status, "{path} {protocol}");
    }
}
