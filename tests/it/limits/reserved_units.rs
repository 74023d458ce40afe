//! What operators and clients see of units that requests in flight have reserved.

use serde_json::{Value, json};

use crate::cli::keys::keys;
use crate::support::{Client, Tidegate, Upstream, eventually, get, over_both_stores};

fn config(upstream: &Upstream) -> String {
    format!(
        r#"listen = "127.0.0.1:0"
        [admin]
        listen = "127.0.0.1:0"
        token = "s3cret-admin-t0ken"
        [limits.units]
        algorithm = "fixed_window"
        rate = "100/day"
        key = "header:x-key"
        cost = {{ reserve = 1, settle = "header:x-units" }}
        [limits.plain]
        rate = "100/day"
        [[routes]]
        path = "/limits"
        limits = ["units", "plain"]
        respond = "limits"
        [[routes]]
        path = "/*"
        limits = ["units"]
        upstream = "{}"
        "#,
        upstream.url()
    )
}

/// Remaining and reserved units, as the client itself sees them.
fn own(proxy: &Tidegate) -> (u64, Value) {
    let response = get(proxy.addr(), "/limits", &["X-Key: a"]);
    let body: Value = serde_json::from_str(response.text()).unwrap();
    assert_eq!(body["limits"][1]["reserved"], Value::Null, "it does not settle");
    (body["limits"][0]["remaining"].as_u64().unwrap(), body["limits"][0]["reserved"].clone())
}

/// The same, as an operator sees them.
fn peeked(proxy: &Tidegate) -> (String, Value) {
    let table = keys(proxy, &["peek", "units", "a"]);
    let left =
        table.lines().nth(1).unwrap().split("  ").map(str::trim).find(|cell| cell.contains(" of ")).unwrap();
    let list: Value = serde_json::from_str(&keys(proxy, &["peek", "units", "a", "--json"])).unwrap();
    (left.to_owned(), list["keys"][0]["reserved"].clone())
}

#[test]
fn units_of_requests_in_flight_are_shown_until_they_are_settled() {
    let (upstream, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Units: 7\r\n\r\nok");
    over_both_stores(&config(&upstream), |proxy| {
        let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(proxy.addr())).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Key: a\r\n\r\n");
        }
        eventually("both are in flight", || own(proxy) == (98, json!(2)));
        assert_eq!(peeked(proxy), ("98 of 100, 2 reserved".to_owned(), json!(2)));
        // The first message may release either of them.
        for _ in &clients {
            release.send(()).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read().status(), 200);
        }
        eventually("both are settled", || own(proxy) == (86, json!(0)));
        assert_eq!(peeked(proxy), ("86 of 100".to_owned(), json!(0)));
    });
}

#[test]
fn costs_are_hidden_from_clients_to_whom_their_limit_does_not_apply() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Cost, X-Sum\r\nX-Units: 7\r\nX-Kept: 8\r\n\r\n\
         2\r\nok\r\n0\r\nX-Cost: 9\r\nX-Sum: 1\r\n\r\n",
    );
    let file = format!(
        r#"listen = "127.0.0.1:0"
        [limits.head]
        rate = "100/minute"
        allow = ["127.0.0.1"]
        cost = {{ reserve = 1, settle = "header:x-units" }}
        [limits.trailer]
        rate = "100/minute"
        key = "header:x-key"
        on_missing = "skip"
        cost = {{ reserve = 1, settle = "trailer:x-cost" }}
        [limits.kept]
        rate = "100/minute"
        cost = {{ reserve = 1, settle = "header:x-kept" }}
        keep_cost_header = true
        allow = ["127.0.0.1"]
        [[routes]]
        path = "/*"
        limits = ["head", "trailer", "kept"]
        upstream = "{}"
        "#,
        upstream.url()
    );
    let proxy = Tidegate::start(&file);
    for headers in [&["TE: trailers"][..], &["TE: trailers", "X-Key: a"]] {
        let response = get(proxy.addr(), "/", headers);
        assert_eq!((response.header("x-units"), response.header("x-kept")), (None, Some("8")), "{headers:?}");
        assert_eq!((response.text(), response.header("trailer")), ("ok", Some("x-sum")));
        assert_eq!(response.trailers, [("x-sum".to_owned(), "1".to_owned())], "{headers:?}");
    }
}
