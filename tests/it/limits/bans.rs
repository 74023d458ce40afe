//! Bans after repeated denials.

use crate::support::{Client, eventually, over_both_stores};

#[test]
fn a_key_is_banned_after_repeated_denials() {
    let config = r#"
        [limits.strict]
        rate = "10/s"
        burst = 1
        key = "header:x-key"
        ban = { after = 3, within = "1h", for = "1h" }
        [[routes]]
        path = "/*"
        limits = ["strict"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let mut client = Client::connect(proxy.addr());
        eventually("the key is banned", || {
            let response = client.get("/", &["X-Key: a"]);
            let wait: u64 = response.header("retry-after").map_or(0, |wait| wait.parse().unwrap());
            wait > 3_000
        });
        let banned = client.get("/", &["X-Key: a"]);
        assert_eq!(banned.status(), 429);
        assert!(banned.text().contains("bans"), "{}", banned.text());
        assert_eq!(client.get("/", &["X-Key: b"]).status(), 200);
    });
}
