//! The real `HAProxy`, and tidegate with its converted configuration, get the same requests.
//!
//! Decisions are equal as long as a client pauses after a denial, since `HAProxy` counts denied requests as well.

use std::net::Ipv4Addr;

use super::origin::{MARGIN, haproxy, slow_upstream};
use super::traffic::{Burst, Compared, Scenario, bursts, compare, converted, denied, table};
use crate::support::{Tidegate, Upstream, WebServer, get};

/// `HAProxy` with the file `verdicts.cfg`, and tidegate with the converted one.
fn both(upstream: &Upstream) -> (WebServer, Tidegate) {
    let server = haproxy("verdicts.cfg", upstream);
    let tidegate = converted("haproxy", &server, "haproxy.cfg");
    (server, tidegate)
}

fn scenario(name: &'static str, bursts: Vec<Burst>) -> Scenario {
    Scenario { name, bursts, margin: MARGIN, longest: None }
}

/// The traffic for each path of `verdicts.cfg`.
fn scenarios() -> Vec<Scenario> {
    let get = |path| bursts(path, &[(0, 3)])[0];
    let post = Burst { request: "POST /methods", headers: "Content-Length: 0\r\n", ..get("GET /methods") };
    let exempt = Burst { client: "127.200.0.1", ..get("GET /networks") };
    let keys = ["X-Api-Key: a-ATTEMPT\r\n", "X-Api-Key: b-ATTEMPT\r\n", ""];
    let keys = keys.map(|headers| Burst { headers, ..get("GET /header") });
    vec![
        scenario("http_req_rate(10s) gt 3", bursts("GET /burst", &[(0, 6), (3000, 2)])),
        scenario("http_req_rate(2s) gt 2", bursts("GET /short", &[(0, 3), (4500, 3)])),
        scenario("conn_cur gt 2", bursts("GET /slow", &[(0, 5), (250, 1), (1200, 2)])),
        scenario("http_err_rate gt 2", bursts("GET /missing", &[(0, 1), (400, 1), (800, 1), (1200, 1)])),
        scenario("key: header", keys.to_vec()),
        scenario("METH_POST", vec![post, get("GET /methods")]),
        scenario("!{ src NETWORK }", vec![exempt, get("GET /networks")]),
        scenario("src_http_req_rate gt 2", bursts("GET /lookup", &[(0, 4)])),
        scenario("src_http_req_rate before the request is tracked", bursts("GET /earlier", &[(0, 5)])),
        scenario("http_req_cnt gt 2", bursts("GET /total", &[(0, 2), (4500, 3)])),
        scenario("use_backend by a counter", bursts("GET /refused", &[(0, 4)])),
        scenario("deny if path_beg", bursts("GET /private/x", &[(0, 2)])),
    ]
}

#[test]
fn tidegate_decides_as_haproxy_does() {
    let upstream = slow_upstream();
    let (server, tidegate) = both(&upstream);
    let compared = compare(server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr(), scenarios());
    let table = table("HAProxy", &compared);
    println!("{table}");
    for Compared { name, bursts } in &compared {
        for (burst, origin, tidegate) in bursts {
            assert_eq!(origin.statuses, tidegate.statuses, "{name}: {burst:?}\n{table}");
        }
    }
    // The expected numbers, so that the comparison is not one of servers that allow everything.
    let expected = [
        ("http_req_rate(10s) gt 3", 5),
        ("conn_cur gt 2", 4),
        ("http_err_rate gt 2", 1),
        ("src_http_req_rate gt 2", 2),
        ("http_req_cnt gt 2", 1),
        ("use_backend by a counter", 2),
    ];
    for (name, expected) in expected {
        assert_eq!(denied(&compared, name), expected, "{name}\n{table}");
    }
}

#[test]
fn haproxy_counts_denied_requests_and_tidegate_does_not() {
    let upstream = slow_upstream();
    let (server, tidegate) = both(&upstream);
    let keeps_on = scenario("keeps on", bursts("GET /short", &[(0, 3), (1000, 2), (2600, 1)]));
    let compared = compare(server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr(), vec![keeps_on]);
    let table = table("HAProxy", &compared);
    println!("{table}");
    let statuses: Vec<_> =
        compared[0].bursts.iter().map(|(_, a, b)| (a.statuses.clone(), b.statuses.clone())).collect();
    let same = |statuses: &[u16]| (statuses.to_vec(), statuses.to_vec());
    assert_eq!(statuses[..2], [same(&[200, 200, 429]), same(&[429, 429])], "{table}");
    assert_eq!(statuses[2], (vec![429], vec![200]), "{table}");
}

/// `cookie NAME rewrite` writes names of servers to the cookies of servers, and here no server has a name.
#[test]
fn a_cookie_that_no_server_would_write_stays_as_it_is() {
    let upstream = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let cookie = request.header("cookie").unwrap_or("none");
            let response = format!(
                "HTTP/1.1 200 OK\r\nSet-Cookie: SERVERID=own; Path=/\r\nContent-Length: {}\r\n\r\n{cookie}",
                cookie.len()
            );
            if caller.try_send(response).is_err() {
                return;
            }
        }
    });
    let server = haproxy("cookie.cfg", &upstream);
    let tidegate = converted("haproxy", &server, "haproxy.cfg");
    for cookie in ["Cookie: SERVERID=own; a=b", "Cookie: SERVERID=a", "X-Cookie: none"] {
        let [expected, found] = [server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr()].map(|address| {
            let response = get(address, "/", &[cookie]);
            (response.header("set-cookie").map(str::to_owned), response.text().to_owned())
        });
        assert_eq!(expected.0.as_deref(), Some("SERVERID=own; Path=/"), "{cookie}");
        assert_eq!(found, expected, "{cookie}");
    }
}
