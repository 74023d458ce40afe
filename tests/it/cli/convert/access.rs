//! What an origin refuses is refused by tidegate with the converted configuration, too: requests that the origin refuses must
//! not get through because a restriction was not converted.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use super::origin::{haproxy, nginx, slow_upstream, traefik};
use super::traffic::converted;
use crate::support::{Wire, connect_from};

/// The status that is compared if the connection is closed without a response.
const CLOSED: u16 = 999;

/// The status of the response to a request for a host and a path, with a header line or none.
pub fn status(address: SocketAddr, host: &str, path: &str, header: &str) -> u16 {
    let mut wire = Wire::over(connect_from("127.0.0.1", address).unwrap());
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n"));
    wire.read_response("GET").map_or(CLOSED, |response| response.status())
}

/// Compares an origin with tidegate for all of these hosts, paths and headers. Returns how many requests only the origin
/// admitted, and how many both admitted and refused.
#[track_caller]
pub fn closed_requests_are_refused(
    origin: SocketAddr,
    tidegate: SocketAddr,
    (hosts, paths, headers): (&[&str], &[&str], &[&str]),
) -> [usize; 3] {
    let is_refused = |status: u16| status >= 400;
    let (mut counts, mut table) = ([0; 3], String::new());
    for host in hosts {
        for (path, header) in paths.iter().flat_map(|path| headers.iter().map(move |header| (path, header))) {
            let [a, b] = [origin, tidegate].map(|address| status(address, host, path, header));
            writeln!(table, "{host:<20} {path:<24} {:<16} {a} {b}", header.trim_end()).unwrap();
            assert!(!is_refused(a) || is_refused(b), "open: {host} {path} {header:?}: {a}, {b}\n{table}");
            counts[if is_refused(a) { 2 } else { usize::from(!is_refused(b)) }] += 1;
        }
    }
    println!("{table}");
    counts
}

#[test]
fn what_nginx_refuses_is_refused() {
    let upstream = slow_upstream();
    let server = nginx("access.conf", &upstream);
    let tidegate = converted("nginx", &server, "nginx.conf");
    let hosts = ["a.test", "b.test", "c.test", "d.test", "admin1.test", "unknown.test"];
    let paths = [
        "/",
        "/x",
        "/exact",
        "/admin/a.php",
        "/admin/a.txt",
        "/files/a",
        "/files/.git/x",
        "/hidden/a.txt",
        "/hidden/below/a.php",
        "/hidden/below/a.md",
        "/nested/secret.txt",
        "/outer/a.md",
        "/outer/inner/a.md",
        "/open/x.php",
        "/open/x",
        "/private/x",
        "/PRIVATE/x",
        "/bad",
        "/attached/x",
        "/gone/x",
        "/inherited/x.inc",
        "/d/.htaccess",
        "/closed/a/x/y.js",
        "/closed/c/y.js",
        "/y.bak",
        "/y.bak2",
        "/users/7/secret",
        "/users/7/8/secret",
        "/networks/x",
        "/others/x",
        "/barred/x",
        "/mixed/x",
        "/overlap/x",
    ];
    let headers = ["", "X-Bad: 1\r\n", "X-Worse: 1\r\n"];
    let counts = closed_requests_are_refused(
        server.addr(Ipv4Addr::LOCALHOST.into()),
        tidegate.addr(),
        (&hosts, &paths, &headers),
    );
    assert!(counts[1] > 5 && counts[2] > 5, "{counts:?}");
    // What `allow` admits is admitted, too.
    for path in ["/networks/x", "/mixed/x", "/closed/c/y.js", "/y.bak2", "/users/7/8/secret"] {
        assert_eq!(status(tidegate.addr(), "a.test", path, ""), 200, "{path}");
    }
}

#[test]
fn what_haproxy_refuses_is_refused() {
    let upstream = slow_upstream();
    let server = haproxy("access.cfg", &upstream);
    let tidegate = converted("haproxy", &server, "haproxy.cfg");
    let hosts = ["a.test", "b.test"];
    let paths = [
        "/",
        "/x",
        "/internal/x",
        "/ops/x",
        "/old/x",
        "/old/x.php",
        "/rejected",
        "/returned",
        "/secret/x",
        "/guarded/x",
        "/v2/admin",
        "/empty",
        "/gone",
        "/lost",
        "/files/x",
        "/multiple",
    ];
    let headers = ["", "X-Version: 1.0\r\n", "X-Version: 2.1\r\n"];
    let counts = closed_requests_are_refused(
        server.addr(Ipv4Addr::LOCALHOST.into()),
        tidegate.addr(),
        (&hosts, &paths, &headers),
    );
    assert!(counts[1] > 5 && counts[2] > 5, "{counts:?}");
}

#[test]
fn what_traefik_refuses_is_refused() {
    let upstream = slow_upstream();
    let server = traefik("access.yaml", &upstream);
    let tidegate = converted("traefik", &server, "dynamic.yaml");
    let hosts = ["a.test", "b.test"];
    let paths =
        ["/", "/x", "/admin/7", "/admin/x", "/basic/x", "/networks/x", "/local/x", "/chain/x", "/item.bak"];
    let headers = ["", "X-Version: 1\r\n"];
    let counts = closed_requests_are_refused(
        server.addr(Ipv4Addr::LOCALHOST.into()),
        tidegate.addr(),
        (&hosts, &paths, &headers),
    );
    assert!(counts[1] > 5 && counts[2] > 5, "{counts:?}");
}
