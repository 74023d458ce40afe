//! The program as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

/// What a run of the program says and comes to.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: i32,
    stdout: String,
    stderr: String,
}

/// Runs the program in `directory`, with one variable set.
fn tidegate(directory: &Path, args: &[&str]) -> Said {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(directory)
        .env("REDIS_URL", "redis://app:hush@redis.internal:6380/2")
        .env_remove("NOT_SET")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn ok(stdout: &str) -> Said {
    Said { status: 0, stdout: stdout.to_owned(), stderr: String::new() }
}

fn wrong(stderr: &str) -> Said {
    Said { status: 2, stdout: String::new(), stderr: stderr.to_owned() }
}

/// Runs `check` on a file with this text.
fn check(text: &str) -> Said {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    tidegate(directory.path(), &["check"])
}

#[test]
fn check_says_that_the_examples_are_right() {
    assert_eq!(
        tidegate(repository(), &["check", "-c", "config/quickstart.toml"]),
        ok("config/quickstart.toml is right: 1 route, 1 limit, 0 upstreams, counts in this process\n")
    );
    assert_eq!(
        tidegate(repository(), &["check", "--config", "config/production.toml"]),
        ok(
            "config/production.toml is right: 3 routes, 3 limits, 1 upstream, store redis://redis.internal:6380/2\n"
        )
    );
}

#[test]
fn check_shows_what_is_wrong_and_ends_with_2() {
    let text = "listen = \"127.0.0.1:8080\"\n\n[limits.a]\nrate = \"0/s\"\n\n[[routes]]\npath = \"/\"\nlimits = [\"b\"]\nrespond = {}\n";
    assert_eq!(
        check(text),
        wrong(
            r#"error: a rate of zero would refuse every request
 --> tidegate.toml:4:8
  |
4 | rate = "0/s"
  |        ^^^^^
  |
  = help: allow at least one request each period, such as "1/minute"; to refuse everything, give the route `respond = { status = 403 }`

error: unknown limit `b`
 --> tidegate.toml:8:11
  |
8 | limits = ["b"]
  |           ^^^
  |
  = help: define it: [limits.b]

tidegate.toml: 2 problems
"#
        )
    );
}

#[test]
fn check_warns_of_what_is_odd_and_ends_with_0() {
    let text = "listen = \"127.0.0.1:8080\"\n\n[limits.a]\nrate = \"5/s\"\n\n[[routes]]\npath = \"/*\"\nrespond = {}\n";
    let said = check(text);
    assert_eq!(
        said,
        Said {
            stderr: "warning: no route uses this limit
 --> tidegate.toml:3:9
  |
3 | [limits.a]
  |         ^
  |
  = help: name it in a route's `limits`, or in `default_limits`
"
            .into(),
            ..ok("tidegate.toml is right: 1 route, 1 limit, 0 upstreams, counts in this process\n")
        }
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let said = "error: can't read config.toml: No such file or directory (os error 2)\nhelp: name another file with -c FILE\n";
    for command in ["check", "run"] {
        assert_eq!(tidegate(directory.path(), &[command, "-c", "config.toml"]), wrong(said));
    }
    let said = tidegate(directory.path(), &["explain", "GET", "/"]);
    assert_eq!(said, wrong(&said.stderr));
    assert!(said.stderr.starts_with("error: can't read tidegate.toml: "), "{}", said.stderr);
}

#[test]
fn run_starts_nothing_with_a_wrong_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), "listen = 1\n").unwrap();
    let said = tidegate(directory.path(), &["run"]);
    assert_eq!((said.status, said.stdout.as_str()), (2, ""));
    assert!(said.stderr.contains("--> tidegate.toml:1:10"), "{}", said.stderr);
}

#[test]
fn secrets_never_show() {
    for text in [
        "listen = \"127.0.0.1:8080\"\n[store]\nurl = \"${REDIS_URL}/x\"\nprefix = \"${REDIS_URL} \"\n",
        "listen = \"${REDIS_URL}\"\n[store]\ntimeout = \"${REDIS_URL}\"\nclock = \"${REDIS_URL}\"\n",
        "[limits.a]\nrate = \"${REDIS_URL}\"\nkey = \"${REDIS_URL}\"\n[[routes]]\npath = \"${REDIS_URL}\"\nlimits = [\"${REDIS_URL}\"]\nupstream = \"${REDIS_URL}\"\n",
        "[[routes]]\npath = \"/\"\nhost = \"${REDIS_URL}\"\nname = \"\"\nmethods = [\"${REDIS_URL}\", \"x${REDIS_URL}\"]\nrewrite = { host = \"${REDIS_URL}\", strip_prefix = \"${REDIS_URL}\" }\nrequest_headers = { set = { x = \"${REDIS_URL}\\n\" }, remove = [\"${REDIS_URL}\"] }\n",
        "[answers]\nrate_headers = \"${REDIS_URL}\"\n[client_ip]\ntrusted_proxies = [\"${REDIS_URL}\"]\nheader = \"${REDIS_URL}\"\n[[listeners]]\nmax_header_bytes = \"${REDIS_URL}\"\n",
        "[store]\nurl = \"redis://app:hush@h:x\"\nhash_key = \"hush\"\n",
        "[store]\nurl = \"redis://app:hush@h\n",
        "[store]\nhash_key = hush = \"hush\"\n",
    ] {
        let said = check(text);
        assert_eq!(said.status, 2, "{text}");
        assert!(!said.stderr.contains("hush\"") && !said.stderr.contains("app:hush"), "{}", said.stderr);
    }
}

#[test]
fn explain_follows_a_request_upstream() {
    let said = tidegate(
        repository(),
        &[
            "explain",
            "-c",
            "config/production.toml",
            "GET",
            "https://api.example.com/v1//users/./7?q=1",
            "-H",
            "X-Api-Key: k1",
            "-H",
            "X-Forwarded-For: 6.6.6.6, 203.0.113.9",
            "--from",
            "10.0.0.7",
        ],
    );
    assert_eq!(
        said,
        ok("request   GET /v1//users/./7?q=1 from 10.0.0.7
path      /v1/users/7
host      api.example.com
client    203.0.113.9 (from x-forwarded-for, sent by the trusted proxy 10.0.0.7)
route     api: host api.example.com; path /v1/*

limit     per-address: token_bucket, 3000/minute, burst 500; at most 500 at once
          key       client_ip = 203.0.113.9
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{6i_T3KEdH5XvVbaQzu8edw}:per-address:b
          if away   the request passes this limit

limit     per-key: token_bucket, 600/minute, burst 100; at most 100 at once
          key       header:x-api-key = k1
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{lOi_WN7gUW3I4LyfzWuHMA}:per-key:b
          if away   this process decides by itself, at most 33 at once

upstream  api
sent to   http://10.0.1.5:9000/users/7?q=1
or        http://10.0.1.6:9000/users/7?q=1 (weight 2)
as host   api.example.com
set       on the way there: x-gate
removed   on the way back: server
")
    );
}

#[test]
fn explain_tells_of_routes_that_were_passed_over() {
    let said = tidegate(
        repository(),
        &[
            "explain",
            "-c",
            "config/production.toml",
            "GET",
            "http://api.example.com/v1/sessions",
            "-H",
            "x-api-key: k1",
            "-H",
            "x-forwarded-for: 203.0.113.9",
            "--from",
            "2001:db8:1:2:3:4:5:6",
        ],
    );
    assert_eq!(
        said,
        ok("request   GET /v1/sessions from 2001:db8:1:2:3:4:5:6
path      /v1/sessions
host      api.example.com
client    2001:db8:1:2:3:4:5:6 (it is no trusted proxy: its x-forwarded-for is not believed), counted as 2001:db8:1:2::/64
not       route sign-in, though its path fits: it takes only POST
route     api: host api.example.com; path /v1/*

limit     per-address: token_bucket, 3000/minute, burst 500; at most 500 at once
          key       client_ip = 2001:db8:1:2::
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{hfd9v8lhXbsdOu6lnzLyqA}:per-address:b
          if away   the request passes this limit

limit     per-key: token_bucket, 600/minute, burst 100; at most 100 at once
          key       header:x-api-key = k1
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{lOi_WN7gUW3I4LyfzWuHMA}:per-key:b
          if away   this process decides by itself, at most 33 at once

upstream  api
sent to   http://10.0.1.5:9000/sessions
or        http://10.0.1.6:9000/sessions (weight 2)
as host   api.example.com
set       on the way there: x-gate
removed   on the way back: server
")
    );
}

#[test]
fn explain_tells_why_a_request_is_refused() {
    let explain = |args: &[&str]| {
        let args: Vec<&str> =
            ["explain", "-c", "config/production.toml"].iter().chain(args).copied().collect();
        tidegate(repository(), &args)
    };
    assert_eq!(
        explain(&["GET", "/a%2Fb"]),
        ok(r#"request   GET /a%2Fb from 127.0.0.1
path      /a%2Fb
client    127.0.0.1

answer    400 Bad Request: the path has an encoded slash
          a route lets such a path pass if it says encoded_slash = "keep"
"#)
    );
    assert_eq!(
        explain(&["GET", "http://api.example.com/v1/x"]),
        ok("request   GET /v1/x from 127.0.0.1
path      /v1/x
client    127.0.0.1

answer    403 Forbidden: the request lacks header:x-api-key
")
    );
    let said = explain(&["CONNECT", "http://api.example.com/"]).stdout;
    assert!(said.ends_with("answer    405 Method Not Allowed: CONNECT is not served here\n"), "{said}");
    let said = explain(&["OPTIONS", "*"]).stdout;
    assert!(said.ends_with("answer    204 No Content: the server as a whole is asked\n"), "{said}");
    assert_eq!(
        explain(&["GET", "http://other.example/"]),
        ok("request   GET / from 127.0.0.1
path      /
host      other.example
client    127.0.0.1
route     none matches

limit     per-address: token_bucket, 3000/minute, burst 500; at most 500 at once
          key       client_ip = 127.0.0.1
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{ToAhDEH3tJyfFD516OJZ1Q}:per-address:b
          if away   the request passes this limit

answer    404 Not Found: no route matches
")
    );
}

#[test]
fn explain_knows_routes_that_answer_by_themselves() {
    let said = tidegate(repository(), &["explain", "-c", "config/quickstart.toml", "HEAD", "/a?x=1"]);
    assert_eq!(
        said,
        ok("request   HEAD /a?x=1 from 127.0.0.1
path      /a
host      localhost
client    127.0.0.1
route     1: path /*

limit     per-client: token_bucket, 5/minute; at most 5 at once
          key       client_ip = 127.0.0.1
          cost      1
          counted   in this process

answer    200 OK, by the route itself
")
    );
}

#[test]
fn unusable_arguments_end_with_2() {
    for args in [
        &["explain", "-c", "config/quickstart.toml", "GET", "ftp://a"][..],
        &["explain", "-c", "config/quickstart.toml", "G T", "/"],
        &["explain", "-c", "config/quickstart.toml", "GET", "/", "-H", "no colon"],
        &["explain", "-c", "config/quickstart.toml", "GET", "/", "--from", "nobody"],
        &["explain", "-c", "config/quickstart.toml", "GET"],
        &["serve"],
        &[],
    ] {
        let said = tidegate(repository(), args);
        assert_eq!((said.status, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!said.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn the_version_is_printed() {
    assert_eq!(
        tidegate(repository(), &["--version"]),
        ok(concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"))
    );
}
