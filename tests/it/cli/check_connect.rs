//! `tidegate check --connect`: Redis, key sets, servers, collectors and certificates.

use std::time::{Duration, SystemTime};

use jsonwebtoken::Algorithm;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

use super::*;
use crate::support::{
    Authority, Collector, Issuer, RedisServer, Tidegate, Upstream, free_address, jwks, scaled,
};

const LISTEN: &str = "listen = \"127.0.0.1:8080\"\n";

/// A timeout that suffices on a busy machine.
fn patient() -> String {
    format!("{}ms", scaled(Duration::from_secs(3)).as_millis())
}

/// Runs `check --connect` with a file of this text in a directory.
fn connect(directory: &Path, text: &str, args: &[&str]) -> Finished {
    std::fs::write(directory.join("tidegate.toml"), text).unwrap();
    let own = patient();
    let timeout = if args.contains(&"--timeout") { &[][..] } else { &["--timeout", &own] };
    tidegate(directory, &[&["check", "--connect"][..], timeout, args].concat())
}

/// The row of the table whose target starts like this, without its time: its result and what was found.
#[track_caller]
fn row(finished: &Finished, target: &str) -> (String, String) {
    let row = finished.stdout.lines().find_map(|line| {
        let (result, rest) = line.split_once("  ")?;
        let rest = rest.trim_start().strip_prefix(target)?;
        let cells: Vec<&str> = rest.split("  ").filter(|cell| !cell.is_empty()).collect();
        Some((result.to_owned(), cells.last()?.trim_start().to_owned()))
    });
    row.unwrap_or_else(|| panic!("no row of {target}:\n{}{}", finished.stdout, finished.stderr))
}

fn forwarding(servers: &str, more: &str) -> String {
    format!(
        "{LISTEN}[upstreams.api]\nservers = [{servers}]\n{more}[[routes]]\npath = \"/*\"\nupstream = \"api\"\n"
    )
}

#[test]
fn everything_that_works_is_ok() {
    let directory = tempfile::tempdir().unwrap();
    let (redis, collector) = (RedisServer::start(), Collector::start());
    let healthy = || Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let (server, second) = (healthy(), healthy());
    let set = jwks(&[&Issuer::new(Algorithm::ES256, "a")]);
    let keys = Upstream::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{set}", set.len()));
    let text = format!(
        "{LISTEN}[store]\nurl = \"{}\"\ntimeout = \"{}\"\n[jwt]\njwks = \"{}/keys\"\nalgorithms = [\"ES256\"]\n[tracing]\nendpoint = \"{}\"\n\
         [limits.a]\nrate = \"1/day\"\n[limits.b]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\n\
         [limits.c]\nalgorithm = \"sliding_log\"\nrate = \"1/day\"\nkey = \"jwt:sub\"\n\
         [upstreams.api]\nservers = [\"{}\", \"{}\"]\nhealth = {{ path = \"/healthz\" }}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"a\", \"b\", \"c\"]\nupstream = \"api\"\n",
        redis.url(),
        patient(),
        keys.url(),
        collector.url(),
        server.url(),
        second.url(),
    );
    // Twice: the check leaves no counts behind, with which the second one would be denied.
    for _ in 0..2 {
        let checked = connect(directory.path(), &text, &["--strict"]);
        assert_eq!((checked.status, checked.stderr.as_str()), (0, ""), "{}", checked.stdout);
        let ok = |found: &str| ("ok".to_owned(), found.to_owned());
        assert_eq!(row(&checked, "store redis://"), ok("connected; all scripts and commands are permitted"));
        assert_eq!(row(&checked, "keys http://"), ok("1 key for the allowed algorithms"));
        assert_eq!(row(&checked, "collector http://"), ok("accepts spans"));
        assert_eq!(row(&checked, "upstream api: http://"), ok("connected, healthy (/healthz)"));
    }
    assert!(redis.keys().iter().all(|key| key.contains("+probe")), "{:?}", redis.keys());
    let last = server.requests().last().unwrap().start.clone();
    assert_eq!(last, "GET /healthz HTTP/1.1");
}

#[test]
fn what_does_not_work_is_named_with_its_cure() {
    let directory = tempfile::tempdir().unwrap();
    let unused = [free_address(), free_address(), free_address()];
    let text = format!(
        "{LISTEN}[store]\nurl = \"redis://{}\"\n[jwt]\njwks = \"http://{}/keys\"\nalgorithms = [\"ES256\"]\n\
         [limits.a]\nrate = \"1/s\"\nkey = [\"jwt:sub\", \"client_ip\"]\n\
         [upstreams.api]\nservers = [\"http://{}\", \"http://missing.invalid\"]\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nupstream = \"api\"\n",
        unused[0], unused[1], unused[2]
    );
    let checked = connect(directory.path(), &text, &[]);
    assert_eq!((checked.status, checked.stderr.as_str()), (1, "error: 4 of 4 checks failed\n"));
    for target in ["store redis://", "keys http://", "upstream api: http://127."] {
        let (result, found) = row(&checked, target);
        assert_eq!(result, "failed");
        assert!(found.contains("Connection refused") && found.ends_with("or correct its address"), "{found}");
    }
    let (result, found) = row(&checked, "upstream api: http://missing.invalid");
    assert!(result == "failed" && found.starts_with("missing.invalid can't be resolved: "), "{found}");

    let json = connect(directory.path(), &text, &["--json"]);
    assert_eq!(json.status, 1);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(found["valid"], true);
    let connections = found["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 4);
    for connection in connections {
        assert_eq!(connection["result"], "failed");
        assert!(connection["seconds"].is_f64() && connection["help"].is_string(), "{connection}");
    }
}

#[test]
fn a_user_of_redis_without_permissions_fails() {
    let directory = tempfile::tempdir().unwrap();
    let redis = RedisServer::start();
    let user = |rules: &str| {
        let rules: Vec<&str> = rules.split(' ').collect();
        redis.cli(&[&["ACL", "SETUSER", "tidegate", "reset"][..], &rules].concat());
        let text = format!(
            "{LISTEN}[store]\nurl = \"redis://tidegate:hush@{}\"\ntimeout = \"{}\"\n[limits.a]\nrate = \"9/s\"\n[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = {{}}\n",
            redis.addr(),
            patient()
        );
        let checked = connect(directory.path(), &text, &[]);
        assert!(!checked.stdout.contains("hush"), "{}", checked.stdout);
        row(&checked, "store redis://")
    };
    let rights = "on >hush ~tidegate:* resetchannels -@all +evalsha +eval +mget +set +setrange +del +pttl +time +scan +hello +select";
    assert_eq!(user(rights).0, "ok");
    for (rules, cure) in [
        (rights.replace(" +del", ""), "give the user the permissions of docs/redis.md"),
        (rights.replace(" +evalsha", ""), "give the user the permissions of docs/redis.md"),
        (rights.replace("~tidegate", "~other"), "give the user the permissions of docs/redis.md"),
        (rights.replace(">hush", ">other"), "correct the user and the password in `url` of [store]"),
    ] {
        let (result, found) = user(&rules);
        assert!(result == "failed" && found.contains(cure), "{rules}: {found}");
    }
}

#[test]
fn a_store_that_is_no_redis_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let check = |url: &str| {
        let text = format!("{LISTEN}[store]\nurl = \"{url}\"\n[[routes]]\npath = \"/*\"\nrespond = {{}}\n");
        row(&connect(directory.path(), &text, &[]), "store ").1
    };
    for (reply, found) in [
        (
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            "the server does not reply as Redis does; correct the host",
        ),
        ("220 mail.example.com ESMTP\r\n", "the server does not reply as Redis does; correct the host"),
        (
            "-ERR unknown command 'HELLO'\r\n",
            "the server is older than Redis 6: it has no HELLO; upgrade it to 6.2",
        ),
    ] {
        let server = Upstream::scripted(move |caller| {
            if caller.take("HELLO 3\r\n".len()).is_ok() && caller.try_send(reply).is_ok() {
                // Until the client closes the connection.
                let _ = caller.take(4096);
            }
        });
        let text = check(&format!("redis://{}", server.addr()));
        assert!(text.contains(found), "{reply}: {text}");
    }
    let text = check("redis://missing.invalid");
    assert!(
        text.contains("its host name is unknown (") && text.contains("; correct it in the URL"),
        "{text}"
    );
    assert!(!text.contains("Custom"), "{text}");
    let text = check("unix:///no/such.sock");
    assert!(text.contains("No such file or directory; correct the path in `url` of [store]"), "{text}");
}

#[test]
fn servers_are_checked_with_their_tls() {
    let authority = Authority::new();
    authority.sign_names("api", &["api.internal"]);
    let listener = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{}\n", authority.listener("api"));
    let tidegate = Tidegate::start(&format!("{listener}[[routes]]\npath = \"/*\"\nrespond = {{}}\n"));
    let url = format!("\"https://{}\"", tidegate.addr());
    let plain = Tidegate::start("[[routes]]\npath = \"/*\"\nrespond = {}\n");
    let directory = authority.file("ca.pem").parent().unwrap().to_owned();
    for (servers, tls, result, found) in [
        (
            url.clone(),
            "tls = { ca = \"ca.pem\", server_name = \"api.internal\" }\n",
            "ok",
            "connected by TLS",
        ),
        (
            url.clone(),
            "tls = { ca = \"ca.pem\", server_name = \"other.internal\" }\n",
            "failed",
            "name one of the names of its certificate",
        ),
        (
            url.clone(),
            "tls = { server_name = \"api.internal\" }\n",
            "failed",
            "name the authority that has signed its certificate",
        ),
        (format!("\"https://{}\"", plain.addr()), "", "failed", "it does not speak TLS"),
    ] {
        let checked = connect(&directory, &forwarding(&servers, tls), &[]);
        let (own, text) = row(&checked, "upstream api: https://");
        assert!(own == result && text.contains(found), "{tls}: {own} {text}");
    }
}

#[test]
fn certificates_are_shown_with_names_and_expiry() {
    let authority = Authority::new();
    authority.sign_names("api", &["api.example.com", "*.example.org"]);
    let directory = authority.file("ca.pem").parent().unwrap().to_owned();
    let route = |host: &str| format!("[[routes]]\npath = \"/*\"\nhost = \"{host}\"\nrespond = {{}}\n");
    let text = format!("[[listeners]]\naddress = \"127.0.0.1:8443\"\n{}\n", authority.listener("api"));
    let named = format!("{text}{}{}", route("api.example.com"), route("www.example.org"));
    let checked = connect(&directory, &named, &["--strict"]);
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    let (result, found) = row(&checked, "certificate of ");
    assert!(result == "ok" && found.starts_with("api.example.com, *.example.org: expires in "), "{found}");
    let other = connect(&directory, &format!("{text}{}", route("shop.example.com")), &[]);
    let (result, found) = row(&other, "certificate for shop.example.com");
    assert!(result == "warning" && found.contains("no certificate has this name"), "{found}");
    assert_eq!(other.status, 0);
    let strict = connect(&directory, &format!("{text}{}", route("shop.example.com")), &["--strict"]);
    assert_eq!(strict.status, 1);
}

#[test]
fn certificates_that_expire_are_named() {
    let authority = Authority::new();
    let directory = authority.file("ca.pem").parent().unwrap().to_owned();
    let now = SystemTime::now();
    let sign = |file: &str, from: SystemTime, until: SystemTime| {
        let mut params = CertificateParams::new(vec!["api.example.com".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from.into(), until.into());
        authority.write(file, &KeyPair::generate().unwrap(), &params);
    };
    let day = Duration::from_hours(24);
    sign("soon", now - day, now + 10 * day);
    sign("expired", now - 10 * day, now - 2 * day);
    sign("later", now + 3 * day, now + 90 * day);
    for (file, result, found, status) in [
        ("soon", "warning", "api.example.com: expires in 9days 23h; renew it", 0),
        ("expired", "failed", "api.example.com: expired 2days ago; renew it", 1),
        ("later", "failed", "api.example.com: not valid for another 2days 23h; renew it", 1),
    ] {
        let tls = authority.listener(file);
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:8443\"\n{tls}\n[[routes]]\npath = \"/*\"\nrespond = {{}}\n"
        );
        let checked = connect(&directory, &text, &[]);
        let expected = (result.to_owned(), found.to_owned());
        assert_eq!((row(&checked, "certificate of "), checked.status), (expected, status), "{file}");
    }
    let server = Upstream::echo();
    let tls = format!("tls = {{ ca = \"ca.pem\", {} }}\n", authority.pair("soon"));
    let url = server.url().replace("http:", "https:");
    let checked = connect(&directory, &forwarding(&format!("\"{url}\""), &tls), &["--timeout", "100ms"]);
    let expected = ("warning".to_owned(), "expires in 9days 23h; renew it".to_owned());
    assert_eq!(row(&checked, "client certificate for upstream api"), expected);
}

#[test]
fn an_invalid_file_is_not_tried() {
    let directory = tempfile::tempdir().unwrap();
    let server = Upstream::echo();
    let text = forwarding(&format!("\"{}\"", server.url()), "balance = \"rnd\"\n");
    assert_eq!(connect(directory.path(), &text, &[]).status, 2);
    assert_eq!(server.connections(), 0);
}
