//! A Redis server of the test's own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use tempfile::TempDir;

use super::{Process, command, free_address, patience, signal};

/// A Redis that keeps nothing on disk.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    process: Option<Process>,
    directory: TempDir,
    options: Vec<String>,
}

/// What a Redis is asked while the test goes on.
#[derive(Debug)]
pub struct Monitor {
    _process: Process,
    lines: Receiver<String>,
}

impl RedisServer {
    /// Starts one on a free port.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_as(|_| Vec::new())
    }

    /// Starts one on a free port with options of its own, which may name that port.
    #[track_caller]
    pub fn start_as(options: impl Fn(u16) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..10 {
            let address = free_address();
            let options = options(address.port());
            // Another process may take the port before the server does; then another port may do.
            if let Some(process) = launch(address, &directory, &options) {
                return Self { address, process: Some(process), directory, options };
            }
        }
        panic!("redis-server does not start");
    }

    /// Starts a Sentinel on a free port; `configuration` is its file, which it will write to.
    #[track_caller]
    pub fn start_sentinel(configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sentinel.conf");
        std::fs::write(&file, configuration).unwrap();
        let options = vec![file.display().to_string(), "--sentinel".to_owned()];
        for _ in 0..10 {
            let address = free_address();
            if let Some(process) = launch(address, &directory, &options) {
                return Self { address, process: Some(process), directory, options };
            }
        }
        panic!("the Sentinel does not start");
    }

    /// A port where a server can be started later.
    #[track_caller]
    pub fn absent() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { address: free_address(), process: None, directory, options: Vec::new() }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends it at once.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it where it was, or where it is missed; it has forgotten everything.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        self.process =
            Some(launch(self.address, &self.directory, &self.options).expect("the port is still free"));
    }

    /// Stops it without closing anything.
    #[track_caller]
    pub fn pause(&self) {
        signal(self.pid(), "STOP");
    }

    /// Lets it go on.
    #[track_caller]
    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// Runs a command through redis-cli.
    #[track_caller]
    pub fn cli(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "redis-cli: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Every stored key, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.cli(&["--scan"]).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// How often it has run a command, whose name is in lower case.
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        self.count("commandstats", &format!("cmdstat_{command}:calls="))
    }

    /// How many of its replies were this error.
    #[track_caller]
    pub fn errors(&self, error: &str) -> u64 {
        self.count("errorstats", &format!("errorstat_{error}:count="))
    }

    /// A count in a section of INFO, which has no line for a count of zero.
    #[track_caller]
    fn count(&self, section: &str, prefix: &str) -> u64 {
        let info = self.cli(&["info", section]);
        let count = info.lines().find_map(|line| line.trim().strip_prefix(prefix)?.split(',').next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Listens to every command from now on.
    #[track_caller]
    pub fn monitor(&self) -> Monitor {
        let mut process =
            Process::start(self.command().arg("MONITOR").stdout(Stdio::piped()).stderr(Stdio::null()));
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        assert_eq!(lines.recv_timeout(patience()).unwrap(), "OK");
        Monitor { _process: process, lines }
    }

    fn command(&self) -> Command {
        let mut command = command("redis-cli");
        command.args(["-h", &self.address.ip().to_string(), "-p", &self.address.port().to_string()]);
        command
    }

    #[track_caller]
    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }
}

impl Monitor {
    /// What was asked until a command that holds `text`, which is the last line.
    #[track_caller]
    pub fn until(&self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line =
                self.lines.recv_timeout(patience()).unwrap_or_else(|_| panic!("no {text} in {lines:?}"));
            lines.push(line);
            if lines.last().is_some_and(|line| line.contains(text)) {
                return lines;
            }
        }
    }
}

/// Starts a server and waits until it listens; `None` if it ends before.
fn launch(address: SocketAddr, directory: &TempDir, options: &[String]) -> Option<Process> {
    let mut command = command("redis-server");
    // The file of a Sentinel comes first.
    let file = options.iter().take_while(|option| !option.starts_with("--"));
    command.args(file);
    command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string(), "--dir"]);
    command.arg(directory.path());
    if !options.iter().any(|option| option == "--sentinel") {
        command.args(["--save", "", "--appendonly", "no"]);
    }
    command.args(options.iter().skip_while(|option| !option.starts_with("--")));
    let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let output = BufReader::new(process.stdout.take().unwrap());
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        // Read to the end, so that the server never waits for its log to be read.
        output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let deadline = Instant::now() + patience();
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if line.contains("Ready to accept connections") || line.contains("Sentinel ID is") {
            return Some(process);
        }
    }
    None
}
