//! `--consumer` of `tidegate keys` and `tidegate explain`.

use std::collections::BTreeSet;

use super::Finished;
use super::keys::{json, keys, over_both_stores_with, run};
use crate::consumers::setup::{CONSUMERS, ConsumersFile, with_key};
use crate::support::{TIDEGATE, Tidegate, command, get};

/// A file with limits by consumer, and an admin interface.
fn config(consumers: &ConsumersFile) -> String {
    format!(
        r#"listen = "127.0.0.1:0"
        [admin]
        listen = "127.0.0.1:0"
        token = "s3cret-admin-t0ken"
        {}
        [limits.per-consumer]
        rate = "2/hour"
        key = "consumer"
        tiers = {{ by = "consumer", pro = {{ rate = "20/hour" }} }}
        [limits.per-method]
        rate = "5/hour"
        key = ["method", "consumer"]
        [limits.per-client]
        rate = "100/hour"
        [[routes]]
        path = "/*"
        limits = ["per-consumer", "per-method", "per-client"]
        respond = {{ status = 200 }}
        "#,
        consumers.table("credential = \"header:x-api-key\"\nunknown = \"anonymous\"")
    )
}

#[test]
fn keys_are_named_by_their_consumers() {
    let consumers = ConsumersFile::new(CONSUMERS);
    over_both_stores_with(&config(&consumers), |proxy| {
        let limit = |key: &str| {
            let response = with_key(proxy, "/", key);
            (response.status(), response.header("x-ratelimit-limit").unwrap_or_default().to_owned())
        };
        let small = ["--consumer", "small"];
        let remaining = |args: &[&str]| {
            json(proxy, &[&["peek"], args, &small].concat())["keys"][0]["remaining"].as_u64().unwrap()
        };
        assert_eq!(limit("s-1"), (200, "2".to_owned()));
        assert_eq!((remaining(&["per-consumer"]), remaining(&["per-method", "GET"])), (1, 4));
        assert_eq!(remaining(&["per-method", "POST"]), 5);
        let peek = "/v1/keys/peek?limit=per-consumer&key=&consumer=small";
        assert_eq!(get(proxy.admin(), peek, &["Authorization: Bearer s3cret-admin-t0ken"]).status(), 200);

        keys(proxy, &["raise", "per-consumer", "--consumer", "small", "--by", "2x", "--for", "1h"]);
        assert_eq!(limit("s-1"), (200, "4".to_owned()));
        keys(proxy, &["raise", "per-consumer", "--consumer", "small", "--end"]);
        keys(proxy, &["block", "per-method", "GET", "--consumer", "small", "--for", "1h"]);
        assert_eq!(limit("s-1").0, 403);
        assert_eq!(limit("l-1").0, 200);
        keys(proxy, &["unblock", "per-method", "GET", "--consumer", "small"]);
        keys(proxy, &["reset", "per-consumer", "--consumer", "small"]);
        assert_eq!((limit("s-1").0, remaining(&["per-consumer"])), (200, 1));
    });
}

#[test]
fn a_key_has_the_tier_of_its_consumer_and_no_other() {
    let consumers = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&config(&consumers));
    let peek = |args: &[&str]| -> Vec<String> {
        let found = json(&proxy, &[&["peek", "per-consumer"], args].concat())["keys"].clone();
        found.as_array().unwrap().iter().map(|row| format!("{} of {}", row["tier"], row["of"])).collect()
    };
    let block = |name: &str| keys(&proxy, &["block", "per-consumer", "--consumer", name, "--for", "1h"]);
    for (name, key, shown) in [("small", "s-1", "null of 2"), ("acme", "k-2", "\"pro\" of 20")] {
        // A block applies to all tiers.
        let blocked = block(name);
        assert_eq!(peek(&["--consumer", name]), [shown]);
        // By its tag, once requests were denied.
        assert_eq!(with_key(&proxy, "/", key).status(), 403);
        let tag = blocked.split_whitespace().find(|word| word.starts_with("tag:")).unwrap();
        assert_eq!(peek(&[tag]), [shown]);
    }
    let denied = json(&proxy, &["list", "per-consumer", "--denied"])["keys"].clone();
    let tiers = denied.as_array().unwrap().iter().map(|row| row["tier"].to_string());
    assert_eq!(tiers.collect::<BTreeSet<_>>(), ["null", "\"pro\""].map(str::to_owned).into());
    assert_eq!(denied.as_array().unwrap().len(), 2);
}

#[test]
fn wrong_consumers_are_rejected() {
    let consumers = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&config(&consumers));
    let url = format!("http://{}", proxy.admin());
    for (args, status, says) in [
        (
            &["peek", "per-consumer", "--consumer", "smal"][..],
            1,
            "unknown consumer `smal`; did you mean `small`?",
        ),
        (
            &["reset", "per-client", "--consumer", "small"],
            1,
            "this limit does not count by consumer: its key is client_ip",
        ),
        (&["peek", "per-method", "--consumer", "small"], 1, "the key has 2: method|consumer"),
        (&["peek", "per-consumer", "x", "--consumer", "small"], 1, "the key has 1: consumer"),
        (&["unblock", "per-consumer"], 2, "Usage"),
    ] {
        let output = run(&[args, &["--admin", &url]].concat(), "s3cret-admin-t0ken");
        assert_eq!((output.status, output.stdout.as_str()), (status, ""), "{args:?}");
        assert!(output.stderr.contains(says), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn a_request_is_explained_as_that_of_a_consumer() {
    let consumers = ConsumersFile::new(CONSUMERS);
    let file = consumers.path.with_file_name("tidegate.toml");
    std::fs::write(&file, config(&consumers)).unwrap();
    let explain = |name: &str| -> Finished {
        let mut command = command(TIDEGATE);
        command.args(["explain", "GET", "/", "--consumer", name, "-c"]).arg(&file).output().unwrap().into()
    };
    let acme = explain("acme");
    assert_eq!((acme.status, acme.stderr.as_str()), (0, ""));
    for line in ["consumer  acme, tier pro (by --consumer)", "consumer = acme", "tier      pro, by consumer"]
    {
        assert!(acme.stdout.contains(line), "{line}: {}", acme.stdout);
    }
    assert!(explain("blocked").stdout.contains("403 Forbidden"), "{}", explain("blocked").stdout);
    let unknown = explain("acm");
    assert_eq!(unknown.status, 2);
    assert_eq!(unknown.stderr, "error: unknown consumer `acm`; did you mean `acme`?\n");
}
