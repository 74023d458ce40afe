//! One server, over TLS or as an ACL user.

use std::cell::Cell;
use std::time::Duration;

use tidegate::config;
use tidegate::limit::{Key, PolicyId};
use tidegate::store::{Redis, RedisSpec, StateChange, StoreError, StoreSpec};
use tidegate::time::Micros;

use super::{admit, bucket, charge, documented, run};
use crate::support::{Authority, RedisServer, eventually, eventually_async, free_address, patience};

/// Options of a server on TLS, whose certificate says `name`.
fn tls(authority: &Authority, name: &str, port: u16) -> Vec<String> {
    let file = |name: &str| authority.file(name).display().to_string();
    let (port, certificate, key) =
        (port.to_string(), file(&format!("{name}.pem")), file(&format!("{name}.key")));
    ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key]
        .into_iter()
        .chain(["--tls-ca-cert-file", &file("ca.pem")])
        .map(str::to_owned)
        .collect()
}

/// A server on TLS alone.
fn server(authority: &Authority, name: &str, clients: &str) -> RedisServer {
    authority.sign(name);
    let more = ["--port", "0", "--tls-auth-clients", clients].map(str::to_owned);
    RedisServer::start_as(|port| [&tls(authority, name, port)[..], &more].concat())
}

/// A server with options that name a second port, and that port; another one at each attempt, for it may be taken.
fn with_port(options: impl Fn(u16) -> Vec<String>) -> (RedisServer, u16) {
    let second = Cell::new(0);
    let server = RedisServer::start_as(|_| {
        second.set(free_address().port());
        options(second.get())
    });
    (server, second.get())
}

/// The store of a configuration file beside the authority's files.
fn spec(authority: &Authority, store: &str) -> RedisSpec {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[store]\ntimeout = \"5s\"\n{store}\n[[routes]]\npath = \"/\"\nrespond = {{ status = 200 }}\n"
    );
    let file = authority.file("tidegate.toml");
    match config::parse(&text, file.to_str().unwrap(), &|_| None) {
        Ok(loaded) => match loaded.config.store {
            StoreSpec::Redis(servers) => servers.first().clone(),
            StoreSpec::Memory => panic!("no Redis in {text}"),
        },
        Err(report) => panic!("{report}"),
    }
}

/// Takes as long as a first connection needs.
fn taken(spec: &RedisSpec) -> Result<u64, StoreError> {
    run(async {
        let redis = Redis::connect(spec);
        redis.wait_connected(patience()).await?;
        Ok(redis.take(&[bucket("a", 5)].into(), &[charge(0, 1)]).await?[0].remaining)
    })
}

/// Why it can't be reached; none if it can.
fn refusal(spec: &RedisSpec) -> Option<String> {
    // A server that is trusted is reached in a few milliseconds.
    let connected = run(async { Redis::connect(spec).wait_connected(Duration::from_secs(1)).await });
    connected.err().map(|error| error.to_string())
}

/// Whether it can't be reached.
fn is_refused(spec: &RedisSpec) -> bool {
    refusal(spec).is_some()
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
    let (name, ca) = ("name one of the names of its certificate", "name the authority that has signed");
    for (files, wrong, cure) in [
        (&authority, url(&redis, "127.0.0.1") + &tls(""), name),
        (&authority, url(&redis, "localhost") + &tls(", server_name = \"redis.test\""), name),
        (&other, url(&redis, "localhost") + &tls(""), ca),
        (&authority, url(&redis, "localhost"), ca),
        (
            &authority,
            url(&redis, "localhost").replace("rediss", "redis"),
            "its URL must begin with rediss://",
        ),
    ] {
        let error = refusal(&spec(files, &wrong)).unwrap_or_else(|| panic!("{wrong} is accepted"));
        assert!(error.contains(cure), "{wrong}: {error}");
    }
    let plain = RedisServer::start();
    let error = refusal(&spec(&authority, &(url(&plain, "localhost") + &tls("")))).unwrap();
    assert!(
        error.contains("no reply; if it does not speak TLS, its URL must begin with redis://"),
        "{error}"
    );
}

#[test]
fn a_server_may_require_a_client_certificate() {
    let authority = Authority::new();
    let redis = server(&authority, "localhost", "yes");
    authority.sign("gate");
    let with = |tls: &str| {
        spec(&authority, &format!("{}\ntls = {{ ca = \"ca.pem\"{tls} }}", url(&redis, "localhost")))
    };
    assert!(is_refused(&with("")));
    assert_eq!(taken(&with(", cert = \"gate.pem\", key = \"gate.key\"")).unwrap(), 4);
}

/// What a cluster tells of its nodes, and a Sentinel of the master, are addresses; the certificates have a name.
#[test]
fn discovered_addresses_are_verified_by_the_configured_name() {
    let authority = Authority::new();
    authority.sign("localhost");
    let more =
        "--tls-auth-clients no --cluster-enabled yes --tls-cluster yes --cluster-announce-ip 127.0.0.1";
    let more: Vec<String> = more.split(' ').map(str::to_owned).collect();
    let (node, port) = with_port(|port| [&tls(&authority, "localhost", port)[..], &more].concat());
    node.cli(&["cluster", "addslotsrange", "0", "16383"]);
    eventually("it is a cluster", || node.cli(&["cluster", "info"]).contains("cluster_state:ok"));
    let url =
        |scheme: &str, port: u16, service: &str| format!("url = \"{scheme}://localhost:{port}{service}\"");
    let with = |url: &str, more: &str| spec(&authority, &format!("{url}\ntls = {{ ca = \"ca.pem\"{more} }}"));
    let named = ", server_name = \"localhost\"";
    let cluster = url("rediss-cluster", port, "");
    assert_eq!(taken(&with(&cluster, named)).unwrap(), 4);

    let more = ["--tls-auth-clients", "no"].map(str::to_owned);
    let (_master, master_port) = with_port(|port| [&tls(&authority, "localhost", port)[..], &more].concat());
    let sentinel_port = free_address().port();
    let options = tls(&authority, "localhost", sentinel_port).join(" ").replace("--", "\n");
    let _sentinel = RedisServer::start_sentinel(&format!(
        "tls-replication yes\ntls-auth-clients no{options}\nsentinel monitor gate 127.0.0.1 {master_port} 1\n"
    ));
    let watched = url("rediss-sentinel", sentinel_port, "/?service=gate");
    assert_eq!(taken(&with(&watched, named)).unwrap(), 4);
    assert!(is_refused(&with(&watched, "")));
}

/// Consumers in Redis need one more.
#[test]
fn consumers_need_another_right() {
    let redis = RedisServer::start();
    admit(&redis, "", "tidegate", &documented("tidegate", "+hgetall"));
    redis.cli(&["hset", "tidegate:consumer:00", "name", "acme"]);
    redis.cli(&["acl", "setuser", "default", "off"]);
    run(async {
        let store = Redis::connect(&super::spec(&format!("redis://tidegate:SECRET@{}", redis.addr())));
        store.wait_connected(patience()).await.unwrap();
        let record = store.consumer_record("00").await.unwrap();
        assert_eq!(record, [("name".into(), "acme".into())]);
        assert_eq!(store.consumer_record("01").await.unwrap(), []);
    });
}

#[test]
fn connections_have_names_and_add_nothing_to_the_acl_log() {
    let redis = RedisServer::start();
    admit(&redis, "", "tidegate", &documented("tidegate", ""));
    run(async {
        let store = Redis::connect(&super::spec(&format!("redis://tidegate:SECRET@{}/1", redis.addr())));
        store.wait_connected(patience()).await.unwrap();
        eventually_async("it has a name", async || {
            store.take(&[bucket("a", 5)].into(), &[charge(0, 1)]).await.unwrap();
            redis.cli(&["client", "list"]).contains(" name=tidegate-")
        })
        .await;
    });
    assert_eq!(redis.cli(&["acl", "log"]), "");
}

#[test]
fn a_unix_socket_may_have_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("redis.sock").display().to_string();
    let redis = RedisServer::start_as(|_| ["--unixsocket", &path].map(str::to_owned).to_vec());
    run(async {
        let store = Redis::connect(&super::spec(&format!("unix://{path}?db=3")));
        store.wait_connected(patience()).await.unwrap();
        store.take(&[bucket("a", 5)].into(), &[charge(0, 1)]).await.unwrap();
    });
    assert_eq!(["0", "3"].map(|number| redis.cli(&["-n", number, "dbsize"])), ["0", "1"]);
}

/// What docs/redis.md tells to give to the proxy's user is enough for all that it does, and no other key is its own.
#[test]
fn an_acl_user_needs_few_rights() {
    let redis = RedisServer::start();
    admit(&redis, "", "tidegate", &documented("tidegate", ""));
    redis.cli(&["acl", "setuser", "default", "off"]);
    let url = format!("redis://tidegate:SECRET@{}", redis.addr());
    let spec = super::spec(&url);
    run(async {
        let (policies, key) = (std::sync::Arc::from([bucket("a", 5)]), Key([1; 16]));
        let store = Redis::connect(&spec);
        store.wait_connected(patience()).await.unwrap();
        assert_eq!(store.take(&policies, &[charge(0, 1)]).await.unwrap()[0].remaining, 4);
        assert_eq!(store.keys(&policies[0], 10).await.unwrap(), [key]);
        for change in [StateChange::Block(Micros::SECOND), StateChange::Unblock, StateChange::Reset] {
            assert_eq!(store.change(&policies, &[(PolicyId(0), key)], change).await.unwrap(), 1);
        }
        assert_eq!(store.take(&policies, &[charge(0, 1)]).await.unwrap()[0].remaining, 4);
        let refused = store.consumer_record("00").await.unwrap_err();
        assert!(refused.to_string().contains("NOPERM"), "{refused}");
        let elsewhere = Redis::connect(&RedisSpec { prefix: "other".into(), ..spec.clone() });
        elsewhere.wait_connected(patience()).await.unwrap();
        let refused = elsewhere.take(&policies, &[charge(0, 1)]).await.unwrap_err();
        assert!(refused.to_string().contains("NOPERM"), "{refused}");
    });
}
