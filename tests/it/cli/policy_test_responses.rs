//! `tidegate test`: responses of the proxy itself, and decisions for other proxies.

use super::policy_tests::assert_pass;

#[test]
fn responses_of_the_proxy_itself_have_their_statuses() {
    let config = r#"listen = "127.0.0.1:8080"
[cors]
origins = ["https://app.example.com"]
[answers]
denied = { status = 503, body = "{}" }
[limits.a]
rate = "2/minute"
block = ["203.0.113.0/24"]
allow = ["198.51.100.7"]
[limits.trial]
rate = "1/minute"
mode = "shadow"
[[routes]]
name = "moved"
path = "/moved"
respond = { redirect = "https://{host}/new" }
[[routes]]
name = "closed"
path = "/closed"
block = true
[[routes]]
name = "state"
path = "/limits"
limits = ["a"]
respond = "limits"
[[routes]]
name = "rest"
path = "/*"
limits = ["trial", "a"]
upstream = "http://127.0.0.1:9000"
"#;
    let tests = r#"
[[tests]]
name = "a redirect"
request = { path = "/moved" }
expect = { outcome = "responded", route = "moved", status = 308 }

[[tests]]
name = "a route that blocks"
request = { path = "/closed" }
expect = { outcome = "rejected", route = "closed", status = 403, limits = [] }

[[tests]]
name = "the state of limits is not charged"
request = { path = "/limits" }
repeat = 9
expect = { outcome = "responded", route = "state", status = 200, limits = [], allowed = 9 }

[[tests]]
name = "a malformed path"
request = { path = "/a%2Fb" }
expect = { outcome = "rejected", status = 400 }

[[tests]]
name = "a preflight"
request = { method = "OPTIONS", path = "/a", headers = { origin = "https://app.example.com", access-control-request-method = "PUT" } }
repeat = 9
expect = { outcome = "responded", route = "rest", status = 204, limits = [], allowed = 9 }

[[tests]]
name = "a blocked network"
request = { path = "/a", client = "203.0.113.9" }
expect = { outcome = "denied", limit = "a", status = 403, allowed = 0 }

[[tests]]
name = "an exempt address is still counted by the other limit"
request = { path = "/a", client = "198.51.100.7" }
repeat = 9
expect = { outcome = "forwarded", limits = ["trial"], allowed = 9 }

[[tests]]
name = "a limit in shadow mode denies nothing, and answers have their status"
request = { path = "/a" }
repeat = 3
expect = { outcome = "denied", limit = "a", limits = ["a", "trial"], status = 503, retry_after = "30s", allowed = 2 }
"#;
    assert_pass(config, tests);
}

#[test]
fn decisions_for_other_proxies_are_about_the_original_request() {
    let config = r#"[[listeners]]
address = "127.0.0.1:8080"
name = "decisions"
respond = "decide"
[client_ip]
trusted_proxies = ["10.0.0.0/8"]
[limits.a]
rate = "2/minute"
[[routes]]
name = "all"
path = "/*"
limits = ["a"]
upstream = "http://127.0.0.1:9000"
"#;
    let original = r#"request = { path = "/", listener = "decisions", client = "10.0.0.7", headers = { x-forwarded-for = "192.0.2.9", x-forwarded-host = "api.example.com", x-original-uri = "/users", x-original-method = "GET" } }"#;
    let tests = format!(
        r#"
[[tests]]
name = "an authorization request of a trusted proxy"
{original}
repeat = 3
expect = {{ outcome = "denied", route = "all", keys = {{ a = "192.0.2.9" }}, status = 429, allowed = 2 }}

[[tests]]
name = "it is allowed"
{original}
expect = {{ outcome = "responded", status = 200 }}

[[tests]]
name = "others get no decision"
{}
expect = {{ outcome = "rejected", status = 403 }}
"#,
        original.replace("10.0.0.7", "192.0.2.1")
    );
    assert_pass(config, &tests);
}

#[test]
fn denials_have_the_status_of_their_route_or_limit() {
    let config = r#"listen = "127.0.0.1:8080"
[jwt]
jwks = "https://id.example.com/keys"
[limits.a]
rate = "1/minute"
deny_status = 503
[[routes]]
name = "own"
path = "/own"
limits = ["a"]
deny_status = 403
respond = {}
[[routes]]
name = "closed"
path = "/closed"
limits = ["a"]
deny_status = "close"
respond = {}
[[routes]]
name = "admin"
path = "/admin"
require = { claim = "scope", values = ["admin"] }
respond = {}
[[routes]]
name = "rest"
path = "/*"
limits = ["a"]
respond = {}
"#;
    let tests = r#"
[[tests]]
name = "of the limit"
request = { path = "/" }
repeat = 2
expect = { status = 503, limit = "a", allowed = 1 }

[[tests]]
name = "of the route"
request = { path = "/own" }
repeat = 2
expect = { status = 403, limit = "a", allowed = 1 }

[[tests]]
name = "none"
request = { path = "/closed" }
repeat = 2
expect = { outcome = "denied", limit = "a", allowed = 1 }

[[tests]]
name = "a route that requires a claim"
request = { path = "/admin" }
steps = [
    { expect = { outcome = "rejected", status = 401 } },
    { request = { path = "/admin", claims = { scope = "user" } }, expect = { outcome = "rejected", status = 403 } },
    { request = { path = "/admin", claims = { scope = "user admin" } }, expect = { outcome = "responded", status = 200 } },
]
"#;
    assert_pass(config, tests);
}
