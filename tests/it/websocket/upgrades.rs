//! Upgrades to protocols that a route allows: `kubectl exec` uses SPDY/3.1, and `docker exec` sends a body and asks for `tcp`.

use super::*;

/// What `docker exec` sends.
const EXEC: &str = "POST /exec/1/start HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
     Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"Tty\":true}";
const SWITCH_TO_TCP: &str = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

fn proxy(server: &Upstream, upgrades: &str) -> Tidegate {
    proxy_for(server, "", &format!("limits = [\"one\"]\nupgrades = {upgrades}"))
}

#[test]
fn a_client_can_upgrade_to_a_protocol_that_the_route_names() {
    let server = scripted(SWITCH_TO_TCP, |caller| {
        let heard = caller.take(5).unwrap();
        let _ = caller.try_send([b"heard ", &heard[..]].concat());
        let _ = caller.read_to_close();
    });
    let proxy = proxy(&server, "[\"websocket\", \"tcp\", \"SPDY/3.1\"]");
    let (mut client, head) = shake(&proxy, EXEC);
    assert_eq!(head.status(), 101);
    assert_eq!((head.header("connection"), head.header("upgrade")), (Some("upgrade"), Some("tcp")));
    assert_eq!(head.header("content-type"), Some("application/vnd.docker.raw-stream"));
    client.send("hello");
    assert_eq!(client.take(11).unwrap(), b"heard hello");
    let seen = server.requests().pop().unwrap();
    assert_eq!((seen.header("connection"), seen.header("upgrade")), (Some("upgrade"), Some("tcp")));
    assert_eq!(seen.body, b"{\"Tty\":true}");
    // The tunnel holds its slot.
    let (_, denied) = shake(&proxy, EXEC);
    assert_eq!(denied.status(), 429);
    drop(client);
    eventually("the slot is released", || server.open() == 0);
}

#[test]
fn other_upgrades_are_not_forwarded() {
    let server = Upstream::echo();
    for (upgrades, request) in [
        ("[\"SPDY/3.1\"]", EXEC.to_owned()),
        ("[\"tcp\"]", EXEC.replace("HTTP/1.1\r\n", "HTTP/1.0\r\n")),
        ("[\"tcp\"]", EXEC.replace("Connection: Upgrade\r\n", "")),
        ("[]", HANDSHAKE.to_owned()),
        ("[\"tcp\"]", HANDSHAKE.to_owned()),
    ] {
        let proxy = proxy(&server, upgrades);
        let (_, head) = shake(&proxy, &request);
        assert_eq!(head.status(), 200, "{upgrades} {request}");
        let seen = server.requests().pop().unwrap();
        assert_eq!(seen.header("upgrade"), None, "{upgrades} {request}");
    }
}

#[test]
fn a_server_can_switch_only_to_the_requested_protocol() {
    for upgrade in ["h2c", "tcp, h2c", "tcp\r\nUpgrade: h2c"] {
        let server =
            Upstream::answering(SWITCH_TO_TCP.replace("Upgrade: tcp", &format!("Upgrade: {upgrade}")));
        let proxy = proxy(&server, "[\"tcp\"]");
        let (_, head) = shake(&proxy, EXEC);
        assert_eq!(head.status(), 502, "{upgrade}");
    }
}

/// RFC 9110 §15.5.22.
#[test]
fn a_required_upgrade_is_named_to_the_client() {
    let server = Upstream::answering(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
    );
    let proxy = proxy(&server, "[]");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let response = client.get("/", &[]);
        assert_eq!(response.status(), 426);
        assert_eq!(
            (response.header("connection"), response.header("upgrade")),
            (Some("upgrade"), Some("websocket"))
        );
    }
    let response = client.get("/", &["Connection: close"]);
    assert_eq!(response.header("connection"), Some("upgrade, close"));
}

/// A response that names no protocol has the `Connection` header of any response.
#[test]
fn a_426_without_upgrade_keeps_the_connection() {
    let server = Upstream::answering(
        "HTTP/1.1 426 Upgrade Required\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
    );
    let proxy = proxy(&server, "[]");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let response = client.get("/", &[]);
        assert_eq!((response.status(), response.header("connection")), (426, None));
    }
    assert_eq!(client.get("/", &["Connection: close"]).header("connection"), Some("close"));
}
