//! Renewal of certificates, and several proxies with one storage.

use std::fs;

use rcgen::{CertificateParams, KeyPair};

use super::setup::{config, is_served, request, short_lived, start, storage, wait_obtained};
use crate::support::{Authority, Pebble, Tidegate, command, eventually};

#[test]
fn certificates_are_renewed_when_a_third_of_their_lifetime_remains() {
    let (pebble, storage) = (short_lived(9), storage());
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    wait_obtained(&proxy, "a.test");
    let file = pebble.certificates(storage.path()).join("a.test.pem");
    let first = fs::read(&file).unwrap();
    eventually("it is renewed", || proxy.logged("the certificate for a.test is obtained") == 2);
    assert_ne!(fs::read(&file).unwrap(), first);
    // curl would reject an expired one.
    assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
    assert_eq!(proxy.logged("an account is registered"), 1);
    assert_eq!(proxy.logged("is not renewed"), 0);
}

#[test]
fn expired_certificates_are_used_and_renewed() {
    let (mut pebble, storage) = (Pebble::absent(), storage());
    let authority = Authority::new();
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2024, 1, 1), rcgen::date_time_ymd(2024, 2, 29));
    authority.write("old", &KeyPair::generate().unwrap(), &params);
    let directory = pebble.certificates(storage.path());
    fs::create_dir_all(&directory).unwrap();
    let read = |file: &str| fs::read_to_string(authority.file(file)).unwrap();
    fs::write(directory.join("a.test.pem"), read("old.key") + &read("old.pem")).unwrap();
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    let expired = "the certificate for a.test has expired at 2024-02-29T00:00:00Z, and is not renewed: ";
    proxy.wait_log(expired);
    let port = pebble.tls().port();
    let output = command("curl")
        .args(["-q", "-sS", "--cacert", authority.file("ca.pem").to_str().unwrap()])
        .args(["--resolve", &format!("a.test:{port}:{}", pebble.ip()), &format!("https://a.test:{port}/")])
        .output();
    let errors = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(errors.contains("certificate has expired"), "{errors}");
    pebble.restart();
    proxy.signal("HUP");
    wait_obtained(&proxy, "a.test");
    assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
}

#[test]
fn broken_files_are_replaced() {
    let (pebble, storage) = (Pebble::start(), storage());
    let directory = pebble.certificates(storage.path());
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("a.test.pem"), "half a ke").unwrap();
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    proxy.wait_log("a.test.pem is not used: it has no private key");
    wait_obtained(&proxy, "a.test");
    assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
}

#[test]
fn a_reload_keeps_certificates_and_adds_names() {
    let (pebble, storage) = (Pebble::start(), storage());
    let proxy = start(&pebble, storage.path(), &["a.test"]);
    wait_obtained(&proxy, "a.test");
    let root = pebble.root();
    let file = |hosts: &[&str]| config(&pebble, "acme = true", hosts, &pebble.acme(storage.path(), ""));
    for hosts in [&["a.test"][..], &["a.test", "b.test"]] {
        proxy.reload(&file(hosts));
        assert_eq!(request(pebble.tls(), "a.test", &root).text(), "a.test\n");
    }
    wait_obtained(&proxy, "b.test");
    assert_eq!(request(pebble.tls(), "b.test", &root).text(), "b.test\n");
    assert_eq!(request(pebble.tls(), "a.test", &root).text(), "a.test\n");
    assert_eq!(proxy.logged("is obtained"), 2);
}

#[test]
fn proxies_share_certificates_and_validations() {
    let (pebble, storage) = (Pebble::start(), storage());
    // The requests of the authority lead to this one.
    let first = start(&pebble, storage.path(), &["a.test"]);
    wait_obtained(&first, "a.test");
    let text = config(&pebble, "acme = true", &["a.test", "b.test"], &pebble.acme(storage.path(), ""));
    let [http, tls] = pebble.further_addresses();
    let moved = text.replace(&pebble.http().to_string(), &http.to_string());
    let second = Tidegate::start(&moved.replace(&pebble.tls().to_string(), &tls.to_string()));
    let root = pebble.root();
    assert_eq!(request(tls, "a.test", &root).text(), "a.test\n");
    wait_obtained(&second, "b.test");
    assert_eq!(request(tls, "b.test", &root).text(), "b.test\n");
    first.reload(&text);
    assert_eq!(request(pebble.tls(), "b.test", &root).text(), "b.test\n");
    for (proxy, names) in [(first, ["a.test"]), (second, ["b.test"])] {
        assert_eq!(proxy.logged("is obtained"), names.len());
        assert_eq!(proxy.logged(&format!("the certificate for {} is obtained", names[0])), 1);
    }
}

#[test]
fn a_certificate_that_another_proxy_obtains_is_used() {
    let (pebble, storage) = (Pebble::start(), storage());
    let text = config(&pebble, "acme = true", &["a.test"], &pebble.acme(storage.path(), ""));
    let [http, tls] = pebble.further_addresses();
    let moved = text.replace(&pebble.http().to_string(), &http.to_string());
    let moved = moved.replace(&pebble.tls().to_string(), &tls.to_string());
    // Another process has the lock.
    let directory = pebble.certificates(storage.path());
    let root = directory.parent().unwrap();
    fs::create_dir_all(root).unwrap();
    let lock = fs::File::create(root.join("lock")).unwrap();
    lock.lock().unwrap();
    let waiting = Tidegate::start(&format!("{moved}[log]\naccess = \"off\"\nlevel = \"debug\"\n"));
    waiting.wait_log("another process obtains certificates");
    assert_eq!(waiting.logged("obtaining a certificate"), 0);
    let authority = Authority::new();
    authority.sign("a.test");
    let read = |file: &str| fs::read_to_string(authority.file(file)).unwrap();
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("a.test.pem"), read("a.test.key") + &read("a.test.pem")).unwrap();
    // It would obtain one now, if it did not find this.
    drop(lock);
    let ca = authority.file("ca.pem").display().to_string();
    eventually("it is used", || is_served(tls, "a.test", &ca));
    assert_eq!(waiting.logged("obtaining a certificate"), 0);
}
