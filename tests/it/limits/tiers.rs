//! Tiers: numbers by a header, a parameter or a method, and which clients may set the header.

use super::setup::{by_proxy, limited, number, quota};
use crate::support::{Client, RedisServer, Tidegate, get};

#[test]
fn tiers_are_read_from_headers_of_trusted_proxies() {
    let config = limited(
        "rate = \"2/hour\"\nkey = \"header:x-api-key\"\n\
         tiers = { by = \"header:x-plan\", pro = { rate = \"30/hour\" }, \"v1.Free_x-1\" = { rate = \"1/hour\" } }",
    );
    let test = |proxy: &Tidegate| {
        let key = "X-Api-Key: k";
        for (plan, wanted) in [("pro", 30), ("v1.Free_x-1", 1), ("Pro", 2), ("gold", 2), ("", 2)] {
            let plan = format!("X-Plan: {plan}");
            assert_eq!(quota(&by_proxy(proxy.addr(), &[key, &plan])), wanted, "{plan}");
        }
        // The server might use the other value.
        assert_eq!(by_proxy(proxy.addr(), &[key, "X-Plan: pro", "X-Plan: gold"]).status(), 400);
        // The header of an untrusted client is ignored, and the limit without a tier is used up by now.
        let untrusted = get(proxy.addr(), "/", &[key, "X-Plan: pro"]);
        assert_eq!((untrusted.status(), quota(&untrusted)), (429, 2));
        // Each tier has its own count: one request of this tier is spent.
        assert_eq!(number(&by_proxy(proxy.addr(), &[key, "X-Plan: pro"]), "x-ratelimit-remaining"), 28);
    };
    test(&Tidegate::start(&config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, &config));
}

#[test]
fn tiers_by_method_or_path_need_no_trusted_proxy() {
    let config = "[limits.one]\nrate = \"5/hour\"\n\
                  tiers = { by = \"path_param:plan\", pro = { rate = \"30/hour\" } }\n\
                  [limits.two]\nrate = \"50/hour\"\n\
                  tiers = { by = \"method\", POST = { rate = \"3/hour\" } }\n\
                  [[routes]]\npath = \"/plans/{plan}\"\nlimits = [\"one\"]\nrespond = { status = 200 }\n\
                  [[routes]]\npath = \"/*\"\nlimits = [\"two\"]\nrespond = { status = 200 }\n";
    let proxy = Tidegate::start(config);
    assert_eq!(quota(&get(proxy.addr(), "/plans/pro", &[])), 30);
    assert_eq!(quota(&get(proxy.addr(), "/plans/other", &[])), 5);
    assert_eq!(quota(&get(proxy.addr(), "/", &[])), 50);
    let posted = Client::connect(proxy.addr()).ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(quota(&posted), 3);
}

#[test]
fn a_trusted_client_may_set_its_tier() {
    let config = limited(
        "rate = \"2/hour\"\ntrust = \"any\"\ntiers = { by = \"query:plan\", pro = { rate = \"30/hour\" } }",
    );
    let proxy = Tidegate::start(&config);
    assert_eq!(quota(&get(proxy.addr(), "/?plan=pro", &[])), 30);
    assert_eq!(quota(&get(proxy.addr(), "/?plan=%70ro", &[])), 30);
    assert_eq!(quota(&get(proxy.addr(), "/", &[])), 2);
}
