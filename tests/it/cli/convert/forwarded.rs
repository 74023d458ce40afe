//! What servers get is the same from nginx and from tidegate with the converted configuration.

use std::net::{Ipv4Addr, SocketAddr};

use super::origin::nginx;
use super::traffic::converted;
use crate::support::{Upstream, get};

/// The target and the headers that a server gets for a request.
fn received(address: SocketAddr, path: &str, host: &str) -> (String, Vec<(String, String)>) {
    let names = ["host", "x-real-ip", "x-origin", "x-name", "x-name-of-request"];
    let response = get(address, path, &[&format!("Host: {host}"), "X-Real-IP: 192.0.2.1"]);
    let request = response.echoed();
    let target = request.start.split(' ').nth(1).unwrap_or_default().to_owned();
    let header = |name: &&str| Some(((*name).to_owned(), request.header(name)?.to_owned()));
    (target, names.iter().filter_map(header).collect())
}

#[test]
fn servers_get_the_same_paths_and_headers_from_nginx() {
    let upstream = Upstream::echo();
    let server = nginx("forwarded.conf", &upstream);
    let tidegate = converted("nginx", &server, "nginx.conf");
    for path in [
        "/",
        "/x?a=1",
        "/whole/",
        "/whole/a/b?c",
        "/part",
        "/part/",
        "/part/a?b",
        "/partly",
        "/bare/a/b?c",
        "/within/x",
        "/within/deep",
        "/within/deep/a",
        "/slow/a",
        "/held",
        "/held?a",
        "/held/",
        "/held/a/b?c",
        "/held-fast",
        "/held%20fast",
        "/named",
        "/named/a",
        "/named.d/a",
        "/below/",
        "/below/a/b",
        "/deep",
        "/deep/a",
        "/deeply/a",
        "/only?a",
        "/only/a",
    ] {
        for host in ["a.test", "B.test:8080"] {
            let [expected, found] = [server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr()]
                .map(|address| received(address, path, host));
            // Host is not compared: nginx forwards the name in lower case without the port, and tidegate as the client has sent it.
            let without_host = |(target, mut headers): (String, Vec<(String, String)>)| {
                headers.retain(|(name, _)| name != "host");
                (target, headers)
            };
            assert_eq!(without_host(found), without_host(expected), "{path} {host}");
        }
    }
    // No path of tidegate leaves the one that replaces a prefix.
    let [expected, found] = [server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr()]
        .map(|address| received(address, "/deep../a", "a.test").0);
    assert_eq!((&*expected, &*found), ("/v4/../a", "/deep../a"));
    // A path without a slash is no path: nginx sends it to the server, and tidegate does not.
    for path in ["/bare", "/barely"] {
        assert_eq!(get(tidegate.addr(), path, &["Host: a.test"]).status(), 501, "{path}");
    }
    assert_eq!(get(server.addr(Ipv4Addr::LOCALHOST.into()), "/bare", &["Host: a.test"]).status(), 500);
}
