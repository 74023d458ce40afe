//! Validation by TLS handshakes (TLS-ALPN-01).

use super::setup::{config, request, storage, wait_obtained};
use crate::support::{Authority, Pebble, Tidegate};

const BY_TLS: &str = "challenge = \"tls-alpn-01\"";

#[test]
fn names_are_validated_by_handshakes() {
    let (pebble, storage) = (Pebble::start(), storage());
    let acme = pebble.acme(storage.path(), BY_TLS);
    let hosts = ["a.test", "b.test"];
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let proxy = Tidegate::start(&(config(&pebble, "acme = true", &hosts, &acme) + admin));
    for name in hosts {
        wait_obtained(&proxy, name);
        assert_eq!(request(pebble.tls(), name, &pebble.root()).text(), format!("{name}\n"));
    }
    let listener = format!("listener=\"{}\"", pebble.tls());
    let failures = format!("tidegate_handshake_failures_total{{{listener},reason=\"tls\"}}");
    assert_eq!(proxy.metric(&failures), 0, "a validation is no failure");
}

#[test]
fn validations_need_no_client_certificate() {
    let (pebble, storage, authority) = (Pebble::start(), storage(), Authority::new());
    authority.sign_client("worker");
    let tls = format!("acme = true, client_ca = \"{}\"", authority.file("ca.pem").display());
    let acme = pebble.acme(storage.path(), BY_TLS);
    let proxy = Tidegate::start(&config(&pebble, &tls, &["a.test"], &acme));
    wait_obtained(&proxy, "a.test");
}
