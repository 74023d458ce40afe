//! `tidegate check` with certificates that can't be used, in files and from servers.

use std::net::TcpStream;

use super::*;
use crate::support::{Process, eventually, free_address};

/// A directory with an authority, and with a certificate of version 1 that it has signed: `api.pem`.
fn version_1() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=authority -days 2",
        "req -newkey rsa:2048 -nodes -keyout api.key -out api.csr -subj /CN=localhost",
        "x509 -req -in api.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out api.pem",
    ] {
        run(directory.path(), &format!("openssl {arguments}"));
    }
    directory
}

fn run(directory: &Path, line: &str) {
    let output = command("sh").args(["-c", line]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn check(directory: &Path, text: &str, arguments: &[&str]) -> Finished {
    std::fs::write(directory.join("tidegate.toml"), text).unwrap();
    tidegate(directory, &[&["check"][..], arguments].concat())
}

const LISTENER: &str = "[[listeners]]\naddress = \"127.0.0.1:8443\"\ntls = { certificates = [{ cert = \"api.pem\", key = \"api.key\" }] }\n\
                        [[routes]]\npath = \"/*\"\nrespond = {}\n";

#[test]
fn a_certificate_of_version_1_is_created_again_as_the_help_says() {
    let directory = version_1();
    let checked = check(directory.path(), LISTENER, &[]);
    assert!(
        checked.stderr.contains("has version 1 of X.509, and only version 3 is accepted"),
        "{}",
        checked.stderr
    );
    assert!(!checked.stderr.contains("Other("), "{}", checked.stderr);
    let (_, help) = checked.stderr.split_once("version 3: ").unwrap();
    let (line, rest) = help.split_once(", where the file v3.ext has the line ").unwrap();
    let extension = rest.lines().next().unwrap();
    std::fs::write(directory.path().join("v3.ext"), format!("{extension}\n")).unwrap();
    run(directory.path(), line);
    assert_eq!(check(directory.path(), LISTENER, &[]).status, 0);
}

#[test]
fn a_damaged_certificate_is_named() {
    let directory = version_1();
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(directory.path().join("api.pem"), damaged).unwrap();
    let upstream = "listen = \"127.0.0.1:8080\"\n[upstreams.api]\nservers = [\"https://127.0.0.1:9000\"]\ntls = { ca = \"api.pem\" }\n\
                    [[routes]]\npath = \"/*\"\nupstream = \"api\"\n";
    for text in [LISTENER, upstream] {
        let checked = check(directory.path(), text, &[]);
        assert!(checked.stderr.contains("the certificate is damaged"), "{}", checked.stderr);
        assert!(checked.stderr.contains("help: copy the file again"), "{}", checked.stderr);
    }
}

#[test]
fn servers_with_unusable_certificates_are_named() {
    let directory = version_1();
    for (files, found) in [
        (["api.pem", "api.key"], "its certificate has version 1 of X.509"),
        (["ca.pem", "ca.key"], "its certificate is that of an authority"),
    ] {
        let address = free_address();
        let arguments =
            ["s_server", "-quiet", "-accept", &address.to_string(), "-cert", files[0], "-key", files[1]];
        let _server = Process::start_silent(command("openssl").args(arguments).current_dir(directory.path()));
        eventually("the server listens", || TcpStream::connect(address).is_ok());
        let place = format!("localhost:{}", address.port());
        let text = format!(
            "listen = \"127.0.0.1:8080\"\n[store]\nurl = \"rediss://{place}\"\ntimeout = \"3s\"\ntls = {{ ca = \"ca.pem\" }}\n\
             [upstreams.api]\nservers = [\"https://{place}\"]\ntls = {{ ca = \"ca.pem\" }}\n\
             [[routes]]\npath = \"/*\"\nupstream = \"api\"\n"
        );
        let checked = check(directory.path(), &text, &["--connect", "--timeout", "3s"]);
        assert_eq!(checked.stdout.matches(found).count(), 2, "{}", checked.stdout);
        assert!(!checked.stdout.contains("Other("), "{}", checked.stdout);
    }
}
