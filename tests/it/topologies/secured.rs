//! One server, over TLS or as an ACL user.

use std::time::Duration;

use tidegate::config;
use tidegate::limit::{Key, PolicyId};
use tidegate::store::{Change, Redis, RedisSpec, StoreError, StoreSpec};
use tidegate::time::Micros;

use super::{bucket, charge, run};
use crate::support::{Authority, PATIENCE, RedisServer};

/// A server on TLS alone, whose certificate says `name`.
fn server(authority: &Authority, name: &str, clients: &str) -> RedisServer {
    authority.sign(name);
    RedisServer::start_as(|port| {
        let file = |name: &str| authority.file(name).display().to_string();
        let port = port.to_string();
        let cert = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        ["--port", "0", "--tls-port", &port, "--tls-cert-file", &cert.0, "--tls-key-file", &cert.1]
            .into_iter()
            .chain(["--tls-ca-cert-file", &file("ca.pem"), "--tls-auth-clients", clients])
            .map(str::to_owned)
            .collect()
    })
}

/// The store of a configuration file beside the authority's files.
fn spec(authority: &Authority, store: &str) -> RedisSpec {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[store]\ntimeout = \"5s\"\n{store}\n[[routes]]\npath = \"/\"\nrespond = {{ status = 200 }}\n"
    );
    let file = authority.file("tidegate.toml");
    match config::parse(&text, file.to_str().unwrap(), &|_| None) {
        Ok(loaded) => match loaded.config.store {
            StoreSpec::Redis(spec) => spec,
            StoreSpec::Memory => panic!("no Redis in {text}"),
        },
        Err(report) => panic!("{report}"),
    }
}

/// Takes as long as a first connection needs.
fn taken(spec: &RedisSpec) -> Result<u64, StoreError> {
    run(async {
        let redis = Redis::connect(spec);
        redis.reach(PATIENCE).await?;
        Ok(redis.take(&[bucket("a", 5)], &[charge(0, 1)]).await?[0].remaining)
    })
}

/// Whether it can't be reached.
fn is_refused(spec: &RedisSpec) -> bool {
    // A server that is trusted is reached in a few milliseconds.
    run(async { Redis::connect(spec).reach(Duration::from_secs(1)).await.is_err() })
}

fn url(server: &RedisServer, host: &str) -> String {
    format!("url = \"rediss://{host}:{}\"", server.addr().port())
}

#[test]
fn a_server_is_trusted_by_its_authority_and_name() {
    let (authority, other) = (Authority::new(), Authority::new());
    let redis = server(&authority, "localhost", "no");
    let tls = |more: &str| format!("\ntls = {{ ca = \"ca.pem\"{more} }}");
    assert_eq!(taken(&spec(&authority, &(url(&redis, "localhost") + &tls("")))).unwrap(), 4);
    let named = url(&redis, "127.0.0.1") + &tls(", server_name = \"localhost\"");
    assert_eq!(taken(&spec(&authority, &named)).unwrap(), 3);
    for (files, wrong) in [
        (&authority, url(&redis, "127.0.0.1") + &tls("")),
        (&authority, url(&redis, "localhost") + &tls(", server_name = \"redis.test\"")),
        (&other, url(&redis, "localhost") + &tls("")),
        (&authority, url(&redis, "localhost")),
        (&authority, url(&redis, "localhost").replace("rediss", "redis")),
    ] {
        assert!(is_refused(&spec(files, &wrong)), "{wrong}");
    }
}

#[test]
fn a_server_may_ask_for_a_certificate() {
    let authority = Authority::new();
    let redis = server(&authority, "localhost", "yes");
    authority.sign("gate");
    let with = |tls: &str| {
        spec(&authority, &format!("{}\ntls = {{ ca = \"ca.pem\"{tls} }}", url(&redis, "localhost")))
    };
    assert!(is_refused(&with("")));
    assert_eq!(taken(&with(", cert = \"gate.pem\", key = \"gate.key\"")).unwrap(), 4);
}

/// What docs/redis.md tells to give to the proxy's user is enough for all that it does, and no other key is its own.
#[test]
fn an_acl_user_needs_few_rights() {
    let documented = include_str!("../../../docs/redis.md");
    let rule = documented.lines().find_map(|line| line.strip_prefix("user tidegate ")).unwrap();
    let redis = RedisServer::start();
    let rights: Vec<&str> = rule.split(' ').collect();
    redis.cli(&[&["acl", "setuser", "tidegate"], &rights[..]].concat());
    redis.cli(&["acl", "setuser", "default", "off"]);
    let url = format!("redis://tidegate:SECRET@{}", redis.addr());
    let spec = super::spec(&url);
    run(async {
        let (policies, key) = ([bucket("a", 5)], Key([1; 16]));
        let store = Redis::connect(&spec);
        store.reach(PATIENCE).await.unwrap();
        assert_eq!(store.take(&policies, &[charge(0, 1)]).await.unwrap()[0].remaining, 4);
        assert_eq!(store.keys(&policies[0], 10).await.unwrap(), [key]);
        for change in [Change::Block(Micros::SECOND), Change::Unblock, Change::Reset] {
            assert_eq!(store.change(&policies, &[(PolicyId(0), key)], change).await.unwrap(), 1);
        }
        assert_eq!(store.take(&policies, &[charge(0, 1)]).await.unwrap()[0].remaining, 4);
        let elsewhere = Redis::connect(&RedisSpec { prefix: "other".into(), ..spec.clone() });
        elsewhere.reach(PATIENCE).await.unwrap();
        let refused = elsewhere.take(&policies, &[charge(0, 1)]).await.unwrap_err();
        assert!(refused.to_string().contains("NOPERM"), "{refused}");
    });
}
