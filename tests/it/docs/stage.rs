//! Where a page is played: the proxy with the files of the page, servers behind it, and a Redis if it needs one.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::console::Step;
use super::server;
use crate::support::{
    GrpcServer, Process, RedisServer, TIDEGATE, Upstream, command, eventually, free_address, get, mmdb,
    patience, scaled,
};

/// The processes and files of one page.
pub(super) struct Stage {
    directory: TempDir,
    /// The addresses in the documentation, and those that stand for them here.
    addresses: Vec<(&'static str, SocketAddr)>,
    proxy: Option<Process>,
    is_stale: bool,
    _api: Upstream,
    grpc: (GrpcServer, Runtime),
    _redis: Option<RedisServer>,
}

impl Stage {
    /// A stage for a page whose blocks have this text; the proxy starts with the first command.
    pub fn new(text: &str) -> Self {
        let api = server::start();
        let runtime = Runtime::new().unwrap();
        let grpc = runtime.block_on(async { GrpcServer::start(None) });
        let redis = text.contains("127.0.0.1:6379").then(RedisServer::start);
        let grpc_address = grpc.url().trim_start_matches("http://").parse().unwrap();
        let mut addresses = vec![("127.0.0.1:9000", api.addr()), ("127.0.0.1:50051", grpc_address)];
        addresses.extend(
            ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:9900"].map(|name| (name, free_address())),
        );
        addresses.extend(redis.iter().map(|redis| ("127.0.0.1:6379", redis.addr())));
        let directory = tempfile::tempdir().unwrap();
        let database = mmdb::systems(&[("192.0.2.0", 24, 64496)]);
        fs::write(directory.path().join("GeoLite2-ASN.mmdb"), database).unwrap();
        Self {
            directory,
            addresses,
            proxy: None,
            is_stale: true,
            _api: api,
            grpc: (grpc, runtime),
            _redis: redis,
        }
    }

    /// Writes a file of the page. If the proxy reads it, it starts again, with empty counts, before the next command.
    pub fn write(&mut self, name: &str, text: &str) {
        // A busy machine may take longer than the default to reply.
        let text =
            text.replace("[store]\n", "[store]\ntimeout = \"5s\"\n").replace("timeout = \"500ms\"\n", "");
        let text = self.real(&text.replace("0.0.0.0:8080", "127.0.0.1:8080"));
        fs::write(self.directory.path().join(name), text).unwrap();
        self.is_stale |= ["tidegate.toml", "consumers.toml", "prices.toml"].contains(&name);
    }

    /// Whether it has the configuration of a proxy.
    pub fn has_configuration(&self) -> bool {
        self.directory.path().join("tidegate.toml").exists()
    }

    /// Runs a command; an error says how its output differs from the expected one.
    pub fn play(&mut self, step: &Step) -> Result<(), String> {
        if self.is_stale {
            self.start()?;
        }
        let mut last = (true, String::new());
        let mut attempt = || {
            last = self.run(&step.command);
            (last.0 || !step.must_succeed()) && step.accepts(&last.1)
        };
        let is_as_expected = attempt()
            || step.is_repeatable()
                && (0..50).any(|_| {
                    // A log or a counter is written soon after a response.
                    std::thread::sleep(scaled(Duration::from_millis(50)));
                    attempt()
                });
        if is_as_expected {
            return Ok(());
        }
        let log = fs::read_to_string(self.directory.path().join("tidegate.log")).unwrap_or_default();
        Err(format!(
            "$ {}\nexpected:\n{}\n\ngot:\n{}\nlog:\n{log}",
            step.command,
            step.expected.join("\n"),
            last.1
        ))
    }

    /// The exit status and the output of a command, with the addresses of the documentation.
    fn run(&self, line: &str) -> (bool, String) {
        let path =
            format!("{}:{}", Path::new(TIDEGATE).parent().unwrap().display(), std::env::var("PATH").unwrap());
        let output = command("timeout")
            .arg((2 * patience()).as_secs().to_string())
            .args(["bash", "-c", &format!("exec 2>&1\n{}", self.real(line))])
            .current_dir(self.directory.path())
            .env("PATH", path)
            .env("HOME", self.directory.path())
            .env_remove("TIDEGATE_CONFIG")
            .envs([("LC_ALL", "C"), ("NO_COLOR", "1"), ("no_proxy", "*")])
            .output()
            .unwrap();
        let text = self.documented(&String::from_utf8_lossy(&output.stdout));
        if std::env::var_os("SHOW").is_some() {
            eprintln!("$ {line}\n{text}");
        }
        (output.status.success(), text)
    }

    /// Starts the proxy with the present files, in place of the one before.
    fn start(&mut self) -> Result<(), String> {
        self.stop();
        let file = |name: &str| File::create(self.directory.path().join(name)).unwrap();
        let mut command = command(TIDEGATE);
        command.args(["run", "-c", "tidegate.toml"]).current_dir(self.directory.path());
        command.stdout(file("access.log")).stderr(file("tidegate.log"));
        let proxy = self.proxy.insert(Process::start(&mut command));
        let log = self.directory.path().join("tidegate.log");
        let mut has_ended = false;
        eventually("the proxy serves the file", || {
            has_ended = proxy.try_wait().is_some();
            has_ended || fs::read_to_string(&log).unwrap().contains(" serves tidegate.toml")
        });
        if has_ended {
            return Err(fs::read_to_string(&log).unwrap());
        }
        let address = self.address("127.0.0.1:8080");
        eventually("the proxy listens", || TcpStream::connect(address).is_ok());
        let file = fs::read_to_string(self.directory.path().join("tidegate.toml")).unwrap();
        if file.contains("[admin]") {
            let admin = self.address("127.0.0.1:9900");
            eventually("the admin interface listens", || TcpStream::connect(admin).is_ok());
            let metrics = || get(admin, "/metrics", &[]).text().to_owned();
            eventually("Redis responds, if it is used", || !metrics().contains("\ntidegate_store_up 0"));
        }
        self.is_stale = false;
        Ok(())
    }

    fn stop(&mut self) {
        self.proxy = None;
    }

    fn address(&self, name: &str) -> SocketAddr {
        self.addresses.iter().find(|(documented, _)| *documented == name).unwrap().1
    }

    /// A text with the addresses that are used here.
    fn real(&self, text: &str) -> String {
        let replaced = |text: String, (documented, real): &(&str, SocketAddr)| {
            text.replace(documented, &real.to_string())
        };
        self.addresses.iter().fold(text.to_owned(), replaced)
    }

    /// A text with the addresses of the documentation.
    fn documented(&self, text: &str) -> String {
        let replaced = |text: String, (documented, real): &(&str, SocketAddr)| {
            text.replace(&real.to_string(), documented)
        };
        self.addresses.iter().fold(text.to_owned(), replaced)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop();
        // The server ends with its runtime.
        let _ = self.grpc.0.open();
    }
}
