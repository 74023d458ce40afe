//! `tidegate test`: what it decides.

use std::fs;

use super::*;

/// Routes and limits of most tests.
pub const CONFIG: &str = r#"listen = "127.0.0.1:8080"

[limits.sign-in]
rate = "10/minute"

[limits.guesses]
rate = "2/hour"
charge_on = [401]
ban = { after = 2, within = "1h", for = "1h" }

[limits.per-key]
rate = "3/minute"
key = "header:x-api-key"
on_missing = "deny"
missing_status = 401
tiers = { by = "header:x-plan", pro = { rate = "100/minute" } }

[[routes]]
name = "login"
path = "/login"
methods = ["POST"]
limits = ["sign-in"]
upstream = "http://127.0.0.1:9000"

[[routes]]
name = "guess"
path = "/guess"
limits = ["guesses", "sign-in"]
upstream = "http://127.0.0.1:9000"

[[routes]]
name = "api"
path = "/v1/*"
host = "api.example.com"
limits = ["per-key"]
upstream = "http://127.0.0.1:9000"

[[routes]]
name = "old"
path = "/old"
respond = { status = 410 }

"#;

/// A directory with this configuration, followed by these tests.
pub fn directory(config: &str, tests: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tidegate.toml"), format!("{config}{tests}")).unwrap();
    directory
}

/// Runs these tests of a configuration.
pub fn run(config: &str, tests: &str) -> Finished {
    tidegate(directory(config, tests).path(), &["test"])
}

/// Asserts that all of these tests pass.
#[track_caller]
pub fn assert_pass(config: &str, tests: &str) {
    let count = tests.matches("[[tests]]").count();
    let noun = if count == 1 { "test" } else { "tests" };
    assert_eq!(run(config, tests), ok(&format!("{count} {noun} passed\n")));
}

#[test]
fn the_last_of_repeated_requests_is_compared() {
    let tests = r#"
[[tests]]
name = "the eleventh sign-in of an address within a minute is denied"
request = { method = "POST", path = "/login", client = "192.0.2.7" }
repeat = 11
expect = { outcome = "denied", route = "login", limits = ["sign-in"], keys = { sign-in = "192.0.2.7" }, status = 429, limit = "sign-in", retry_after = "6s", allowed = 10, remaining = { sign-in = 0 } }

[[tests]]
name = "counts begin empty, and the tenth is forwarded"
request = { method = "POST", path = "/login", client = "192.0.2.7" }
repeat = 10
expect = { outcome = "forwarded", allowed = 10, remaining = { sign-in = 0 } }

[[tests]]
name = "eleven over a minute are within the rate"
request = { method = "POST", path = "/login" }
repeat = 19
within = "1m"
expect = { allowed = 19 }

[[tests]]
name = "a unit is back after six seconds"
request = { method = "POST", path = "/login" }
steps = [
    { repeat = 10, expect = { allowed = 10 } },
    { after = "5999ms", expect = { outcome = "denied", retry_after = "1s" } },
    { after = "1ms", expect = { outcome = "forwarded" } },
    { request = { method = "POST", path = "/login", client = "198.51.100.1" }, expect = { outcome = "forwarded" } },
]
"#;
    assert_pass(CONFIG, tests);
}

#[test]
fn routes_tiers_and_refunds_are_those_of_the_proxy() {
    let tests = r#"
[[tests]]
name = "no route"
request = { path = "/nowhere" }
expect = { outcome = "rejected", route = "", status = 404, limits = [] }

[[tests]]
name = "a route that responds itself"
request = { path = "/old" }
expect = { outcome = "responded", route = "old", status = 410 }

[[tests]]
name = "a key is required"
request = { host = "api.example.com", path = "/v1/users" }
expect = { outcome = "denied", limit = "per-key", status = 401 }

[[tests]]
name = "plans have their numbers"
request = { host = "api.example.com", path = "/v1/users", headers = { x-api-key = "k-1", x-plan = "pro" }, client = "10.0.0.1" }
repeat = 5
expect = { outcome = "forwarded", tiers = { per-key = "pro" }, keys = { per-key = "k-1" } }

[[tests]]
name = "without a plan there is no tier"
request = { host = "api.example.com", path = "/v1/users", headers = { x-api-key = "k-1" } }
repeat = 5
expect = { outcome = "denied", tiers = { per-key = "" }, allowed = 3 }

[[tests]]
name = "only failures count, and lead to a ban"
steps = [
    { request = { path = "/guess" }, repeat = 5, expect = { allowed = 5 } },
    { request = { path = "/guess", upstream_status = 401 }, repeat = 4, expect = { limit = "guesses", allowed = 2 } },
    { after = "59m", request = { path = "/guess" }, expect = { outcome = "denied", limit = "guesses", retry_after = "1m" } },
    { after = "1m", request = { path = "/guess" }, expect = { outcome = "forwarded" } },
]
"#;
    let config = format!(
        "[client_ip]\ntrusted_proxies = [\"10.0.0.0/8\"]\n{}",
        &CONFIG[CONFIG.find("\n[limits").unwrap()..]
    );
    assert_pass(&format!("listen = \"127.0.0.1:8080\"\n{config}"), tests);
}

/// A limit whose cost the response settles.
const SETTLED: &str = r#"listen = "127.0.0.1:8080"
[limits.units]
algorithm = "fixed_window"
rate = "10/minute"
cost = { reserve = 1, settle = "header:x-units" }
[[routes]]
path = "/*"
limits = ["units"]
upstream = "http://127.0.0.1:9000"
"#;

#[test]
fn a_response_settles_the_cost_of_its_request() {
    let tests = r#"
[[tests]]
name = "the units of the response count, in the end"
steps = [
    { request = { path = "/", settle = 4, duration = "1s" }, expect = { remaining = { units = 9 } } },
    { request = { path = "/", settle = 4, duration = "1s" }, expect = { remaining = { units = 8 } } },
    { after = "2s", request = { path = "/", settle = 0 }, expect = { remaining = { units = 1 } } },
    { request = { path = "/", settle = 30 }, expect = { remaining = { units = 1 } } },
    { after = "1s", request = { path = "/" }, expect = { outcome = "denied", limit = "units", retry_after = "57s" } },
    { after = "57s", request = { path = "/" }, expect = { outcome = "forwarded", remaining = { units = 9 } } },
]
[[tests]]
name = "an unknown cost is the reserved one"
request = { path = "/" }
repeat = 10
expect = { remaining = { units = 0 }, allowed = 10 }
[[tests]]
name = "a failure costs nothing"
request = { path = "/", upstream_status = 400 }
repeat = 20
expect = { allowed = 20 }
[[tests]]
name = "a failure that says what it cost is charged"
steps = [
    { request = { path = "/", upstream_status = 400, settle = 10 }, expect = { outcome = "forwarded" } },
    { request = { path = "/" }, expect = { outcome = "denied" } },
]
"#;
    assert_pass(SETTLED, tests);
}

#[test]
fn settled_units_need_a_limit_that_settles() {
    let tests =
        "[[tests]]\nname = \"a\"\nrequest = { path = \"/login\", settle = 3 }\nexpect = { allowed = 1 }\n";
    let output = run(CONFIG, tests);
    assert_eq!(output.status, 2);
    assert!(output.stderr.contains("no limit of the configuration settles its cost"), "{}", output.stderr);
}

/// A configuration with consumers and tokens.
const IDENTIFIED: &str = r#"listen = "127.0.0.1:8080"
[jwt]
jwks = "https://id.example.com/keys"
[consumers]
file = "consumers.toml"
[limits.per-consumer]
rate = "2/minute"
key = "consumer"
tiers = { by = "consumer", pro = { rate = "4/minute" } }
[limits.per-user]
rate = "3/minute"
key = ["jwt:sub", "path"]
[[routes]]
path = "/*"
limits = ["per-consumer", "per-user"]
upstream = "http://127.0.0.1:9000"
"#;
const CONSUMERS: &str = "[acme]\ncredentials = [\"k-1\"]\ntier = \"pro\"\n[globex]\ncredentials = [\"k-2\"]\n[late]\ncredentials = [\"k-3\"]\nexpires = 2027-01-31\n";

fn identified(tests: &str) -> Finished {
    let directory = directory(IDENTIFIED, tests);
    fs::write(directory.path().join("consumers.toml"), CONSUMERS).unwrap();
    tidegate(directory.path(), &["test"])
}

#[test]
fn consumers_and_claims_are_given_or_found() {
    let tests = r#"
[[tests]]
name = "a named consumer with claims"
request = { path = "/a", consumer = "acme", claims = { sub = "u1" } }
repeat = 4
expect = { consumer = "acme", tiers = { per-consumer = "pro" }, keys = { per-consumer = "acme", per-user = "u1|/a" }, limit = "per-user", allowed = 3 }

[[tests]]
name = "a credential finds its consumer"
request = { path = "/a", headers = { x-api-key = "k-2" }, claims = { sub = 7 } }
repeat = 3
expect = { consumer = "globex", keys = { per-user = "7|/a" }, limit = "per-consumer", allowed = 2 }

[[tests]]
name = "an unknown credential"
request = { path = "/a", headers = { x-api-key = "k-9" } }
expect = { outcome = "rejected", consumer = "", status = 401 }

[[tests]]
name = "without a token the address is the key"
request = { path = "/a", consumer = "globex" }
expect = { keys = { per-user = "client 192.0.2.1" } }

[[tests]]
name = "a consumer expires on the clock of the test"
time = 2027-01-30
request = { path = "/a", headers = { x-api-key = "k-3" } }
steps = [
    { expect = { outcome = "forwarded" } },
    { after = "24h", expect = { outcome = "rejected", status = 401 } },
]
"#;
    assert_eq!(identified(tests), ok("5 tests passed\n"));
}

#[test]
fn a_token_without_its_keys_is_an_error_of_the_test() {
    let tests = r#"[[tests]]
name = "a token"
request = { path = "/a", consumer = "acme", headers = { authorization = "Bearer e30.e30.e30" } }
expect = { outcome = "forwarded" }
"#;
    let text = "tidegate.toml:20: a token\n  error: the keys of its token are fetched from a URL, which tests do not do: give the \
                request `claims`\n\n1 of 1 test failed\n";
    assert_eq!(identified(tests), Finished { status: 1, ..ok(text) });
}

#[test]
fn slots_delays_and_bodies_are_played() {
    let config = r#"listen = "127.0.0.1:8080"
[limits.at-once]
algorithm = "concurrency"
max_in_flight = 2
[limits.smooth]
algorithm = "leaky_bucket"
rate = "1/s"
queue = 5
[limits.per-user]
rate = "1/minute"
key = "body:/user"
[limits.daily]
algorithm = "fixed_window"
rate = "1/day"
timezone = "UTC"
[[routes]]
path = "/at-once"
limits = ["at-once"]
upstream = "http://127.0.0.1:9000"
[[routes]]
path = "/smooth"
limits = ["smooth"]
upstream = "http://127.0.0.1:9000"
[[routes]]
path = "/user"
limits = ["per-user"]
upstream = "http://127.0.0.1:9000"
[[routes]]
path = "/daily"
limits = ["daily"]
upstream = "http://127.0.0.1:9000"
"#;
    let tests = r#"
[[tests]]
name = "two at once"
request = { path = "/at-once", duration = "10s" }
steps = [
    { repeat = 3, expect = { limit = "at-once", allowed = 2 } },
    { after = "10s", expect = { outcome = "forwarded" } },
]

[[tests]]
name = "the third waits for two seconds"
request = { path = "/smooth" }
repeat = 3
expect = { outcome = "forwarded", delay = "2s" }

[[tests]]
name = "users of a JSON body are counted"
request = { method = "POST", path = "/user", headers = { content-type = "application/json" }, body = '{"user":"eve"}' }
repeat = 2
expect = { limit = "per-user", keys = { per-user = "eve" } }

[[tests]]
name = "the day ends at midnight"
time = 2026-11-28T23:59:00Z
request = { path = "/daily" }
steps = [
    { repeat = 2, expect = { limit = "daily", retry_after = "1m" } },
    { after = "1m", expect = { outcome = "forwarded" } },
]
"#;
    assert_pass(config, tests);
}
