//! The Debian package: built by debhelper with the binary of the tests, then installed, upgraded, removed and purged by
//! dpkg, in a directory of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BINARY, completed, files, repository};
use crate::support::command;

/// A system in a directory, with a dpkg database of its own.
struct System {
    directory: tempfile::TempDir,
}

impl System {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for path in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
            fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        fs::write(directory.path().join("var/lib/dpkg/status"), "").unwrap();
        Self { directory }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn has(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Runs dpkg. The scripts of the package run on this machine, and change the directory that `DPKG_ROOT` names.
    fn dpkg(&self, operation: &str, what: &str) {
        let mut command = as_root("dpkg");
        command.arg(format!("--root={}", self.directory.path().display()));
        command.args(["--force-script-chrootless", "--force-depends", "--force-confdef", "--force-confold"]);
        command.args(["--log=/dev/null", operation, what]);
        // Administrators have these directories in their PATH, and dpkg requires programs in them.
        let path = std::env::var("PATH").unwrap_or_default();
        completed(command.env("PATH", format!("{path}:/usr/sbin:/sbin")));
    }
}

/// A command of the administrator; for other users, one that believes so.
fn as_root(program: &str) -> Command {
    let id = completed(command("id").arg("-u"));
    if id.trim() == "0" {
        return command(program);
    }
    let mut command = command("fakeroot");
    command.arg(program);
    command
}

/// Builds the package; returns its path.
pub fn build(directory: &Path) -> PathBuf {
    let mut command = command(repository().join("packaging/build-deb"));
    command.arg(BINARY).arg(directory);
    // The debug information is removed, and not packaged: that takes long.
    command.env("DEB_BUILD_OPTIONS", "noautodbgsym").env("DEB_COMPRESSION", "none");
    let packages = completed(&mut command);
    let paths: Vec<&str> = packages.lines().collect();
    assert_eq!(paths.len(), 1, "{packages}");
    paths[0].into()
}

/// A package with the next version and another default configuration.
fn upgraded(package: &Path, directory: &Path) -> PathBuf {
    let (tree, next) = (directory.join("tree"), directory.join("next.deb"));
    completed(as_root("dpkg-deb").arg("-R").arg(package).arg(&tree));
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    let text = text.replace(&format!("\nVersion: {}\n", env!("CARGO_PKG_VERSION")), "\nVersion: 99.0.0\n");
    assert!(text.contains("\nVersion: 99.0.0\n"), "{text}");
    fs::write(control, text).unwrap();
    let config = tree.join("etc/tidegate/tidegate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}# of the next version\n")).unwrap();
    completed(as_root("dpkg-deb").args(["-Znone", "--root-owner-group", "-b"]).arg(&tree).arg(&next));
    next
}

const CONFIG: &str = "etc/tidegate/tidegate.toml";
const ENABLED: [&str; 2] = [
    "etc/systemd/system/multi-user.target.wants/tidegate.service",
    "etc/systemd/system/sockets.target.wants/tidegate.socket",
];

#[test]
fn the_debian_package_is_installed_upgraded_removed_and_purged() {
    let directory = tempfile::tempdir().unwrap();
    let package = build(directory.path());
    let field = |name: &str| completed(command("dpkg-deb").arg("-f").arg(&package).arg(name));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    let depends = field("Depends");
    assert!(depends.contains("libc6 (>= ") && depends.contains("systemd-sysusers"), "{depends}");

    let system = System::new();
    system.dpkg("--install", package.to_str().unwrap());
    check_installed(&system);

    // The edited configuration stays, and the new default is beside it.
    let edited = format!("{}# edited\n", system.read(CONFIG));
    fs::write(system.path(CONFIG), &edited).unwrap();
    let next = upgraded(&package, directory.path());
    system.dpkg("--install", next.to_str().unwrap());
    assert_eq!(system.read(CONFIG), edited);
    assert!(system.read(&format!("{CONFIG}.dpkg-dist")).ends_with("# of the next version\n"));
    assert!(ENABLED.iter().all(|link| system.has(link)));
    assert!(system.read("var/lib/dpkg/status").contains("\nVersion: 99.0.0\n"));

    system.dpkg("--remove", "tidegate");
    assert!(!system.has("usr/bin/tidegate") && !system.has("lib/systemd/system/tidegate.service"));
    assert_eq!(system.read(CONFIG), edited);

    for path in ["etc/tidegate/environment", "var/lib/tidegate/acme/key.pem", "var/log/tidegate/access.log"] {
        fs::create_dir_all(system.path(path).parent().unwrap()).unwrap();
        fs::write(system.path(path), "").unwrap();
    }
    system.dpkg("--purge", "tidegate");
    let left: Vec<String> = files(system.directory.path())
        .into_iter()
        .filter(|path| !path.starts_with("var/lib/dpkg/"))
        .collect();
    // The user stays, as Debian recommends, so that its id is not given to another.
    assert!(left.iter().all(|path| is_of_users(path)), "{left:?}");
}

/// Whether a file belongs to the users of the system.
fn is_of_users(path: &str) -> bool {
    let name = path.strip_prefix("etc/").unwrap_or_default();
    ["passwd", "group", "shadow", "gshadow", ".pwd.lock"].contains(&name.trim_end_matches('-'))
}

fn check_installed(system: &System) {
    let user =
        system.read("etc/passwd").lines().find(|line| line.starts_with("tidegate:")).map(str::to_owned);
    assert!(user.is_some_and(|user| user.ends_with(":/:/usr/sbin/nologin")), "{}", system.read("etc/passwd"));
    let mode = |path: &str| fs::metadata(system.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("etc/tidegate"), mode("etc/tidegate/tls"), mode(CONFIG)), (0o755, 0o750, 0o644));
    let conffiles = system.read("var/lib/dpkg/info/tidegate.conffiles");
    assert_eq!(conffiles, format!("/etc/logrotate.d/tidegate\n/{CONFIG}\n"));
    assert!(ENABLED.iter().all(|link| system.has(link)), "{:?}", files(&system.path("etc")));

    let unit = system.read("lib/systemd/system/tidegate.service");
    let reload: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("ExecReload=")).collect();
    let file = "-c /etc/tidegate/tidegate.toml";
    let commands = [
        format!("/usr/bin/tidegate check {file}"),
        format!("/usr/bin/tidegate reload {file} --pid $MAINPID"),
    ];
    assert_eq!(reload, commands);
    let installed = |args: &[&str]| completed(command(system.path("usr/bin/tidegate")).args(args));
    assert!(installed(&["version"]).starts_with(&format!("tidegate {}\n", env!("CARGO_PKG_VERSION"))));
    installed(&["check", "-c", system.path(CONFIG).to_str().unwrap()]);
    for path in [
        "usr/share/man/man1/tidegate-run.1.gz",
        "usr/share/man/man5/tidegate.toml.5.gz",
        "usr/share/bash-completion/completions/tidegate",
        "usr/share/zsh/vendor-completions/_tidegate",
        "usr/share/fish/vendor_completions.d/tidegate.fish",
        "usr/share/doc/tidegate/copyright",
        "usr/share/doc/tidegate/examples/production.toml",
    ] {
        assert!(system.has(path), "{path}");
    }
}
