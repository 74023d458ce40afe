//! Renewals at the time that the ACME server suggests (ARI, RFC 9773).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::front::Front;
use super::setup::{config, request, short_lived, storage, wait_obtained};
use crate::support::{Tidegate, eventually};

const PAST: [&str; 2] = ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"];
const FUTURE: [&str; 2] = ["2101-01-01T00:00:00Z", "2101-01-02T00:00:00Z"];

/// All files below a directory, with their contents.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = directories.iter().flat_map(|directory| contents(directory));
    below.chain(files.into_iter().map(|file| (file.clone(), fs::read(file).unwrap()))).collect()
}

#[test]
fn certificates_are_renewed_when_the_server_suggests_it() {
    // The server is asked after a hundredth of the lifetime.
    let (pebble, storage) = (short_lived(200), storage());
    let front = Front::with_window(&pebble, PAST);
    let acme = front.acme(&pebble, storage.path(), "");
    let proxy = Tidegate::start(&config(&pebble, "acme = true", &["a.test"], &acme));
    wait_obtained(&proxy, "a.test");
    proxy.wait_log("the ACME server suggests to renew a.test at 2024-01-01T");
    eventually("it is renewed", || proxy.logged("the certificate for a.test is obtained") > 1);
    assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
    let accesses = front.accesses(3);
    assert!(accesses.iter().any(|line| line.contains("\"/renewalInfo/")), "{accesses:?}");
}

#[test]
fn a_suggestion_does_not_delay_a_renewal_until_the_certificate_has_expired() {
    let (pebble, storage) = (short_lived(9), storage());
    let front = Front::with_window(&pebble, FUTURE);
    let acme = front.acme(&pebble, storage.path(), "");
    let proxy = Tidegate::start(&config(&pebble, "acme = true", &["a.test"], &acme));
    wait_obtained(&proxy, "a.test");
    proxy.wait_log("the ACME server suggests to renew a.test at 2101-01-01T");
    eventually("it is renewed", || proxy.logged("the certificate for a.test is obtained") > 1);
    assert_eq!(request(pebble.tls(), "a.test", &pebble.root()).text(), "a.test\n");
}

#[test]
fn questions_about_renewals_change_nothing_in_the_storage() {
    let (mut pebble, storage) = (short_lived(200), storage());
    let front = Front::with_window(&pebble, FUTURE);
    let text = |more: &str| {
        let acme = front.acme(&pebble, storage.path(), more);
        config(&pebble, "acme = true", &["a.test"], &acme)
    };
    let (first, second) = (text(""), text("email = \"ops@example.com\""));
    let proxy = Tidegate::start(&first);
    wait_obtained(&proxy, "a.test");
    assert!(proxy.stop().success());
    // The account is unknown now, its address is to be changed, and another process has the lock.
    pebble.restart();
    let files = front.files(storage.path());
    let before = contents(&files);
    assert!(before.contains_key(&files.join("account.json")));
    let lock = fs::File::open(files.join("lock")).unwrap();
    lock.lock().unwrap();
    let proxy = Tidegate::start(&second);
    proxy.wait_log("the ACME server suggests to renew a.test at 2101-01-01T");
    assert!(contents(&files) == before, "{:?}", contents(&files).keys());
}
