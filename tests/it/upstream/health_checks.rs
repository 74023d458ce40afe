//! Active health checks and outlier ejection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::setup::{among, ended, metric, of, silent, with_status};
use crate::support::{Upstream, eventually, get};

#[test]
fn active_health_checks_remove_and_restore_servers() {
    let status = Arc::new(AtomicUsize::new(503));
    let servers = [with_status(&status), Upstream::echo(), silent()];
    let health = "health = { path = \"/healthz\", interval = \"50ms\", timeout = \"2s\", healthy_after = 2, unhealthy_after = 2 }\npanic_threshold = 0.0";
    let proxy = among(&[&servers[0], &servers[1]], health);
    let healthy = |server: &Upstream| metric(&proxy, "healthy_addresses", &of(server));
    eventually("the server is unhealthy", || healthy(&servers[0]) == 0);
    assert_eq!(healthy(&servers[1]), 1);
    proxy.wait_log("is unhealthy: the response is 503 Service Unavailable");
    assert!([(); 10].map(|()| get(proxy.addr(), "/", &[]).status()).iter().all(|status| *status == 200));
    let checked = servers[0].requests();
    assert!(checked.iter().all(|request| request.start == "GET /healthz HTTP/1.1"));
    assert_eq!(checked[0].header("host"), Some(&*servers[0].addr().to_string()));
    // A redirection counts as healthy.
    status.store(302, Ordering::SeqCst);
    eventually("the server is healthy", || healthy(&servers[0]) == 1);
    let statuses = [(); 10].map(|()| get(proxy.addr(), "/", &[]).status());
    assert!(statuses.contains(&302), "{statuses:?}");
    // A server that does not respond.
    let proxy = among(&[&servers[2], &servers[1]], &health.replace("2s", "1s"));
    proxy.wait_log("is unhealthy: no response in time");
    assert!([(); 6].map(|()| get(proxy.addr(), "/", &[]).status()).iter().all(|status| *status == 200));
}

#[test]
fn consecutive_failures_eject_a_server_above_the_panic_threshold() {
    let status = Arc::new(AtomicUsize::new(503));
    let (failing, healthy) = (with_status(&status), Upstream::echo());
    let settings = "eject = { after = 3, for = \"1h\" }";
    let proxy = among(&[&failing, &healthy], settings);
    let statuses = |count| (0..count).map(|_| get(proxy.addr(), "/", &[]).status()).collect::<Vec<_>>();
    statuses(20);
    assert_eq!(failing.requests().len(), 3);
    assert_eq!(statuses(10), [200; 10]);
    assert_eq!(metric(&proxy, "ejections_total", &of(&failing)), 1);
    assert_eq!(metric(&proxy, "requests_total", &ended(&failing, "unavailable")), 3);
    assert_eq!(metric(&proxy, "requests_total", &ended(&healthy, "ok")), 27);
    proxy.wait_log("is ejected for 3600s after 3 consecutive failures");
    // Both servers fail: neither is left out.
    let other = with_status(&status);
    let proxy = among(&[&failing, &other], settings);
    (0..20).for_each(|_| assert_eq!(get(proxy.addr(), "/", &[]).status(), 503));
    assert!(other.requests().len() >= 5 && failing.requests().len() >= 8);
    proxy.wait_log("0 of 2 addresses are healthy, below the panic threshold: balancing over all");
    // Without ejection, and with a single server.
    for (servers, settings) in [(vec![&other, &healthy], "eject = \"off\""), (vec![&other], settings)] {
        let proxy = among(&servers, settings);
        let before = other.requests().len();
        (0..20).for_each(|_| drop(get(proxy.addr(), "/", &[])));
        assert!(other.requests().len() - before >= 20 / servers.len() - 1, "{settings}");
    }
}
