//! Certificates that are obtained from an ACME server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::setup::{config, request, start, storage, wait_obtained};
use crate::support::{Pebble, Tidegate, command, curl, eventually, get};

#[test]
fn certificates_are_obtained_for_the_hosts_of_routes() {
    let (pebble, storage) = (Pebble::start(), storage());
    let proxy = start(&pebble, &storage.path().join("acme"), &["a.test", "b.test"]);
    let root = pebble.root();
    for name in ["a.test", "b.test"] {
        wait_obtained(&proxy, name);
        assert_eq!(request(pebble.tls(), name, &root).text(), format!("{name}\n"));
    }
    proxy.wait_log(&format!("an account is registered with the ACME server {}", pebble.ip()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let files = pebble.certificates(&storage.path().join("acme"));
    assert_eq!(mode(&files.join("a.test.pem")), 0o600);
    assert_eq!((mode(&files), mode(&storage.path().join("acme"))), (0o700, 0o700));
    // Nothing is left of the validations.
    assert_eq!(fs::read_dir(files.parent().unwrap().join("challenges")).unwrap().count(), 0);
}

#[test]
fn certificates_are_obtained_for_given_names() {
    let (pebble, storage) = (Pebble::start(), storage());
    let tls = "acme = [\"WWW.a.test\"]";
    let acme = pebble.acme(storage.path(), "email = \"ops@example.com\"");
    let proxy = Tidegate::start(&config(&pebble, tls, &["a.test", "www.a.test"], &acme));
    wait_obtained(&proxy, "www.a.test");
    assert_eq!(request(pebble.tls(), "www.a.test", &pebble.root()).text(), "www.a.test\n");
    assert_eq!(proxy.logged("is obtained"), 1);
}

#[test]
fn stored_certificates_are_used_after_a_restart() {
    let (mut pebble, storage) = (Pebble::start(), storage());
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    wait_obtained(&proxy, "a.test");
    let root = pebble.root();
    assert!(proxy.stop().success());
    pebble.stop();
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    proxy.wait_log("ACME: 1 certificate in ");
    assert_eq!(request(pebble.tls(), "a.test", &root).text(), "a.test\n");
    assert_eq!(proxy.logged("obtaining"), 0);
}

#[test]
fn only_expected_validations_are_answered_before_routes() {
    let (pebble, storage) = (Pebble::start(), storage());
    let acme = pebble.acme(storage.path(), "");
    let limited =
        "default_limits = [\"none\"]\n[limits.none]\nrate = \"1/year\"\nalgorithm = \"fixed_window\"\n";
    let file = config(&pebble, "acme = true", &["a.test"], &acme);
    let proxy = Tidegate::start(&format!("{limited}{file}\n[log]\naccess = \"json\"\n"));
    // The limit is used up by this, and the authority's requests are not counted.
    assert_eq!(get(pebble.http(), "/", &["Host: a.test"]).status(), 200);
    wait_obtained(&proxy, "a.test");
    for path in ["/.well-known/acme-challenge/LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0", "/"] {
        assert_eq!(get(pebble.http(), path, &["Host: a.test"]).status(), 429, "{path}");
    }
    let is_validation = |line: &String| line.contains("/.well-known/acme-challenge/") && line.contains("200");
    eventually("the access log has the validation", || proxy.accesses(1).iter().any(is_validation));
}

#[test]
fn handshakes_fail_until_a_certificate_is_obtained() {
    let (mut pebble, storage) = (Pebble::absent(), storage());
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    let from = pebble.ip();
    proxy.wait_log(&format!(
        "TLS handshakes fail until certificates are obtained from {from} by http-01: a.test"
    ));
    let message =
        proxy.wait_log("no certificate for a.test, so that TLS handshakes for it fail: the ACME server");
    assert!(message.contains("Connection refused") && message.contains("next attempt in 5s"), "{message}");
    let port = pebble.tls().port();
    let to = format!("a.test:{port}:{from}");
    let output = command("curl")
        .args(["-q", "-sS", "-k", "--resolve", &to, &format!("https://a.test:{port}/")])
        .output();
    assert_eq!(output.unwrap().status.code(), Some(35), "an alert in the handshake");
    // Without TLS the proxy serves meanwhile.
    let url = format!("http://{}/", pebble.http());
    assert_eq!(curl(&["-H", "Host: a.test", &url]).0, 200);
    pebble.restart();
    // A reload does not wait for the next attempt.
    proxy.signal("HUP");
    wait_obtained(&proxy, "a.test");
    assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
}
