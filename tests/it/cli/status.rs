//! `tidegate status`, against a running proxy.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;

use serde_json::{Value, json};

use super::*;
use crate::support::{RedisServer, TIDEGATE, Tidegate, Upstream, command, eventually};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn status(proxy: &Tidegate, args: &[&str]) -> Finished {
    let url = format!("http://{}", proxy.admin());
    tidegate(repository(), &[&["status", "--admin", &url][..], args].concat())
}

fn json_of(proxy: &Tidegate) -> Value {
    let printed = status(proxy, &["--json"]);
    assert_eq!((printed.status, printed.stderr.as_str()), (0, ""));
    serde_json::from_str(&printed.stdout).unwrap()
}

/// The lines of the text that start like this.
fn line(finished: &Finished, start: &str) -> String {
    let line = finished.stdout.lines().find(|line| line.starts_with(start));
    line.unwrap_or_else(|| panic!("no line {start}:\n{}{}", finished.stdout, finished.stderr)).to_owned()
}

fn config(server: &str, rate: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n{ADMIN}[limits.per-client]\nrate = \"{rate}\"\n\
         [upstreams.api]\nservers = [\"{server}\", \"http://missing.invalid\"]\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"per-client\"]\nupstream = \"api\"\n"
    )
}

#[test]
fn a_user_who_may_not_use_the_socket_learns_who_may() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let is_root = std::fs::metadata(&socket).unwrap().uid() == 0;
    let mode = |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let url = format!("unix:{}", socket.display());
    let status = || {
        let mut command = command(TIDEGATE);
        command.args(["status", "--admin", &url]).current_dir("/");
        if is_root {
            // Root may use any socket.
            command.uid(65534).gid(65534);
        }
        Finished::from(command.output().unwrap()).stderr
    };
    // Without root, the user owns the socket, so that its own permissions apply.
    let (alone, shared) = if is_root { (0o600, 0o660) } else { (0o000, 0o060) };
    mode(directory.path(), 0o755);
    for (bits, cure) in [
        (alone, " alone: run the command with sudo; mode = \"0660\" in [admin] gives its group access\n"),
        (shared, " $USER and log in again\n"),
    ] {
        mode(&socket, bits);
        let text = status();
        assert!(text.contains("Permission denied") && text.contains(cure), "{text}");
        assert!(text.contains(&format!("help: {} is for the user ", socket.display())), "{text}");
    }
    mode(directory.path(), if is_root { 0o700 } else { 0o000 });
    let text = status();
    assert!(text.contains(&format!("help: {} is for the user ", directory.path().display())), "{text}");
    assert!(text.contains(" alone: run the command with sudo\n"), "{text}");
    mode(directory.path(), 0o700);
}

#[cfg(feature = "acme")]
#[test]
fn certificates_of_an_acme_server_are_shown() {
    let (proxy, _storage) = crate::acme::setup::without_server();
    let shown = status(&proxy, &[]);
    let words = |start: &str| line(&shown, start).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words("CERTIFICATE").join(" "), "CERTIFICATE STATE EXPIRES NEXT ATTEMPT");
    assert_eq!(words("a.test")[..3], ["a.test", "obtained", "4096-01-01T00:00:00Z"]);
    assert_eq!(words("b.test")[..3], ["b.test", "failed", "none"]);
    let error = line(&shown, "last error     b.test, 20");
    assert!(error.contains("Z: the ACME server 127.0.0.1 is unavailable: Connection refused"), "{error}");
    let acme = &json_of(&proxy)["acme"];
    assert_eq!(acme["server"], "127.0.0.1");
    let [obtained, failed] = [0, 1].map(|index| &acme["certificates"][index]);
    assert_eq!((&obtained["name"], &obtained["state"]), (&json!("a.test"), &json!("obtained")));
    assert_eq!(
        (&obtained["not_after"], &obtained["last_error"]),
        (&json!("4096-01-01T00:00:00Z"), &Value::Null)
    );
    assert_eq!((&failed["name"], &failed["not_after"]), (&json!("b.test"), &Value::Null));
    let [at, next] =
        [&failed["last_error"]["at"], &failed["next_attempt"]].map(|time| time.as_str().unwrap());
    assert!(at < next && next < obtained["next_attempt"].as_str().unwrap(), "{acme:#}");
    for (name, count) in [("missing", 1), ("failing", 1)] {
        assert_eq!(proxy.metric(&format!("tidegate_acme_{name}_certificates")), count, "{name}");
    }
}

#[test]
fn the_state_of_a_process_is_shown() {
    let server = Upstream::echo();
    let text = config(&server.url(), "5/minute");
    let proxy = Tidegate::start(&text);
    let shown = status(&proxy, &[]);
    assert_eq!((shown.status, shown.stderr.as_str()), (0, ""));
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        line(&shown, "tidegate").starts_with(&format!("tidegate       {version}, ready, up ")),
        "{}",
        shown.stdout
    );
    assert!(line(&shown, "configuration").contains("tidegate.toml, loaded 20"), "{}", shown.stdout);
    assert_eq!(line(&shown, "store"), "store          in this process, 0 keys");
    assert_eq!(line(&shown, "listeners"), format!("listeners      {}, 0 connections", proxy.addr()));
    assert_eq!(line(&shown, "routes"), "routes         1");
    assert_eq!(line(&shown, "per-client"), "per-client  token_bucket  enforce  5        5/minute");
    let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(line(&shown, &format!("api       {}", server.url()))),
        format!("api {} not checked 0", server.url())
    );
    assert_eq!(words(line(&shown, "api       http://missing")), "api http://missing.invalid no address 0");
    assert!(!shown.stdout.contains("last error") && !shown.stdout.contains("CERTIFICATE"));
}

#[test]
fn the_configuration_is_that_which_is_served() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&config(&server.url(), "5/minute"));
    let file = proxy.directory().join("tidegate.toml");
    let hash = || {
        let sum = command("sha256sum").arg(&file).output().unwrap();
        String::from_utf8(sum.stdout).unwrap()[..64].to_owned()
    };
    let first = json_of(&proxy);
    let configuration = &first["configuration"];
    assert_eq!((&configuration["file"], &configuration["sha256"]), (&json!(file), &json!(hash())));
    assert_eq!((&configuration["last_error"], &first["state"]), (&Value::Null, &json!("ready")));

    let old = hash();
    proxy.write(&config(&server.url(), "0/minute"));
    proxy.signal("HUP");
    proxy.wait_log("serving the previous configuration");
    let failed = json_of(&proxy);
    assert_eq!(failed["configuration"]["sha256"], json!(old));
    let error = &failed["configuration"]["last_error"];
    assert_eq!((&error["problems"][0]["line"], &error["problems"][0]["column"]), (&json!(6), &json!(8)));
    let shown = status(&proxy, &[]);
    assert!(line(&shown, "last error").ends_with("tidegate.toml has 1 problem"), "{}", shown.stdout);
    assert!(
        shown.stdout.contains("tidegate.toml:6:8: a rate of zero would deny every request"),
        "{}",
        shown.stdout
    );

    proxy.write(&config(&server.url(), "7/minute"));
    proxy.signal("HUP");
    eventually("the new file is served", || json_of(&proxy)["configuration"]["sha256"] == json!(hash()));
    let last = json_of(&proxy);
    assert_eq!(
        (&last["configuration"]["last_error"], &last["limits"][0]["limit"]),
        (&Value::Null, &json!(7))
    );
}

#[test]
fn an_unreachable_redis_is_shown() {
    let mut redis = RedisServer::start();
    let route = "[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = {}\n[limits.a]\nrate = \"9/s\"\n";
    let proxy = Tidegate::start_with(&redis, &format!("listen = \"127.0.0.1:0\"\n{ADMIN}{route}"));
    let store = |proxy: &Tidegate| line(&status(proxy, &[]), "store");
    assert_eq!(store(&proxy), format!("store          {}, up", redis.url()));
    redis.kill();
    eventually("a worker notices it", || store(&proxy).contains(", unreachable"));
    assert_eq!(json_of(&proxy)["store"]["kind"], "redis");
}

#[test]
fn a_proxy_that_is_not_reached_is_an_error() {
    let refused = tidegate(repository(), &["status", "--admin", "http://127.0.0.1:1"]);
    let error = "error: can't reach the admin interface at http://127.0.0.1:1: Connection refused (os error 111)\n\
                 help: is the proxy running? name another interface with --admin URL\n";
    assert_eq!(refused, Finished { status: 1, stdout: String::new(), stderr: error.to_owned() });
    let missing = tidegate(repository(), &["status", "--admin", "unix:/missing.sock"]);
    assert_eq!(missing.status, 1);
    assert!(missing.stderr.contains("unix:/missing.sock: No such file or directory"), "{}", missing.stderr);
}
