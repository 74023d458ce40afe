//! Proxies that obtain certificates from a Pebble.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{Authority, Message, Pebble, Tidegate, command, curl};

/// A proxy's file: a plain listener and one with TLS where Pebble validates names, `tls` of the latter, and a route for each
/// host.
pub fn config(pebble: &Pebble, tls: &str, hosts: &[&str], acme: &str) -> String {
    let route = |host: &&str| {
        format!(
            "[[routes]]\nhost = \"{host}\"\npath = \"/*\"\nrespond = {{ status = 200, body = \"{host}\\n\" }}\n"
        )
    };
    let routes: Vec<String> = hosts.iter().map(route).collect();
    format!(
        "[[listeners]]\naddress = \"{}\"\n[[listeners]]\naddress = \"{}\"\ntls = {{ {tls} }}\n{acme}{}",
        pebble.http(),
        pebble.tls(),
        routes.concat(),
    )
}

/// A Pebble whose certificates are valid for so many seconds.
#[track_caller]
pub fn short_lived(seconds: u64) -> Pebble {
    let settings = format!(", \"certificateValidityPeriod\": {seconds}");
    Pebble::start_with(&settings, &[("PEBBLE_WFE_NONCEREJECT", "0")])
}

/// A directory that only this user can read.
pub fn storage() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// Starts a proxy for these hosts, which obtains their certificates.
#[track_caller]
pub fn start(pebble: &Pebble, storage: &Path, hosts: &[&str]) -> Tidegate {
    Tidegate::start(&config(pebble, "acme = true", hosts, &pebble.acme(storage, "")))
}

/// A proxy that has a certificate for `a.test` in its storage, and has failed to obtain one for `b.test`, since nothing listens
/// where the ACME server should be.
#[track_caller]
pub fn without_server() -> (Tidegate, TempDir) {
    let (storage, authority) = (storage(), Authority::new());
    authority.sign("a.test");
    let certificates = storage.path().join("127.0.0.1-1-dir/certificates");
    fs::create_dir_all(&certificates).unwrap();
    let read = |file: &str| fs::read_to_string(authority.file(file)).unwrap();
    fs::write(certificates.join("a.test.pem"), read("a.test.key") + &read("a.test.pem")).unwrap();
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"127.0.0.2:0\"\n\
         tls = {{ acme = [\"a.test\", \"b.test\"] }}\n[admin]\nlisten = \"127.0.0.1:0\"\n[acme]\n\
         terms_of_service_agreed = true\ndirectory = \"https://127.0.0.1:1/dir\"\nstorage = \"{}\"\n\
         [[routes]]\npath = \"/*\"\nrespond = {{ body = \"ok\" }}\n",
        storage.path().display(),
    ));
    proxy.wait_log("no certificate for b.test");
    (proxy, storage)
}

/// Waits until the certificate for a name is obtained.
#[track_caller]
pub fn wait_obtained(proxy: &Tidegate, name: &str) {
    proxy.wait_log(&format!("the certificate for {name} is obtained"));
}

/// Requests `/` of a host by TLS, and verifies its certificate up to this root.
#[track_caller]
pub fn request(address: SocketAddr, name: &str, root: &str) -> Message {
    let (ip, port) = (address.ip(), address.port());
    let (to, url) = (format!("{name}:{port}:{ip}"), format!("https://{name}:{port}/"));
    let (status, response, _) = curl(&["--resolve", &to, "--cacert", root, &url]);
    assert_eq!(status, 200);
    response
}

/// Whether a request by TLS succeeds.
pub fn is_served(address: SocketAddr, name: &str, root: &str) -> bool {
    let (ip, port) = (address.ip(), address.port());
    let (to, url) = (format!("{name}:{port}:{ip}"), format!("https://{name}:{port}/"));
    let curl = command("curl").args(["-q", "-sf", "--resolve", &to, "--cacert", root, &url]).output();
    curl.unwrap().status.success()
}
