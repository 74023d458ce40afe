//! `make install` and `make uninstall`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{BINARY, completed, files, repository};
use crate::support::command;

/// Runs make with these arguments, and files that only their owner may read by default.
fn make(target: &str, root: &Path, prefix: &str) {
    let mut command = command("sh");
    command.args(["-c", "umask 077 && exec make --no-print-directory \"$@\"", "make", target]);
    command.arg(format!("BINARY={BINARY}")).arg(format!("DESTDIR={}", root.display()));
    // Those of a make that runs this test are not meant for this one.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        command.env_remove(name);
    }
    completed(command.arg(format!("PREFIX={prefix}")).current_dir(repository()));
}

#[test]
fn make_install_installs_everything_and_uninstall_leaves_the_configuration() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    make("install", root, "/opt/gate");

    let installed = files(root);
    let expected = [
        "opt/gate/bin/tidegate",
        "opt/gate/etc/logrotate.d/tidegate",
        "opt/gate/etc/tidegate/tidegate.toml",
        "opt/gate/lib/systemd/system/tidegate.service",
        "opt/gate/lib/systemd/system/tidegate.socket",
        "opt/gate/lib/sysusers.d/tidegate.conf",
        "opt/gate/lib/tmpfiles.d/tidegate.conf",
        "opt/gate/share/bash-completion/completions/tidegate",
        "opt/gate/share/doc/tidegate/LICENSE",
        "opt/gate/share/doc/tidegate/LICENSE-APACHE",
        "opt/gate/share/doc/tidegate/LICENSE-MIT",
        "opt/gate/share/doc/tidegate/examples/production.toml",
        "opt/gate/share/doc/tidegate/examples/quickstart.toml",
        "opt/gate/share/doc/tidegate/examples/tidegate.schema.json",
        "opt/gate/share/fish/vendor_completions.d/tidegate.fish",
        "opt/gate/share/man/man1/tidegate.1",
        "opt/gate/share/man/man1/tidegate-keys-peek.1",
        "opt/gate/share/man/man1/tidegate-run.1",
        "opt/gate/share/man/man5/tidegate.toml.5",
        "opt/gate/share/zsh/site-functions/_tidegate",
    ];
    let is_page = |path: &&String| path.contains("/man1/tidegate-");
    let others: BTreeSet<&str> = installed.iter().filter(|path| !is_page(path)).map(String::as_str).collect();
    let expected_others: BTreeSet<&str> =
        expected.into_iter().filter(|path| !path.contains("/man1/tidegate-")).collect();
    assert_eq!(others, expected_others);
    for path in expected {
        let mode = fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.contains("/bin/") { 0o755 } else { 0o644 }, "{path}");
    }

    let read = |path: &str| fs::read_to_string(root.join("opt/gate").join(path)).unwrap();
    let service = read("lib/systemd/system/tidegate.service");
    assert!(
        service.contains("\nExecStart=/opt/gate/bin/tidegate run -c /opt/gate/etc/tidegate/tidegate.toml\n")
    );
    assert!(!service.contains("/usr/local/bin") && !service.contains(" /etc/tidegate"), "{service}");
    assert!(
        read("lib/tmpfiles.d/tidegate.conf").contains("\nd /opt/gate/etc/tidegate/tls 0750 root tidegate\n")
    );
    let config = root.join("opt/gate/etc/tidegate/tidegate.toml");
    let schema = "#:schema /opt/gate/share/doc/tidegate/examples/tidegate.schema.json\n";
    assert!(fs::read_to_string(&config).unwrap().starts_with(schema));
    let text = fs::read_to_string(&config).unwrap();
    assert!(
        text.contains("\nlisten = \"0.0.0.0:80\"\n")
            && text.contains("\nlisten = \"unix:/run/tidegate/admin.sock\"\nmode = ")
    );
    completed(command(root.join("opt/gate/bin/tidegate")).arg("check").arg("-c").arg(&config));

    let edited = "listen = \"127.0.0.1:8080\"\n";
    fs::write(&config, edited).unwrap();
    make("install", root, "/opt/gate");
    assert_eq!(fs::read_to_string(&config).unwrap(), edited);

    make("uninstall", root, "/opt/gate");
    assert_eq!(files(root), ["opt/gate/etc/tidegate/tidegate.toml"]);
}
