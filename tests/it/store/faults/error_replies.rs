//! A server that replies with errors, or has lost its scripts, its keys or its connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{Expected, Trial, try_fault};
use crate::support::{RedisServer, eventually};

#[test]
fn flushed_scripts_are_sent_again() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("SCRIPT FLUSH", ahead, &redis);
        for _ in 0..10 {
            redis.cli(&["script", "flush"]);
            trial.run(3);
        }
        trial.end(&Expected { reasons: &[], keeps: true });
    });
}

#[test]
fn flushed_keys_are_no_failure() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("FLUSHALL", ahead, &redis);
        for _ in 0..5 {
            redis.cli(&["flushall"]);
            trial.run(3);
        }
        trial.end(&Expected { reasons: &[], keeps: false });
    });
}

#[test]
fn a_server_becomes_read_only() {
    try_fault(|ahead| {
        let (redis, absent) = (RedisServer::start(), RedisServer::absent());
        let trial = Trial::with_server("-READONLY", ahead, &redis);
        let port = absent.addr().port().to_string();
        redis.cli(&["replicaof", "127.0.0.1", &port]);
        trial.run_outage();
        redis.cli(&["replicaof", "no", "one"]);
        let reasons = [
            "READONLY You can't write against a read only replica;",
            "not connected: READONLY You can't write",
        ];
        trial.end(&Expected { reasons: &reasons, keeps: true });
    });
}

#[test]
fn a_server_is_out_of_memory() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("-OOM", ahead, &redis);
        redis.cli(&["config", "set", "maxmemory", "1"]);
        trial.run_outage();
        redis.cli(&["config", "set", "maxmemory", "0"]);
        trial.end(&Expected {
            reasons: &["OOM command not allowed when used memory > 'maxmemory';"],
            keeps: true,
        });
    });
}

#[test]
fn a_server_is_busy_with_a_script() {
    try_fault(|ahead| {
        let redis = RedisServer::start_as(|_| vec!["--lua-time-limit".to_owned(), "200".to_owned()]);
        let trial = Trial::with_server("-BUSY", ahead, &redis);
        std::thread::scope(|scope| {
            scope.spawn(|| redis.cli(&["eval", "while true do end", "0"]));
            trial.run_outage();
            assert_eq!(redis.cli(&["script", "kill"]), "OK");
        });
        let reasons = [
            "BUSY Redis is busy",
            "no reply within the deadline",
            "the connection closed before",
            "not connected:",
        ];
        trial.end(&Expected { reasons: &reasons, keeps: true });
    });
}

#[test]
fn the_password_of_a_server_changes() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("-NOAUTH", ahead, &redis);
        redis.cli(&["config", "set", "requirepass", "hush"]);
        redis.cli(&["-a", "hush", "client", "kill", "type", "normal"]);
        trial.run_outage();
        redis.cli(&["-a", "hush", "config", "set", "requirepass", ""]);
        trial.end(&Expected { reasons: &["not connected: NOAUTH "], keeps: true });
    });
}

#[test]
fn a_server_has_too_many_clients() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("too many clients", ahead, &redis);
        // The only connection that stays open, and so the one that can raise the limit again.
        let mut connection = TcpStream::connect(redis.addr()).unwrap();
        let mut send = |command: &str| {
            connection.write_all(format!("{command}\r\n").as_bytes()).unwrap();
            let mut reply = [0; 64];
            let count = connection.read(&mut reply).unwrap();
            assert!(matches!(reply[0], b'+' | b':'), "{}", String::from_utf8_lossy(&reply[..count]));
        };
        send("config set maxclients 1");
        send("client kill type normal");
        trial.run_outage();
        send("config set maxclients 1000");
        trial.end(&Expected { reasons: &["not connected: ERR max number of clients"], keeps: true });
    });
}

/// Connections that are closed and replaced at once do not open the breaker.
#[test]
fn closed_connections_are_replaced() {
    try_fault(|ahead| {
        let redis = RedisServer::start();
        let trial = Trial::with_server("connections closed", ahead, &redis);
        for _ in 0..3 {
            redis.cli(&["client", "kill", "type", "normal"]);
            eventually("all workers are connected again", || {
                redis.cli(&["client", "list"]).lines().count() > 3
            });
            // So many that requests between two losses are counted: the losses are not consecutive failures.
            trial.run(20);
        }
        trial.end(&Expected { reasons: &[], keeps: true });
    });
}
