//! Why certificates are not obtained, as the log says it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::setup::{config, request, start, storage, wait_obtained};
use crate::support::{Authority, Pebble, Tidegate};

/// The line of the log about an attempt for `a.test` that has failed.
#[track_caller]
fn failure(proxy: &Tidegate) -> String {
    proxy.wait_log("no certificate for a.test, so that TLS handshakes for it fail: ")
}

#[test]
fn the_log_has_the_text_of_the_authority() {
    let settings = ", \"domainBlocklist\": [\"a.test\"]";
    let pebble = Pebble::start_with(settings, &[("PEBBLE_WFE_NONCEREJECT", "0")]);
    let storage = storage();
    let message = failure(&start(&pebble, storage.path(), &["a.test"]));
    let server = format!("the ACME server {} refuses: ", pebble.ip());
    let reason = "Order included an identifier for which issuance is forbidden by policy: \"a.test\" (rejectedIdentifier)";
    assert!(message.contains(&format!("{server}{reason}; next attempt in 2m")), "{message}");
}

#[test]
fn a_failed_validation_is_reported() {
    for (kind, reason) in [("http-01", "connection refused"), ("tls-alpn-01", "Failed to connect to 127.")] {
        let (pebble, storage) = (Pebble::start(), storage());
        let acme = pebble.acme(storage.path(), &format!("challenge = \"{kind}\""));
        // Nothing listens where the authority asks.
        let text = config(&pebble, "acme = true", &["a.test"], &acme);
        let text = text.replace(&pebble.http().to_string(), "127.0.0.1:0");
        let text = text.replace(&pebble.tls().to_string(), "127.0.0.2:0");
        let proxy = Tidegate::start(&text);
        let message = failure(&proxy);
        assert!(message.contains(&format!("the validation by {kind} failed: ")), "{message}");
        assert!(message.contains(reason) && message.contains("next attempt in 2m"), "{message}");
        // The operator corrects it, and a reload tries again at once.
        proxy.reload(&config(&pebble, "acme = true", &["a.test"], &acme));
        wait_obtained(&proxy, "a.test");
        assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
    }
}

#[test]
fn rejected_nonces_are_replaced() {
    let pebble = Pebble::start_with("", &[("PEBBLE_WFE_NONCEREJECT", "15")]);
    let storage = storage();
    wait_obtained(&start(&pebble, storage.path(), &["a.test"]), "a.test");
}

#[test]
fn an_account_of_the_authority_can_be_required() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let settings = format!(
        ", \"externalAccountBindingRequired\": true, \"externalAccountMACKeys\": {{\"kid-1\": \"{key}\"}}"
    );
    let pebble = Pebble::start_with(&settings, &[("PEBBLE_WFE_NONCEREJECT", "0")]);
    let storage = storage();
    let text = |eab: &str| config(&pebble, "acme = true", &["a.test"], &pebble.acme(storage.path(), eab));
    let proxy = Tidegate::start(&text(""));
    let message = failure(&proxy);
    assert!(message.contains("(externalAccountRequired)"), "{message}");
    proxy.reload(&text(&format!("eab = {{ kid = \"kid-1\", hmac_key = \"{key}\" }}")));
    wait_obtained(&proxy, "a.test");
    assert!(proxy.lines().iter().all(|line| !line.contains(key)));
}

#[test]
fn an_account_that_the_authority_has_forgotten_is_registered_again() {
    let (mut pebble, storage) = (Pebble::start(), storage());
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    wait_obtained(&proxy, "a.test");
    pebble.restart();
    let text = config(&pebble, "acme = true", &["a.test", "b.test"], &pebble.acme(storage.path(), ""));
    proxy.reload(&text);
    proxy
        .wait_log("the ACME server does not know the account: another one is registered; next attempt in 5s");
    wait_obtained(&proxy, "b.test");
    assert_eq!(proxy.logged("an account is registered"), 2);
    assert_eq!(request(pebble.tls(), "b.test", &pebble.root()).text(), "b.test\n");
}

#[test]
fn the_acme_server_has_to_be_trusted() {
    let (pebble, storage, other) = (Pebble::start(), storage(), Authority::new());
    let acme = pebble.acme(storage.path(), "");
    let ca = acme.lines().find(|line| line.starts_with("ca = ")).unwrap();
    let acme = acme.replace(ca, &format!("ca = \"{}\"", other.file("ca.pem").display()));
    let message = failure(&Tidegate::start(&config(&pebble, "acme = true", &["a.test"], &acme)));
    assert!(
        message.contains(&format!(
            "the ACME server {} is unavailable: the authority that has signed its certificate is not trusted",
            pebble.ip()
        )),
        "{message}"
    );
    assert!(
        message.contains("name the authority that has signed its certificate: `ca` of [acme]"),
        "{message}"
    );
}

#[test]
fn storage_that_others_can_read_is_rejected() {
    let (pebble, storage) = (Pebble::absent(), storage());
    fs::set_permissions(storage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let text = config(&pebble, "acme = true", &["a.test"], &pebble.acme(storage.path(), ""));
    let (status, lines) = Tidegate::fails(&text);
    assert_eq!(status.code(), Some(2));
    let lines = lines.join("\n");
    assert!(lines.contains("its mode is 0755, and it has private keys"), "{lines}");
    assert!(lines.contains(&format!("chmod 700 {}", storage.path().display())), "{lines}");
}
