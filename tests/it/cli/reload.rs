//! `tidegate reload`, against a running proxy.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::*;
use crate::support::{TIDEGATE, Tidegate, command, eventually, get};

const ADMIN: &str = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
const TOKENS: &str = "token = \"s3cret-admin-t0ken\"\nread_token = \"s3cret-read-t0ken\"\n";

fn responding(text: &str) -> String {
    format!("[[routes]]\nname = \"all\"\npath = \"/*\"\nrespond = {{ body = \"{text}\" }}\n")
}

/// Runs `reload` with this token in the environment.
fn reload(proxy: &Tidegate, token: &str, args: &[&str]) -> Finished {
    let url = format!("http://{}", proxy.admin());
    let mut command = command(TIDEGATE);
    command.args(["reload", "--admin", &url]).args(args).env("TIDEGATE_ADMIN_TOKEN", token);
    command.output().unwrap().into()
}

fn file(proxy: &Tidegate) -> String {
    proxy.directory().join("tidegate.toml").display().to_string()
}

fn body(proxy: &Tidegate) -> String {
    get(proxy.addr(), "/", &[]).text().to_owned()
}

#[test]
fn a_reload_is_served_when_the_command_ends() {
    let proxy = Tidegate::start(&(ADMIN.to_owned() + &responding("one")));
    let file = file(&proxy);
    proxy.write(&(ADMIN.to_owned() + &responding("two")));
    assert_eq!(reload(&proxy, "", &[]), ok(&format!("{file} was reloaded\nroutes: `all` changed\n")));
    assert_eq!(body(&proxy), "two");
    proxy.wait_log(&format!("admin: 127.0.0.1: {file} was reloaded"));
    assert_eq!(reload(&proxy, "", &[]), ok(&format!("{file} was reloaded, without changes\n")));

    proxy.write(&format!("{ADMIN}{}[limits.a]\nrate = \"1/s\"\n", responding("three")));
    let warned = reload(&proxy, "", &[]);
    assert_eq!(warned.status, 0);
    let warning = "warning: no route uses this limit\n";
    let expected = format!("{file}:9:9: {}", &warning["warning: ".len()..]);
    assert!(warned.stderr.starts_with(&format!("warning: {expected}  help: ")), "{}", warned.stderr);
    let json = reload(&proxy, "", &["--json"]);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.status, &found["changes"]), (0, &json!([])));
    assert_eq!((&found["warnings"][0]["line"], found["sha256"].as_str().unwrap().len()), (&json!(9), 64));
}

#[test]
fn changes_that_need_a_restart_are_reported() {
    let proxy = Tidegate::start(&(ADMIN.to_owned() + &responding("one")));
    proxy.write(&format!("workers = 2\n{ADMIN}{}", responding("one")));
    let reloaded = reload(&proxy, "", &[]);
    let restart = "the number of `workers` has changed: this takes effect only after a restart\n";
    assert!(reloaded.stdout.ends_with(restart), "{}", reloaded.stdout);
}

#[test]
fn an_invalid_file_is_reported_with_its_places() {
    let proxy = Tidegate::start(&(ADMIN.to_owned() + &responding("one")));
    let file = file(&proxy);
    proxy.write(&format!("{ADMIN}{}[limits.a]\nrate = \"0/s\"\n", responding("two")));
    let rejected = reload(&proxy, "", &[]);
    assert_eq!((rejected.status, rejected.stdout.as_str()), (2, ""));
    let place = format!("error: {file}:10:8: a rate of zero would deny every request\n  help: ");
    assert!(rejected.stderr.starts_with(&place), "{}", rejected.stderr);
    let end = format!("error: {file} has 1 problem; the earlier configuration is still served\n");
    assert!(rejected.stderr.ends_with(&end), "{}", rejected.stderr);
    assert_eq!(body(&proxy), "one");
    let json = reload(&proxy, "", &["--json"]);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.status, &found["problems"][0]["column"]), (2, &json!(8)));

    std::fs::remove_file(&file).unwrap();
    let missing = reload(&proxy, "", &[]);
    assert_eq!(missing.status, 2);
    assert!(missing.stderr.contains(&format!("can't read {file}: No such file")), "{}", missing.stderr);
}

#[test]
fn a_file_that_cannot_be_applied_is_another_failure() {
    let proxy = Tidegate::start(&(ADMIN.to_owned() + &responding("one")));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let both = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"{address}\"\n");
    proxy.write(&format!("{both}[admin]\nlisten = \"127.0.0.1:0\"\n{}", responding("two")));
    let failed = reload(&proxy, "", &[]);
    assert_eq!((failed.status, failed.stdout.as_str()), (1, ""));
    assert!(failed.stderr.contains(&address.to_string()), "{}", failed.stderr);
    assert!(failed.stderr.contains("; the earlier configuration is still served\n"), "{}", failed.stderr);
    assert_eq!(body(&proxy), "one");
}

#[test]
fn only_the_token_for_changes_may_reload() {
    let proxy = Tidegate::start(&format!("{ADMIN}{TOKENS}{}", responding("one")));
    for (token, error) in [
        ("", "error: a token is required\nhelp: set TIDEGATE_ADMIN_TOKEN to the token of [admin]\n"),
        ("wr0ng-admin-t0ken", "error: wrong token\nhelp: set TIDEGATE_ADMIN_TOKEN to the token of [admin]\n"),
        (
            "s3cret-read-t0ken",
            "error: this token is for reading only\nhelp: send `token` of [admin] in place of `read_token`\n",
        ),
    ] {
        let rejected = reload(&proxy, token, &[]);
        assert_eq!((rejected.status, rejected.stderr.as_str()), (1, error));
    }
    assert_eq!(proxy.logged("was reloaded"), 0);
    assert_eq!(reload(&proxy, "s3cret-admin-t0ken", &[]).status, 0);
}

#[test]
fn a_process_that_stops_is_not_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nshutdown_delay = \"30s\"\n[admin]\nlisten = \"unix:{}\"\n{}",
        socket.display(),
        responding("one")
    );
    std::fs::write(directory.path().join("tidegate.toml"), &config).unwrap();
    let mut proxy = Tidegate::start(&config);
    proxy.wait_log("the admin interface is at unix:");
    assert_eq!(tidegate(directory.path(), &["reload"]).status, 0);
    proxy.signal("TERM");
    eventually("it stops", || tidegate(directory.path(), &["health"]).status == 1);
    let stopping = tidegate(directory.path(), &["reload"]);
    assert_eq!((stopping.status, stopping.stderr.as_str()), (1, "error: the process is stopping\n"));
    proxy.signal("INT");
    assert!(proxy.wait().success());
    let gone = tidegate(directory.path(), &["reload"]);
    assert_eq!(gone.status, 1);
    assert!(gone.stderr.starts_with("error: can't reach the admin interface at unix:"), "{}", gone.stderr);
}

#[test]
fn without_an_admin_interface_the_file_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), "listen = \"127.0.0.1:8080\"\n").unwrap();
    for command in ["reload", "status"] {
        let wrong = tidegate(directory.path(), &[command]);
        assert_eq!((wrong.status, wrong.stdout.as_str()), (2, ""));
        assert!(
            wrong.stderr.contains("tidegate.toml has no admin interface\nhelp: add [admin]"),
            "{}",
            wrong.stderr
        );
    }
}

/// Runs `reload --pid` with the file of the proxy.
fn reload_process(proxy: &Tidegate) -> Finished {
    let (file, pid) = (file(proxy), proxy.id().to_string());
    command(TIDEGATE).args(["reload", "-c", &file, "--pid", &pid]).output().unwrap().into()
}

#[test]
fn a_process_without_an_admin_interface_is_reloaded_by_its_number() {
    let proxy = Tidegate::start(&responding("one"));
    let told = reload_process(&proxy);
    assert_eq!((told.status, told.stderr.as_str()), (0, ""));
    assert!(told.stdout.contains("its log has the outcome"), "{}", told.stdout);
    proxy.wait_log("was reloaded, without changes");
    // An invalid file is not sent.
    proxy.write("listen = 1\n");
    assert_eq!(reload_process(&proxy).status, 2);
    assert_eq!(proxy.logged("SIGHUP"), 1);
    // The interface that the reload adds has the outcome, and the next one asks it.
    let admin = format!("[admin]\nlisten = \"unix:{}\"\n", proxy.directory().join("admin.sock").display());
    proxy.write(&(admin.clone() + &responding("two")));
    assert_eq!(reload_process(&proxy), ok("the configuration is served\n"));
    assert_eq!(body(&proxy), "two");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.write(&format!("listen = \"{}\"\n{admin}{}", taken.local_addr().unwrap(), responding("three")));
    let failed = reload_process(&proxy);
    assert_eq!(failed.status, 1);
    assert!(failed.stderr.contains("Address already in use"), "{}", failed.stderr);
    assert_eq!(body(&proxy), "two");
}
