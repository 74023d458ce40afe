//! Validation by TLS handshakes (TLS-ALPN-01), and by requests that another process expects (HTTP-01).

use std::fs;

use super::setup::{config, request, storage, wait_obtained};
use crate::support::{Authority, Client, Pebble, Tidegate, eventually};

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

#[test]
fn a_token_of_another_process_is_answered_unless_the_client_is_blocked() {
    let storage = storage();
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"127.0.0.2:0\"\n\
         tls = {{ acme = [\"a.test\"] }}\n[acme]\nterms_of_service_agreed = true\n\
         directory = \"https://127.0.0.1:1/dir\"\nstorage = \"{}\"\n\
         [limits.wide]\nrate = \"1000/s\"\nblock = [\"127.0.0.3\"]\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"wide\"]\nrespond = {{ status = 204 }}\n",
        storage.path().display(),
    ));
    // A process that takes the lock of the storage removes the files of others.
    proxy.wait_log("no certificate for a.test");
    let token = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";
    let file = storage.path().join("127.0.0.1-1-dir/challenges").join(token);
    let authorization = format!("{token}.hash");
    let ask = |client| {
        let target = format!("/.well-known/acme-challenge/{token}");
        Client::connect_from(client, proxy.addr()).get(&target, &["Host: a.test"])
    };
    assert_eq!((ask("127.0.0.1").status(), ask("127.0.0.3").status()), (204, 403));
    eventually("the files are read again", || {
        fs::write(&file, &authorization).unwrap();
        ask("127.0.0.1").text() == authorization
    });
    assert_eq!(ask("127.0.0.3").status(), 403);
}
