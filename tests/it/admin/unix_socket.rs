//! The admin interface on a Unix socket.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::interface::LIMITED;
use crate::support::{TIDEGATE, Tidegate, command, curl, eventually, get};

fn config(path: &Path, rest: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"unix:{}\"\n{rest}{LIMITED}", path.display())
}

#[track_caller]
fn start(path: &Path, rest: &str) -> Tidegate {
    let proxy = Tidegate::start(&config(path, rest));
    let line = proxy.wait_log("the admin interface is at unix:");
    assert!(line.contains(&format!(" unix:{},", path.display())), "{line}");
    proxy
}

fn ask(path: &Path, target: &str, headers: &[&str]) -> u16 {
    let url = format!("http://localhost{target}");
    let mut arguments = vec!["--unix-socket", path.to_str().unwrap(), &url];
    for header in headers {
        arguments.extend(["-H", header]);
    }
    curl(&arguments).0
}

#[test]
fn the_mode_of_a_unix_socket_replaces_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let mode = || std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777;
    let proxy = start(&path, "mode = \"0660\"\n");
    assert_eq!(mode(), 0o660);
    for target in ["/ready", "/metrics", "/v1/limits", "/v1/keys"] {
        assert_eq!(ask(&path, target, &[]), 200, "{target}");
    }
    // Any Host is accepted, since no web page can reach a Unix socket.
    assert_eq!(ask(&path, "/v1/limits", &["Host: gate.internal"]), 200);
    assert!(proxy.stop().success());
    assert!(!path.exists());
    // By default only the own user has access.
    let proxy = start(&path, "token = \"s3cret-admin-t0ken\"\n");
    assert_eq!(mode(), 0o600);
    assert_eq!(ask(&path, "/v1/limits", &[]), 401);
    assert_eq!(ask(&path, "/v1/limits", &["Authorization: Bearer s3cret-admin-t0ken"]), 200);
    assert!(proxy.stop().success());
}

#[test]
fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let killed = start(&path, "");
    killed.signal("KILL");
    drop(killed);
    assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let proxy = start(&path, "");
    assert_eq!(ask(&path, "/ready", &[]), 200);
    let (status, lines) = Tidegate::fails(&config(&path, ""));
    let expected = format!(
        "error: [admin]: can't listen on unix:{}: Address already in use (os error 98)",
        path.display()
    );
    assert_eq!((status.code(), &lines[0]), (Some(1), &expected));
    assert!(lines[1].starts_with("help: ss -lxp 'src = /"), "{lines:?}");
    assert_eq!(ask(&path, "/ready", &[]), 200);
    assert!(proxy.stop().success());
    // A file that is not a socket is not replaced.
    std::fs::write(&path, "kept").unwrap();
    let (status, lines) = Tidegate::fails(&config(&path, ""));
    assert_eq!(status.code(), Some(1));
    assert!(lines[0].ends_with("a file that is not a socket has this path"), "{lines:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
}

#[test]
fn a_unix_socket_survives_reloads_and_is_removed_only_by_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let proxy = start(&path, "");
    proxy.reload(&config(&path, "token = \"s3cret-admin-t0ken\"\n"));
    assert_eq!(ask(&path, "/v1/limits", &[]), 401);
    assert_eq!(ask(&path, "/v1/limits", &["Authorization: Bearer s3cret-admin-t0ken"]), 200);
    // Another process has created a socket with the same path.
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    assert!(proxy.stop().success());
    assert!(path.exists());
    drop(other);
}

#[test]
fn a_unix_socket_is_served_until_the_process_exits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let delayed = format!("shutdown_delay = \"2s\"\n{}", config(&path, ""));
    let mut proxy = Tidegate::start(&delayed);
    proxy.signal("TERM");
    eventually("the proxy is not ready", || ask(&path, "/ready", &[]) == 503);
    proxy.signal("INT");
    assert!(proxy.wait().success());
    assert!(!path.exists());
}

#[test]
fn tidegate_keys_works_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let proxy = start(&path, "");
    let run = |args: &[&str]| {
        let output = command(TIDEGATE).arg("keys").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let file = proxy.directory().join("tidegate.toml");
    let url = format!("unix:{}", path.display());
    for option in [["-c", file.to_str().unwrap()], ["--admin", &url]] {
        let (status, output, errors) = run(&[&["peek", "three", "127.0.0.1"][..], &option].concat());
        assert_eq!((status, errors.as_str()), (0, ""), "{option:?}");
        assert!(output.contains("3 of 3"), "{option:?}: {output}");
    }
    assert!(proxy.stop().success());
    let (status, _, errors) = run(&["list", "--admin", &url]);
    assert_eq!(status, 1);
    assert!(errors.starts_with(&format!("error: can't reach the admin interface at {url}: ")), "{errors}");
    assert_eq!(run(&["list", "--admin", "unix:relative.sock"]).0, 2);
}

#[test]
fn a_reload_adds_moves_and_removes_the_interface() {
    let directory = tempfile::tempdir().unwrap();
    let [path, other] = ["admin.sock", "other.sock"].map(|name| directory.path().join(name));
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let none = format!("listen = \"127.0.0.1:0\"\n{LIMITED}");
    let proxy = Tidegate::start(&none);
    proxy.reload(&config(&path, ""));
    assert_eq!((ask(&path, "/ready", &[]), mode(&path)), (200, 0o600));
    proxy.reload(&config(&path, "mode = \"0660\"\n"));
    assert_eq!((ask(&path, "/ready", &[]), mode(&path)), (200, 0o660));
    // An address that can't be bound fails the reload, and the present one is served.
    std::fs::write(&other, "").unwrap();
    proxy.write(&config(&other, ""));
    proxy.signal("HUP");
    let line = proxy.wait_log("serving the previous configuration");
    assert!(line.contains("[admin]: can't listen on unix:"), "{line}");
    assert_eq!(ask(&path, "/ready", &[]), 200);
    std::fs::remove_file(&other).unwrap();
    proxy.reload(&config(&other, ""));
    assert_eq!(ask(&other, "/ready", &[]), 200);
    eventually("the earlier socket is removed", || !path.exists());
    // The most frequent keys are recorded by an interface that a reload has added.
    assert_eq!(get(proxy.addr(), "/limited", &[]).status(), 204);
    let top = ["--unix-socket", other.to_str().unwrap(), "http://localhost/v1/top?limit=wide&by=traffic"];
    eventually("the key is shown", || curl(&top).1.text().contains("\"count\": 1"));
    proxy.reload(&none);
    eventually("the interface is closed", || !other.exists());
}
