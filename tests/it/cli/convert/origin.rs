//! What the tests with real origins have in common.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::repository;
use crate::support::{Upstream, WebServer, Wire, connect_from, eventually};

/// A request that finds out whether a server is ready.
pub const READY: &[u8] = b"GET /ready HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n";
/// How much later than planned requests may be sent.
pub const MARGIN: Duration = Duration::from_millis(300);
/// How long the server holds responses to `/slow`.
pub const HOLD: Duration = Duration::from_millis(600);

/// A server that responds to `/slow` after [`HOLD`], and to `/missing` with 404.
pub fn slow_upstream() -> Upstream {
    raise_priority();
    Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/slow") {
                thread::sleep(HOLD);
            }
            let status = if request.start.contains("/missing") { "404 Not Found" } else { "200 OK" };
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")).is_err() {
                return;
            }
        }
    })
}

/// Lets this thread, and the threads and processes that it starts later, run before others where the user may do that: other
/// tests on the same CPUs must not delay servers that are compared by the clock.
fn raise_priority() {
    let _ = rustix::process::setpriority_process(None, -10);
}

/// nginx with a file of this folder.
pub fn nginx(file: &str, upstream: &Upstream) -> WebServer {
    WebServer::start("nginx", READY, |directory, port| {
        configure(file, directory.join("nginx.conf"), port, upstream);
        ["-p", directory.to_str().unwrap(), "-c", "nginx.conf", "-e", "stderr"].map(str::to_owned).to_vec()
    })
}

/// `HAProxy` with a file of this folder.
pub fn haproxy(file: &str, upstream: &Upstream) -> WebServer {
    WebServer::start("haproxy", READY, |directory, port| {
        configure(file, directory.join("haproxy.cfg"), port, upstream);
        ["-db", "-f", "haproxy.cfg"].map(str::to_owned).to_vec()
    })
}

/// Traefik with a dynamic configuration of this folder, which it has read.
pub fn traefik(file: &str, upstream: &Upstream) -> WebServer {
    let server = WebServer::start("traefik", READY, |directory, port| {
        configure(file, directory.join("dynamic.yaml"), port, upstream);
        let entry = format!("--entryPoints.web.address=127.0.0.1:{port}");
        let provider = "--providers.file.filename=dynamic.yaml";
        let quiet =
            ["--global.checkNewVersion=false", "--global.sendAnonymousUsage=false", "--log.level=ERROR"];
        [entry, provider.to_owned()].into_iter().chain(quiet.map(str::to_owned)).collect()
    });
    // Until then it responds with 404.
    let status = || {
        let address = server.addr(Ipv4Addr::LOCALHOST.into());
        let mut wire = Wire::over(connect_from("127.0.0.1", address).unwrap());
        wire.send(READY);
        wire.read_response("GET").unwrap().status()
    };
    eventually("Traefik has its configuration", || status() == 200);
    server
}

/// Writes a file of this folder with the addresses of a listener and of a server.
fn configure(file: &str, to: impl AsRef<Path>, port: u16, upstream: &Upstream) {
    let text = fs::read_to_string(repository().join("tests/it/cli/convert").join(file)).unwrap();
    let text = text.replace("LISTEN", &format!("127.0.0.1:{port}"));
    fs::write(to, text.replace("UPSTREAM", &upstream.addr().to_string())).unwrap();
}
