//! The real Envoy in front, with the files of config/envoy.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::support::{Message, Tidegate, Upstream, WebServer, eventually, get};

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/envoy").join(name);
    fs::read_to_string(path).unwrap()
}

/// Envoy, its rate-limit service, and a server that has used 400 tokens for each request.
struct Edge {
    envoy: WebServer,
    service: Tidegate,
    _server: Upstream,
}

impl Edge {
    #[track_caller]
    fn start() -> Self {
        let server = Upstream::scripted(|caller| {
            while let Ok(Some(_)) = caller.request() {
                let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-tokens-used: 400\r\n\r\nok";
                if caller.try_send(response).is_err() {
                    return;
                }
            }
        });
        let service = example("tidegate.toml").replace("127.0.0.1:8081", "127.0.0.1:0");
        let service = Tidegate::start(&format!("{service}\n[admin]\nlisten = \"127.0.0.1:0\"\n"));
        let port = |address: SocketAddr| address.port().to_string();
        let (service_port, server_port) = (port(service.addr()), port(server.addr()));
        let ready = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let envoy = WebServer::start("envoy", ready, |directory, port| {
            // A test can't depend on how fast a busy machine is.
            let file = example("envoy.yaml").replace("timeout: 0.1s", "timeout: 9s");
            let ports =
                [("10000", port.to_string()), ("8081", service_port.clone()), ("9000", server_port.clone())];
            let file = ports.iter().fold(file, |file, (from, to)| {
                file.replace(&format!("port_value: {from}"), &format!("port_value: {to}"))
            });
            fs::write(directory.join("envoy.yaml"), file).unwrap();
            let arguments = "-c envoy.yaml --concurrency 1 --disable-hot-restart --log-level error";
            arguments.split(' ').map(str::to_owned).collect()
        });
        let edge = Self { envoy, service, _server: server };
        eventually("Envoy asks", || {
            edge.get("/", &[]);
            edge.service.decisions("per-address", "allowed") > 0
        });
        edge
    }

    #[track_caller]
    fn get(&self, path: &str, headers: &[&str]) -> Message {
        get(self.envoy.addr(IpAddr::V4(Ipv4Addr::LOCALHOST)), path, headers)
    }
}

#[test]
fn envoy_limits_by_our_decisions_and_writes_its_own_headers() {
    let edge = Edge::start();
    let answers: Vec<Message> = (0..7).map(|_| edge.get("/checkout", &[])).collect();
    let statuses: Vec<u16> = answers.iter().map(Message::status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    // Of two descriptors Envoy shows the one with less left. A bucket with a burst has no unit that Envoy knows.
    assert_eq!(answers[0].header("x-ratelimit-limit"), Some("5, 5;w=60;name=\"checkout\""));
    let remaining: Vec<&str> =
        answers.iter().filter_map(|response| response.header("x-ratelimit-remaining")).collect();
    assert_eq!(remaining, ["4", "3", "2", "1", "0", "0", "0"]);
    let wait = |response: &Message| response.header("retry-after").map(|wait| wait.parse::<u64>().unwrap());
    assert_eq!(wait(&answers[0]), None);
    assert!(wait(&answers[6]).is_some_and(|wait| (1..=60).contains(&wait)), "{:?}", answers[6].headers);
    assert_eq!(edge.get("/other", &[]).status(), 200);
}

#[test]
fn a_stream_is_checked_first_and_charged_at_its_end() {
    let edge = Edge::start();
    let chat = |user: &str| edge.get("/chat", &[&format!("x-user: {user}")]).status();
    // 400 tokens each, which are known afterwards, of 1,000: the third goes over, and later ones are denied.
    assert_eq!([chat("ann"), chat("ann"), chat("ann")], [200; 3]);
    eventually("the user has none left", || chat("ann") == 429);
    // All of them are charged, also those beyond the limit.
    let series = r#"tidegate_settled_units_total{limit="tokens",outcome="extra"} 1200"#;
    eventually("all tokens are charged", || {
        get(edge.service.admin(), "/metrics", &[]).text().lines().any(|line| line == series)
    });
    assert_eq!(chat("bob"), 200);
}

#[test]
fn without_the_service_envoy_decides_by_its_failure_mode() {
    let edge = Edge::start();
    let Edge { envoy, service, _server } = edge;
    service.stop();
    let address = envoy.addr(IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert!((0..10).all(|_| get(address, "/checkout", &[]).status() == 200));
}
