//! Tests of the shared state of an upstream.

use std::time::Duration;

use super::*;
use crate::config;
use crate::upstream::{EjectSpec, ServerSpec};

const SECOND: Duration = Duration::from_secs(1);

fn spec(hosts: &[(&str, u32)]) -> UpstreamSpec {
    let server = |&(host, weight): &(&str, u32)| ServerSpec {
        weight,
        ..config::defaults::server(&format!("http://{host}"))
    };
    UpstreamSpec {
        eject: Some(EjectSpec { after: 3, lasts: 10 * SECOND }),
        ..config::defaults::upstream("u", hosts.iter().map(server).collect())
    }
}

fn shares(shared: &SharedUpstream) -> Vec<u32> {
    shared.members().iter().map(|member| member.endpoint.share()).collect()
}

fn fail(shared: &SharedUpstream, index: usize, times: usize) {
    (0..times).for_each(|_| shared.record_failure(&shared.members()[index].endpoint));
}

fn ejections(shared: &SharedUpstream) -> u64 {
    shared.values().servers.iter().map(|server| server.ejections).sum()
}

fn peers(list: &[&str]) -> Vec<ServerPeer> {
    let addresses: Vec<IpAddr> = list.iter().map(|text| text.parse().unwrap()).collect();
    ServerPeer::of_name(&addresses, 80)
}

#[tokio::test(start_paused = true)]
async fn consecutive_failures_eject_an_endpoint_for_a_while() {
    let shared = SharedUpstream::new(&spec(&[("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 1)]));
    assert_eq!(shares(&shared), [1000, 2000, 1000]);
    fail(&shared, 1, 2);
    shared.members()[1].endpoint.record_success();
    fail(&shared, 1, 2);
    assert_eq!(shares(&shared), [1000, 2000, 1000]);
    fail(&shared, 1, 1);
    assert_eq!(shares(&shared), [1000, 0, 1000]);
    let now = cached_now();
    assert_eq!(shared.update_shares(now), Some(now + 10 * SECOND));
    assert_eq!(shared.update_shares(now + 10 * SECOND), None);
    assert_eq!(shares(&shared), [1000, 2000, 1000]);
    // After an ejection a single failure is enough, until a request succeeds.
    fail(&shared, 1, 1);
    assert_eq!(shares(&shared), [1000, 0, 1000]);
    shared.update_shares(now + 100 * SECOND);
    shared.members()[1].endpoint.record_success();
    fail(&shared, 1, 1);
    assert_eq!(shares(&shared), [1000, 2000, 1000]);
    assert_eq!(ejections(&shared), 2);
}

#[test]
fn all_endpoints_are_used_below_the_panic_threshold() {
    let hosts = [("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.3", 1), ("10.0.0.4", 3)];
    for (threshold, ejected, are_all_used) in
        [(0.5, 2, false), (0.5, 3, true), (0.0, 3, false), (0.0, 4, true), (1.0, 1, true)]
    {
        let shared = SharedUpstream::new(&UpstreamSpec { panic_threshold: threshold, ..spec(&hosts) });
        (0..ejected).for_each(|index| fail(&shared, index, 3));
        let used = shares(&shared).iter().filter(|share| **share > 0).count();
        assert_eq!(used, if are_all_used { 4 } else { 4 - ejected }, "{threshold} {ejected}");
    }
    let single = SharedUpstream::new(&spec(&[("10.0.0.1", 1)]));
    fail(&single, 0, 100);
    assert_eq!(shares(&single), [1000]);
    assert_eq!(single.values().servers[0].ejections, 0);
}

#[test]
fn health_checks_change_availability() {
    let health = HealthSpec {
        path: "/".into(),
        interval: SECOND,
        timeout: SECOND,
        healthy_after: 2,
        unhealthy_after: 1,
    };
    let shared = SharedUpstream::new(&spec(&[("10.0.0.1", 1), ("10.0.0.2", 1)]));
    let endpoint = Arc::clone(&shared.members()[0].endpoint);
    let check = |outcome| shared.record_check(&endpoint, outcome, &health, cached_now());
    check(Err("no".to_owned()));
    assert_eq!(shares(&shared), [0, 1000]);
    check(Ok(()));
    assert_eq!(shares(&shared), [0, 1000]);
    check(Ok(()));
    assert_eq!(shares(&shared), [1000, 1000]);
}

#[test]
fn the_addresses_of_a_name_share_its_weight() {
    let spec = UpstreamSpec { slow_start: 10 * SECOND, ..spec(&[("a.test", 2), ("10.0.0.9", 1)]) };
    let shared = SharedUpstream::new(&spec);
    let now = cached_now();
    assert_eq!(shares(&shared), [1000]);
    assert!(shared.set_peers(0, &peers(&["10.0.0.2", "10.0.0.1", "10.0.0.2"]), now));
    assert_eq!(shares(&shared), [1000, 1000, 1000]);
    let before = shared.members();
    assert_eq!(before[0].endpoint.address.to_string(), "10.0.0.1:80");
    assert!(!shared.set_peers(0, &peers(&["10.0.0.1", "10.0.0.2"]), now));
    // The workers don't rebuild their endpoint sets.
    assert!(Arc::ptr_eq(&before, &shared.members()));
    // Known endpoints stay, new ones have a slow start, and an empty list is ignored.
    assert!(shared.set_peers(0, &peers(&["10.0.0.2", "10.0.0.3"]), now));
    let after = shared.members();
    assert!(Arc::ptr_eq(&before[1].endpoint, &after[0].endpoint));
    shared.update_shares(now + 5 * SECOND);
    assert_eq!(shares(&shared), [1000, 500, 1000]);
    assert!(!shared.set_peers(0, &[], now));
    assert_eq!(shares(&shared), [1000, 500, 1000]);
}

#[test]
fn pending_requests_are_bounded() {
    let shared = SharedUpstream::new(&UpstreamSpec { max_pending: 2, ..spec(&[("10.0.0.1", 1)]) });
    let one = shared.start_pending(|| false);
    let _two = shared.start_pending(|| false).unwrap();
    assert!(shared.start_pending(|| false).is_none());
    assert_eq!(shared.values().pending, 2);
    drop(one);
    assert!(shared.start_pending(|| false).is_some());
}

#[test]
fn a_reload_keeps_health_and_addresses() {
    let before = SharedUpstream::new(&spec(&[("10.0.0.1", 1), ("10.0.0.2", 1), ("a.test", 1)]));
    let now = cached_now();
    before.set_peers(2, &peers(&["10.0.0.5", "::5"]), now);
    fail(&before, 1, 3);
    let next = UpstreamSpec {
        slow_start: 10 * SECOND,
        panic_threshold: 0.0,
        ..spec(&[("a.test", 2), ("10.0.0.2", 1), ("10.0.0.9", 1)])
    };
    let after = SharedUpstream::after(&before, &next);
    after.update_shares(now + SECOND);
    assert_eq!(shares(&after), [2000, 0, 100]);
    assert!(after.members()[0].fallback.is_some());
    assert_eq!(ejections(&after), 1);
}

#[test]
fn a_reload_without_checks_or_ejection_clears_their_state() {
    let health = Some(HealthSpec {
        path: "/".into(),
        interval: SECOND,
        timeout: SECOND,
        healthy_after: 1,
        unhealthy_after: 1,
    });
    let two = spec(&[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let checked = UpstreamSpec { health: health.clone(), ..two.clone() };
    let before = SharedUpstream::new(&checked);
    let check = || {
        before.record_check(
            &before.members()[0].endpoint,
            Err("no".to_owned()),
            health.as_ref().unwrap(),
            cached_now(),
        );
    };
    check();
    let healthy =
        |shared: &SharedUpstream| shared.values().servers.iter().map(|server| server.healthy).sum::<usize>();
    assert_eq!(shares(&SharedUpstream::after(&before, &checked)), [0, 1000]);
    assert_eq!(shares(&SharedUpstream::after(&before, &two)), [1000, 1000]);
    let before = SharedUpstream::new(&two);
    fail(&before, 0, 3);
    let after = SharedUpstream::after(&before, &UpstreamSpec { eject: None, ..two });
    assert_eq!((shares(&after), healthy(&after)), (vec![1000, 1000], 2));
    // A single endpoint is never ejected.
    let after = SharedUpstream::after(&before, &spec(&[("10.0.0.1", 1)]));
    assert_eq!((healthy(&after), ejections(&after)), (1, 1));
}

#[test]
fn removed_addresses_keep_their_count_of_ejections() {
    let shared = SharedUpstream::new(&spec(&[("a.test", 1)]));
    let now = cached_now();
    shared.set_peers(0, &peers(&["10.0.0.1", "10.0.0.2"]), now);
    fail(&shared, 0, 3);
    assert_eq!(ejections(&shared), 1);
    shared.set_peers(0, &peers(&["10.0.0.2"]), now);
    assert_eq!(ejections(&shared), 1);
}

#[test]
fn backups_of_a_service_get_requests_while_no_other_server_is_available() {
    let spec = UpstreamSpec {
        eject: Some(EjectSpec { after: 1, lasts: 10 * SECOND }),
        ..config::defaults::upstream("u", vec![config::defaults::server("srv://_api._tcp.a.test")])
    };
    let (shared, now) = (SharedUpstream::new(&spec), cached_now());
    let target = |host: u8, weight, priority| {
        ServerPeer::of_target(&[IpAddr::from([10, 0, 0, host])], 9000 + u16::from(host), weight, priority)
    };
    let records = [target(1, 3, 10), target(2, 1, 10), target(3, 0, 10), target(4, 0, 20), target(5, 0, 20)];
    assert!(shared.set_peers(0, &records.concat(), now));
    assert_eq!(shares(&shared), [749, 249, 1, 0, 0]);
    fail(&shared, 0, 1);
    assert_eq!(shares(&shared), [0, 249, 1, 0, 0], "two of three are available");
    fail(&shared, 1, 1);
    fail(&shared, 2, 1);
    assert_eq!(shares(&shared), [0, 0, 0, 500, 500]);
    fail(&shared, 3, 1);
    fail(&shared, 4, 1);
    assert_eq!(shares(&shared), [749, 249, 1, 0, 0], "panic: the servers of the first priority");
    shared.update_shares(now + 11 * SECOND);
    let after = SharedUpstream::after(&shared, &spec);
    assert_eq!(shares(&after), [749, 249, 1, 0, 0], "a reload keeps records");
}
