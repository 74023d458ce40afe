//! A server that answers, and says no.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{Expected, Trial};
use crate::support::{RedisServer, eventually};

/// How long each of them lasts.
const OUTAGE: Duration = Duration::from_millis(1_500);

#[test]
fn scripts_flushed() {
    let redis = RedisServer::start();
    let trial = Trial::over("SCRIPT FLUSH", &redis);
    for _ in 0..10 {
        redis.cli(&["script", "flush"]);
        // So that requests come in between.
        std::thread::sleep(Duration::from_millis(50));
    }
    trial.end(&Expected { reasons: &[], keeps: true });
}

#[test]
fn all_keys_flushed() {
    let redis = RedisServer::start();
    let trial = Trial::over("FLUSHALL", &redis);
    for _ in 0..5 {
        redis.cli(&["flushall"]);
        // So that requests come in between.
        std::thread::sleep(Duration::from_millis(50));
    }
    trial.end(&Expected { reasons: &[], keeps: false });
}

#[test]
fn read_only() {
    let (redis, absent) = (RedisServer::start(), RedisServer::absent());
    let trial = Trial::over("-READONLY", &redis);
    let port = absent.addr().port().to_string();
    redis.cli(&["replicaof", "127.0.0.1", &port]);
    std::thread::sleep(OUTAGE);
    redis.cli(&["replicaof", "no", "one"]);
    let reasons =
        ["READONLY You can't write against a read only replica;", "not connected: READONLY You can't write"];
    trial.end(&Expected { reasons: &reasons, keeps: true });
}

#[test]
fn out_of_memory() {
    let redis = RedisServer::start();
    let trial = Trial::over("-OOM", &redis);
    redis.cli(&["config", "set", "maxmemory", "1"]);
    std::thread::sleep(OUTAGE);
    redis.cli(&["config", "set", "maxmemory", "0"]);
    trial.end(&Expected {
        reasons: &["OOM command not allowed when used memory > 'maxmemory';"],
        keeps: true,
    });
}

#[test]
fn busy_with_a_script() {
    let redis = RedisServer::start_as(|_| vec!["--lua-time-limit".to_owned(), "200".to_owned()]);
    let trial = Trial::over("-BUSY", &redis);
    std::thread::scope(|scope| {
        scope.spawn(|| redis.cli(&["eval", "while true do end", "0"]));
        std::thread::sleep(OUTAGE);
        assert_eq!(redis.cli(&["script", "kill"]), "OK");
    });
    let reasons = [
        "BUSY Redis is busy",
        "no reply within the deadline",
        "the connection closed before",
        "not connected:",
    ];
    trial.end(&Expected { reasons: &reasons, keeps: true });
}

#[test]
fn password_changed() {
    let redis = RedisServer::start();
    let trial = Trial::over("-NOAUTH", &redis);
    redis.cli(&["config", "set", "requirepass", "hush"]);
    redis.cli(&["-a", "hush", "client", "kill", "type", "normal"]);
    std::thread::sleep(OUTAGE);
    redis.cli(&["-a", "hush", "config", "set", "requirepass", ""]);
    trial.end(&Expected { reasons: &["not connected: NOAUTH "], keeps: true });
}

#[test]
fn too_many_clients() {
    let redis = RedisServer::start();
    let trial = Trial::over("too many clients", &redis);
    // The only one that stays, and so may change it again.
    let mut only = TcpStream::connect(redis.addr()).unwrap();
    let mut tell = |command: &str| {
        only.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut answer = [0; 64];
        let count = only.read(&mut answer).unwrap();
        assert!(matches!(answer[0], b'+' | b':'), "{}", String::from_utf8_lossy(&answer[..count]));
    };
    tell("config set maxclients 1");
    tell("client kill type normal");
    std::thread::sleep(OUTAGE);
    tell("config set maxclients 1000");
    trial.end(&Expected { reasons: &["not connected: ERR max number of clients"], keeps: true });
}

/// Connections that are closed and made again at once are not worth a change.
#[test]
fn connections_closed() {
    let redis = RedisServer::start();
    let trial = Trial::over("connections closed", &redis);
    for _ in 0..3 {
        redis.cli(&["client", "kill", "type", "normal"]);
        // So that there are connections again.
        eventually("all workers are back", || redis.cli(&["client", "list"]).lines().count() > 3);
        std::thread::sleep(Duration::from_millis(200));
    }
    trial.end(&Expected { reasons: &[], keeps: true });
}
