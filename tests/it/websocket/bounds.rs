//! `max_tunnels_per_client`: how many tunnels a client has open to an upstream.

use super::*;
use crate::consumers::setup::ConsumersFile;

const CLIENT: &str = "127.0.0.2";
const OTHER: &str = "127.0.0.3";

/// A file with an upstream that has these lines.
fn file(server: &Upstream, upstream: &str) -> String {
    format!(
        "workers = 2\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\naccess = \"json\"\n[upstreams.u]\nservers = [\"{}\"]\n{upstream}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    )
}

/// The number of refused tunnels in the metrics.
fn refusals(proxy: &Tidegate) -> u64 {
    proxy.metric("tidegate_upstream_client_refusals_total{upstream=\"u\",bound=\"max_tunnels_per_client\"}")
}

/// Says something, and hears it from the server.
fn echoes(socket: &mut WebSocket<TcpStream>) -> bool {
    socket.send(Said::text("hello")).unwrap();
    socket.read().unwrap() == Said::text("hello")
}

#[test]
fn a_client_has_a_bounded_number_of_tunnels_over_all_workers() {
    let server = echo();
    let proxy = Tidegate::start(&file(&server, "max_tunnels_per_client = 2"));
    let mut held: Vec<_> = (0..2).map(|_| open_from(CLIENT, &proxy, &[]).unwrap()).collect();
    // Each connection may be one of any worker.
    for _ in 0..5 {
        assert_eq!(open_from(CLIENT, &proxy, &[]).unwrap_err(), 503);
    }
    let refused = Client::connect_from(CLIENT, proxy.addr()).ask(HANDSHAKE);
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    assert!(refused.text().contains("too many open tunnels"), "{}", refused.text());
    let line = proxy.accesses(6).remove(5);
    assert!(line.contains("\"error\":\"max_tunnels_per_client\""), "{line}");
    assert_eq!((refusals(&proxy), server.connections()), (6, 2));
    let mut other = open_from(OTHER, &proxy, &[]).unwrap();
    assert!(echoes(&mut other) && echoes(&mut held[0]));
    drop(held.pop());
    eventually("the client may open another tunnel", || {
        open_from(CLIENT, &proxy, &[]).map(|socket| held.push(socket)).is_ok()
    });
    assert_eq!(open_from(CLIENT, &proxy, &[]).unwrap_err(), 503);
}

#[test]
fn only_open_tunnels_count() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let is_tunnel = request.header("sec-websocket-version") == Some("13");
            let no = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
            let _ = caller.try_send(if is_tunnel { SWITCH } else { no });
        }
    });
    let proxy = Tidegate::start(&file(&server, "max_tunnels_per_client = 1"));
    // Neither ordinary requests nor refused handshakes.
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", &HANDSHAKE.replace("Version: 13", "Version: 12")] {
        for _ in 0..3 {
            assert_eq!(Client::connect(proxy.addr()).ask(request).status(), 403);
        }
    }
    let (tunnel, head) = shake(&proxy, HANDSHAKE);
    assert_eq!(head.status(), 101);
    assert_eq!(Client::connect(proxy.addr()).get("/", &[]).status(), 403);
    assert_eq!(shake(&proxy, HANDSHAKE).1.status(), 503);
    drop(tunnel);
    eventually("the tunnel is closed", || shake(&proxy, HANDSHAKE).1.status() == 101);
}

#[test]
fn streams_of_extended_connect_count() {
    let server = echo();
    let proxy = Tidegate::start(&file(&server, "max_tunnels_per_client = 2"));
    let client = Http2::connect(proxy.addr());
    client.block_on(async |sender| {
        let mut open = async || {
            let (opened, stream) = sender.send_request(connect("/chat", "websocket"), false).unwrap();
            let opened = opened.await.unwrap();
            (opened.status().as_u16(), opened, stream)
        };
        let (first, second, third) = (open().await, open().await, open().await);
        assert_eq!((first.0, second.0, third.0), (200, 200, 503));
    });
}

#[test]
fn with_overload_tunnels_are_counted_by_the_fair_key() {
    let server = echo();
    let consumers = ConsumersFile::new("[a]\ncredentials = [\"k-a\"]\n[b]\ncredentials = [\"k-b\"]\n");
    let overload = "overload = { fair_by = \"consumer\" }";
    let config = |upstream: &str| file(&server, upstream) + &consumers.table("unknown = \"anonymous\"");
    let proxy = Tidegate::start(&config(overload));
    let of = |key| [("x-api-key", key)];
    // The default, with the same consumer at several addresses.
    let froms = [CLIENT, OTHER].into_iter().cycle();
    let mut held: Vec<_> = froms.take(64).map(|from| open_from(from, &proxy, &of("k-a")).unwrap()).collect();
    assert_eq!(open_from("127.0.0.4", &proxy, &of("k-a")).unwrap_err(), 503);
    held.push(open_from(CLIENT, &proxy, &of("k-b")).unwrap());
    // Tunnels that are open count after a reload.
    proxy.reload(&config(&format!("{overload}\nmax_tunnels_per_client = 65")));
    held.push(open_from(CLIENT, &proxy, &of("k-a")).unwrap());
    assert_eq!(open_from(CLIENT, &proxy, &of("k-a")).unwrap_err(), 503);
    proxy.reload(&config("overload = { mode = \"shadow\", fair_by = \"consumer\" }"));
    held.push(open_from(CLIENT, &proxy, &of("k-a")).unwrap());
    assert!(held.iter_mut().all(echoes));
}
