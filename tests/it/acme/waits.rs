//! Waits that the ACME server asks for (Retry-After), which no reload ignores.

use super::front::Front;
use super::setup::{config, storage};
use crate::support::{Pebble, Tidegate};

#[test]
fn reloads_repeat_no_attempt_before_the_time_that_the_server_has_named() {
    let (pebble, storage) = (Pebble::start(), storage());
    let front = Front::with_refusal(&pebble, 429, "rateLimited");
    let acme = front.acme(&pebble, storage.path(), "");
    let text = |hosts: &[&str]| config(&pebble, "acme = true", hosts, &acme);
    let proxy = Tidegate::start(&text(&["a.test"]));
    let reason = "try again later (rateLimited); next attempt in 1h, as the ACME server asks";
    let message = proxy.wait_log("no certificate for a.test, so that TLS handshakes for it fail: ");
    assert!(message.contains(reason), "{message}");
    // With the same settings, and with another name: each name has a wait of its own.
    proxy.signal("HUP");
    proxy.wait_log(
        "the ACME server has asked to wait: the next attempt to obtain a certificate for a.test is in 59m",
    );
    proxy.reload(&text(&["a.test", "b.test"]));
    let message = proxy.wait_log("no certificate for b.test, so that TLS handshakes for it fail: ");
    assert!(message.contains(reason), "{message}");
    // Names are attempted in this order.
    assert_eq!(proxy.logged("obtaining a certificate for a.test"), 1);
}

#[test]
fn a_server_that_is_unavailable_is_asked_for_no_name_while_it_asks_to_wait() {
    let (pebble, storage) = (Pebble::start(), storage());
    let front = Front::with_refusal(&pebble, 503, "serverInternal");
    let acme = front.acme(&pebble, storage.path(), "");
    let proxy = Tidegate::start(&config(&pebble, "acme = true", &["a.test", "b.test"], &acme));
    proxy.wait_log("(serverInternal); next attempt in 1h, as the ACME server asks");
    proxy.signal("HUP");
    for name in ["a.test", "b.test"] {
        let wait = "the ACME server has asked to wait: the next attempt to obtain a certificate for";
        proxy.wait_log(&format!("{wait} {name} is in 59m"));
    }
    assert_eq!(proxy.logged("obtaining a certificate"), 1);
}
