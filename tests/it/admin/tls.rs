//! TLS on the admin interface.

use std::net::SocketAddr;
use std::path::Path;

use rustls::ALL_VERSIONS;

use super::interface::LIMITED;
use crate::support::{Authority, Client, TIDEGATE, Tidegate, TlsClient, command, eventually, free_address};

fn config(listen: &str, rest: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"{listen}\"\n{rest}\n{LIMITED}")
}

/// `tls` with this certificate, for clients with certificates of the same authority.
fn mutual(authority: &Authority, file: &str) -> String {
    let ca = authority.file("ca.pem");
    format!("tls = {{ certificates = [{{ {} }}], client_ca = \"{}\" }}", authority.pair(file), ca.display())
}

/// The status of a request, or none without a response.
fn ask(authority: &Authority, client: Option<&str>, admin: SocketAddr, path: &str) -> Option<u16> {
    let config = authority.client(client, ALL_VERSIONS);
    let mut client = TlsClient::connect(&config, "gate.internal", admin).ok()?;
    client.get(path).ok().map(|response| response.status())
}

/// Runs `tidegate keys`: its status, its output and its errors.
fn keys(arguments: &[&str]) -> (i32, String, String) {
    let output = command(TIDEGATE).arg("keys").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_interface_speaks_tls_and_nothing_else() {
    let authority = Authority::new();
    authority.sign("gate.internal");
    let proxy = Tidegate::start(&config("127.0.0.1:0", &authority.listener("gate.internal")));
    proxy.wait_log("the admin interface is at https://127.0.0.1:");
    let admin = proxy.admin();
    for path in ["/ready", "/live", "/metrics", "/v1/limits"] {
        assert_eq!(ask(&authority, None, admin, path), Some(200), "{path}");
    }
    let mut plain = Client::connect(admin);
    plain.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(plain.read_response("GET").is_err());
}

#[test]
fn a_reload_changes_the_certificate() {
    let authority = Authority::new();
    authority.sign("gate.internal");
    let proxy = Tidegate::start(&config("127.0.0.1:0", &authority.listener("gate.internal")));
    let (admin, client) = (proxy.admin(), authority.client(None, ALL_VERSIONS));
    let certificate = || TlsClient::connect(&client, "gate.internal", admin).unwrap().certificate();
    assert_eq!(certificate(), authority.certificate("gate.internal"));
    // The same files with other contents, as after a renewal.
    let old = authority.certificate("gate.internal");
    authority.sign("gate.internal");
    assert_ne!(authority.certificate("gate.internal"), old);
    proxy.signal("HUP");
    eventually("the new certificate is shown", || certificate() == authority.certificate("gate.internal"));
}

#[test]
fn a_client_certificate_replaces_a_token_and_names_the_operator() {
    let authority = Authority::new();
    authority.sign("gate.internal");
    authority.sign_client("alice");
    // Beyond the loopback, where a token or a client certificate is required.
    let proxy = Tidegate::start(&config("0.0.0.0:0", &mutual(&authority, "gate.internal")));
    let admin: SocketAddr = ([127, 0, 0, 1], proxy.admin().port()).into();
    assert_eq!(ask(&authority, None, admin, "/v1/limits"), None);
    assert_eq!(ask(&authority, Some("alice"), admin, "/v1/limits"), Some(200));
    let url = format!("https://localhost:{}", admin.port());
    let (ca, cert, key) =
        (authority.file("ca.pem"), authority.file("alice.pem"), authority.file("alice.key"));
    let files = ["--ca", shown(&ca), "--client-cert", shown(&cert), "--client-key", shown(&key)];
    let block = ["block", "three", "192.0.2.7", "--for", "10m"];
    // The certificate is not for this name.
    let (status, _, errors) = keys(&[&block[..], &["--admin", &url], &files].concat());
    assert_eq!(status, 1);
    assert!(errors.contains("certificate not valid for name"), "{errors}");
    authority.sign_names("both", &["gate.internal", "localhost"]);
    proxy.reload(&config("0.0.0.0:0", &mutual(&authority, "both")));
    let (status, output, errors) = keys(&[&block[..], &["--admin", &url], &files].concat());
    assert_eq!((status, errors.as_str()), (0, ""), "{output}");
    proxy.wait_log("blocked by CN=alice,O=Example\\, Inc. from 127.0.0.1");
    // Without the authority, or without the certificate, there is no connection.
    assert_eq!(keys(&["list", "--admin", &url]).0, 1);
    assert_eq!(keys(&["list", "--admin", &url, "--ca", shown(&ca)]).0, 1);
    assert_eq!(keys(&["list", "--admin", &url, "--client-cert", shown(&cert)]).0, 2);
}

#[test]
fn the_command_line_reaches_the_interface_of_the_configuration() {
    let authority = Authority::new();
    authority.sign("gate.internal");
    let listen = format!("0.0.0.0:{}", free_address().port());
    let rest = format!("token = \"s3cret-admin-t0ken\"\n{}", authority.listener("gate.internal"));
    let proxy = Tidegate::start(&config(&listen, &rest));
    let (file, ca) = (proxy.directory().join("tidegate.toml"), authority.file("ca.pem"));
    let (status, output, errors) =
        keys(&["peek", "three", "127.0.0.1", "-c", shown(&file), "--ca", shown(&ca)]);
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(output.contains("3 of 3"), "{output}");
}
