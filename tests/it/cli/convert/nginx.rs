//! The real nginx, and tidegate with its converted configuration, get the same requests.
//!
//! Decisions are equal where no request arrives within a margin of the instant at which it would be decided otherwise. All
//! plans here keep a margin of 300 ms or more, and a burst that is sent later than that is repeated.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::origin::{HOLD, MARGIN, nginx, slow_upstream};
use super::traffic::{Burst, Compared, Scenario, bursts, compare, converted, denied, table};

fn scenario(name: &'static str, bursts: Vec<Burst>) -> Scenario {
    // Elsewhere nothing delays a response, so a late one is that of a busy machine.
    let is_delayed = ["(delay)", "delay=", "limit_conn", "generated"].iter().any(|part| name.contains(part));
    let longest = (!is_delayed).then_some(Duration::from_millis(1));
    Scenario { name, bursts, margin: MARGIN, longest }
}

/// Bursts of GET requests with this header.
fn with(headers: &'static str, plan: Vec<Burst>) -> impl Iterator<Item = Burst> {
    plan.into_iter().map(move |burst| Burst { headers, ..burst })
}

/// Random bursts at a limit of 1r/s with this `burst`, none of which is close to another decision.
fn generated(path: &'static str, burst: u64, seed: u64) -> Vec<Burst> {
    let mut random = fastrand::Rng::with_seed(seed);
    // In halves of a request; one is drained in 500 ms.
    let (mut debt, mut at, capacity) = (0_u64, 0_u64, 2 * (burst + 1));
    let mut plan = Vec::new();
    while at < 6_000 {
        let pause = random.u64(1..=4);
        let drained = debt.saturating_sub(pause);
        // Either half a request is missing, or the debt was gone half a request ago.
        if drained % 2 == 0 && (drained > 0 || pause <= debt) {
            continue;
        }
        (at, debt) = (at + 500 * pause, drained);
        let requests = random.usize(1..=4);
        for _ in 0..requests {
            if debt + 2 <= capacity {
                debt += 2;
            }
        }
        plan.push((at, requests));
    }
    bursts(path, &plan)
}

/// The traffic for each location of `verdicts.conf`.
fn scenarios() -> Vec<Scenario> {
    let post = Burst { request: "POST /methods", ..bursts("GET /methods", &[(0, 2)])[0] };
    let post = Burst { headers: "Content-Length: 0\r\n", ..post };
    let exempt = Burst { client: "127.200.0.1", ..bursts("GET /geo", &[(0, 3)])[0] };
    let keys = ["X-Api-Key: a-ATTEMPT\r\n", "X-Api-Key: b-ATTEMPT\r\n", ""];
    let keys = |path| keys.iter().flat_map(move |key| with(key, bursts(path, &[(0, 3)]))).collect();
    let agents = ["User-Agent: Mozilla (GoogleBot-ATTEMPT)\r\n", "User-Agent: curl\r\n"];
    let agents = agents.iter().flat_map(|agent| with(agent, bursts("GET /bots", &[(0, 3)]))).collect();
    let plans = ["X-Plan: pro\r\n", ""].iter();
    let plans = plans.flat_map(|plan| with(plan, bursts("GET /plans", &[(0, 4)]))).collect();
    let tenants = ["X-Tenant: a-ATTEMPT\r\n", "X-Tenant: b-ATTEMPT\r\n", ""].iter();
    let mut tenants: Vec<Burst> =
        tenants.flat_map(|tenant| with(tenant, bursts("GET /tenants", &[(0, 2)]))).collect();
    // Without a tenant all clients of a host have one count.
    tenants.push(Burst { at: HOLD, client: "127.0.0.2", headers: "", ..tenants[0] });
    let returned = [bursts("GET /returned/open", &[(0, 3)]), bursts("GET /returned/refused", &[(0, 3)])];
    let forwarded = bursts("GET /returned/forwarded", &[(0, 3)]);
    let both = [bursts("GET /both", &[(0, 4)]), bursts("GET /wide", &[(100, 4)])].concat();
    vec![
        scenario("rate=1r/s", bursts("GET /plain", &[(0, 3), (500, 1), (1500, 2), (3000, 1)])),
        scenario("burst=3 nodelay", bursts("GET /burst", &[(0, 6), (1500, 4), (3500, 3)])),
        scenario("burst=2 (delay)", bursts("GET /delay", &[(0, 5), (1500, 2)])),
        scenario("burst=5 delay=2", bursts("GET /partly", &[(0, 8), (1500, 3)])),
        scenario("30r/m burst=1 nodelay", bursts("GET /minute", &[(0, 3), (1000, 1), (3000, 2)])),
        scenario("two zones", both),
        scenario("key: header", keys("GET /header")),
        scenario("key: header or address", keys("GET /either")),
        scenario("map: methods", [vec![post], bursts("GET /methods", &[(0, 3)])].concat()),
        scenario("map: user agents", agents),
        scenario("two maps", plans),
        scenario("key: host and header", tenants),
        scenario("return below limit_req and deny", returned.concat()),
        scenario("limit_req of the location around", forwarded),
        scenario("geo: networks", [vec![exempt], bursts("GET /geo", &[(0, 3)])].concat()),
        scenario("limit_req_dry_run", bursts("GET /dry", &[(0, 4)])),
        scenario("limit_conn 2", bursts("GET /slow", &[(0, 5), (250, 1), (1200, 2)])),
        scenario("generated, burst=0", generated("GET /random0", 0, 7)),
        scenario("generated, burst=1", generated("GET /random1", 1, 8)),
        scenario("generated, burst=4", generated("GET /random4", 4, 9)),
    ]
}

#[test]
fn tidegate_decides_as_nginx_does() {
    let upstream = slow_upstream();
    let server = nginx("verdicts.conf", &upstream);
    let tidegate = converted("nginx", &server, "nginx.conf");
    let origin = server.addr(Ipv4Addr::LOCALHOST.into());
    let compared = compare(origin, tidegate.addr(), scenarios());
    let table = table("nginx", &compared);
    println!("{table}");
    for Compared { name, bursts } in &compared {
        for (burst, origin, tidegate) in bursts {
            assert_eq!(origin.statuses, tidegate.statuses, "{name}: {burst:?}\n{table}");
            // With `delay` only nginx delays requests.
            let times = origin.times.iter().zip(&tidegate.times).filter(|_| !name.contains("delay=2"));
            for (origin, tidegate) in times {
                assert!(
                    origin.abs_diff(*tidegate) < 2 * MARGIN,
                    "{name}: {origin:?}, {tidegate:?}: {burst:?}\n{table}"
                );
            }
        }
    }
    // The expected numbers, so that the comparison is not one of servers that allow everything.
    let expected = [
        ("rate=1r/s", 4),
        ("burst=3 nodelay", 6),
        ("limit_conn 2", 4),
        ("limit_req_dry_run", 0),
        ("key: host and header", 5),
        ("limit_req of the location around", 2),
    ];
    for (name, expected) in expected {
        assert_eq!(denied(&compared, name), expected, "{name}\n{table}");
    }
}
