//! Reading the configuration file: values, defaults and errors.

use std::fs;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use proptest::prelude::*;
use tidegate::config::{self, Loaded};
use tidegate::gate::{Cost, KeyPart, RouteId};
use tidegate::jwt::Algorithm;
use tidegate::limit::{Ahead, PolicyId};
use tidegate::limiter::OnStoreFailure;
use tidegate::overload::{Class, CountUntil, LimitSpec, Mode, OverloadSpec};
use tidegate::proxy::{ForwardTarget, Target};
use tidegate::server::Service;
use tidegate::store::StoreSpec;
use tidegate::store::redis::RedisAddress;
use tidegate::time::Micros;
use tidegate::upstream::HeaderNames;

use tidegate::upstream::{Balance, EjectSpec, HealthSpec, HostRule, ServerSpec, UpstreamId, UpstreamSpec};

use crate::support::{Authority, mmdb};

/// Every key that this version knows.
const WHOLE: &str = include_str!("every_key.toml");

fn env(name: &str) -> Option<String> {
    match name {
        "REDIS_PASSWORD" => Some("hush@/:#".to_owned()),
        "REDIS_URL" => {
            Some("rediss-sentinel://app:hush@a.internal,b.internal:6380/2?service=gate".to_owned())
        }
        "SENTINEL_PASSWORD" => Some("hush-hush".to_owned()),
        "HASH_KEY" => Some("0123456789abcdef".to_owned()),
        "ADMIN_TOKEN" => Some("s3cret-admin-t0ken".to_owned()),
        "ADMIN_READ_TOKEN" => Some("s3cret-read-t0ken".to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Loaded, config::Report> {
    config::parse(text, "tidegate.toml", &env)
}

/// The file with every key, beside the files that it names.
fn whole() -> Loaded {
    let authority = Authority::new();
    authority.sign("api");
    authority.sign("www");
    authority.sign_client("gate");
    let consumers = "[acme]\ncredentials = [\"k-1\"]\n";
    fs::write(authority.file("consumers.toml"), consumers).unwrap();
    fs::write(authority.file("country.mmdb"), mmdb::countries(&[("192.0.2.0", 24, "DE")])).unwrap();
    fs::write(authority.file("asn.mmdb"), mmdb::systems(&[("192.0.2.0", 24, 64496)])).unwrap();
    let file = authority.file("tidegate.toml");
    config::parse(WHOLE, file.to_str().unwrap(), &env).unwrap_or_else(|report| panic!("{report}"))
}

/// The errors of an invalid file.
fn report(text: &str) -> String {
    parse(text).map(|loaded| loaded.config).expect_err("the file is invalid").to_string()
}

#[test]
fn the_examples_have_no_errors_or_warnings() {
    for (file, text) in [
        ("config/quickstart.toml", include_str!("../../../config/quickstart.toml")),
        ("config/production.toml", include_str!("../../../config/production.toml")),
    ] {
        let loaded = config::parse(text, file, &env).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}

#[test]
fn every_key_is_read() {
    let loaded = whole();
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let config = &loaded.config;
    assert_eq!((config.workers, config.shutdown_grace), (3, Duration::from_secs(5)));
    assert_eq!(config.shutdown_delay, Duration::from_secs(3));
    let [public, second, safe] = &config.listeners[..] else { panic!("three listeners") };
    assert_eq!((public.max_connections, public.max_header_bytes, public.max_headers), (20_000, 16_384, 50));
    assert_eq!((public.min_body_rate, second.min_body_rate), (NonZeroU32::new(500), NonZeroU32::new(240)));
    assert_eq!(public.idle_timeout, Duration::from_mins(1));
    assert_eq!(second.address.to_string(), "[::1]:8081");
    assert_eq!((public.service, second.service), (Service::Proxy, Service::EnvoyRatelimit));
    let [late, replacing, closed] = config.snapshot.gate.descriptor_rules.rules() else {
        panic!("three rules")
    };
    assert_eq!((late.charges_late, late.needs_address, late.name.as_deref()), (true, true, Some("checkout")));
    assert_eq!((&*replacing.replaces[0], closed.blocks), ("checkout", true));
    assert!(second.tls.is_none() && safe.tls.as_ref().unwrap().requires_client_certificate());
    assert_eq!((safe.proxy_protocol, safe.handshake_timeout), (true, Duration::from_secs(5)));
    let admin = config.admin.as_ref().unwrap();
    assert_eq!(admin.address.to_string(), "0.0.0.0:9900");
    assert_eq!(admin.token.as_ref().unwrap().reveal(), "s3cret-admin-t0ken");
    assert_eq!(admin.read_token.as_ref().unwrap().reveal(), "s3cret-read-t0ken");
    assert!(admin.tls.as_ref().unwrap().requires_client_certificate());
    let StoreSpec::Redis(servers) = &config.store else { panic!("a Redis") };
    let redis = servers.first();
    assert_eq!(
        (redis.target.to_string().as_str(), &*redis.prefix),
        ("rediss-sentinel://a.internal:26379,b.internal:6380/2?service=gate", "gate")
    );
    let RedisAddress::Sentinel { username, password, .. } = &redis.target.address else {
        panic!("Sentinels")
    };
    assert_eq!((username.as_deref(), password.as_deref()), (Some("gate"), Some("hush-hush")));
    assert!(!redis.client_clock);
    let gate = &config.snapshot.gate;
    assert_eq!((gate.client_ip.ipv4_prefix, gate.client_ip.ipv6_prefix), (24, 48));
    assert_eq!(
        gate.client_ip.remove_headers,
        HeaderNames::new(["x-real-ip", "x-auth-*", "x-user", "x-plan"])
    );
    let jwt = gate.jwt.as_ref().unwrap().spec();
    assert_eq!(jwt.algorithms, [Algorithm::RS256, Algorithm::PS512, Algorithm::ES384]);
    assert_eq!(
        (jwt.issuer.as_deref(), jwt.audience.as_deref()),
        (Some("https://id.example.com"), Some("api"))
    );
    assert_eq!(format!("{} {:?}", jwt.header, jwt.source), "x-token Url(KeySetUrl(https://id.example.com))");
    assert_eq!(gate.limit_rules[PolicyId(1)].key.parts[1], KeyPart::Jwt("sub".into()));
    assert_eq!(
        (config.max_keys, config.snapshot.response_policy.retry_after_max),
        (5_000, Some(Duration::from_mins(10)))
    );
    let custom = &config.snapshot.response_policy.custom;
    let status = |status| custom.of(StatusCode::from_u16(status).unwrap()).unwrap().status.unwrap().as_u16();
    assert_eq!([429, 404, 400, 502, 504].map(status), [429, 410, 422, 500, 504]);
}

#[test]
fn limits_are_read() {
    let loaded = whole();
    let gate = &loaded.config.snapshot.gate;
    let names: Vec<&str> = gate.limits().map(|(_, policy)| &*policy.name).collect();
    assert_eq!(names, ["per-key", "even", "per-address", "daily", "polite", "smooth", "queue", "in-flight"]);
    // Tiers and overrides follow, with the store's name of the limit or one of their own.
    let others: Vec<(&str, u64)> =
        gate.limits.policies[8..].iter().map(|other| (&*other.stored, other.quota.limit())).collect();
    let acme = ("per-key", 5_000);
    assert_eq!(others[..4], [("per-key.pro", 1_000), ("per-key.free", 60), acme, ("per-key", 20)]);
    // The policies of classes that leave slots to others.
    assert_eq!(others[4..], [("in-flight", 20); 3]);
    let usable: Vec<u64> = gate.limits.policies[12..].iter().map(|policy| policy.quota.usable()).collect();
    assert_eq!(usable, [16, 14, 13]);
    assert_eq!(
        gate.variants,
        [[0; 4].as_slice(), &[7; 3]].concat().into_iter().map(PolicyId).collect::<Vec<_>>()
    );
    let (policy, rule) = (&gate.limits.policies[0], &gate.limit_rules[PolicyId(0)]);
    assert_eq!(rule.key.parts, [KeyPart::Header("x-api-key".parse().unwrap()), KeyPart::Method]);
    assert_eq!((&rule.cost, policy.quota.limit()), (&Cost::Fixed(2), 500));
    assert_eq!(policy.charge_on(), [401, 403]);
    assert_eq!(policy.ban.map(|ban| (ban.after, ban.length)), Some((20, Micros(600_000_000))));
    assert_eq!(gate.limits.policies[11].ban, policy.ban);
    assert_eq!((**gate.limits.on_failure)[8..12], [OnStoreFailure::Deny; 4]);
    assert_eq!(gate.limits.shares[0].quota.limit(), 250);
    assert!(gate.limits.policies[5].shadow && !policy.shadow);
    let ahead = Ahead { span: Micros(2_000_000), share: NonZeroU64::new(10).unwrap() };
    assert_eq!((gate.limits.policies[1].ahead, policy.ahead), (Some(ahead), None));
    let max = 50;
    assert_eq!(gate.limit_rules[PolicyId(2)].cost, Cost::Header { name: "x-cost".parse().unwrap(), max });
    let numbers: Vec<&str> = loaded.config.snapshot.gate.numbers.iter().map(|numbers| &**numbers).collect();
    assert_eq!(
        numbers,
        [
            "100/minute, burst 500",
            "5/10 minutes, burst 50",
            "1000/h",
            "800/day, by the calendar of Europe/Berlin",
            "1/s and 20/minute and 200/hour and 800/day",
            "100/minute, buckets 60",
            "10/s, queue 20",
            "20 in flight, lease 10s",
            "1000/minute",
            "100/minute, burst 60, refilled at intervals",
            "5000/minute",
            "10/s, burst 20",
            "20 in flight, lease 10s",
            "20 in flight, lease 10s",
            "20 in flight, lease 10s",
        ]
    );
}

#[test]
fn routes_are_read() {
    let config = whole().config;
    let gate = &config.snapshot.gate;
    let [search, mirror, status, ..] = gate.routes.routes() else { panic!("six routes") };
    assert_eq!((&*search.name, &*mirror.name, &*status.name), ("search", "2", "status"));
    // The default limit comes first, and once.
    assert_eq!(search.limits.iter().map(|id| id.0).collect::<Vec<_>>(), [2, 0, 1]);
    assert!(status.limits.is_empty());
    assert_eq!(gate.default_limits.len(), 1);
    let Target::Forward(ForwardTarget { upstream, rewrite, key, .. }) =
        &config.snapshot.actions[RouteId(0)].target
    else {
        panic!("forwards")
    };
    assert_eq!(key.as_ref().unwrap().parts, [KeyPart::parse("header:x-user").unwrap()]);
    assert_eq!((upstream.0, rewrite.strip_prefix.as_deref()), (0, Some("/v1")));
    assert!(matches!(rewrite.host, HostRule::Upstream));
    // Routes that give the same URL share its connections.
    let urls: Vec<&str> = config.snapshot.upstreams.iter().map(|upstream| &*upstream.name).collect();
    assert_eq!(urls, ["api", "safe", "spare", "http://127.0.0.1:9000/base/"]);
    assert_eq!(&*config.snapshot.upstreams[UpstreamId(3)].servers[0].base_path, "/base");
    let [api, safe, ..] = &*config.snapshot.upstreams else { panic!("four upstreams") };
    assert!(api.tls.is_none() && safe.tls.is_some());
    let authorities: Vec<String> = safe.servers.iter().map(ServerSpec::authority).collect();
    assert_eq!(authorities, ["10.0.1.5", "[2001:db8::7]:8443"]);
    let weights: Vec<u32> =
        config.snapshot.upstreams[UpstreamId(0)].servers.iter().map(|server| server.weight).collect();
    assert_eq!(weights, [1, 2]);
    let set = &config.snapshot.actions[RouteId(0)].request_headers.set;
    assert!(set[0].1.is_sensitive() && !set[1].1.is_sensitive());
}

#[test]
fn upstreams_are_read() {
    let snapshot = whole().config.snapshot;
    let second = Duration::from_secs(1);
    let health = HealthSpec {
        path: "/healthz?deep=1".into(),
        interval: 10 * second,
        timeout: 2 * second,
        healthy_after: 1,
        unhealthy_after: 2,
    };
    let api = UpstreamSpec {
        is_http2: true,
        connect_timeout: second / 4,
        pending_timeout: second / 2,
        total_timeout: Some(600 * second),
        balance: Balance::Hash,
        hash_balance_factor: Some(1.5),
        retries: 2,
        retry_budget: 0.1,
        retry_for: Some(2 * second),
        max_connections: 500,
        max_pending: 50,
        max_requests_per_client: NonZeroUsize::new(60),
        max_tunnels_per_client: NonZeroUsize::new(8),
        health: Some(health),
        eject: Some(EjectSpec { after: 3, lasts: 10 * second }),
        panic_threshold: 0.3,
        slow_start: 30 * second,
        ..config::defaults::upstream("api", snapshot.upstreams[UpstreamId(0)].servers.clone())
    };
    assert_eq!(format!("{:?}", snapshot.upstreams[UpstreamId(0)]), format!("{api:?}"));
    let servers = snapshot.upstreams[UpstreamId(2)].servers.clone();
    let spare = UpstreamSpec {
        balance: Balance::LeastRequests,
        eject: None,
        overload: Some(OverloadSpec {
            mode: Mode::Shadow,
            max_pending: 1024,
            pending_timeout: Micros(3_000_000),
            limit: LimitSpec::Adaptive { min: 16, max: 500 },
            reserved_share: [0.2, 0.1, 0.05, 0.01],
            floor: 0.1,
            count: CountUntil::End,
            ..OverloadSpec::default()
        }),
        ..config::defaults::upstream("spare", servers)
    };
    assert_eq!(format!("{:?}", snapshot.upstreams[UpstreamId(2)]), format!("{spare:?}"));
    let safe = snapshot.upstreams[UpstreamId(1)].overload.as_ref().unwrap();
    assert_eq!((safe.limit, safe.servers, safe.max_pending), (LimitSpec::Fixed(64), 2, 256));
    let admitted = snapshot.actions.ids().filter(|id| {
        let target = snapshot.actions[*id].target.forwarding();
        target.is_some_and(|target| target.admission.is_some())
    });
    let priorities: Vec<_> = admitted
        .map(|id| &snapshot.gate.routes.get(id).priority)
        .map(|priority| (priority.class, priority.header.as_ref().map(http::HeaderName::as_str)))
        .collect();
    assert_eq!(priorities, [(Class::Normal, None), (Class::High, Some("x-priority"))]);
    let priorities = snapshot.gate.consumers.as_ref().unwrap().priorities.iter();
    let priorities: Vec<(&str, Class)> = priorities.map(|(tier, class)| (&**tier, *class)).collect();
    assert_eq!(priorities, [("enterprise", Class::Critical), ("free", Class::Low)]);
}

#[test]
fn a_limit_needs_nothing_but_a_rate() {
    let text = "listen = \"127.0.0.1:8080\"\n[limits.a]\nrate = \"5/minute\"\n[[routes]]\npath = \"/\"\nlimits = [\"a\"]\nrespond = {}\n";
    let loaded = parse(text).unwrap_or_else(|report| panic!("{report}"));
    assert!(matches!(loaded.config.store, StoreSpec::Memory));
    assert_eq!(loaded.config.snapshot.gate.limits.policies[0].quota.limit(), 5);
    assert!(loaded.config.workers >= 1);
    let upstream = config::defaults::upstream("u", Vec::new());
    assert_eq!(
        (upstream.connect_timeout, upstream.pending_timeout),
        (Duration::from_secs(5), Duration::from_secs(3))
    );
}

#[test]
fn only_overload_that_is_enforced_shortens_the_queue_for_connections() {
    let (normal, short) = ((1024, Duration::from_secs(3)), (256, Duration::from_millis(500)));
    for (overload, expected) in [("false", normal), ("{ mode = \"shadow\" }", normal), ("true", short)] {
        let text = format!(
            "listen = \"127.0.0.1:8080\"\n[upstreams.u]\nservers = [\"http://10.0.0.1\"]\noverload = {overload}\n\
             [[routes]]\npath = \"/*\"\nupstream = \"u\"\n"
        );
        let loaded = parse(&text).unwrap_or_else(|report| panic!("{report}"));
        let upstream = &loaded.config.snapshot.upstreams[UpstreamId(0)];
        assert_eq!((upstream.max_pending, upstream.pending_timeout), expected, "{overload}");
    }
}

#[test]
fn names_from_the_environment_show_as_their_variables() {
    let text = "listen = \"127.0.0.1:8080\"\nshutdown_grace = \"${LONG}\"\n[[routes]]\nname = \"${NAME}\"\npath = \"/*\"\nrespond = {}\n\
                [[routes]]\npath = \"/a\"\nrespond = {}\n";
    let env = |name: &str| Some(if name == "NAME" { "hush-hush" } else { "12days" }.to_owned());
    let report =
        config::parse(text, "tidegate.toml", &env).map(|loaded| loaded.config).unwrap_err().to_string();
    assert!(
        report.contains("must be from 0s to 1day, not this value") && !report.contains("12days"),
        "{report}"
    );
    let right = text.replace("${LONG}", "1s");
    let report = config::parse(&right, "tidegate.toml", &env).unwrap().warnings.to_string();
    assert!(report.contains("the earlier route `${NAME}` matches") && !report.contains("hush"), "{report}");
}

#[test]
fn load_reads_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\n[[routes]]\npath = \"/\"\nrespond = {}\n").unwrap();
    assert!(config::load(&file).is_ok());
    std::fs::write(&file, b"listen = \"127.0.0.1:0\"\n# \xff\n").unwrap();
    let report = config::load(&file).unwrap_err().to_string();
    assert!(
        report.starts_with("error: the file is not valid UTF-8\n") && report.contains("a.toml:2:3"),
        "{report}"
    );
    let report = config::load(Path::new("/nowhere/b.toml")).unwrap_err().to_string();
    let expected = "error: can't read /nowhere/b.toml: No such file or directory (os error 2)\nhelp: name another file with -c FILE";
    assert_eq!(report, expected);
}

/// Routes in short: a path, and more lines for its table.
fn routes(routes: &[(&str, &str)]) -> String {
    let tables = routes.iter().map(|(path, more)| {
        let end = if more.contains("upstream") { "" } else { "respond = {}" };
        format!("[[routes]]\npath = \"{path}\"\n{more}\n{end}\n")
    });
    format!("listen = \"127.0.0.1:8080\"\n[limits.a]\nrate = \"1/s\"\n{}", tables.collect::<String>())
}

fn lines(report: &config::Report) -> Vec<String> {
    report.lines().filter(|line| !line.contains("no route uses this limit")).collect()
}

#[test]
fn unreachable_routes_are_reported() {
    let hidden = |all: &[(&str, &str)]| {
        let loaded = parse(&routes(all)).unwrap_or_else(|report| panic!("{report}"));
        lines(&loaded.warnings).iter().filter(|line| line.contains("never matches")).count()
    };
    assert_eq!(hidden(&[("/*", ""), ("/a", "")]), 1);
    assert_eq!(hidden(&[("/a/{x}", ""), ("/a/{y}", "methods = [\"GET\"]")]), 1);
    assert_eq!(hidden(&[("/a*", "host = \"*.b.c\""), ("/ab/{x}/*", "host = \"*.a.b.c\"")]), 1);
    assert_eq!(hidden(&[("/*", "methods = [\"GET\"]"), ("/*", "methods = [\"HEAD\"]")]), 1);
    let two = "headers = { a = \"1\", b = \"2\" }\nquery = { c = \"3\" }";
    for one in ["headers = { b = \"2\" }", "query = { c = \"3\" }", "headers = { a = \"1\" }"] {
        assert_eq!(hidden(&[("/x/*", one), ("/x/y", two)]), 1, "{one}");
    }
    assert_eq!(hidden(&[("/a", ""), ("/*", "")]), 0);
    assert_eq!(hidden(&[("/*", "host = \"a.b\""), ("/a", "")]), 0);
    assert_eq!(hidden(&[("/*", "headers = { a = \"1\" }"), ("/a", "headers = { a = \"2\" }")]), 0);
    assert_eq!(hidden(&[("/a*", ""), ("/{x}", "")]), 0);
}

#[test]
fn limits_that_clients_can_evade_are_reported() {
    let is_evadable = |key: &str, route: &str| {
        let text = routes(&[("/a/{id}", route), ("/b/*", "")])
            .replace("rate = \"1/s\"", &format!("rate = \"1/s\"\nkey = {key}"));
        let loaded = parse(&text).unwrap_or_else(|report| panic!("{report}"));
        lines(&loaded.warnings).iter().any(|line| line.contains("clients can evade every limit"))
    };
    let plain = "limits = [\"a\"]";
    for key in [
        "\"header:x\"",
        "[\"client_ip\", \"cookie:x\"]",
        "\"path\"",
        "\"path_param:id\"",
        "\"host\"",
        "\"method\"",
    ] {
        assert!(is_evadable(key, plain), "{key}");
    }
    for key in ["\"client_ip\"", "\"global\"", "\"route\""] {
        assert!(!is_evadable(key, plain), "{key}");
    }
    assert!(!is_evadable("\"host\"", "limits = [\"a\"]\nhost = \"a.b\""));
    assert!(!is_evadable("\"method\"", "limits = [\"a\"]\nmethods = [\"GET\"]"));
    assert!(!is_evadable("\"header:x\"", ""));
}

#[test]
fn encoded_slashes_are_accepted_if_no_limit_can_be_evaded() {
    let keep = "encoded_slash = \"keep\"\nupstream = \"http://a\"";
    let is_valid = |all: &[(&str, &str)]| parse(&routes(all)).is_ok();
    assert!(is_valid(&[("/f/*", keep), ("/login", "")]));
    assert!(!is_valid(&[("/f/*", keep), ("/login", "limits = [\"a\"]")]));
    let same = format!("{keep}\nlimits = [\"a\"]");
    assert!(is_valid(&[("/f/*", &same), ("/login", "limits = [\"a\"]")]));
    assert!(is_valid(&[("/f/*", &same)]));
    assert!(is_valid(&[
        ("/f/*", &format!("{keep}\nhost = \"a.b\"")),
        ("/*", "host = \"c.d\"\nlimits = [\"a\"]")
    ]));
    let posts = format!("{keep}\nmethods = [\"POST\"]");
    assert!(is_valid(&[("/f/*", &posts), ("/*", "methods = [\"GET\"]\nlimits = [\"a\"]")]));
    assert!(!is_valid(&[("/f/*", &posts), ("/*", "methods = [\"GET\", \"POST\"]\nlimits = [\"a\"]")]));
    // A limit that counts by the path has another count for each spelling.
    let by_path = routes(&[("/f/*", &same)]).replace("rate = \"1/s\"", "rate = \"1/s\"\nkey = \"path\"");
    assert!(parse(&by_path).is_err());
}

#[test]
fn a_route_has_at_most_a_thousand_limits() {
    let of = |count: usize| {
        let limits: Vec<String> = (0..count).map(|n| format!("[limits.l{n}]\nrate = \"1/s\"\n")).collect();
        let names: Vec<String> = (0..count).map(|n| format!("\"l{n}\"")).collect();
        routes(&[("/", &format!("limits = [{}]", names.join(", ")))]) + &limits.concat()
    };
    assert!(parse(&of(1_000)).is_ok());
    let report = report(&of(1_001));
    assert!(report.starts_with("error: route 1 has 1001 limits\n"), "{report}");
}

#[test]
fn ten_thousand_routes_are_read() {
    use std::fmt::Write as _;

    let mut text = String::from("listen = \"127.0.0.1:8080\"\n[limits.a]\nrate = \"5/minute\"\n");
    for number in 0..10_000 {
        let _ = write!(
            text,
            "[[routes]]\nhost = \"h{}.example.com\"\npath = \"/a/{number}/{{id}}/*\"\nmethods = [\"GET\"]\n\
             headers = {{ \"x-n\" = \"{number}\" }}\nlimits = [\"a\"]\nupstream = \"http://127.0.0.1:{}\"\n",
            number % 100,
            10_000 + number
        );
    }
    text.push_str("[[routes]]\nname = \"last\"\nhost = \"h1.example.com\"\npath = \"/a/101/x/y\"\nmethods = [\"GET\"]\nheaders = { x-n = \"101\" }\nrespond = {}\n");
    let loaded = parse(&text).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.warnings.len(), 0, "{}", loaded.warnings);
}

#[test]
fn all_problems_are_reported() {
    let text = "[[routes]]\npat = \"/\"\n".repeat(3_000);
    let report = report(&text);
    assert_eq!(report.matches("unknown key `pat`").count(), 3_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the text is: an answer, never a panic, and never a secret.
    #[test]
    fn no_text_makes_it_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4usize, "[\\[\\]{}=\"'$.,#\n0-9a-z*/:é \\\\]{0,6}"), 0..6)
    ) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for (place, removed, added) in edits {
            let at = place.index(text.len());
            let end = (at + removed).min(text.len());
            text.splice(at..end, added.chars());
        }
        let text: String = text.into_iter().collect();
        let report = match parse(&text) {
            Ok(loaded) => loaded.warnings.to_string() + &loaded.warnings.lines().collect::<String>(),
            Err(report) => {
                prop_assert!(!report.is_empty());
                report.to_string() + &report.lines().collect::<String>()
            }
        };
        prop_assert!(!report.contains("hush"), "{}", report);
    }
}

#[test]
fn each_policy_of_a_limit_with_ahead_has_a_span_of_its_own() {
    let text = r#"
        listen = "127.0.0.1:8080"
        store = { url = "redis://127.0.0.1:6379" }
        [limits.auto]
        rate = "1000/s"
        burst = 3000
        ahead = "auto"
        tiers = { by = "header:x-plan", slow = { rate = "1000/minute" }, fast = { burst = 1000 } }
        trust = "any"
        [limits.written]
        rate = "1000/minute"
        ahead = "2s"
        ahead_share = 16
        overrides = { "192.0.2.7" = { rate = "1000/s" } }
        [limits.banning]
        rate = "1000/minute"
        ahead = "auto"
        ban = { after = 20, within = "1m", for = "10m" }
        [limits.slots]
        algorithm = "concurrency"
        max_in_flight = 100
        ahead = "auto"
        [[routes]]
        path = "/*"
        limits = ["auto", "written", "banning", "slots"]
        respond = {}
    "#;
    let spans = |text: &str| -> Vec<Option<(u64, u64)>> {
        let config = parse(text).unwrap().config;
        let policies = config.snapshot.gate.limits.policies.iter();
        policies.map(|policy| policy.ahead.map(|ahead| (ahead.span.0 / 1_000, ahead.share.get()))).collect()
    };
    let [auto, written, banning, slots] = [Some((500, 8)), Some((2_000, 16)), Some((1_000, 8)), None];
    let [slow, fast, overriding] = [Some((10_000, 8)), Some((166, 8)), Some((500, 16))];
    assert_eq!(spans(text), [auto, written, banning, slots, slow, fast, overriding]);
    let keeps_slots = |text| parse(text).unwrap().config.snapshot.gate.limits.policies[3].keeps_slots;
    assert!(keeps_slots(text));
    // Limits that this process counts itself grant nothing.
    let in_memory = text.replace("store = { url = \"redis://127.0.0.1:6379\" }", "");
    assert!(spans(&in_memory).iter().all(Option::is_none) && !keeps_slots(&in_memory));
}
