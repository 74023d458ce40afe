//! What `check` says about wrong and odd files, word for word.

use tidegate::config;

fn env(name: &str) -> Option<String> {
    (name == "REDIS_PASSWORD").then(|| "hush@/:#".to_owned())
}

/// What is wrong with a file.
fn report(text: &str) -> String {
    let parsed = config::parse(text, "tidegate.toml", &env);
    parsed.map(|loaded| loaded.config).expect_err("the file is wrong").to_string()
}

/// What is odd about a file that is right.
fn warnings(text: &str) -> String {
    let parsed = config::parse(text, "tidegate.toml", &env);
    parsed.unwrap_or_else(|report| panic!("{report}")).warnings.to_string()
}

#[test]
fn broken_toml() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = "error: this is not valid TOML: unclosed table, expected `]`
 --> tidegate.toml:3:19
  |
3 | [limits.per-client
  |                   ^";
    assert_eq!(report(text), said);
}

#[test]
fn broken_toml_does_not_hide_other_mistakes() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client]
rate = 5/minute

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
limts = []
"#;
    let said = r#"error: this is not valid TOML: invalid float, expected nothing
 --> tidegate.toml:4:9
  |
4 | rate = 5/minute
  |         ^^^^^^^
  |
  = help: text, rates and durations stand in quotes: "5/minute", "30s"

error: unknown key `limts` in route 1
  --> tidegate.toml:10:1
   |
10 | limts = []
   | ^^^^^
   |
   = help: did you mean `limits`?"#;
    assert_eq!(report(text), said);
}

#[test]
fn a_table_that_stands_twice() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client]
rate = "5/minute"

[limits.per-client]
burst = 5

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = "error: this is not valid TOML: duplicate key
 --> tidegate.toml:6:9
  |
6 | [limits.per-client]
  |         ^^^^^^^^^^
  |
  = help: `per-client` stands twice in one table, or two tables have this name";
    assert_eq!(report(text), said);
}

#[test]
fn unknown_keys_with_the_nearest_name() {
    let text = r#"listen = "127.0.0.1:8080"
shutdwon_grace = "1s"

[limits.per-client]
rate = "5/minute"
brust = 5
frobnicate = 1

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: unknown key `shutdwon_grace`
 --> tidegate.toml:2:1
  |
2 | shutdwon_grace = "1s"
  | ^^^^^^^^^^^^^^
  |
  = help: did you mean `shutdown_grace`?

error: unknown key `brust` in limit `per-client`
 --> tidegate.toml:6:1
  |
6 | brust = 5
  | ^^^^^
  |
  = help: did you mean `burst`?

error: unknown key `frobnicate` in limit `per-client`
 --> tidegate.toml:7:1
  |
7 | frobnicate = 1
  | ^^^^^^^^^^
  |
  = help: its keys are algorithm, rate, burst, refill, key, cost, on_store_failure, on_missing, mode"#;
    assert_eq!(report(text), said);
}

#[test]
fn a_rate_of_zero() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client]
rate = "0/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: a rate of zero would refuse every request
 --> tidegate.toml:4:8
  |
4 | rate = "0/minute"
  |        ^^^^^^^^^^
  |
  = help: allow at least one request each period, such as "1/minute"; to refuse everything, give the route `respond = { status = 403 }`"#;
    assert_eq!(report(text), said);
}

#[test]
fn a_malformed_redis_url() {
    let text = r#"listen = "127.0.0.1:8080"

[store]
url = "redis://127.0.0.1:99999"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: this is not the URL of a Redis: invalid port number
 --> tidegate.toml:4:7
  |
4 | url = "redis://127.0.0.1:99999"
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write redis://host:6379, redis://user:password@host:6379/0 or unix:///run/redis.sock"#;
    assert_eq!(report(text), said);
}

#[test]
fn passwords_in_the_file_are_masked() {
    let text = r#"listen = "127.0.0.1:8080"

[store]
url = "redis://app:hu#sh@h"
hash_key = "short"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: this is not the URL of a Redis: invalid port number
 --> tidegate.toml:4:7
  |
4 | url = "redis://***:*****@h"
  |       ^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write redis://host:6379, redis://user:password@host:6379/0 or unix:///run/redis.sock
  = help: in a password, write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F and % as %25

error: `hash_key` must have at least 16 bytes
 --> tidegate.toml:5:12
  |
5 | hash_key = "*****"
  |            ^^^^^^^
  |
  = help: make one with: openssl rand -hex 32"#;
    assert_eq!(report(text), said);
}

#[test]
fn missing_variables() {
    let text = r#"listen = "127.0.0.1:8080"

[store]
url = "redis://:${NOT_SET}@h"
hash_key = "${KEY"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: the environment variable `NOT_SET` is not set
 --> tidegate.toml:4:7
  |
4 | url = "redis://:${NOT_SET}@h"
  |       ^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: set NOT_SET, or write `$${` where `${` itself is meant

error: `${` must be followed by the name of an environment variable and `}`
 --> tidegate.toml:5:12
  |
5 | hash_key = "*****"
  |            ^^^^^^^
  |
  = help: write `$${` where `${` itself is meant"#;
    assert_eq!(report(text), said);
}

#[test]
fn values_of_variables_do_not_show() {
    let text = r#"listen = "127.0.0.1:8080"

[store]
url = "redis:/${REDIS_PASSWORD}"
timeout = "${REDIS_PASSWORD}"
clock = "${REDIS_PASSWORD}"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: this is not the URL of a Redis: it has no host
 --> tidegate.toml:4:7
  |
4 | url = "redis:/${REDIS_PASSWORD}"
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write redis://host:6379, redis://user:password@host:6379/0 or unix:///run/redis.sock
  = help: in a password, write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F and % as %25

error: this value is not a duration
 --> tidegate.toml:5:11
  |
5 | timeout = "${REDIS_PASSWORD}"
  |           ^^^^^^^^^^^^^^^^^^^
  |
  = help: write it with its unit, in quotes: "250ms", "30s", "5m", "1h"

error: this value is not a value of `clock`
 --> tidegate.toml:6:9
  |
6 | clock = "${REDIS_PASSWORD}"
  |         ^^^^^^^^^^^^^^^^^^^
  |
  = help: the values are "server" and "client""#;
    assert_eq!(report(text), said);
}

#[test]
fn unknown_names_of_limits() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-clinet", "daily"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: unknown limit `per-clinet`
 --> tidegate.toml:8:11
  |
8 | limits = ["per-clinet", "daily"]
  |           ^^^^^^^^^^^^
  |
  = help: did you mean `per-client`?

error: unknown limit `daily`
 --> tidegate.toml:8:25
  |
8 | limits = ["per-clinet", "daily"]
  |                         ^^^^^^^
  |
  = help: define it: [limits.daily]"#;
    assert_eq!(report(text), said);
}

#[test]
fn unknown_names_of_upstreams() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client]
rate = "5/minute"

[upstreams.web]
servers = ["http://10.0.1.5:9000"]

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "wep"

[[routes]]
path = "/x"
upstream = "127.0.0.1:9000"
"#;
    let said = r#"error: unknown upstream `wep`
  --> tidegate.toml:12:12
   |
12 | upstream = "wep"
   |            ^^^^^
   |
   = help: did you mean `web`?

error: unknown upstream `127.0.0.1:9000`
  --> tidegate.toml:16:12
   |
16 | upstream = "127.0.0.1:9000"
   |            ^^^^^^^^^^^^^^^^
   |
   = help: a URL starts with http://: "http://127.0.0.1:9000""#;
    assert_eq!(report(text), said);
}

#[test]
fn no_listener() {
    let text = r#"
[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: the file does not say where clients connect
--> tidegate.toml
help: add as the first line: listen = "127.0.0.1:8080""#;
    assert_eq!(report(text), said);
}

#[test]
fn two_ways_to_listen() {
    let text = r#"listen = "127.0.0.1:8080"

[[listeners]]
address = "localhost:80"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/*"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: `listen` and [[listeners]] can't stand together
 --> tidegate.toml:1:10
  |
1 | listen = "127.0.0.1:8080"
  |          ^^^^^^^^^^^^^^^^
2 |
3 | [[listeners]]
  |   --------- the other
  |
  = help: keep [[listeners]], and move this address there

error: `localhost:80` is not an address with a port
 --> tidegate.toml:4:11
  |
4 | address = "localhost:80"
  |           ^^^^^^^^^^^^^^
  |
  = help: write address and port: "127.0.0.1:8080", "0.0.0.0:8080" for every address, "[::1]:8080""#;
    assert_eq!(report(text), said);
}

#[test]
fn wrong_types() {
    let text = r#"listen = 8080
workers = "four"
shutdown_grace = 30
watch = 1

[limits]
a = 5

[limits.b]
rate = 5
key = []
burst = "many"

[[routes]]
path = ["/"]
limits = "b"
methods = ["get"]
respond = {}

[answers]
retry_after_jitter = 2
retry_after_max = "0s"

[log]
level = "inof"
"#;
    let said = r#"error: `listen` must be an address with a port, not a whole number
 --> tidegate.toml:1:10
  |
1 | listen = 8080
  |          ^^^^
  |
  = help: write address and port: "127.0.0.1:8080", "0.0.0.0:8080" for every address, "[::1]:8080"

error: `four` is not a number of threads
 --> tidegate.toml:2:11
  |
2 | workers = "four"
  |           ^^^^^^
  |
  = help: write "auto" for one thread per CPU, or a number without quotes

error: `shutdown_grace` must be a duration, not a whole number
 --> tidegate.toml:3:18
  |
3 | shutdown_grace = 30
  |                  ^^
  |
  = help: write it with its unit, in quotes: "250ms", "30s", "5m", "1h"

error: `watch` must be true or false, not a whole number
 --> tidegate.toml:4:9
  |
4 | watch = 1
  |         ^
  |
  = help: without quotes

error: `a` must be a table, not a whole number
 --> tidegate.toml:7:5
  |
7 | a = 5
  |     ^

error: `rate` must be a rate, not a whole number
  --> tidegate.toml:10:8
   |
10 | rate = 5
   |        ^
   |
   = help: write it as units each period: "100/minute", "5/s", "5/10 minutes"

error: a key needs at least one part
  --> tidegate.toml:11:7
   |
11 | key = []
   |       ^^
   |
   = help: for one count for everybody write: key = "global"

error: `burst` must be a whole number, not a string
  --> tidegate.toml:12:9
   |
12 | burst = "many"
   |         ^^^^^^

error: `path` must be a string, not an array
  --> tidegate.toml:15:8
   |
15 | path = ["/"]
   |        ^^^^^

error: `limits` must be an array, not a string
  --> tidegate.toml:16:10
   |
16 | limits = "b"
   |          ^^^
   |
   = help: put the names in brackets: ["per-client"]

error: `get` is not what clients send: methods have upper-case letters
  --> tidegate.toml:17:12
   |
17 | methods = ["get"]
   |            ^^^^^
   |
   = help: write "GET"

error: `retry_after_jitter` must be from 0 to 1, not 2
  --> tidegate.toml:21:22
   |
21 | retry_after_jitter = 2
   |                      ^

error: `retry_after_max` must be from 1s to 30days, not 0s
  --> tidegate.toml:22:19
   |
22 | retry_after_max = "0s"
   |                   ^^^^

error: `inof` is not a value of `level`
  --> tidegate.toml:25:9
   |
25 | level = "inof"
   |         ^^^^^^
   |
   = help: did you mean "info"? The values are "error", "warn", "info", "debug" and "trace""#;
    assert_eq!(report(text), said);
}

#[test]
fn what_this_version_does_not_support() {
    let text = r#"listen = "127.0.0.1:8080"
watch = true

[admin]
listen = "127.0.0.1:9900"

[limits.daily]
algorithm = "fixed_window"
rate = "800/day"
timezone = "UTC"

[limits.odd]
rate = "1/month"
align = "clock"
mode = "shadow"
refill = "interval"
allow = []
cost = "header:x-cost"
key = "jwt:sub"

[limits.even]
algorithm = "gcra"
rate = ["1/s"]
refill = "smooth"

[upstreams.u]
servers = ["https://a"]
balance = "hash:client_ip"
tls = {}
protocol = "h2"

[[routes]]
path = "/"
max_body = "1MiB"
upstream = "u"
"#;
    let said = r#"error: `watch = true` is not supported by this version of tidegate
 --> tidegate.toml:2:9
  |
2 | watch = true
  |         ^^^^
  |
  = help: restart tidegate to have it read the file again

error: `admin` is not supported by this version of tidegate
 --> tidegate.toml:4:2
  |
4 | [admin]
  |  ^^^^^

error: `algorithm = "fixed_window"` is not supported by this version of tidegate
 --> tidegate.toml:8:13
  |
8 | algorithm = "fixed_window"
  |             ^^^^^^^^^^^^^^
  |
  = help: this version knows "token_bucket" and "gcra"

error: a month has no fixed length: it is a calendar window
  --> tidegate.toml:13:8
   |
13 | rate = "1/month"
   |        ^^^^^^^^^
   |
   = help: calendar windows (fixed_window) are not supported by this version of tidegate; write the length that you mean, such as "30 days" or "365 days"

error: `align` belongs to the algorithm fixed_window, and this limit is a token_bucket
  --> tidegate.toml:14:1
   |
14 | align = "clock"
   | ^^^^^
   |
   = help: leave `align` out

error: `mode = "shadow"` is not supported by this version of tidegate
  --> tidegate.toml:15:8
   |
15 | mode = "shadow"
   |        ^^^^^^^^
   |
   = help: this version knows "enforce"

error: `refill = "interval"` is not supported by this version of tidegate
  --> tidegate.toml:16:10
   |
16 | refill = "interval"
   |          ^^^^^^^^^^
   |
   = help: this version knows "smooth"

error: `allow` is not supported by this version of tidegate
  --> tidegate.toml:17:1
   |
17 | allow = []
   | ^^^^^

error: a cost taken from the request is not supported by this version of tidegate
  --> tidegate.toml:18:8
   |
18 | cost = "header:x-cost"
   |        ^^^^^^^^^^^^^^^
   |
   = help: a limit's cost is a whole number in this version

error: `jwt:sub` is not supported by this version of tidegate
  --> tidegate.toml:19:7
   |
19 | key = "jwt:sub"
   |       ^^^^^^^^^

error: a list of rates is not supported by this version of tidegate
  --> tidegate.toml:23:8
   |
23 | rate = ["1/s"]
   |        ^^^^^^^
   |
   = help: name several limits on the route instead

error: `refill` belongs to the algorithm token_bucket, and this limit is a gcra
  --> tidegate.toml:24:1
   |
24 | refill = "smooth"
   | ^^^^^^
   |
   = help: leave `refill` out

error: https:// upstreams are not supported by this version of tidegate
  --> tidegate.toml:27:12
   |
27 | servers = ["https://a"]
   |            ^^^^^^^^^^^
   |
   = help: servers are reached over http://

error: `balance = "hash:client_ip"` is not supported by this version of tidegate
  --> tidegate.toml:28:11
   |
28 | balance = "hash:client_ip"
   |           ^^^^^^^^^^^^^^^^
   |
   = help: this version knows "round_robin"

error: `tls` is not supported by this version of tidegate
  --> tidegate.toml:29:1
   |
29 | tls = {}
   | ^^^
   |
   = help: upstreams are spoken to over http://

error: `protocol = "h2"` is not supported by this version of tidegate
  --> tidegate.toml:30:12
   |
30 | protocol = "h2"
   |            ^^^^
   |
   = help: this version knows "h1"

error: `max_body` is not supported by this version of tidegate
  --> tidegate.toml:34:1
   |
34 | max_body = "1MiB"
   | ^^^^^^^^"#;
    assert_eq!(report(text), said);
}

#[test]
fn numbers_that_do_not_fit() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.a]
rate = "1000001/day"

[limits.b]
rate = "1/s"
burst = 9_007_199_254_740_993

[limits.c]
rate = "1/s"
burst = 0

[limits.d]
rate = "5/s"
cost = 6

[limits.e]
algorithm = "gcra"
rate = "999983/week"
burst = 1_000_000

[limits.f]
rate = "1/minit"

[limits.g]
rate = "1/9999999999s"

[limits."H x"]
rate = "1/s"
"#;
    let said = r#"error: this rate can't be counted exactly
 --> tidegate.toml:4:8
  |
4 | rate = "1000001/day"
  |        ^^^^^^^^^^^^^
  |
  = help: the largest that fits is `burst = 104249`
  = help: the nearest rate that fits is "1000000/day"

error: `burst` must be from 0 to 9007199254740992, not 9007199254740993
 --> tidegate.toml:8:9
  |
8 | burst = 9_007_199_254_740_993
  |         ^^^^^^^^^^^^^^^^^^^^^

error: a bucket that holds nothing would refuse every request
  --> tidegate.toml:12:9
   |
12 | burst = 0
   |         ^
   |
   = help: `burst` is how many requests may come at once: at least 1

error: no request could ever pass: it costs 6, and at most 5 are there at once
  --> tidegate.toml:16:8
   |
16 | cost = 6
   |        ^
   |
   = help: a cost of at most 5, or a larger `burst`

error: this rate can't be counted exactly with this burst
  --> tidegate.toml:20:8
   |
20 | rate = "999983/week"
   |        ^^^^^^^^^^^^^
21 | burst = 1_000_000
   |         --------- with this burst
   |
   = help: the largest that fits is `burst = 14891`
   = help: the nearest rate that fits is "999990/week"

error: `minit` is not a unit of time
  --> tidegate.toml:24:8
   |
24 | rate = "1/minit"
   |        ^^^^^^^^^
   |
   = help: did you mean `minute`?

error: this rate can't be counted exactly
  --> tidegate.toml:27:8
   |
27 | rate = "1/9999999999s"
   |        ^^^^^^^^^^^^^^^
   |
   = help: a rate of rounder numbers, or of a shorter period, fits

error: `H x` can't be the name of a limit
  --> tidegate.toml:29:9
   |
29 | [limits."H x"]
   |         ^^^^^
   |
   = help: a name has 1 to 64 characters from a-z, 0-9, - and _"#;
    assert_eq!(report(text), said);
}

#[test]
fn wrong_key_parts() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.a]
rate = "1/s"
key = ["header", "clientip", "client_ip:x", "header:a b", "frob:x"]

[[routes]]
path = "/*"
limits = ["a"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: `header` is not a key part
 --> tidegate.toml:5:8
  |
5 | key = ["header", "clientip", "client_ip:x", "header:a b", "frob:x"]
  |        ^^^^^^^^
  |
  = help: say which: "header:NAME"

error: `clientip` is not a key part
 --> tidegate.toml:5:18
  |
5 | key = ["header", "clientip", "client_ip:x", "header:a b", "frob:x"]
  |                  ^^^^^^^^^^
  |
  = help: did you mean `client_ip`?

error: `client_ip:x` is not a key part
 --> tidegate.toml:5:30
  |
5 | key = ["header", "clientip", "client_ip:x", "header:a b", "frob:x"]
  |                              ^^^^^^^^^^^^^
  |
  = help: write "client_ip" alone

error: `header:a b` is not a key part
 --> tidegate.toml:5:45
  |
5 | key = ["header", "clientip", "client_ip:x", "header:a b", "frob:x"]
  |                                             ^^^^^^^^^^^^
  |
  = help: what stands after `header:` can't be the name of one

error: `frob:x` is not a key part
 --> tidegate.toml:5:59
  |
5 | key = ["header", "clientip", "client_ip:x", "header:a b", "frob:x"]
  |                                                           ^^^^^^^^
  |
  = help: the parts are client_ip, header:NAME, cookie:NAME, query:NAME, path, path_param:NAME, host, method, route, global"#;
    assert_eq!(report(text), said);
}

#[test]
fn wrong_routes() {
    let text = r#"listen = "127.0.0.1:8080"

[upstreams.none]
servers = []

[upstreams.odd]
servers = ["http://u:p@a", "http://a/?b", { weight = 0 }]
retries = 2

[[routes]]
path = "/a*b"
host = "http://a"
upstream = "http://a"
respond = { status = 99 }

[[routes]]
path = "x"
rewrite = { strip_prefix = "/v2" }
respond = { status = 204, body = "x" }

[[routes]]
methods = []
encoded_slash = "no"
"#;
    let said = r#"error: an upstream needs at least one server
 --> tidegate.toml:4:11
  |
4 | servers = []
  |           ^^
  |
  = help: add one: ["http://10.0.1.5:9000"]

error: the URL of a server has no user information
 --> tidegate.toml:7:12
  |
7 | servers = ["http://*:*@a", "http://a/?b", { weight = 0 }]
  |            ^^^^^^^^^^^^^^
  |
  = help: send credentials in a header: request_headers = { set = { authorization = "${UPSTREAM_AUTH}" } }

error: the URL of a server has no query
 --> tidegate.toml:7:28
  |
7 | servers = ["http://*:*@a", "http://a/?b", { weight = 0 }]
  |                            ^^^^^^^^^^^^^
  |
  = help: leave out what starts with `?`

error: this server has no `url`
 --> tidegate.toml:7:43
  |
7 | servers = ["http://*:*@a", "http://a/?b", { weight = 0 }]
  |                                           ^^^^^^^^^^^^^^
  |
  = help: add a line such as: url = "http://10.0.1.5:9000"

error: `weight` must be from 1 to 1000, not 0
 --> tidegate.toml:7:54
  |
7 | servers = ["http://*:*@a", "http://a/?b", { weight = 0 }]
  |                                                      ^

error: `retries` must be from 0 to 1, not 2
 --> tidegate.toml:8:11
  |
8 | retries = 2
  |           ^

error: `/a*b` can't be the path of a route: `*` may only stand at the end
  --> tidegate.toml:11:8
   |
11 | path = "/a*b"
   |        ^^^^^^

error: `http://a` is not a host
  --> tidegate.toml:12:8
   |
12 | host = "http://a"
   |        ^^^^^^^^^^
   |
   = help: write it without scheme and port: "api.example.com" or "*.example.com"

error: a route either forwards or answers by itself
  --> tidegate.toml:14:1
   |
13 | upstream = "http://a"
   | -------- here it forwards
14 | respond = { status = 99 }
   | ^^^^^^^
   |
   = help: leave `upstream` or `respond` out

error: `status` must be from 200 to 599, not 99
  --> tidegate.toml:14:22
   |
14 | respond = { status = 99 }
   |                      ^^

error: `x` can't be the path of a route: the path does not start with a slash
  --> tidegate.toml:17:8
   |
17 | path = "x"
   |        ^^^
   |
   = help: write "/x"

error: `rewrite` changes what goes upstream, and this route answers by itself
  --> tidegate.toml:18:11
   |
18 | rewrite = { strip_prefix = "/v2" }
   |           ^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: leave `rewrite` or `respond` out

error: an answer with status 204 has no body
  --> tidegate.toml:19:34
   |
19 | respond = { status = 204, body = "x" }
   |                                  ^^^
   |
   = help: leave `body` out

error: route 3 has no `path`
  --> tidegate.toml:21:1
   |
21 | [[routes]]
   | ^^^^^^^^^^
   |
   = help: add a line such as: path = "/*"

error: this route does not say what becomes of its requests
  --> tidegate.toml:21:1
   |
21 | [[routes]]
   | ^^^^^^^^^^
   |
   = help: add upstream = "http://127.0.0.1:9000", or respond = { status = 200, body = "ok\n" }

error: no request could match: the list is empty
  --> tidegate.toml:22:11
   |
22 | methods = []
   |           ^^
   |
   = help: name a method, or leave `methods` out for all of them

error: `no` is not a value of `encoded_slash`
  --> tidegate.toml:23:17
   |
23 | encoded_slash = "no"
   |                 ^^^^
   |
   = help: the values are "refuse" and "keep""#;
    assert_eq!(report(text), said);
}

#[test]
fn headers_that_are_not_the_users() {
    let text = r#"listen = "127.0.0.1:8080"

[[routes]]
path = "/"
upstream = "http://a"

[routes.request_headers]
set = { Connection = "x", "a b" = "c", host = "x" }
remove = ["te"]

[routes.response_headers]
set = { x = "a\nb" }
"#;
    let said = r#"error: `connection` can't be set: tidegate writes it itself
 --> tidegate.toml:8:9
  |
8 | set = { Connection = "x", "a b" = "c", host = "x" }
  |         ^^^^^^^^^^

error: `a b` is not a header name
 --> tidegate.toml:8:27
  |
8 | set = { Connection = "x", "a b" = "c", host = "x" }
  |                           ^^^^^

error: `host` can't be set here
 --> tidegate.toml:8:40
  |
8 | set = { Connection = "x", "a b" = "c", host = "x" }
  |                                        ^^^^
  |
  = help: write rewrite = { host = "upstream" }, or a name in place of "upstream"

error: `te` can't be removed: tidegate writes it itself
 --> tidegate.toml:9:11
  |
9 | remove = ["te"]
  |           ^^^^

error: `a\nb` is not a header value
  --> tidegate.toml:12:13
   |
12 | set = { x = "a\nb" }
   |             ^^^^^^
   |
   = help: it may hold neither line ends nor control characters, and neither start nor end with a blank"#;
    assert_eq!(report(text), said);
}

#[test]
fn equal_names_of_routes() {
    let text = r#"listen = "127.0.0.1:8080"

[[routes]]
path = "/a"
respond = {}

[[routes]]
name = "1"
path = "/b"
respond = {}

[[routes]]
name = "1"
path = "/c"
respond = {}
"#;
    let said = r#"error: two routes have the name `1`
 --> tidegate.toml:8:8
  |
3 | [[routes]]
  | ---------- this route has no name, so this is its number
...
8 | name = "1"
  |        ^^^

error: two routes have the name `1`
  --> tidegate.toml:13:8
   |
 8 | name = "1"
   |        --- the other
...
13 | name = "1"
   |        ^^^"#;
    assert_eq!(report(text), said);
}

#[test]
fn path_params_that_a_route_lacks() {
    let text = r#"listen = "127.0.0.1:8080"
default_limits = ["user"]

[limits.user]
rate = "1/s"
key = "path_param:id"

[[routes]]
path = "/users/{id}"
respond = {}

[[routes]]
path = "/users"
respond = {}

[[routes]]
path = "/people/{name}"
limits = ["user"]
respond = {}
"#;
    let said = r#"error: the limit `user` counts by `path_param:id`, and the path of route 2 has no `{id}`
  --> tidegate.toml:12:1
   |
12 | [[routes]]
   | ^^^^^^^^^^
   |
   = help: name a segment: path = "/users/{id}"

error: the limit `user` counts by `path_param:id`, and the path of route 3 has no `{id}`
  --> tidegate.toml:18:11
   |
18 | limits = ["user"]
   |           ^^^^^^
   |
   = help: name a segment: path = "/users/{id}""#;
    assert_eq!(report(text), said);
}

#[test]
fn encoded_slashes_round_a_limit() {
    let text = r#"listen = "127.0.0.1:8080"

[limits.per-client]
rate = "5/minute"

[[routes]]
path = "/files/*"
encoded_slash = "keep"
upstream = "http://127.0.0.1:9000"

[[routes]]
name = "login"
path = "/login"
limits = ["per-client"]
upstream = "http://127.0.0.1:9000"
"#;
    let said = r#"error: an encoded slash would be a way round the limit `per-client` of route `login`
  --> tidegate.toml:8:17
   |
 8 | encoded_slash = "keep"
   |                 ^^^^^^
...
11 | [[routes]]
   | ---------- a server that decodes %2F may take the request for one of this route
   |
   = help: leave `encoded_slash` out, or put the limit `per-client` on this route as well"#;
    assert_eq!(report(text), said);
}

#[test]
fn what_is_odd() {
    let text = r#"listen = "127.0.0.1:8080"

[client_ip]
trusted_proxies = ["0.0.0.0/0"]

[limits.unused]
rate = "1/s"

[limits.free]
rate = "1/s"
cost = 0

[limits.key]
rate = "1/s"
key = ["header:x-api-key", "method"]

[upstreams.unused]
servers = ["http://a"]

[[routes]]
path = "/a/*"
limits = ["key"]
respond = {}

[[routes]]
path = "/a/{x}"
limits = ["free"]
respond = {}

[[routes]]
path = "/v1"
upstream = "http://a"
rewrite = { strip_prefix = "/v2" }
"#;
    let said = r#"warning: every address is a trusted proxy: each client can say who it is, and so walk round every limit
 --> tidegate.toml:4:20
  |
4 | trusted_proxies = ["0.0.0.0/0"]
  |                    ^^^^^^^^^^^
  |
  = help: name only the networks that your proxies are in

warning: no route uses this limit
 --> tidegate.toml:6:9
  |
6 | [limits.unused]
  |         ^^^^^^
  |
  = help: name it in a route's `limits`, or in `default_limits`

warning: this limit never refuses anybody: its cost is 0
 --> tidegate.toml:9:9
  |
9 | [limits.free]
  |         ^^^^

warning: no route uses this upstream
  --> tidegate.toml:17:12
   |
17 | [upstreams.unused]
   |            ^^^^^^

warning: clients can walk round every limit of route `1`: a made-up `header:x-api-key` gives them a fresh count
  --> tidegate.toml:20:1
   |
20 | [[routes]]
   | ^^^^^^^^^^
   |
   = help: add a limit that counts by `client_ip`, with room for several keys behind one address

warning: route `2` never matches: route `1` before it takes all its requests
  --> tidegate.toml:25:1
   |
20 | [[routes]]
   | ---------- this route
...
25 | [[routes]]
   | ^^^^^^^^^^
   |
   = help: routes are tried from the top: put the narrower one first

warning: nothing is cut: no path of this route (`/v1`) starts with this prefix
  --> tidegate.toml:33:28
   |
33 | rewrite = { strip_prefix = "/v2" }
   |                            ^^^^^"#;
    assert_eq!(warnings(text), said);
}

#[test]
fn no_routes() {
    let text = r#"listen = "127.0.0.1:8080"
"#;
    let said = "warning: the file has no routes: every request is answered with 404
--> tidegate.toml
help: add a [[routes]] table with a `path` and an `upstream`";
    assert_eq!(warnings(text), said);
}
