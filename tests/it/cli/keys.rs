//! `tidegate keys`, against a running proxy.

use std::net::SocketAddr;

use serde_json::Value;

use super::Finished;
use crate::support::{RedisServer, TIDEGATE, Tidegate, command, eventually, get};

const CONFIG: &str = r#"listen = "127.0.0.1:0"
    [admin]
    listen = "127.0.0.1:0"
    token = "s3cret-admin-t0ken"
    [limits.per-key]
    rate = "2/hour"
    key = ["header:x-api-key", "method"]
    [limits.per-client]
    rate = "100/hour"
    [[routes]]
    path = "/*"
    limits = ["per-key", "per-client"]
    respond = { status = 200 }
"#;

/// Runs `tidegate keys` with this token in the environment.
pub(super) fn run(args: &[&str], token: &str) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    let output = command(TIDEGATE)
        .arg("keys")
        .args(args)
        .current_dir(directory.path())
        .env("TIDEGATE_ADMIN_TOKEN", token)
        .output();
    output.unwrap().into()
}

/// Runs a command against a proxy, which succeeds, and returns its output.
#[track_caller]
pub fn keys(proxy: &Tidegate, args: &[&str]) -> String {
    let url = format!("http://{}", proxy.admin());
    let output = run(&[args, &["--admin", &url]].concat(), "s3cret-admin-t0ken");
    assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{args:?}: {}", output.stdout);
    output.stdout
}

pub fn json(proxy: &Tidegate, args: &[&str]) -> Value {
    serde_json::from_str(&keys(proxy, &[args, &["--json"]].concat())).unwrap()
}

fn over_both_stores(test: impl Fn(&Tidegate)) {
    over_both_stores_with(CONFIG, test);
}

pub fn over_both_stores_with(config: &str, test: impl Fn(&Tidegate)) {
    test(&Tidegate::start(config));
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    // The admin interface has a connection of its own.
    eventually("the store responds to the admin interface", || {
        get(proxy.admin(), "/v1/keys", &["Authorization: Bearer s3cret-admin-t0ken"]).status() == 200
    });
    test(&proxy);
}

fn status(address: SocketAddr, key: &str) -> u16 {
    get(address, "/", &[&format!("X-Api-Key: {key}")]).status()
}

#[test]
fn a_key_can_be_peeked_and_reset() {
    over_both_stores(|proxy| {
        let peek = |key: &str| json(proxy, &["peek", "per-key", key])["keys"][0].clone();
        let fresh = peek("k1|GET");
        assert_eq!(
            (&fresh["allowed"], &fresh["remaining"], &fresh["of"]),
            (&true.into(), &2.into(), &2.into())
        );
        assert_eq!(fresh["reset_after"].to_string(), "0.0");
        let statuses: Vec<u16> = (0..3).map(|_| status(proxy.addr(), "k1")).collect();
        assert_eq!(statuses, [200, 200, 429]);
        let spent = peek("k1|GET");
        assert_eq!((&spent["allowed"], &spent["remaining"]), (&false.into(), &0.into()));
        assert_eq!(spent["cause"], "quota");
        assert!(spent["reset_after"].as_f64().unwrap() > 3_500.0, "{spent}");
        // A peek spends nothing, and keys are counted apart.
        assert_eq!(peek("k1|GET")["remaining"], 0);
        assert_eq!(peek("k1|POST")["remaining"], 2);
        assert_eq!(peek("k2|GET")["remaining"], 2);
        let tag = spent["key"].as_str().unwrap();
        assert_eq!(keys(proxy, &["reset", "per-key", "k1|GET"]), format!("per-key: {tag} is reset\n"));
        assert_eq!(peek("k1|GET")["remaining"], 2);
        assert_eq!(status(proxy.addr(), "k1"), 200);
        // The tag can be used instead of the key.
        assert_eq!(peek(tag)["remaining"], 1);
        keys(proxy, &["reset", "per-key", tag]);
        assert_eq!(peek("k1|GET")["remaining"], 2);
    });
}

#[test]
fn a_key_can_be_blocked_and_unblocked() {
    over_both_stores(|proxy| {
        assert_eq!(status(proxy.addr(), "k1"), 200);
        let message = keys(proxy, &["block", "per-key", "k1|GET", "--for", "10m"]);
        assert!(message.contains(" is blocked until 20"), "{message}");
        assert_ne!(status(proxy.addr(), "k1"), 200);
        assert_eq!(status(proxy.addr(), "k2"), 200);
        let blocked = json(proxy, &["peek", "per-key", "k1|GET"])["keys"][0].clone();
        assert_eq!((&blocked["allowed"], &blocked["cause"]), (&false.into(), &"block".into()));
        assert!(blocked["until"].as_str().unwrap().ends_with('Z'), "{blocked}");
        let table = keys(proxy, &["peek", "per-key", "k1|GET"]);
        assert!(table.contains("blocked until 20"), "{table}");
        // A reset clears the count, and keeps the block.
        keys(proxy, &["reset", "per-key", "k1|GET"]);
        assert_ne!(status(proxy.addr(), "k1"), 200);
        keys(proxy, &["unblock", "per-key", "k1|GET"]);
        assert_eq!(status(proxy.addr(), "k1"), 200);
        let admin = get(proxy.admin(), "/metrics", &["Authorization: Bearer s3cret-admin-t0ken"]);
        let start = "tidegate_decisions_total{limit=\"per-key\",outcome=\"blocked\",source=";
        let found = admin.text().lines().filter(|line| line.starts_with(start));
        let blocked = found.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        assert_eq!(blocked.sum::<u64>(), 2, "{}", admin.text());
    });
}

#[test]
fn known_keys_are_listed() {
    over_both_stores(|proxy| {
        let listed = |args: &[&str]| {
            let response = json(proxy, &[&["list"], args].concat());
            (response["keys"].as_array().unwrap().clone(), response["more"].as_bool().unwrap())
        };
        assert_eq!(keys(proxy, &["list", "per-key"]).lines().count(), 1);
        for key in ["k1", "k2", "k3", "k3"] {
            assert_eq!(status(proxy.addr(), key), 200);
        }
        let (found, more) = listed(&["per-key"]);
        assert_eq!((found.len(), more), (3, false));
        let mut left: Vec<u64> = found.iter().map(|key| key["remaining"].as_u64().unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 1]);
        assert_eq!(listed(&["per-client"]).0.len(), 1);
        let (some, more) = listed(&["per-key", "--max", "2"]);
        assert_eq!((some.len(), more), (2, true));
        // Listed keys can be used in other commands.
        for key in &found {
            keys(proxy, &["reset", "per-key", key["key"].as_str().unwrap()]);
        }
        assert_eq!(listed(&["per-key"]).0.len(), 0);
        let table = keys(proxy, &["list"]);
        assert!(table.starts_with("LIMIT "), "{table}");
        assert!(table.contains("per-client") && table.contains(" of 100"), "{table}");
    });
}

/// Switching `ahead` on or off changes the stored keys of a limit: its counts start again from zero, but a block applies to both.
#[test]
fn keys_of_limits_that_grant_units_are_listed_and_changed() {
    let redis = RedisServer::start();
    let config = |ahead: &str| {
        // So few units that none are granted: Redis counts those as used.
        let numbers = format!("rate = \"20/hour\"\nahead = \"{ahead}\"\n");
        let store = format!("[store]\nurl = \"{}\"\ntimeout = \"5s\"\n", redis.url());
        CONFIG.replace("rate = \"2/hour\"", &numbers) + &store
    };
    let proxy = Tidegate::start(&config("auto"));
    eventually("the store responds to the admin interface", || {
        get(proxy.admin(), "/v1/keys", &["Authorization: Bearer s3cret-admin-t0ken"]).status() == 200
    });
    let remaining = || {
        let listed = json(&proxy, &["list", "per-key"])["keys"].clone();
        listed.as_array().unwrap().iter().map(|key| key["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!([status(proxy.addr(), "k1"), status(proxy.addr(), "k1")], [200, 200]);
    assert_eq!(remaining(), [18]);
    keys(&proxy, &["reset", "per-key", "k1|GET"]);
    assert!(remaining().is_empty());
    assert_eq!(status(proxy.addr(), "k1"), 200);
    proxy.reload(&config("off"));
    assert!(remaining().is_empty());
    assert_eq!(status(proxy.addr(), "k1"), 200);
    assert_eq!(remaining(), [19]);
    keys(&proxy, &["block", "per-key", "k1|GET", "--for", "10m"]);
    proxy.reload(&config("auto"));
    assert_ne!(status(proxy.addr(), "k1"), 200);
    keys(&proxy, &["unblock", "per-key", "k1|GET"]);
    assert_eq!(status(proxy.addr(), "k1"), 200);
    assert_eq!(remaining(), [18]);
}

#[test]
fn keys_use_their_overrides_and_count_per_tier() {
    let others = r#"
    trust = "any"
    tiers = { by = "header:x-plan", pro = { rate = "30/hour" } }
    overrides = { acme = { rate = "20/hour" }, 'big|GET' = { rate = "40/hour", refill = "interval" } }
    [limits.per-client]"#;
    over_both_stores_with(&CONFIG.replace("    [limits.per-client]", others), |proxy| {
        let ask = |key: &str, plan: &str| {
            let headers = [format!("X-Api-Key: {key}"), format!("X-Plan: {plan}")];
            get(proxy.addr(), "/", &headers.each_ref().map(String::as_str)).status()
        };
        for (key, plan) in [("acme", "pro"), ("big", "pro"), ("k1", "pro"), ("k1", "")] {
            assert_eq!(ask(key, plan), 200, "{key} {plan}");
        }
        let peek = |key: &str| {
            let found = json(proxy, &["peek", "per-key", key])["keys"].as_array().unwrap().clone();
            let row = |row: &Value| format!("{} {} of {}", row["tier"], row["remaining"], row["of"]);
            found.iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(peek("acme|GET"), ["null 19 of 20"]);
        assert_eq!(peek("big|GET"), ["null 39 of 40"]);
        assert_eq!(peek("k1|GET"), ["null 1 of 2", "\"pro\" 29 of 30"]);
        let listed = json(proxy, &["list", "per-key"])["keys"].as_array().unwrap().clone();
        assert_eq!(listed.len(), 4, "{listed:?}");
        assert!(listed.iter().any(|row| row["of"] == 40), "{listed:?}");
        // Commands apply to all tiers of a key.
        keys(proxy, &["block", "per-key", "k1|GET", "--for", "10m"]);
        assert!(ask("k1", "") != 200 && ask("k1", "pro") != 200);
        keys(proxy, &["unblock", "per-key", "k1|GET"]);
        keys(proxy, &["reset", "per-key", "k1|GET"]);
        assert_eq!(peek("k1|GET"), ["null 2 of 2", "\"pro\" 30 of 30"]);
    });
}

#[test]
fn the_admin_address_and_token_are_read_from_the_file() {
    let proxy = Tidegate::start(CONFIG);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gate.toml");
    let listen = |address: &str| {
        CONFIG.replacen("\"127.0.0.1:0\"\n    token", &format!("\"{address}\"\n    token"), 1)
    };
    std::fs::write(&file, listen(&proxy.admin().to_string())).unwrap();
    let peek = || run(&["peek", "per-client", "127.0.0.1", "-c", file.to_str().unwrap()], "");
    let output = peek();
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.contains("100 of 100"), "{}", output.stdout);
    // The environment overrides the file.
    let output = run(&["list", "-c", file.to_str().unwrap()], "another");
    assert_eq!((output.status, output.stdout.as_str()), (1, ""));
    assert_eq!(output.stderr, "error: wrong token\nhelp: set TIDEGATE_ADMIN_TOKEN to the token of [admin]\n");
    std::fs::write(&file, CONFIG).unwrap();
    assert_eq!(peek().status, 2);
    std::fs::write(&file, CONFIG.replace("[admin]", "[log]").replace("token =", "# ")).unwrap();
    assert_eq!(peek().status, 2);
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\n[[routes]]\npath = \"/\"\nrespond = {}\n").unwrap();
    let output = peek();
    assert_eq!(output.status, 2);
    assert!(output.stderr.contains("has no admin interface\nhelp: add [admin]"), "{}", output.stderr);
    // An address that refuses connections.
    let refusing = RedisServer::absent().url().replace("redis://", "");
    std::fs::write(&file, listen(&refusing)).unwrap();
    let output = peek();
    assert_eq!(output.status, 1);
    let expected = format!("error: can't reach the admin interface at http://{refusing}: ");
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
}

#[test]
fn rejections_and_usage_errors_have_different_exit_codes() {
    let proxy = Tidegate::start(CONFIG);
    let url = format!("http://{}", proxy.admin());
    for (args, status, says) in [
        (&["peek", "per-ky", "a|GET"][..], 1, "help: did you mean `per-key`?"),
        (&["peek", "per-key", "a"], 1, "header:x-api-key|method"),
        (&["reset", "per-client", "unknown"], 1, "`unknown` is not an address"),
        (&["peek", "per-key"], 2, "Usage"),
        (&["block", "per-key", "a|GET"], 2, "--for"),
        (&["block", "per-key", "a|GET", "--for", "soon"], 2, "--for"),
        (&["list", "--max", "0"], 2, "--max"),
        (&["forget", "per-key", "a|GET"], 2, "Usage"),
    ] {
        let output = run(&[args, &["--admin", &url]].concat(), "s3cret-admin-t0ken");
        assert_eq!((output.status, output.stdout.as_str()), (status, ""), "{args:?}");
        assert!(output.stderr.contains(says), "{args:?}: {}", output.stderr);
    }
    assert_eq!(run(&["list", "--admin", "127.0.0.1:9900"], "").status, 2);
    let help = run(&["--help"], "");
    assert_eq!(help.status, 0);
    assert!(help.stdout.contains("tidegate keys block per-key k-4711 --for 1h"), "{}", help.stdout);
}
