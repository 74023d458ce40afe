//! Watched configuration files and certificates.

use std::os::unix::fs::symlink;
use std::time::Duration;
use std::{fs, thread};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::version::TLS13;
use serde_json::Value;

use super::reload::{responding, response};
use crate::support::{Authority, Tidegate, TlsClient, eventually, get};

#[test]
fn a_watched_file_is_reloaded_when_it_changes() {
    let watched = |text: &str| format!("watch = true\n{}", responding(text));
    let proxy = Tidegate::start(&watched("one"));
    proxy.write(&watched("two"));
    eventually("the change is seen", || response(&proxy) == "two");
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
    eventually("the link is followed", || response(&proxy) == "three");
    symlink("four", directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    eventually("the other link is followed", || response(&proxy) == "four");
    // An error is reported once, not at every check.
    fs::remove_file(&file).unwrap();
    fs::write(&file, "watch = true\nlisten = 5\n").unwrap();
    proxy.wait_log("serving the previous configuration");
    fs::write(directory.join("another"), "file").unwrap();
    proxy.write(&responding("five"));
    eventually("the valid file is applied", || response(&proxy) == "five");
    // The last file does not set `watch`.
    eventually("all files are applied", || proxy.logged("was reloaded") == 4);
    proxy.write(&responding("six"));
    // Real time is tested: longer than the interval of the checks.
    thread::sleep(Duration::from_millis(1200));
    assert_eq!((proxy.logged("was reloaded"), response(&proxy)), (4, "five".to_owned()));
}

/// Links to other directories, as of certbot, a directory that is replaced, and a file that is created later than the
/// configuration that names it.
#[test]
fn watched_files_are_followed_through_symbolic_links() {
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
            responding(name)
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
    eventually("a changed link in another directory is followed", || shows("two.test"));
    fs::rename(elsewhere.path().join("v2"), elsewhere.path().join("old")).unwrap();
    put("v2", "three.test");
    eventually("a replaced directory is followed", || shows("three.test"));
    put("v2", "four.test");
    eventually("a changed file in it is read", || shows("four.test"));
    proxy.write(&config("b"));
    proxy.wait_log("serving the previous configuration");
    for kind in ["key", "pem"] {
        fs::copy(authority.file(&format!("one.test.{kind}")), links.path().join(format!("b.{kind}")))
            .unwrap();
    }
    eventually("the missing file is read", || shows("one.test"));
}

/// New, changed and removed files that a pattern includes, and the hash of all texts.
#[test]
fn included_files_are_watched() {
    const MAIN: &str = "watch = true\ninclude = [\"routes/*.toml\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let route = |path: &str, body: &str| {
        format!("[[routes]]\nname = \"{body}\"\npath = \"{path}\"\nrespond = {{ body = \"{body}\" }}\n")
    };
    let proxy = Tidegate::start(&format!("{MAIN}{}", route("/main", "main")));
    let directory = proxy.directory().join("routes");
    let body = |path: &str| {
        let response = get(proxy.addr(), path, &[]);
        (response.status() == 200).then(|| response.text().to_owned())
    };
    assert_eq!((body("/main").as_deref(), body("/a")), (Some("main"), None));
    // The directory did not exist at the start.
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("b.toml"), route("/*", "b")).unwrap();
    eventually("a new file is read", || body("/a").as_deref() == Some("b"));
    fs::write(directory.join("a.toml"), route("/a", "first")).unwrap();
    eventually("files are in the order of their names", || body("/a").as_deref() == Some("first"));
    fs::write(directory.join("a.toml"), route("/a", "second")).unwrap();
    eventually("a changed file is read", || body("/a").as_deref() == Some("second"));
    proxy.wait_log("routes: `second` added; `first` removed");
    let status: Value = serde_json::from_str(get(proxy.admin(), "/v1/status", &[]).text()).unwrap();
    let files = ["tidegate.toml", "routes/a.toml", "routes/b.toml"];
    let texts: String =
        files.iter().map(|name| fs::read_to_string(proxy.directory().join(name)).unwrap()).collect();
    let hash = digest(&SHA256, texts.as_bytes());
    let digits: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(status["configuration"]["sha256"], digits.concat());
    fs::write(directory.join("a.toml"), "[[routes]]\npath = 5\n").unwrap();
    let line = proxy.wait_log("a.toml:2:8");
    assert!(line.contains(&format!("{}/a.toml:2:8", directory.display())), "{line}");
    assert_eq!(body("/a").as_deref(), Some("second"));
    fs::remove_file(directory.join("a.toml")).unwrap();
    eventually("a removed file is noticed", || body("/a").as_deref() == Some("b"));
}

#[test]
fn watched_certificates_apply_to_new_connections() {
    let authority = Authority::new();
    authority.sign("a.test");
    let proxy = Tidegate::start(&format!(
        "watch = true\n[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{{ {} }}] }}\n{}",
        authority.pair("a.test"),
        responding("one")
    ));
    // No session is resumed, since each client has its own cache.
    let connect = || TlsClient::connect(&authority.client(None, &[&TLS13]), "a.test", proxy.addr()).unwrap();
    let mut open = connect();
    assert_eq!(open.certificate(), authority.certificate("a.test"));
    authority.sign("a.test");
    let latest = authority.certificate("a.test");
    eventually("the new certificate is used", || connect().certificate() == latest);
    assert_eq!(open.get("/").unwrap().text(), "one");
    fs::write(authority.file("a.test.key"), "no key").unwrap();
    let line = proxy.wait_log("serving the previous configuration");
    assert!(line.contains("a file has changed: "), "{line}");
    proxy.wait_log("has no private key that can be read");
    assert_eq!(connect().certificate(), latest);
}
