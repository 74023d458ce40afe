//! The real Traefik, and tidegate with its converted configuration, get the same requests.
//!
//! Traefik delays a request that comes less than half a second early, where tidegate denies it, and it forgets a bucket after two
//! seconds without requests: the plans here keep away from both, except for the tests of these differences.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::origin::{HOLD, slow_upstream, traefik};
use super::traffic::{Burst, Compared, Scenario, bursts, compare, converted, denied, table};

/// How much later than planned requests may be sent and handled.
const MARGIN: Duration = Duration::from_millis(200);

/// The longest delay of a request that comes early.
const MAX_DELAY: Duration = Duration::from_millis(500);

fn scenario(name: &'static str, bursts: Vec<Burst>) -> Scenario {
    Scenario { name, bursts, margin: MARGIN, longest: Some(Duration::ZERO) }
}

/// The same with responses that take this long by design.
fn slow_scenario(name: &'static str, bursts: Vec<Burst>, longest: Duration) -> Scenario {
    Scenario { longest: Some(longest), ..scenario(name, bursts) }
}

/// The traffic for each path of `verdicts.yaml`.
fn scenarios() -> Vec<Scenario> {
    let keys = ["X-Api-Key: a-ATTEMPT\r\n", "X-Api-Key: b-ATTEMPT\r\n"];
    let keys = keys.map(|headers| Burst { headers, ..bursts("GET /header", &[(0, 4)])[0] });
    vec![
        scenario("average=1 burst=3", bursts("GET /burst", &[(0, 6), (8_000, 5)])),
        Scenario {
            margin: MARGIN / 2,
            ..scenario("average=2 burst=6", bursts("GET /refill", &[(0, 9), (620, 3)]))
        },
        scenario("average=1", bursts("GET /plain", &[(0, 3), (2_000, 2)])),
        scenario("average=30 period=1m", bursts("GET /minute", &[(0, 4), (1_200, 2), (9_000, 3)])),
        scenario("key: header", keys.to_vec()),
        scenario("two middlewares", bursts("GET /both", &[(0, 5)])),
        slow_scenario("inFlightReq by host", bursts("GET /slow", &[(0, 5), (250, 1), (1200, 2)]), HOLD),
        slow_scenario(
            "inFlightReq by address",
            bursts("GET /slow-address", &[(0, 5), (250, 1), (1200, 2)]),
            HOLD,
        ),
        scenario("average=0", bursts("GET /unlimited", &[(0, 5)])),
    ]
}

#[test]
fn tidegate_decides_as_traefik_does() {
    let upstream = slow_upstream();
    let server = traefik("verdicts.yaml", &upstream);
    let tidegate = converted("traefik", &server, "dynamic.yaml");
    let compared = compare(server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr(), scenarios());
    let table = table("Traefik", &compared);
    println!("{table}");
    for Compared { name, bursts } in &compared {
        for (burst, origin, tidegate) in bursts {
            assert_eq!(origin.statuses, tidegate.statuses, "{name}: {burst:?}\n{table}");
        }
    }
    // The expected numbers, so that the comparison is not one of servers that allow everything.
    let expected = [
        ("average=1 burst=3", 5),
        ("average=2 burst=6", 5),
        ("average=1", 3),
        ("average=30 period=1m", 5),
        ("inFlightReq by host", 4),
        ("average=0", 0),
    ];
    for (name, expected) in expected {
        assert_eq!(denied(&compared, name), expected, "{name}\n{table}");
    }
}

#[test]
fn traefik_delays_early_requests_and_tidegate_denies_them() {
    let upstream = slow_upstream();
    let server = traefik("verdicts.yaml", &upstream);
    let tidegate = converted("traefik", &server, "dynamic.yaml");
    // With the margin the second request comes between 50 and 450 ms early.
    let early = bursts("GET /early", &[(0, 1), (750, 1)]);
    let early = slow_scenario("750 ms after another", early, MAX_DELAY);
    let compared = compare(server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr(), vec![early]);
    let table = table("Traefik", &compared);
    println!("{table}");
    let [first, second] = &compared[0].bursts[..] else { panic!("{table}") };
    assert_eq!((&first.1.statuses, &first.2.statuses), (&vec![200], &vec![200]), "{table}");
    assert_eq!((&second.1.statuses, &second.2.statuses), (&vec![200], &vec![429]), "{table}");
    assert!(second.1.times[0] >= Duration::from_millis(20), "{:?}", second.1.times);
}

#[test]
fn traefik_forgets_buckets_and_tidegate_refills_them() {
    let upstream = slow_upstream();
    let server = traefik("verdicts.yaml", &upstream);
    let tidegate = converted("traefik", &server, "dynamic.yaml");
    // One request a second is refilled, and the bucket of three is empty.
    let pause = scenario("2.25 s after a burst", bursts("GET /burst", &[(0, 6), (2_250, 4)]));
    let compared = compare(server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr(), vec![pause]);
    let table = table("Traefik", &compared);
    println!("{table}");
    let [first, second] = &compared[0].bursts[..] else { panic!("{table}") };
    assert_eq!(first.1.statuses, first.2.statuses, "{table}");
    assert_eq!(second.1.statuses, [200, 200, 200, 429], "{table}");
    assert_eq!(second.2.statuses, [200, 200, 429, 429], "{table}");
}
