//! `tidegate health`.

use super::*;
use crate::support::{Tidegate, eventually};

const ROUTE: &str = "[[routes]]\npath = \"/*\"\nrespond = {}\n";

/// Runs `health` with the file of this text.
fn health(directory: &Path, text: &str, args: &[&str]) -> Finished {
    std::fs::write(directory.join("tidegate.toml"), text).unwrap();
    tidegate(directory, &[&["health"][..], args].concat())
}

#[test]
fn health_is_that_of_the_admin_interface() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let socket = directory.join("admin.sock");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nshutdown_delay = \"30s\"\n[admin]\nlisten = \"unix:{}\"\n{ROUTE}",
        socket.display()
    );
    let mut proxy = Tidegate::start(&config);
    proxy.wait_log("the admin interface is at unix:");
    let checked = health(directory, &config, &[]);
    assert_eq!((checked.status, checked.stderr.as_str()), (0, ""));
    assert!(checked.stdout.starts_with("ready\n"), "{}", checked.stdout);
    // The running proxy does not use a file with mistakes, so they do not matter, not even in the syntax.
    for mistake in ["[limits.a]\nrate = \"0/s\"\n", "[store]\nurl = \"${NOT_SET}\"\n", "[limits\n"] {
        let edited = format!("{config}{mistake}");
        assert_eq!(health(directory, &edited, &[]).status, 0, "{mistake}");
    }
    let wrong = health(directory, &config.replace("unix:", "unix"), &[]);
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);

    proxy.signal("TERM");
    eventually("it is not ready", || health(directory, &config, &[]).status == 1);
    let leaving = health(directory, &config, &[]);
    assert!(leaving.stdout.starts_with("leaving\n"), "{}", leaving.stdout);
    assert_eq!(health(directory, &config, &["--live"]), ok("live\n"));
    proxy.signal("INT");
    assert!(proxy.wait().success());
    let gone = health(directory, &config, &[]);
    assert_eq!((gone.status, gone.stdout.as_str()), (1, ""));
    assert!(gone.stderr.starts_with("error: can't reach the admin interface at unix:"), "{}", gone.stderr);
}

#[test]
fn health_without_an_admin_interface_is_that_all_listeners_accept() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let proxy = Tidegate::start(ROUTE);
    let one = format!("[[listeners]]\naddress = \"{}\"\n", proxy.addr());
    assert_eq!(health(directory, &format!("{one}{ROUTE}"), &[]), ok("all listeners accept connections\n"));
    // The proxy has this port on 127.0.0.1 only.
    let other = format!("127.0.0.2:{}", proxy.addr().port());
    let two = format!("{one}[[listeners]]\naddress = \"{other}\"\n{ROUTE}");
    let failed = health(directory, &two, &[]);
    assert_eq!((failed.status, failed.stdout.as_str()), (1, ""));
    assert!(failed.stderr.starts_with(&format!("error: can't connect to {other}: ")), "{}", failed.stderr);
}
