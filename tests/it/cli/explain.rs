//! `tidegate explain`.

use super::{Finished, ok, repository, tidegate};
use crate::support::Authority;

/// Explains a request to the example of a production configuration.
fn explain(args: &[&str]) -> Finished {
    let args: Vec<&str> = ["explain", "-c", "config/production.toml"].iter().chain(args).copied().collect();
    tidegate(repository(), &args)
}

#[test]
fn explain_follows_a_request_upstream() {
    let target = "https://api.example.com/v1//users/./7?q=1";
    let forwarded = "X-Forwarded-For: 6.6.6.6, 203.0.113.9";
    assert_eq!(
        explain(&["GET", target, "-H", "X-Api-Key: k1", "-H", forwarded, "--from", "10.0.0.7"]),
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
          if down   the request passes this limit

limit     per-key: token_bucket, 600/minute, burst 100; at most 100 at once
          key       header:x-api-key = k1
          tier      none: the request has no header:x-plan
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{lOi_WN7gUW3I4LyfzWuHMA}:per-key:b
          if down   this process decides locally, at most 33 at once

upstream  api
sent to   http://10.0.1.5:9000/users/7?q=1
or        http://10.0.1.6:9000/users/7?q=1 (weight 2)
as host   api.example.com
set       in the request: x-gate
removed   in the response: server
")
    );
}

#[test]
fn explain_lists_skipped_routes() {
    let target = "http://api.example.com/v1/sessions";
    let (forwarded, from) = ("x-forwarded-for: 203.0.113.9", "2001:db8:1:2:3:4:5:6");
    assert_eq!(
        explain(&["GET", target, "-H", "x-api-key: k1", "-H", forwarded, "--from", from]),
        ok("request   GET /v1/sessions from 2001:db8:1:2:3:4:5:6
path      /v1/sessions
host      api.example.com
client    2001:db8:1:2:3:4:5:6 (not a trusted proxy: its x-forwarded-for is ignored), counted as 2001:db8:1:2::/64
skipped   route sign-in: its path matches, but its methods are POST
route     api: host api.example.com; path /v1/*

limit     per-address: token_bucket, 3000/minute, burst 500; at most 500 at once
          key       client_ip = 2001:db8:1:2::
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{hfd9v8lhXbsdOu6lnzLyqA}:per-address:b
          if down   the request passes this limit

limit     per-key: token_bucket, 600/minute, burst 100; at most 100 at once
          key       header:x-api-key = k1
          tier      none: the request has no header:x-plan
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{lOi_WN7gUW3I4LyfzWuHMA}:per-key:b
          if down   this process decides locally, at most 33 at once

upstream  api
sent to   http://10.0.1.5:9000/sessions
or        http://10.0.1.6:9000/sessions (weight 2)
as host   api.example.com
set       in the request: x-gate
removed   in the response: server
")
    );
}

#[test]
fn explain_shows_why_a_request_is_rejected() {
    assert_eq!(
        explain(&["GET", "/a%2Fb"]),
        ok(r#"request   GET /a%2Fb from 127.0.0.1
path      /a%2Fb
client    127.0.0.1

response  400 Bad Request: the path has an encoded slash
          a route accepts such paths with encoded_slash = "keep"
"#)
    );
    assert_eq!(
        explain(&["GET", "http://api.example.com/v1/x"]),
        ok("request   GET /v1/x from 127.0.0.1
path      /v1/x
host      api.example.com
client    127.0.0.1
route     api: host api.example.com; path /v1/*

limit     per-address: token_bucket, 3000/minute, burst 500; at most 500 at once
          key       client_ip = 127.0.0.1
          cost      1
          counted   in redis://redis.internal:6380/2
          as        tidegate:{ToAhDEH3tJyfFD516OJZ1Q}:per-address:b
          if down   the request passes this limit

limit     per-key: token_bucket, 600/minute, burst 100; at most 100 at once
          key       header:x-api-key is missing
          denied    with 403: the request lacks it (on_missing = \"deny\")

response  403 Forbidden: the request must have exactly one x-api-key header
          its other limits are charged, and may deny it first
")
    );
    let text = explain(&["POST", "http://api.example.com/v1/sessions", "-H", "Content-Length: 65537"]).stdout;
    let end = "response  413 Payload Too Large: the request body is larger than the route allows\n          its route has \
               a max_body of 65536 bytes\n";
    assert!(text.ends_with(end), "{text}");
    let text = explain(&["CONNECT", "http://api.example.com/"]).stdout;
    assert!(
        text.ends_with(
            "response  405 Method Not Allowed: CONNECT is supported for WebSocket over HTTP/2 only\n"
        ),
        "{text}"
    );
    let text = explain(&["OPTIONS", "*"]).stdout;
    assert!(
        text.ends_with("response  204 No Content: `OPTIONS *` addresses the server as a whole\n"),
        "{text}"
    );
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
          if down   the request passes this limit

response  404 Not Found: no route matches
")
    );
}

#[test]
fn explain_shows_local_responses_of_routes() {
    let explained = tidegate(repository(), &["explain", "-c", "config/quickstart.toml", "HEAD", "/a?x=1"]);
    assert_eq!(
        explained,
        ok("request   HEAD /a?x=1 from 127.0.0.1
path      /a
host      localhost
client    127.0.0.1
route     1: path /*

limit     per-client: token_bucket, 5/minute; at most 5 at once
          key       client_ip = 127.0.0.1
          cost      1
          counted   in this process

response  200 OK, from the route itself
")
    );
}

/// The output about the limits of a request, with this configuration of limits.
fn explain_limits(limits: &str, args: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "listen = \"127.0.0.1:8080\"\n[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n{limits}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{}}\n"
    );
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    let args: Vec<&str> = ["explain", "GET", "/"].iter().chain(args).copied().collect();
    let Finished { status, stdout, stderr } = tidegate(directory.path(), &args);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let start = stdout.find("\n\n").unwrap() + 2;
    stdout[start..].to_owned()
}

const EVERYTHING: &str = r#"
    [limits.one]
    rate = "100/minute"
    burst = 500
    key = ["header:x-api-key", "method"]
    cost = "header:x-cost"
    cost_max = 50
    allow = ["10.1.0.0/16", "key:friend"]
    block = ["192.0.2.0/24", "key:stolen"]
    ban = { after = 20, within = "1m", for = "10m" }
    charge_on = [401, 403]
    tiers = { by = "header:x-plan", pro = { rate = "1000/minute", refill = "interval" } }
    overrides = { acme = { burst = 70 } }
"#;

#[test]
fn explain_shows_the_tier_or_override_with_its_reason() {
    let explain = |args: &[&str]| explain_limits(EVERYTHING, args);
    let limit = "limit     one: token_bucket, 100/minute, burst 500; at most 500 at once\n";
    let rest = "          charged   on arrival, and refunded unless the final status is 401 or 403
          ban       for 10m, after 20 denials within 1m
          counted   in this process

response  200 OK, from the route itself
";
    assert_eq!(
        explain(&["-H", "x-api-key: acme", "-H", "x-cost: 99", "-H", "x-plan: pro"]),
        format!(
            "{limit}          key       header:x-api-key = acme
                    method = GET
          override  acme: token_bucket, 100/minute, burst 70; at most 70 at once
          cost      50, by header:x-cost, from 1 to 50
{rest}"
        )
    );
    assert_eq!(
        explain(&["-H", "x-api-key: k", "-H", "x-plan: pro"]),
        format!(
            "{limit}          key       header:x-api-key = k
                    method = GET
          tier      pro, by header:x-plan: token_bucket, 1000/minute, refilled at intervals; at most 1000 at once
          cost      1: the request has no header:x-cost
{rest}"
        )
    );
    let stranger = "198.51.100.7 is not a trusted proxy";
    assert_eq!(
        explain(&["-H", "x-api-key: k", "-H", "x-plan: pro", "-H", "x-cost: 3", "--from", "198.51.100.7"]),
        format!(
            "{limit}          key       header:x-api-key = k
                    method = GET
          tier      none: header:x-plan is ignored, since {stranger}
          cost      1: header:x-cost is ignored, since {stranger}
{rest}"
        )
    );
    let unknown = explain(&["-H", "x-api-key: k", "-H", "x-plan: gold"]);
    assert!(
        unknown.contains("tier      none: header:x-plan = gold, which is not the name of a tier\n"),
        "{unknown}"
    );
}

#[test]
fn explain_shows_exempt_and_blocked_clients() {
    let explain = |args: &[&str]| explain_limits(EVERYTHING, args);
    let friend = explain(&["-H", "x-api-key: friend"]);
    assert!(
        friend.contains("cost      none: the key is named `friend`, which this limit exempts (`allow`)\n"),
        "{friend}"
    );
    let near = explain(&["--from", "10.1.2.3"]);
    assert!(
        near.contains("cost      none: the address is in 10.1.0.0/16, which this limit exempts (`allow`)\n"),
        "{near}"
    );
    assert_eq!(
        explain(&["-H", "x-api-key: stolen"]),
        "response  403 Forbidden: this client is blocked
          the key is named `stolen`, which limit one blocks (`block`)
"
    );
    assert_eq!(
        explain(&["--from", "192.0.2.3"]),
        "response  403 Forbidden: this client is blocked
          the address is in 192.0.2.0/24, which limit one blocks (`block`)
"
    );
}

#[test]
fn explain_shows_the_parameters_of_every_algorithm() {
    for (limit, numbers) in [
        ("algorithm = \"gcra\"\nrate = \"5/s\"", "gcra, 5/s; at most 1 at once"),
        (
            "algorithm = \"fixed_window\"\nrate = \"800/day\"\ntimezone = \"Europe/Berlin\"",
            "fixed_window, 800/day, by the calendar of Europe/Berlin; at most 800 at once",
        ),
        (
            "algorithm = \"fixed_window\"\nrate = \"8/h\"\nalign = \"first_request\"",
            "fixed_window, 8/h, from the first request; at most 8 at once",
        ),
        (
            "algorithm = \"sliding_log\"\nrate = [\"2/s\", \"20/minute\"]",
            "sliding_log, 2/s and 20/minute; at most 2 at once",
        ),
        (
            "algorithm = \"sliding_window\"\nrate = \"20/minute\"\nbuckets = 60",
            "sliding_window, 20/minute, buckets 60; at most 20 at once",
        ),
        (
            "algorithm = \"leaky_bucket\"\nrate = \"20/minute\"\nqueue = 3",
            "leaky_bucket, 20/minute, queue 3; at most 4 at once",
        ),
        (
            "algorithm = \"concurrency\"\nmax_in_flight = 5",
            "concurrency, 5 in flight, lease 30s; at most 5 at once",
        ),
    ] {
        let text = explain_limits(&format!("[limits.one]\n{limit}\nmode = \"shadow\""), &[]);
        let expected =
            format!("limit     one: {numbers}\n          mode      shadow: it denies no request\n");
        assert!(text.starts_with(&expected), "{text}");
    }
}

#[test]
fn explain_uses_the_subject_of_a_client_certificate() {
    let authority = Authority::new();
    authority.sign("a.test");
    let text = "[[listeners]]\naddress = \"127.0.0.1:8443\"\n\
                tls = { certificates = [{ cert = \"a.test.pem\", key = \"a.test.key\" }], client_ca = \"ca.pem\" }\n\
                [limits.one]\nrate = \"2/hour\"\nkey = \"tls:subject\"\n\
                overrides = { 'CN=mate,O=Example\\, Inc.' = { rate = \"7/hour\" } }\n\
                [upstreams.far]\nservers = [\"https://10.0.1.5\"]\ntls = { ca = \"ca.pem\" }\n\
                [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nupstream = \"far\"\n";
    std::fs::write(authority.file("tidegate.toml"), text).unwrap();
    let explain = |args: &[&str]| {
        let file = authority.file("tidegate.toml");
        let args: Vec<&str> = ["explain", "GET", "/a"].iter().chain(args).copied().collect();
        tidegate(file.parent().unwrap(), &args).stdout
    };
    let mate = explain(&["--tls-subject", "CN=mate,O=Example\\, Inc."]);
    assert!(mate.contains("key       tls:subject = CN=mate,O=Example\\, Inc.\n"), "{mate}");
    assert!(mate.contains("override  CN=mate,O=Example\\, Inc.: token_bucket, 7/hour"), "{mate}");
    assert!(mate.contains("sent to   https://10.0.1.5/a\n"), "{mate}");
    let missing = explain(&[]);
    assert!(missing.contains("tls:subject is missing: the client's address is used instead"), "{missing}");
}

#[test]
fn explain_shows_how_a_server_is_selected() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let explain = |balance: &str, servers: &str, header: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[upstreams.u]\nservers = [{servers}]\nbalance = \"{balance}\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"u\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let text = tidegate(directory.path(), &["explain", "GET", "http://a.test/x", "-H", header]).stdout;
        text.split_once("upstream  u\n").unwrap().1.to_owned()
    };
    let two = "\"http://10.0.0.1:9000\", \"http://10.0.0.2:9000/base\"";
    let first = "sent to   http://10.0.0.1:9000/x\nor        http://10.0.0.2:9000/base/x\nas host   a.test\n";
    let second =
        "sent to   http://10.0.0.2:9000/base/x\nor        http://10.0.0.1:9000/x\nas host   a.test\n";
    assert_eq!(explain("round_robin", two, "X-User: k1"), first);
    assert_eq!(
        explain("least_requests", two, "X-User: k1"),
        format!("balance   the server with the fewest requests in flight\n{first}")
    );
    let by = |user: &str, servers: &str| {
        format!(
            "balance   by header:x-user = {user}: the first of these servers, while it is healthy\n{servers}"
        )
    };
    let hashed: Vec<(String, String)> = (0..20)
        .map(|user| (format!("k{user}"), explain("hash:header:x-user", two, &format!("X-User: k{user}"))))
        .collect();
    assert!(
        hashed.iter().all(|(user, text)| *text == by(user, first) || *text == by(user, second)),
        "{hashed:?}"
    );
    assert!(
        hashed.iter().any(|(_, text)| text.ends_with(first))
            && hashed.iter().any(|(_, text)| text.ends_with(second))
    );
    let names = "\"http://a.internal\", \"http://b.internal\"";
    assert_eq!(
        explain("hash:header:x-user", names, "X-Other: k1"),
        "balance   by client_ip = 127.0.0.1, since the request has no header:x-user: always the same server, \
         while it is healthy\nsent to   http://a.internal/x\nor        http://b.internal/x\nas host   a.test\n"
    );
}

#[test]
fn explain_shows_what_cors_does() {
    let directory = tempfile::tempdir().unwrap();
    let text = "listen = \"127.0.0.1:0\"\n[cors]\norigins = [\"https://app.test\"]\n\
                [[routes]]\nname = \"put\"\npath = \"/*\"\nmethods = [\"PUT\"]\nheaders = { x-v = \"2\" }\nrespond = {}\n\
                [[routes]]\npath = \"/*\"\ncors = \"off\"\nrespond = {}\n";
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    let explain = |method: &str, headers: &[&str]| {
        let headers = headers.iter().flat_map(|header| ["-H", header]);
        let args: Vec<&str> = ["explain", method, "/a"].into_iter().chain(headers).collect();
        tidegate(directory.path(), &args).stdout
    };
    let (app, asked) = ("Origin: https://app.test", "Access-Control-Request-Method: PUT");
    assert_eq!(
        explain("OPTIONS", &[app, asked]),
        "request   OPTIONS /a from 127.0.0.1
path      /a
host      localhost
route     put (for PUT, without conditions on headers)
cors      pages of https://app.test may read the response
          they may use the method PUT

response  204 No Content: this is a preflight, which no limit counts
"
    );
    for (method, header, text) in [
        ("PUT", app, "cors      pages of https://app.test may read the response\n"),
        (
            "PUT",
            "Origin: null",
            "cors      pages of null may not read the response: `origins` does not have it\n",
        ),
        ("GET", app, "cors      off for this route: the CORS headers are those of the upstream\n"),
    ] {
        let found = explain(method, &[header, "X-V: 2"]);
        assert!(found.contains(text), "{method} {header}: {found}");
    }
    assert!(!explain("PUT", &["X-V: 2"]).contains("cors"));
}

#[test]
fn explain_shows_that_a_response_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let text = "listen = \"127.0.0.1:0\"\n[answers]\nnot_found = { status = 410, body = \"gone\" }\n\
                [[routes]]\npath = \"/a\"\nrespond = {}\n";
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    let found = tidegate(directory.path(), &["explain", "GET", "/b"]).stdout;
    let expected =
        "response  404 Not Found: no route matches\n          sent as 410 Gone with a body from [answers]\n";
    assert!(found.ends_with(expected), "{found}");
    let malformed = tidegate(directory.path(), &["explain", "GET", "/%zz"]).stdout;
    assert!(!malformed.contains("[answers]"), "{malformed}");
}
