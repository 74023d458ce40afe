//! The Debian package on a machine with systemd: a container of namespaces, whose root directory is that of this machine, with
//! all changes in memory. Where a container can't be started, as for other users than root, the test says so and ends: then the
//! other tests of this folder check the parts.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::debian::build;
use super::repository;
use crate::support::{Process, command, patience};

/// Prepares the root directory of the container below `$1`, with the directory `$2` as /mnt, and becomes systemd.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind "$2" "$1/root/mnt"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
  touch "dev/$name"
  mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs run
# Services of this machine are not started, and packages may start theirs.
rm -f usr/sbin/policy-rc.d etc/systemd/system/*.wants/*
exec chroot . env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target --show-status=no
"#;

/// A container. It ends with this value.
struct Container {
    _process: Process,
    init: String,
}

impl Container {
    /// Starts a container with this directory as /mnt; none if the kernel or the permissions do not allow it.
    fn start(directory: &Path, mnt: &Path) -> Option<Self> {
        let unshare = |last: &[&str]| {
            let mut unshare = command("unshare");
            unshare.args([
                "--mount",
                "--pid",
                "--fork",
                "--cgroup",
                "--uts",
                "--ipc",
                "--net",
                "--kill-child",
            ]);
            unshare.args(last);
            unshare
        };
        if !unshare(&["mount", "--make-rprivate", "/"]).status().unwrap().success() {
            return None;
        }
        let paths = [directory, mnt].map(|path| path.to_str().unwrap());
        let process = Process::start(&mut unshare(&["sh", "-c", BOOT, "sh", paths[0], paths[1]]));
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let start = Instant::now();
        let mut container = Self { _process: process, init: String::new() };
        while start.elapsed() < patience() {
            fs::read_to_string(&children).unwrap_or_default().trim().clone_into(&mut container.init);
            // Before systemd runs, there is nothing to ask.
            if !container.init.is_empty()
                && container.run("systemctl is-system-running").text.starts_with("running")
            {
                return Some(container);
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("systemd does not start");
    }

    /// Runs a script; returns its status and all that it prints.
    fn run(&self, script: &str) -> Ran {
        let mut enter = command("nsenter");
        enter.args(["--target", &self.init, "--all", "--root", "--wd=/", "env", "-i", "HOME=/root"]);
        enter.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c"]).arg(format!("exec 2>&1\n{script}"));
        let output = enter.output().unwrap();
        Ran { succeeds: output.status.success(), text: String::from_utf8_lossy(&output.stdout).into_owned() }
    }

    /// Runs a script that must succeed; returns what it prints.
    #[track_caller]
    fn succeeds(&self, script: &str) -> String {
        let ran = self.run(script);
        assert!(ran.succeeds, "{script}: {}\n{}", ran.text, self.run("journalctl --no-pager -n 40").text);
        ran.text
    }

    /// The status of a response; 000 if there is none.
    #[track_caller]
    fn status(&self, url: &str) -> String {
        self.run(&format!("curl -sk -m 5 -o /dev/null -w '%{{http_code}}' {url}")).text
    }

    /// What the unit has logged, of this priority and more important ones.
    fn journal(&self, priority: &str) -> String {
        self.succeeds(&format!(
            "journalctl --sync; journalctl -q --no-pager -o cat -u tidegate -p {priority}"
        ))
    }

    fn write(&self, path: &str, text: &str) {
        self.succeeds(&format!("mkdir -p \"$(dirname {path})\" && cat >{path} <<'END'\n{text}\nEND"));
    }
}

struct Ran {
    succeeds: bool,
    text: String,
}

const CONFIG: &str = "/etc/tidegate/tidegate.toml";
const ROUTE: &str = "[[routes]]\npath = \"/*\"\nrespond = {}\n";
const ADMIN: &str = "[admin]\nlisten = \"unix:/run/tidegate/admin.sock\"\nmode = \"0660\"\n";
/// The commands of the warning about a socket that no listener uses.
const RESTART: &str = "systemctl daemon-reload; systemctl stop tidegate; systemctl restart tidegate.socket && systemctl start tidegate";

#[test]
fn the_package_works_on_a_machine_with_systemd() {
    let directory = tempfile::tempdir().unwrap();
    let mnt = tempfile::tempdir().unwrap();
    let Some(container) = Container::start(directory.path(), mnt.path()) else {
        eprintln!("skipped: this user can't start a container of namespaces here");
        return;
    };
    let package = build(mnt.path());
    let package = format!("/mnt/{}", package.file_name().unwrap().to_str().unwrap());
    is_installed_while_port_80_is_taken(&container, &package);
    a_reload_tells_its_outcome(&container);
    tls_works_on_port_443(&container);
    a_listener_moves_away_from_the_socket(&container);
    the_cure_for_a_low_port_works(&container);
    the_access_log_is_rotated(&container);
    an_upgrade_restarts_the_service(&container, &package);
    // A removed service is stopped, and one that is installed again is started.
    container.succeeds("dpkg --remove tidegate");
    assert_eq!(container.status("http://127.0.0.1:8080/"), "000");
    container.succeeds(&format!("dpkg --install {package}"));
    assert_eq!(container.status("http://127.0.0.1:8080/"), "200");
    let text = container
        .succeeds("dpkg --purge tidegate; ls -d /etc/tidegate /var/lib/tidegate /var/log/tidegate; true");
    assert_eq!(text.matches("No such file or directory").count(), 3, "{text}");
    assert_eq!(container.status("http://127.0.0.1:8080/"), "000");
}

fn is_installed_while_port_80_is_taken(container: &Container, package: &str) {
    container.succeeds("systemd-run --quiet --unit=first python3 -m http.server 80 --directory /mnt");
    container.succeeds("until curl -s -o /dev/null http://127.0.0.1/; do sleep 0.1; done");
    let text = container.succeeds(&format!("dpkg --install {package}"));
    for line in [
        "tidegate: the package is installed, but the service could not start:\n",
        "error: can't listen on 0.0.0.0:80: Address already in use (os error 98)\n",
        "help: a process of the user `root` uses it; ",
        "tidegate: for another port, change `listen` in /etc/tidegate/tidegate.toml",
    ] {
        assert!(text.contains(line), "{text}\n{}", container.run("journalctl --no-pager -n 60").text);
    }
    assert!(!text.contains("Could not execute"), "{text}");
    assert!(container.journal("err").contains("error: can't listen on 0.0.0.0:80"));
    // A restart of the service that succeeds as soon as the port is free would keep the socket from starting.
    container.succeeds("systemctl stop tidegate.service tidegate.socket first");
    container.succeeds("systemctl reset-failed tidegate.service tidegate.socket");
    container.succeeds("systemctl start tidegate.socket tidegate");
    assert_eq!(container.status("http://127.0.0.1/"), "200");
    // The admin interface works as installed, for root and the group.
    assert!(container.succeeds("tidegate status").contains("ready, up "));
    container.succeeds("setpriv --reuid=65534 --regid=tidegate --clear-groups tidegate status");
    let denied = container.run("setpriv --reuid=65534 --regid=65534 --clear-groups tidegate status");
    assert!(!denied.succeeds && denied.text.contains("Permission denied"), "{}", denied.text);
}

fn a_reload_tells_its_outcome(container: &Container) {
    let listen = "listen = \"0.0.0.0:80\"\n";
    container.write(CONFIG, &format!("{listen}{ADMIN}{ROUTE}"));
    container.succeeds("systemctl reload tidegate");
    // Valid, but not applied.
    container.succeeds("systemd-run --quiet --unit=second python3 -m http.server 8081 --directory /mnt");
    container.succeeds("until curl -s -o /dev/null http://127.0.0.1:8081/; do sleep 0.1; done");
    let taken = "[[listeners]]\naddress = \"0.0.0.0:80\"\n[[listeners]]\naddress = \"0.0.0.0:8081\"\n";
    container.write(CONFIG, &format!("{taken}{ADMIN}{ROUTE}"));
    assert!(!container.run("systemctl reload tidegate").succeeds);
    assert!(container.journal("err").contains("can't listen on 0.0.0.0:8081: Address already in use"));
    container.write(CONFIG, "nonsense");
    assert!(!container.run("systemctl reload tidegate").succeeds);
    assert_eq!(container.status("http://127.0.0.1/"), "200");
    // A reload removes the admin interface, and another one adds it again.
    for rest in ["", ADMIN] {
        container.write(CONFIG, &format!("{listen}{rest}{ROUTE}"));
        container.succeeds("systemctl reload tidegate");
    }
    container.succeeds("systemctl stop second; tidegate status");
    // A token that the running process does not have yet.
    container.write(CONFIG, &format!("{listen}{ADMIN}token = \"s3cret-admin-t0ken\"\n{ROUTE}"));
    container.succeeds("systemctl reload tidegate && tidegate status");
    let (warnings, all) = (container.journal("warning"), container.journal("info"));
    assert!(!warnings.contains("INFO") && all.contains(" INFO listening on 0.0.0.0:80"), "{warnings}");
}

fn tls_works_on_port_443(container: &Container) {
    container.succeeds(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=a.example \
         -addext subjectAltName=DNS:a.example -keyout /etc/tidegate/tls/key.pem -out /etc/tidegate/tls/cert.pem && \
         chgrp tidegate /etc/tidegate/tls/key.pem && chmod 640 /etc/tidegate/tls/key.pem",
    );
    let tls = "tls = { certificates = [{ cert = \"tls/cert.pem\", key = \"tls/key.pem\" }] }\n";
    let listeners = "[[listeners]]\naddress = \"0.0.0.0:80\"\n[[listeners]]\naddress = \"0.0.0.0:443\"\n";
    container.write(CONFIG, &format!("{listeners}{tls}{ADMIN}{ROUTE}"));
    container.succeeds("systemctl reload tidegate");
    for _ in 0..2 {
        let urls = ["http://127.0.0.1/", "https://127.0.0.1/"];
        assert_eq!(urls.map(|url| container.status(url)), ["200", "200"]);
        container.succeeds("systemctl restart tidegate");
    }
}

fn a_listener_moves_away_from_the_socket(container: &Container) {
    container.write(CONFIG, &format!("listen = \"0.0.0.0:8080\"\n{ADMIN}{ROUTE}"));
    container.succeeds("systemctl reload tidegate");
    assert_eq!(
        ["80", "8080"].map(|port| container.status(&format!("http://127.0.0.1:{port}/"))),
        ["503", "200"]
    );
    assert!(
        container.journal("warning").contains("no listener of the configuration has the address 0.0.0.0:80,")
    );
    // The cure that the warning names.
    container.write(
        "/etc/systemd/system/tidegate.socket.d/override.conf",
        "[Socket]\nListenStream=\nListenStream=0.0.0.0:8080",
    );
    container.succeeds(RESTART);
    assert_eq!(
        ["80", "8080"].map(|port| container.status(&format!("http://127.0.0.1:{port}/"))),
        ["000", "200"]
    );
}

fn the_cure_for_a_low_port_works(container: &Container) {
    let unit = "/etc/systemd/system/tidegate.service.d/override.conf";
    let restart = "systemctl daemon-reload; systemctl restart tidegate";
    container.write(CONFIG, &format!("listen = \"0.0.0.0:82\"\n{ADMIN}{ROUTE}"));
    container.write(unit, "[Service]\nCapabilityBoundingSet=\nAmbientCapabilities=");
    assert!(!container.run(restart).succeeds);
    let help =
        "AmbientCapabilities=CAP_NET_BIND_SERVICE with the same CapabilityBoundingSet and PrivateUsers=no";
    let errors = container.journal("err");
    assert!(errors.contains(help), "{errors}");
    // `check` warns of it, also of the user of the service.
    let checked = container.succeeds(
        "setpriv --reuid=tidegate --regid=tidegate --clear-groups --bounding-set=-all tidegate check",
    );
    assert!(checked.contains("this user may not listen on 0.0.0.0:82"), "{checked}");
    container.write(
        unit,
        "[Service]\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nPrivateUsers=no",
    );
    container.succeeds(restart);
    assert_eq!(container.status("http://127.0.0.1:82/"), "200");
    container.succeeds(&format!("rm {unit}; {restart}"));
}

fn the_access_log_is_rotated(container: &Container) {
    let log = "[log]\naccess_file = \"/var/log/tidegate/access.log\"\n";
    container.write(CONFIG, &format!("listen = \"0.0.0.0:8080\"\n{log}{ADMIN}{ROUTE}"));
    container.succeeds("systemctl reload tidegate");
    let lines = |file: &str, count: usize| {
        container.succeeds(&format!(
            "until [ \"$(wc -l </var/log/tidegate/{file})\" = {count} ]; do sleep 0.1; done"
        ));
    };
    assert_eq!(container.status("http://127.0.0.1:8080/one"), "200");
    lines("access.log", 1);
    container.succeeds("logrotate --force /etc/logrotate.d/tidegate");
    container
        .succeeds("until journalctl -u tidegate | grep -q 'access.log was opened again'; do sleep 0.1; done");
    assert_eq!(container.status("http://127.0.0.1:8080/two"), "200");
    lines("access.log", 1);
    lines("access.log.1", 1);
}

fn an_upgrade_restarts_the_service(container: &Container, package: &str) {
    let process = || container.succeeds("systemctl show --property=MainPID --value tidegate");
    let upgrade = || container.succeeds(&format!("dpkg --install {package}"));
    let before = process();
    container.succeeds(&format!("cp {CONFIG} /root/valid; echo nonsense >>{CONFIG}"));
    let text = upgrade();
    assert!(text.contains("tidegate: the configuration was not applied"), "{text}");
    assert_eq!(process(), before);
    container.succeeds(&format!("cp /root/valid {CONFIG}"));
    upgrade();
    assert_ne!(process(), before);
    assert_eq!(container.status("http://127.0.0.1:8080/"), "200");
}

/// The exposure level of the unit, of at most 10, as systemd computes it.
#[test]
fn the_unit_is_not_exposed() {
    let mut analyze = command("systemd-analyze");
    analyze
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(repository().join("config/tidegate.service"));
    let output = analyze.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
