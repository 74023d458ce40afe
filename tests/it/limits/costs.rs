//! Costs of requests.

use super::setup::{by_proxy, limited, number};
use crate::support::{Tidegate, get};

#[test]
fn a_cost_from_a_header_is_clamped() {
    let config = limited("rate = \"1000/hour\"\ncost = \"header:x-cost\"\ncost_max = 40");
    let proxy = Tidegate::start(&config);
    let mut left = 1_000;
    for (headers, cost) in [
        (&["X-Cost: 7"][..], 7),
        (&["X-Cost: 41"], 40),
        (&["X-Cost: 99999999999999999999999999"], 40),
        (&["X-Cost: 0"], 1),
        (&["X-Cost: -3"], 1),
        (&["X-Cost: 2.5"], 1),
        (&["X-Cost: +3"], 1),
        (&["X-Cost:"], 1),
        (&["X-Cost: 3", "X-Cost: 3"], 3),
        (&[], 1),
    ] {
        left -= cost;
        let response = by_proxy(proxy.addr(), headers);
        assert_eq!(number(&response, "x-ratelimit-remaining"), left, "{headers:?}");
    }
    let untrusted = get(proxy.addr(), "/", &["X-Cost: 7"]);
    assert_eq!(number(&untrusted, "x-ratelimit-remaining"), 999);
}
