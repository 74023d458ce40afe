//! Configuration files and certificates that are watched.

use std::os::unix::fs::symlink;
use std::time::Duration;
use std::{fs, thread};

use rustls::version::TLS13;

use super::reload::{saying, says};
use crate::support::{Authority, Tidegate, TlsClient, eventually};

#[test]
fn a_watched_file_is_read_when_it_changes() {
    let watched = |text: &str| format!("watch = true\n{}", saying(text));
    let proxy = Tidegate::start(&watched("one"));
    proxy.write(&watched("two"));
    eventually("the change is seen", || says(&proxy) == "two");
    proxy.wait_log("a file has changed: ");
    // Kubernetes: the file is a link through a link in its directory, which is replaced.
    let directory = proxy.directory();
    let file = directory.join("tidegate.toml");
    let text = fs::read_to_string(&file).unwrap();
    for version in ["three", "four"] {
        fs::create_dir(directory.join(version)).unwrap();
        fs::write(directory.join(version).join("tidegate.toml"), text.replace("two", version)).unwrap();
    }
    symlink("three", directory.join("..data")).unwrap();
    fs::remove_file(&file).unwrap();
    symlink("..data/tidegate.toml", &file).unwrap();
    eventually("the link is followed", || says(&proxy) == "three");
    symlink("four", directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    eventually("the other link is followed", || says(&proxy) == "four");
    // A mistake is reported once, and not again at every look.
    fs::remove_file(&file).unwrap();
    fs::write(&file, "watch = true\nlisten = 5\n").unwrap();
    proxy.wait_log("serving the previous configuration");
    fs::write(directory.join("another"), "file").unwrap();
    proxy.write(&saying("five"));
    eventually("the cure is seen", || says(&proxy) == "five");
    // It does not say `watch` any more.
    eventually("all are read", || proxy.logged("was reloaded") == 4);
    proxy.write(&saying("six"));
    // Longer than it takes to see a change.
    thread::sleep(Duration::from_millis(1200));
    assert_eq!((proxy.logged("was reloaded"), says(&proxy)), (4, "five".to_owned()));
}

/// Links in other directories, as certbot's, a directory that is replaced as a whole, as with releases, and a file that
/// comes after the one that names it.
#[test]
fn watched_files_are_followed_wherever_they_lead() {
    let authority = Authority::new();
    for name in ["one.test", "two.test", "three.test", "four.test"] {
        authority.sign(name);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let put = |directory: &str, name: &str| {
        let directory = elsewhere.path().join(directory);
        fs::create_dir_all(&directory).unwrap();
        for kind in ["pem", "key"] {
            fs::copy(authority.file(&format!("{name}.{kind}")), directory.join(format!("a.{kind}"))).unwrap();
        }
    };
    let current = elsewhere.path().join("current");
    put("v1", "one.test");
    put("v2", "two.test");
    symlink("v1", &current).unwrap();
    let links = tempfile::tempdir().unwrap();
    for file in ["a.pem", "a.key"] {
        symlink(current.join(file), links.path().join(file)).unwrap();
    }
    let config = |name: &str| {
        let file = |kind| links.path().join(format!("{name}.{kind}")).display().to_string();
        format!(
            "watch = true\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             tls = {{ certificates = [{{ cert = \"{}\", key = \"{}\" }}] }}\n{}",
            file("pem"),
            file("key"),
            saying(name)
        )
    };
    let proxy = Tidegate::start(&config("a"));
    let shows = |name: &str| {
        let client = authority.client(None, &[&TLS13]);
        TlsClient::connect(&client, name, proxy.addr()).is_ok()
    };
    assert!(shows("one.test"));
    symlink("v2", elsewhere.path().join("next")).unwrap();
    fs::rename(elsewhere.path().join("next"), &current).unwrap();
    eventually("another link far away is followed", || shows("two.test"));
    fs::rename(elsewhere.path().join("v2"), elsewhere.path().join("old")).unwrap();
    put("v2", "three.test");
    eventually("another directory of the same name is found", || shows("three.test"));
    put("v2", "four.test");
    eventually("what is written there is seen", || shows("four.test"));
    proxy.write(&config("b"));
    proxy.wait_log("serving the previous configuration");
    for kind in ["key", "pem"] {
        fs::copy(authority.file(&format!("one.test.{kind}")), links.path().join(format!("b.{kind}")))
            .unwrap();
    }
    eventually("what was missing has come", || shows("one.test"));
}

#[test]
fn certificates_are_watched_and_others_for_new_connections() {
    let authority = Authority::new();
    authority.sign("a.test");
    let proxy = Tidegate::start(&format!(
        "watch = true\n[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{{ {} }}] }}\n{}",
        authority.pair("a.test"),
        saying("one")
    ));
    // Nothing is resumed: each has sessions of its own.
    let connect = || TlsClient::connect(&authority.client(None, &[&TLS13]), "a.test", proxy.addr()).unwrap();
    let mut open = connect();
    assert_eq!(open.certificate(), authority.certificate("a.test"));
    authority.sign("a.test");
    let latest = authority.certificate("a.test");
    eventually("the new one is shown", || connect().certificate() == latest);
    assert_eq!(open.get("/").unwrap().text(), "one");
    fs::write(authority.file("a.test.key"), "no key").unwrap();
    let line = proxy.wait_log("serving the previous configuration");
    assert!(line.contains("a file has changed: "), "{line}");
    proxy.wait_log("has no private key that can be read");
    assert_eq!(connect().certificate(), latest);
}
