//! An ACME server: the real Pebble, with a name server that has the same address for every name.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

use tempfile::TempDir;

use super::{Authority, Process, command, curl, eventually};

/// A running Pebble, or one that is yet to be started.
pub struct Pebble {
    server: Option<Process>,
    _names: Process,
    address: SocketAddr,
    management: SocketAddr,
    name_server: SocketAddr,
    /// Where it validates names.
    http: SocketAddr,
    tls: SocketAddr,
    environment: Vec<(String, String)>,
    /// Has signed the certificate of the server itself.
    authority: Authority,
    directory: TempDir,
}

impl Pebble {
    /// Starts one that rejects no nonce.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with("", &[("PEBBLE_WFE_NONCEREJECT", "0")])
    }

    /// Starts one with further members of its configuration, and variables of the environment.
    #[track_caller]
    pub fn start_with(settings: &str, environment: &[(&str, &str)]) -> Self {
        let mut pebble = Self::absent_with(settings, environment);
        pebble.restart();
        pebble
    }

    /// One that is not started yet.
    #[track_caller]
    pub fn absent() -> Self {
        Self::absent_with("", &[("PEBBLE_WFE_NONCEREJECT", "0")])
    }

    #[track_caller]
    fn absent_with(settings: &str, environment: &[(&str, &str)]) -> Self {
        let (directory, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let ip = own_ip();
        authority.sign_names("pebble", &[&ip.to_string()]);
        let [address, management, http, tls, name_server, names] =
            [14000, 15000, 5002, 5001, 8053, 8055].map(|port| SocketAddr::new(ip, port));
        let names = start_name_server(name_server, names);
        let configuration = format!(
            "{{\"pebble\": {{\"listenAddress\": \"{address}\", \"managementListenAddress\": \"{management}\",
              \"certificate\": \"{}\", \"privateKey\": \"{}\", \"httpPort\": {}, \"tlsPort\": {},
              \"ocspResponderURL\": \"\"{settings}}}}}",
            authority.file("pebble.pem").display(),
            authority.file("pebble.key").display(),
            http.port(),
            tls.port(),
        );
        fs::write(directory.path().join("pebble.json"), configuration).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            server: None,
            _names: names,
            address,
            management,
            name_server,
            http,
            tls,
            environment: environment.collect(),
            authority,
            directory,
        }
    }

    /// Starts it anew: it forgets accounts and orders, and has another root certificate.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        let log = File::create(self.directory.path().join("log")).unwrap();
        let mut command = command("pebble");
        command
            .arg("-config")
            .arg(self.directory.path().join("pebble.json"))
            .args(["-dnsserver", &self.name_server.to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .envs(self.environment.clone())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.server = Some(Process::start(&mut command));
        wait_listening(self.address);
        wait_listening(self.management);
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        self.server = None;
    }

    /// Its own address, that of all names.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Addresses for another proxy, where nothing listens: for HTTP and for TLS.
    pub fn further_addresses(&self) -> [SocketAddr; 2] {
        [5012, 5011].map(|port| SocketAddr::new(self.ip(), port))
    }

    /// The address at which it sends requests to validate names (HTTP-01).
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The address at which it does handshakes to validate names (TLS-ALPN-01).
    pub fn tls(&self) -> SocketAddr {
        self.tls
    }

    /// `[acme]` for it, with these further lines.
    pub fn acme(&self, storage: &std::path::Path, more: &str) -> String {
        format!(
            "[acme]\nterms_of_service_agreed = true\ndirectory = \"{}\"\nca = \"{}\"\nstorage = \"{}\"\n{more}\n",
            self.directory(),
            self.authority().display(),
            storage.display(),
        )
    }

    /// The URL of its directory.
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.address)
    }

    /// The certificate of the authority that has signed that of the server itself.
    pub fn authority(&self) -> PathBuf {
        self.authority.file("ca.pem")
    }

    /// An address for a proxy that serves its directory, and `tls` of that listener, with a certificate of the same authority.
    #[track_caller]
    pub fn front(&self) -> (SocketAddr, String) {
        self.authority.sign_names("front", &[&self.ip().to_string()]);
        (SocketAddr::new(self.ip(), 14001), self.authority.listener("front"))
    }

    /// The directory of its certificates in a storage.
    pub fn certificates(&self, storage: &std::path::Path) -> PathBuf {
        storage.join(format!("{}-{}-dir", self.address.ip(), self.address.port())).join("certificates")
    }

    /// Writes its root certificate to a file.
    #[track_caller]
    pub fn root(&self) -> String {
        let ca = self.authority();
        let url = format!("https://{}/roots/0", self.management);
        let (status, _, root) = curl(&["--cacert", ca.to_str().unwrap(), &url]);
        assert_eq!(status, 200);
        let file = self.directory.path().join("root.pem");
        fs::write(&file, root).unwrap();
        file.display().to_string()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of Pebble: {}", self.log());
        }
    }
}

/// A loopback address that no other test uses, so that all of its ports are free.
fn own_ip() -> IpAddr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + LAST.fetch_add(1, Ordering::Relaxed) % 100, high, low.max(1)).into()
}

/// Starts a name server that has its own IP address for every name.
#[track_caller]
fn start_name_server(address: SocketAddr, management: SocketAddr) -> Process {
    let mut command = command("pebble-challtestsrv");
    command
        .args(["-defaultIPv4", &address.ip().to_string(), "-defaultIPv6", ""])
        .args(["-http01", "", "-https01", "", "-tlsalpn01", ""])
        .args(["-dns01", &address.to_string(), "-management", &management.to_string()]);
    let server = Process::start_silent(&mut command);
    wait_listening(address);
    server
}

#[track_caller]
fn wait_listening(address: SocketAddr) {
    eventually("the server listens", || TcpStream::connect(address).is_ok());
}
