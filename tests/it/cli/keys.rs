//! `tidegate keys`, against a running proxy.

use std::net::SocketAddr;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{RedisServer, Tidegate, eventually, get};

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

/// What a run of the program says and comes to.
struct Said {
    status: i32,
    stdout: String,
    stderr: String,
}

fn run(args: &[&str], token: &str) -> Said {
    let directory = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("keys")
        .args(args)
        .current_dir(directory.path())
        .env("TIDEGATE_ADMIN_TOKEN", token)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs a command against a proxy, which does what it says.
#[track_caller]
fn keys(proxy: &Tidegate, args: &[&str]) -> String {
    let url = format!("http://{}", proxy.admin());
    let said = run(&[args, &["--admin", &url]].concat(), "s3cret-admin-t0ken");
    assert_eq!((said.status, said.stderr.as_str()), (0, ""), "{args:?}: {}", said.stdout);
    said.stdout
}

fn json(proxy: &Tidegate, args: &[&str]) -> Value {
    serde_json::from_str(&keys(proxy, &[args, &["--json"]].concat())).unwrap()
}

fn over_both_stores(test: impl Fn(&Tidegate)) {
    over_both_stores_with(CONFIG, test);
}

fn over_both_stores_with(config: &str, test: impl Fn(&Tidegate)) {
    test(&Tidegate::start(config));
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    // The admin interface has a connection of its own.
    eventually("the store answers the admin interface", || {
        get(proxy.admin(), "/keys", &["Authorization: Bearer s3cret-admin-t0ken"]).status() == 200
    });
    test(&proxy);
}

fn status(address: SocketAddr, key: &str) -> u16 {
    get(address, "/", &[&format!("X-Api-Key: {key}")]).status()
}

#[test]
fn a_key_is_looked_at_and_reset() {
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
        // Looking spends nothing, and others are others.
        assert_eq!(peek("k1|GET")["remaining"], 0);
        assert_eq!(peek("k1|POST")["remaining"], 2);
        assert_eq!(peek("k2|GET")["remaining"], 2);
        let tag = spent["key"].as_str().unwrap();
        assert_eq!(keys(proxy, &["reset", "per-key", "k1|GET"]), format!("per-key: {tag} is reset\n"));
        assert_eq!(peek("k1|GET")["remaining"], 2);
        assert_eq!(status(proxy.addr(), "k1"), 200);
        // A tag stands for the key.
        assert_eq!(peek(tag)["remaining"], 1);
        keys(proxy, &["reset", "per-key", tag]);
        assert_eq!(peek("k1|GET")["remaining"], 2);
    });
}

#[test]
fn a_key_is_blocked_and_unblocked() {
    over_both_stores(|proxy| {
        assert_eq!(status(proxy.addr(), "k1"), 200);
        let said = keys(proxy, &["block", "per-key", "k1|GET", "--for", "10m"]);
        assert!(said.contains(" is blocked until 20"), "{said}");
        assert_ne!(status(proxy.addr(), "k1"), 200);
        assert_eq!(status(proxy.addr(), "k2"), 200);
        let blocked = json(proxy, &["peek", "per-key", "k1|GET"])["keys"][0].clone();
        assert_eq!((&blocked["allowed"], &blocked["cause"]), (&false.into(), &"block".into()));
        assert!(blocked["until"].as_str().unwrap().ends_with('Z'), "{blocked}");
        let table = keys(proxy, &["peek", "per-key", "k1|GET"]);
        assert!(table.contains("blocked until 20"), "{table}");
        // A reset forgets what is spent; who is blocked stays so.
        keys(proxy, &["reset", "per-key", "k1|GET"]);
        assert_ne!(status(proxy.addr(), "k1"), 200);
        keys(proxy, &["unblock", "per-key", "k1|GET"]);
        assert_eq!(status(proxy.addr(), "k1"), 200);
        let admin = get(proxy.admin(), "/metrics", &["Authorization: Bearer s3cret-admin-t0ken"]);
        let line = "tidegate_decisions_total{limit=\"per-key\",outcome=\"blocked\"} 2";
        assert!(admin.text().contains(line), "{}", admin.text());
    });
}

#[test]
fn keys_that_are_known_are_listed() {
    over_both_stores(|proxy| {
        let listed = |args: &[&str]| {
            let answer = json(proxy, &[&["list"], args].concat());
            (answer["keys"].as_array().unwrap().clone(), answer["more"].as_bool().unwrap())
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
        // What is listed can be acted upon.
        for key in &found {
            keys(proxy, &["reset", "per-key", key["key"].as_str().unwrap()]);
        }
        assert_eq!(listed(&["per-key"]).0.len(), 0);
        let table = keys(proxy, &["list"]);
        assert!(table.starts_with("LIMIT "), "{table}");
        assert!(table.contains("per-client") && table.contains(" of 100"), "{table}");
    });
}

#[test]
fn keys_have_the_numbers_of_their_overrides_and_a_count_in_each_tier() {
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
        // What is done to a key is done in every tier.
        keys(proxy, &["block", "per-key", "k1|GET", "--for", "10m"]);
        assert!(ask("k1", "") != 200 && ask("k1", "pro") != 200);
        keys(proxy, &["unblock", "per-key", "k1|GET"]);
        keys(proxy, &["reset", "per-key", "k1|GET"]);
        assert_eq!(peek("k1|GET"), ["null 2 of 2", "\"pro\" 30 of 30"]);
    });
}

#[test]
fn the_file_tells_where_to_ask() {
    let proxy = Tidegate::start(CONFIG);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gate.toml");
    let listen = |address: &str| {
        CONFIG.replacen("\"127.0.0.1:0\"\n    token", &format!("\"{address}\"\n    token"), 1)
    };
    std::fs::write(&file, listen(&proxy.admin().to_string())).unwrap();
    let peek = || run(&["peek", "per-client", "127.0.0.1", "-c", file.to_str().unwrap()], "");
    let said = peek();
    assert_eq!((said.status, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.contains("100 of 100"), "{}", said.stdout);
    // The environment goes over the file.
    let said = run(&["list", "-c", file.to_str().unwrap()], "another");
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    assert_eq!(said.stderr, "error: wrong token\nhelp: set TIDEGATE_ADMIN_TOKEN to the token of [admin]\n");
    std::fs::write(&file, CONFIG).unwrap();
    assert_eq!(peek().status, 2);
    std::fs::write(&file, CONFIG.replace("[admin]", "[log]").replace("token =", "# ")).unwrap();
    assert_eq!(peek().status, 2);
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\n[[routes]]\npath = \"/\"\nrespond = {}\n").unwrap();
    let said = peek();
    assert_eq!(said.status, 2);
    assert!(said.stderr.contains("has no admin interface\nhelp: add [admin]"), "{}", said.stderr);
    // Where nobody listens.
    let nobody = RedisServer::absent().url().replace("redis://", "");
    std::fs::write(&file, listen(&nobody)).unwrap();
    let said = peek();
    assert_eq!(said.status, 1);
    let expected = format!("error: can't reach the admin interface at http://{nobody}: ");
    assert!(said.stderr.starts_with(&expected), "{}", said.stderr);
}

#[test]
fn refusals_and_wrong_usage_are_told_apart() {
    let proxy = Tidegate::start(CONFIG);
    let url = format!("http://{}", proxy.admin());
    for (args, status, says) in [
        (&["peek", "per-ky", "a|GET"][..], 1, "help: did you mean `per-key`?"),
        (&["peek", "per-key", "a"], 1, "header:x-api-key|method"),
        (&["reset", "per-client", "somebody"], 1, "`somebody` is not an address"),
        (&["peek", "per-key"], 2, "Usage"),
        (&["block", "per-key", "a|GET"], 2, "--for"),
        (&["block", "per-key", "a|GET", "--for", "soon"], 2, "--for"),
        (&["list", "--max", "0"], 2, "--max"),
        (&["forget", "per-key", "a|GET"], 2, "Usage"),
    ] {
        let said = run(&[args, &["--admin", &url]].concat(), "s3cret-admin-t0ken");
        assert_eq!((said.status, said.stdout.as_str()), (status, ""), "{args:?}");
        assert!(said.stderr.contains(says), "{args:?}: {}", said.stderr);
    }
    assert_eq!(run(&["list", "--admin", "127.0.0.1:9900"], "").status, 2);
    let help = run(&["--help"], "");
    assert_eq!(help.status, 0);
    assert!(help.stdout.contains("tidegate keys block per-key k-4711 --for 1h"), "{}", help.stdout);
}
