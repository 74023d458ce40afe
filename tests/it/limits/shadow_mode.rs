//! Limits in shadow mode, which count and deny nothing.

use super::setup::{limited, routes};
use crate::support::{Tidegate, get, over_both_stores};

#[test]
fn a_shadow_limit_neither_denies_nor_adds_headers() {
    let limits = r#"
        [limits.strict]
        rate = "1/hour"
        mode = "shadow"
        [limits.real]
        rate = "5/hour"
    "#;
    let config = format!("{limits}{}", routes(&[("/both", &["strict", "real"]), ("/alone", &["strict"])]));
    over_both_stores(&config, |proxy| {
        for remaining in ["4", "3", "2", "1", "0"] {
            let response = get(proxy.addr(), "/both", &[]);
            assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (200, Some(remaining)));
            assert_eq!(response.header("x-ratelimit-limit"), Some("5"));
        }
        assert_eq!(get(proxy.addr(), "/both", &[]).status(), 429);
        let alone = get(proxy.addr(), "/alone", &[]);
        assert_eq!((alone.status(), alone.header("x-ratelimit-limit")), (200, None));
    });
}

#[test]
fn a_shadow_limit_ignores_block_lists_and_missing_keys() {
    let config = limited(
        "rate = \"1/hour\"\nkey = \"header:x-api-key\"\nmode = \"shadow\"\non_missing = \"deny\"\n\
         block = [\"127.0.0.0/8\", \"key:stolen\"]",
    );
    let proxy = Tidegate::start(&config);
    for headers in [&["X-Api-Key: stolen"][..], &["X-Api-Key: stolen"], &[]] {
        assert_eq!(get(proxy.addr(), "/", headers).status(), 200, "{headers:?}");
    }
}
