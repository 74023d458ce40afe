//! HTTP/2, gRPC and `WebSockets`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::sync::Notify;
use tungstenite::Message as Said;
use tungstenite::client::IntoClientRequest as _;

use super::setup::{
    RESERVE, case, chunked, config, config_with, json, logged, ok, settled_by, unknown, until_charged,
    upstream,
};
use crate::support::{Client, Http2, Http2Server, Tidegate, Upstream, over_both_stores, patience};

/// Over HTTP/2 clients get the same, and are charged the same.
#[test]
fn clients_of_http2() {
    let cases = [
        case("trailer", chunked("", &["a"], "X-Cost: 7\r\nX-Other: 1\r\n"), 7),
        case("no-trailer", ok("", "ok"), RESERVE),
        case("head", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", RESERVE).method("HEAD"),
    ];
    let server = upstream(&cases);
    for keeps in [false, true] {
        let limit = format!("{}\nkeep_cost_header = {keeps}", settled_by("trailer:x-cost"));
        over_both_stores(&config(&limit, &server.url()), |proxy| {
            let client = Http2::connect(proxy.addr());
            let ask = |path: &str| {
                let request = Request::get(format!("http://a/{path}")).header("x-key", path);
                client.ask(request.body(()).unwrap(), b"")
            };
            let trailers = ask("trailer").trailers.unwrap();
            assert_eq!((trailers.contains_key("x-cost"), trailers.len()), (keeps, 1 + usize::from(keeps)));
            until_charged(proxy, "trailer", 7);
            assert_eq!(ask("no-trailer").text(), "ok");
            until_charged(proxy, "no-trailer", RESERVE);
            assert_eq!(unknown(proxy, "absent"), 1);
        });
    }
}

/// A server that speaks HTTP/2: `/trailers` has the cost in trailers, `/head` in the head; `/reset` resets the stream before a response,
/// `/cut` after a part of it once `cut` is notified, and `/refused` refuses it. `/length` ends its stream once `cut` is notified, after
/// all bytes that it announces.
fn server(cut: &Arc<Notify>) -> Http2Server {
    let cut = Arc::clone(cut);
    Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let cut = Arc::clone(&cut);
        async move {
            let head = || Response::builder().header("content-type", "application/json");
            match request.uri().path() {
                "/trailers" => {
                    let mut body = respond.send_response(head().body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::from_static(b"{}"), false).unwrap();
                    let mut trailers = HeaderMap::new();
                    trailers.insert("x-cost", HeaderValue::from_static("7"));
                    body.send_trailers(trailers).unwrap();
                }
                "/head" => drop(respond.send_response(head().header("x-cost", "9").body(()).unwrap(), true)),
                "/cut" => {
                    let mut body = respond.send_response(head().body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::from_static(b"{\"usage\": "), false).unwrap();
                    // The client has the head by then: a reset would discard it.
                    cut.notified().await;
                    body.send_reset(h2::Reason::INTERNAL_ERROR);
                }
                "/length" => {
                    let text = r#"{"model": "a", "usage": {"prompt_tokens": 4, "completion_tokens": 3}}"#;
                    let head = head().header("content-length", text.len()).body(()).unwrap();
                    let mut body = respond.send_response(head, false).unwrap();
                    body.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
                    cut.notified().await;
                    body.send_data(Bytes::new(), true).unwrap();
                }
                "/reset" => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                _ => respond.send_reset(h2::Reason::REFUSED_STREAM),
            }
        }
    })
}

#[test]
fn servers_of_http2() {
    let server = server(&Arc::default());
    let tables = format!("[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\nretries = 0\n", server.url());
    for (source, path, charged) in [
        ("trailer:x-cost", "/trailers", 7),
        ("header:x-cost", "/head", 9),
        ("trailer:x-cost", "/reset", RESERVE),
        ("header:x-cost", "/reset", RESERVE),
        ("json:/usage/cost", "/reset", RESERVE),
        // The server says that it has not processed it.
        ("header:x-cost", "/refused", 0),
    ] {
        over_both_stores(&config_with(&settled_by(source), "upstream = \"u\"", &tables), |proxy| {
            let client = Http2::connect(proxy.addr());
            let request = Request::post(format!("http://a{path}")).header("x-key", "k");
            let answer = client.ask(request.body(()).unwrap(), b"{}");
            let is_answered = charged != RESERVE && charged > 0;
            assert_eq!(answer.status(), if is_answered { 200 } else { 502 }, "{path}");
            until_charged(proxy, "k", charged);
            assert_eq!(logged(proxy, path)["cost"]["units"], charged, "{path}");
        });
    }
}

/// A body that the server cuts has no cost, and the client sees that it is cut.
#[test]
fn a_server_of_http2_cuts_the_body() {
    let cut = Arc::default();
    let server = server(&cut);
    let tables = format!("[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\nretries = 0\n", server.url());
    let limit = settled_by("json:/usage/cost");
    over_both_stores(&config_with(&limit, "upstream = \"u\"", &tables), |proxy| {
        let mut client = Client::connect(proxy.addr());
        client.send("POST /cut HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
        cut.notify_one();
        let is_complete = loop {
            match client.read_chunk() {
                Ok(chunk) if chunk.is_empty() => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        assert!(!is_complete, "the response ends as if it were complete");
        until_charged(proxy, "k", RESERVE);
        let line = logged(proxy, "/cut");
        assert_eq!((&line["cost"]["units"], line["error"].is_string()), (&RESERVE.into(), true), "{line}");
    });
}

/// A client over HTTP/1.1 has the whole response with its last byte, before the server ends the stream.
#[test]
fn a_body_of_known_length_is_complete_before_its_stream_ends() {
    let cut = Arc::default();
    let server = server(&cut);
    let tables = format!("[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n", server.url());
    let limit = "cost = \"llm_tokens\"\ndefault_output = 10";
    over_both_stores(&config_with(limit, "upstream = \"u\"", &tables), |proxy| {
        let mut client = Client::connect(proxy.addr());
        client.send("POST /length HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(client.read_response("POST").unwrap().status(), 200);
        until_charged(proxy, "k", 7);
        let line = logged(proxy, "/length");
        assert_eq!((&line["cost"]["units"], &line["error"]), (&7.into(), &serde_json::Value::Null), "{line}");
        cut.notify_one();
    });
}

/// A server of gRPC calls, whose status and cost are in trailers; the path has the status and the cost.
fn calls() -> Http2Server {
    Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        let path = request.uri().path().to_owned();
        let mut parts = path[1..].split('/');
        let (status, cost) = (parts.next().unwrap(), parts.next());
        let head = Response::builder().header("content-type", "application/grpc");
        let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(b"\0\0\0\0\0"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_str(status).unwrap());
        if let Some(cost) = cost {
            trailers.insert("x-cost", HeaderValue::from_str(cost).unwrap());
        }
        body.send_trailers(trailers).unwrap();
    })
}

#[test]
fn grpc_calls_tell_their_cost_in_trailers() {
    let server = calls();
    let tables = format!("[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n", server.url());
    over_both_stores(&config_with(&settled_by("trailer:x-cost"), "upstream = \"u\"", &tables), |proxy| {
        let client = Http2::connect(proxy.addr());
        for (path, charged) in [
            ("/0/7", 7),
            ("/0/250", 250),
            ("/0", RESERVE),
            // NOT_FOUND and INTERNAL are 404 and 500, which are not charged, unless there is a cost.
            ("/5", 0),
            ("/5/8", 8),
            ("/13/0", 0),
        ] {
            let request = Request::post(format!("http://a{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .header("x-key", path.replace('/', "-"));
            let answer = client.ask(request.body(()).unwrap(), b"\0\0\0\0\0");
            let trailers = answer.trailers.unwrap();
            assert_eq!((answer.response.status().as_u16(), trailers.get("x-cost")), (200, None), "{path}");
            assert!(path.starts_with(&format!("/{}", trailers["grpc-status"].to_str().unwrap())));
            until_charged(proxy, &path.replace('/', "-"), charged);
            assert_eq!(logged(proxy, path)["cost"]["units"], charged, "{path}");
        }
        assert_eq!(unknown(proxy, "absent"), 1);
    });
}

/// A server that sends each message three times.
fn chat() -> Upstream {
    Upstream::scripted(|caller| {
        let Ok(mut socket) = tungstenite::accept(caller.stream()) else { return };
        while let Ok(message) = socket.read() {
            for _ in 0..3 {
                if message.is_text() && socket.send(message.clone()).is_err() {
                    return;
                }
            }
        }
    })
}

fn talk(proxy: &Tidegate, key: &str) {
    let stream = std::net::TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    let mut request = format!("ws://{}/chat-{key}", proxy.addr()).into_client_request().unwrap();
    request.headers_mut().insert("x-key", key.parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, stream).unwrap();
    socket.send(Said::text("hello")).unwrap();
    for _ in 0..3 {
        assert_eq!(socket.read().unwrap(), Said::text("hello"));
    }
    assert_eq!(super::setup::own(proxy, key).1, RESERVE);
    drop(socket);
}

#[test]
fn tunnels_settle_by_bytes_and_seconds() {
    let server = chat();
    // A frame of five bytes has a header of two from the server, and of six from a client.
    for (source, charged) in [("response_bytes", Some(21)), ("request_bytes", Some(11)), ("seconds", None)] {
        over_both_stores(&config(&settled_by(source), &server.url()), |proxy| {
            talk(proxy, "k");
            let line = logged(proxy, "/chat-k");
            let units = line["cost"]["units"].as_u64().unwrap();
            assert!(charged.map_or((1..60).contains(&units), |charged| charged == units), "{source}: {line}");
            until_charged(proxy, "k", units);
            assert_eq!(super::setup::all_unknown(proxy), 0);
        });
    }
    // There is nothing else in a tunnel: the estimate stays.
    for source in ["json:/usage/cost", "trailer:x-cost"] {
        over_both_stores(&config(&settled_by(source), &server.url()), |proxy| {
            talk(proxy, "k");
            until_charged(proxy, "k", RESERVE);
        });
    }
}

/// A handshake that the server rejects is an ordinary response.
#[test]
fn a_rejected_handshake_is_a_response() {
    let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n\r\n";
    let forbidden = json("{}").replace("200 OK", "403 Forbidden");
    super::setup::play_all(&settled_by("seconds"), &[case("rejected", forbidden, 0).request(handshake)]);
}
