//! Servers on Unix sockets.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use super::setup::{metric, started, started_with};
use crate::support::{Client, Upstream, WebServer, eventually, get};

/// Relays the connections of a Unix socket to a server.
fn listen(path: &Path, server: &Upstream) {
    let (listener, address) = (UnixListener::bind(path).unwrap(), server.addr());
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || relay(stream, address));
        }
    });
}

fn relay(client: UnixStream, address: SocketAddr) {
    let server = TcpStream::connect(address).unwrap();
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (mut from_server, mut to_client) = (server, client);
    let _ = io::copy(&mut from_server, &mut to_client);
    let _ = to_client.shutdown(Shutdown::Both);
}

#[test]
fn requests_and_health_checks_go_to_a_socket() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Upstream::echo());
    let path = directory.path().join("app.sock");
    let url = format!("\"unix:{}\", \"unix:{}.other:/base\"", path.display(), path.display());
    let health =
        "health = { path = \"/healthz\", interval = \"50ms\", unhealthy_after = 1, healthy_after = 1 }";
    let proxy = started(&url, health);
    // There is no socket yet.
    proxy
        .wait_log(&format!("unix:{} is unhealthy: no connection: No such file or directory", path.display()));
    let response = get(proxy.addr(), "/", &[]);
    assert_eq!(response.status(), 502);
    listen(&path, &server);
    let label = format!(",server=\"unix:{}\"", path.display());
    eventually("the server is healthy", || metric(&proxy, "healthy_addresses", &label) == 1);
    proxy.wait_log("is healthy again");
    let response = get(proxy.addr(), "/a?b=1", &["Host: a.test"]);
    assert!(response.text().starts_with("GET /a?b=1 HTTP/1.1"), "{}", response.text());
    assert!(response.text().contains("\r\nhost: a.test\r\n"), "{}", response.text());
    // The second server, with its base path.
    listen(&path.with_extension("sock.other"), &server);
    let from_base = || get(proxy.addr(), "/a", &[]).text().starts_with("GET /base/a HTTP/1.1");
    eventually("the second server gets requests", from_base);
    let checks = server.requests();
    let check = checks.iter().find(|request| request.start.starts_with("GET /healthz")).unwrap();
    assert_eq!(check.header("host"), Some("localhost"));
}

#[test]
fn connections_to_a_socket_are_kept_and_limited() {
    let directory = tempfile::tempdir().unwrap();
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let path = directory.path().join("app.sock");
    listen(&path, &server);
    let url = format!("\"unix:{}\"", path.display());
    let proxy = started_with(1, &url, "max_connections = 1\nmax_pending = 0");
    let mut first = Client::connect(proxy.addr());
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request has arrived", || server.received() == 1);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503);
    release.send(()).unwrap();
    assert_eq!(first.read().status(), 200);
    release.send(()).unwrap();
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    assert_eq!(server.connections(), 1);
}

#[test]
fn failures_of_a_socket_name_it_and_the_cure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let proxy = started(&format!("\"unix:{}\"", path.display()), "");
    let response = get(proxy.addr(), "/", &[]);
    assert_eq!(response.status(), 502);
    assert!(!response.text().contains("app.sock"), "clients see no paths: {}", response.text());
    let log = proxy.wait_log("No such file or directory");
    assert!(log.contains("; no socket is at this path: start the server, or correct the path"), "{log}");
    // A file that no process listens on.
    drop(UnixListener::bind(&path).unwrap());
    let proxy = started(&format!("\"unix:{}\"", path.display()), "");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    proxy.wait_log("Connection refused");
}

#[test]
fn nginx_serves_requests_over_a_socket() {
    const BODY: usize = 1 << 20;
    let ready = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let nginx = WebServer::start("nginx", ready, |directory, port| {
        let path = |name: &str| directory.join(name).display().to_string();
        let text = format!(
            "daemon off; master_process off; user root; pid nginx.pid; events {{}}\n\
             http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n\
             server {{ listen 127.0.0.1:{port}; listen unix:{}; listen unix:{} http2; root {};\n\
             location /echo {{ return 200 \"$request_method $uri $http_host $server_protocol\"; }} }} }}",
            path("h1.sock"),
            path("h2.sock"),
            directory.display(),
        );
        std::fs::write(directory.join("nginx.conf"), text).unwrap();
        std::fs::write(directory.join("large"), vec![b'x'; BODY]).unwrap();
        std::fs::write(directory.join("index.html"), "ready").unwrap();
        ["-p", directory.to_str().unwrap(), "-c", "nginx.conf", "-e", "stderr"].map(str::to_owned).to_vec()
    });
    for (socket, settings, version) in [("h1.sock", "", "1.1"), ("h2.sock", "protocol = \"h2\"", "2.0")] {
        std::fs::set_permissions(nginx.path(socket), std::fs::Permissions::from_mode(0o666)).unwrap();
        let proxy = started(&format!("\"unix:{}\"", nginx.path(socket).display()), settings);
        let response = get(proxy.addr(), "/echo", &["Host: a.test"]);
        assert_eq!(response.text(), format!("GET /echo a.test HTTP/{version}"));
        assert_eq!(get(proxy.addr(), "/large", &[]).body.len(), BODY);
    }
}
