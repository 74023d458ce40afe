//! Benchmarks of single parts: a step of each algorithm, a route match, a request's keys, a token, a charge in memory, the
//! choice of a server.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header};
use tidegate::config;
use tidegate::gate::{
    ClientLocation, Cost, Gate, KeyPart, KeySpec, LimitRule, OnMissing, PathPattern, Query, RequestView,
    Route, RouteId, RouteTable, Rules, Trust, ValueCondition, ValuePattern,
};
use tidegate::http1::{FieldName, Fields, RequestHead, names};
use tidegate::jwt::{Algorithm, JwtSpec, KeySource, Keys, Verifier};
use tidegate::limit::{
    Align, Calendar, CalendarUnit, Charge, Holder, Key, KeyHasher, Policy, PolicyId, Quota, Rate, State,
};
use tidegate::limiter::{Limits, OnStoreFailure};
use tidegate::store::Memory;
use tidegate::time::{Clock, Micros, Timestamp};
use tidegate::upstream::{Balance, ServerAddress, ServerSpec, SharedUpstream, UpstreamSpec};

const NOW: u64 = 1_790_000_000_000_000;

fn quotas() -> Vec<(&'static str, Quota)> {
    let rate = |units| Rate::new(units, Micros::SECOND).expect("not zero");
    let fits = "it fits";
    vec![
        ("token_bucket", Quota::token_bucket(rate(97), 500).expect(fits)),
        ("gcra", Quota::gcra(rate(101), 50).expect(fits)),
        ("token_bucket, interval", Quota::interval_bucket(rate(97), 500).expect(fits)),
        ("fixed_window", Quota::fixed_window(rate(97), Align::Clock).expect(fits)),
        ("fixed_window, calendar", calendar_window()),
        ("sliding_log", Quota::sliding_log(&[rate(60)]).expect(fits)),
        ("sliding_window", Quota::sliding_window(rate(100), 1).expect(fits)),
        ("sliding_window, 60 parts", Quota::sliding_window(per_minute(600), 60).expect(fits)),
        ("leaky_bucket", Quota::leaky_bucket(rate(97), 500).expect(fits)),
        ("concurrency", Quota::concurrency(20, Micros(30_000_000)).expect(fits)),
    ]
}

fn per_minute(units: u64) -> Rate {
    Rate::new(units, Micros(60_000_000)).expect("not zero")
}

fn calendar_window() -> Quota {
    let calendar = Calendar::new(CalendarUnit::Day, "Europe/Berlin").expect("there is Berlin");
    let rate = Rate::new(800, Micros(86_400_000_000)).expect("not zero");
    Quota::fixed_window(rate, Align::Calendar(calendar)).expect("it fits")
}

/// The state of a key after `units` requests, 20 ms apart up to just before [`NOW`].
fn used(quota: &Quota, units: u64) -> Option<State> {
    (0..units).fold(None, |state: Option<State>, n| {
        let at = Timestamp(NOW - (units - n) * 20_000);
        quota.step(state.as_ref(), at, 1, Holder(n)).next.or(state)
    })
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    for (name, quota) in quotas() {
        let state = used(&quota, 10);
        group.bench_function(BenchmarkId::new(name, "allowed"), |b| {
            b.iter(|| {
                quota.step(
                    black_box(state.as_ref()),
                    black_box(Timestamp(NOW + 1_000)),
                    black_box(1),
                    Holder::default(),
                )
            });
        });
        let full = used(&quota, 60);
        group.bench_function(BenchmarkId::new(name, "denied"), |b| {
            b.iter(|| {
                quota.step(
                    black_box(full.as_ref()),
                    black_box(Timestamp(NOW + 1_000)),
                    black_box(quota.limit()),
                    Holder::default(),
                )
            });
        });
    }
    group.finish();
}

fn route(number: usize, limits: Vec<PolicyId>) -> Route {
    // A mix of literal paths, parameters and prefixes.
    let path = match number % 3 {
        0 => format!("/v1/service-{number}/items"),
        1 => format!("/v1/service-{number}/items/{{id}}"),
        _ => format!("/v1/service-{number}/files/*"),
    };
    let path = PathPattern::parse(&path).expect("a pattern");
    Route { limits, ..Route::new(&number.to_string(), path) }
}

fn head(target: &str) -> RequestHead {
    let fields = [
        ("host", "api.example.com"),
        ("user-agent", "bench/1.0"),
        ("x-api-key", "a-key-of-thirty-two-characters-ab"),
        ("accept", "*/*"),
    ];
    let head = RequestHead::new(Method::GET, target.parse().expect("a target"));
    RequestHead { fields: fields.into_iter().collect(), ..head }
}

fn route_match(c: &mut Criterion) {
    let mut group = c.benchmark_group("route match");
    for count in [10_usize, 1_000, 10_000] {
        let table = RouteTable::new((0..count).map(|number| route(number, Vec::new())).collect());
        let target = format!("/v1/service-{}/items/4711", (count / 2 / 3) * 3 + 1);
        let head = head(&target);
        assert!(find(&table, "api.example.com", &target, &head).is_some());
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| find(&table, black_box("api.example.com"), black_box(&target), black_box(&head)));
        });
        let by_header = |number: usize| {
            let mut route = route(2, Vec::new());
            let tenant = [ValuePattern::parse(&format!("tenant-{number}"))];
            let condition = ValueCondition::AnyOf(tenant.into());
            route.headers.push((http::HeaderName::from_static("x-tenant"), condition));
            route
        };
        let table = RouteTable::new((0..count).map(by_header).collect());
        let target = "/v1/service-2/files/a";
        let mut head = self::head(target);
        let value = format!("tenant-{}", count - 1);
        head.fields.push(FieldName::new(b"x-tenant"), value.as_bytes());
        assert!(find(&table, "a", target, &head).is_some());
        group.bench_function(BenchmarkId::new("by header", count), |b| {
            b.iter(|| find(&table, black_box("a"), black_box(target), black_box(&head)));
        });
    }
    group.finish();
}

/// Finds a route as the gate does.
fn find(table: &RouteTable, host: &str, path: &str, head: &RequestHead) -> Option<RouteId> {
    let location = ClientLocation::new([192, 0, 2, 1].into(), None);
    let query = Query::new(head.uri.query());
    table.find(host, path, RequestView { head, method: &head.method, query: &query, location: &location })
}

/// A gate whose one route is limited by a key of these parts.
fn gate(parts: &[&str]) -> Gate {
    let parts = parts.iter().map(|part| KeyPart::parse(part).expect("a key part")).collect();
    let rule = LimitRule {
        key: KeySpec { parts, on_missing: OnMissing::ClientIp },
        missing_status: StatusCode::FORBIDDEN,
        deny_status: None,
        cost: Cost::Fixed(1),
        trust: Trust::Proxies,
        rules: Rules::default(),
        tiers: None,
        classes: None,
    };
    let policy = Policy::new("bench", quotas()[0].1.clone());
    Gate {
        routes: RouteTable::new(vec![route(1, vec![PolicyId(0)])]),
        client_ip: config::defaults::client_ip(),
        limits: Limits::new(vec![(policy, OnStoreFailure::Local)], NonZeroU64::MIN),
        limit_rules: vec![rule].into(),
        numbers: vec!["1/s".into()].into(),
        variants: Vec::new(),
        descriptor_rules: tidegate::gate::DescriptorTable::default(),
        default_limits: Vec::new(),
        hasher: KeyHasher::new(Some(b"sixteen bytes or more")),
        jwt: None,
        consumers: None,
        geo: None,
    }
}

fn plan(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan a request");
    let peer = IpAddr::from([192, 0, 2, 7]);
    let head = head("/v1/service-1/items/4711?limit=20");
    for parts in [&["client_ip"][..], &["header:x-api-key"], &["header:x-api-key", "path_param:id", "method"]]
    {
        let gate = gate(parts);
        group.bench_function(BenchmarkId::from_parameter(parts.join(" + ")), |b| {
            b.iter(|| gate.plan(black_box(peer).into(), black_box(&head), None).expect("a good request"));
        });
    }
    group.finish();
}

fn memory_take(c: &mut Criterion) {
    let mut group = c.benchmark_group("memory take");
    let policies: Vec<Policy> = quotas().into_iter().map(|(name, quota)| Policy::new(name, quota)).collect();
    let memory = Memory::new(1_000_000, Clock::System);
    let keys: Vec<Key> = (0..10_000_u32)
        .map(|n| Key(blake3::hash(&n.to_le_bytes()).as_bytes()[..16].try_into().expect("16")))
        .collect();
    let mut next = keys.iter().copied().cycle();
    for charges in [1, 2] {
        group.bench_function(BenchmarkId::new("10,000 keys", format!("{charges} limits")), |b| {
            b.iter(|| {
                let key = next.next().expect("it never ends");
                let charge = |policy| Charge::take(PolicyId(policy), key, 1);
                memory.take(&policies, &[charge(0), charge(1)][..charges])
            });
        });
    }
    let hot = [Charge::take(PolicyId(0), Key([9; 16]), 1)];
    for _ in 0..600 {
        let _ = memory.take(&policies, &hot);
    }
    group.bench_function("one hot key, denied", |b| b.iter(|| memory.take(&policies, black_box(&hot))));
    group.finish();
}

/// Records a decision of the store for an outage.
fn record_decision(c: &mut Criterion) {
    let mut group = c.benchmark_group("record decision");
    for (name, quota) in quotas() {
        let instances = NonZeroU64::new(2).expect("not zero");
        let policy = Policy::new(name, quota.clone());
        let share = policy.shared_by(instances);
        let state = used(&quota, 10);
        let decision = quota.step(state.as_ref(), Timestamp(NOW), 1, Holder::default()).decision;
        let memory = Memory::new(1_000_000, Clock::System);
        let mut number = 0_u64;
        group.bench_function(name, |b| {
            b.iter(|| {
                number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut key = [0; 16];
                // One of 4,096 keys, which stay in memory.
                key[..8].copy_from_slice(&(number >> 52).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
                memory.update(&share, Key(key), |known, now| {
                    share.seed(known, black_box(&decision), instances, now)
                });
            });
        });
    }
    group.finish();
}

fn tokens(c: &mut Criterion) {
    let mut group = c.benchmark_group("token");
    for (name, algorithm, kind) in [
        ("ES256", Algorithm::ES256, &rcgen::PKCS_ECDSA_P256_SHA256),
        ("RS256", Algorithm::RS256, &rcgen::PKCS_RSA_SHA256),
    ] {
        let pair = rcgen::KeyPair::generate_for(kind).expect("a key").serialize_der();
        let key = match algorithm {
            // PKCS #8 puts 26 bytes before an RSA key of 2,048 bits.
            Algorithm::RS256 => EncodingKey::from_rsa_der(&pair[26..]),
            _ => EncodingKey::from_ec_der(&pair),
        };
        let jwk = Jwk::from_encoding_key(&key, algorithm).expect("a public key");
        let set = serde_json::json!({ "keys": [jwk] }).to_string();
        let keys = Keys::parse(set.as_bytes(), &[algorithm]).expect("a set");
        let spec = JwtSpec {
            source: KeySource::File(keys),
            algorithms: vec![algorithm],
            issuer: Some("https://id.example.com".into()),
            audience: Some("api".into()),
            header: AUTHORIZATION,
        };
        let token = |number: usize| {
            let claims = serde_json::json!({
                "iss": "https://id.example.com", "aud": "api", "sub": number.to_string(), "exp": 4_000_000_000_u64,
                "scope": "read write", "email": "alice@example.com", "jti": "b7f5c1de-1d1a-4f6e-9d3e-0f6f8f3d1c55",
            });
            let token = jsonwebtoken::encode(&Header::new(algorithm), &claims, &key).expect("a token");
            let mut fields = Fields::new();
            fields.push(names::AUTHORIZATION, format!("Bearer {token}").as_bytes());
            fields
        };
        let verifier = Verifier::new(spec, Clock::System);
        // More tokens than are cached, so that each is verified again.
        let all: Vec<Fields> = (0..20_000).map(token).collect();
        let subject = |fields| verifier.claims(fields).expect("a good token").text("sub");
        let mut next = all.iter().cycle();
        group.bench_function(BenchmarkId::new(name, "new"), |b| {
            b.iter(|| subject(next.next().expect("it never ends")));
        });
        group.bench_function(BenchmarkId::new(name, "known"), |b| b.iter(|| subject(black_box(&all[0]))));
    }
    group.finish();
}

/// Selects a server, by each method and among few and many.
fn balance(c: &mut Criterion) {
    let mut group = c.benchmark_group("select a server");
    for (name, balance) in [
        ("round_robin", Balance::RoundRobin),
        ("least_requests", Balance::LeastRequests),
        ("power_of_two", Balance::PowerOfTwo),
        ("hash", Balance::Hash),
    ] {
        for count in [1, 10, 100, 1_000] {
            let server = |number: u32| ServerSpec {
                is_tls: false,
                address: ServerAddress::Tcp {
                    host: Ipv4Addr::from_bits(0x0a00_0000 + number).to_string().into(),
                    port: 80,
                },
                base_path: "".into(),
                weight: 1,
            };
            let spec = config::defaults::upstream("u", (0..count).map(server).collect());
            let balancer = SharedUpstream::new(&UpstreamSpec { balance, ..spec }).present_balancer();
            let mut key = 0_u64;
            group.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter(|| {
                    key = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
                    balancer.pick(&[], black_box(Some(key)))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, steps, route_match, plan, memory_take, record_decision, tokens, balance);
criterion_main!(benches);
