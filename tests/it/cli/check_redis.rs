//! `tidegate check --connect` with Redis Cluster, Redis Sentinel, and Redis over TLS.

use std::time::Duration;

use super::*;
use crate::support::{Authority, Cluster, RedisServer, Watched, scaled};

/// The result of the store's check, and what was found, for this `[store]`.
fn store(directory: &Path, store: &str) -> (String, String) {
    // A busy machine needs longer than the default timeout of the store, above all for TLS.
    let timeout = format!("{}ms", scaled(Duration::from_secs(3)).as_millis());
    let text = format!(
        "listen = \"127.0.0.1:8080\"\n[store]\ntimeout = \"{timeout}\"\n{store}\n[limits.a]\nrate = \"1/day\"\n[limits.b]\nalgorithm = \"concurrency\"\n\
         max_in_flight = 1\n[[routes]]\npath = \"/*\"\nlimits = [\"a\", \"b\"]\nrespond = {{}}\n"
    );
    std::fs::write(directory.join("tidegate.toml"), text).unwrap();
    let checked = tidegate(directory, &["check", "--connect", "--json", "--timeout", &timeout]);
    let report: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    let found = &report["connections"][0];
    assert!(found["target"].as_str().unwrap().starts_with("store redis"), "{report}");
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("result"), format!("{}; {}", text("message"), text("help")))
}

#[track_caller]
fn assert_ok((result, found): (String, String)) {
    assert_eq!(
        (result.as_str(), found.as_str()),
        ("ok", "connected; all scripts and commands are permitted; ")
    );
}

#[test]
fn a_cluster_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    assert_ok(store(directory.path(), &format!("url = \"{}\"", cluster.url())));
    // One server of it takes commands for its own slots only.
    let single = format!("url = \"redis://{}\"", cluster.masters[0].addr());
    let (result, found) = store(directory.path(), &single);
    assert!(result == "failed" && found.contains("redis-cluster"), "{found}");
}

#[test]
fn each_of_several_servers_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let (there, absent) = (RedisServer::start(), RedisServer::absent());
    let timeout = format!("{}ms", scaled(Duration::from_secs(3)).as_millis());
    let text = format!(
        "listen = \"127.0.0.1:8080\"\n[store]\nurls = [\"{}\", \"{}\"]\ntimeout = \"{timeout}\"\ninstances = 1\n[limits.a]\nrate = \"1/day\"\n\
         key = \"header:x-key\"\n[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = {{}}\n",
        there.url(),
        absent.url()
    );
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    let checked = tidegate(directory.path(), &["check", "--connect", "--timeout", &timeout]);
    let row = |server: &RedisServer| {
        let target = format!("store {}", server.url());
        checked.stdout.lines().find(|line| line.contains(&target)).unwrap().to_owned()
    };
    assert!(row(&there).starts_with("ok"), "{}", checked.stdout);
    assert!(row(&absent).contains("refused"), "{}", checked.stdout);
    assert!(checked.stdout.contains("2 servers of Redis"), "{}", checked.stdout);
    // Each key is explained with its server.
    let counted = |key: &str| {
        let explained = tidegate(directory.path(), &["explain", "GET", "/", "-H", &format!("X-Key: {key}")]);
        let line = explained.stdout.lines().find(|line| line.contains("counted")).unwrap().to_owned();
        line.contains(&there.url())
    };
    let there: Vec<bool> = (0..16).map(|key| counted(&key.to_string())).collect();
    assert!(there.contains(&true) && there.contains(&false), "{there:?}");
}

#[test]
fn the_master_behind_a_sentinel_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let watched = Watched::start("hush");
    let sentinel = watched.sentinel.addr();
    let url = |service: &str| {
        format!(
            "url = \"redis-sentinel://:hush@{sentinel}/0?service={service}\"\nsentinel_password = \"watch-hush\""
        )
    };
    assert_ok(store(directory.path(), &url("gate")));
    let (result, found) = store(directory.path(), &url("other"));
    assert!(result == "failed" && found.contains("other"), "{found}");
}

#[test]
fn redis_over_tls_is_checked() {
    let authority = Authority::new();
    authority.sign("localhost");
    let directory = authority.file("ca.pem").parent().unwrap().to_owned();
    let file = |name: &str| authority.file(name).display().to_string();
    let redis = RedisServer::start_as(|port| {
        let (port, certificate, key) = (port.to_string(), file("localhost.pem"), file("localhost.key"));
        let options =
            ["--port", "0", "--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
        let more = ["--tls-ca-cert-file", &file("ca.pem"), "--tls-auth-clients", "no"];
        options.iter().chain(&more).map(ToString::to_string).collect()
    });
    let url = format!("url = \"rediss://localhost:{}\"\n", redis.addr().port());
    assert_ok(store(&directory, &format!("{url}tls = {{ ca = \"ca.pem\" }}")));
    let (result, found) = store(&directory, &url);
    assert!(result == "failed" && found.contains("tls = { ca = "), "{found}");
    let plain = url.replace("rediss:", "redis:");
    let (result, found) = store(&directory, &plain);
    assert!(result == "failed" && found.contains("rediss://"), "{found}");
}
