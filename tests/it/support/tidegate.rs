//! The proxy: the real binary in its own process.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::log::Log;
use super::{Process, RedisServer, TIDEGATE, command, eventually, get, patience, signal};

/// A running proxy.
#[derive(Debug)]
pub struct Tidegate {
    process: Process,
    address: SocketAddr,
    log: Arc<Log>,
    access: Arc<Log>,
    directory: TempDir,
}

/// How a proxy is started.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    command: Command,
    config: String,
    stdout: Stdio,
    stderr: Stdio,
    /// Its address, if its standard error can't be read.
    address: Option<SocketAddr>,
    is_with_store: bool,
}

impl Builder {
    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Passes it a listening socket, as systemd does.
    pub fn socket(mut self, socket: &TcpListener) -> Self {
        let passes_on = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
        self.command = shell(passes_on);
        self.command.stdin(OwnedFd::from(socket.try_clone().unwrap()));
        self
    }

    /// Runs it within the limits that these commands of the shell set.
    pub fn ulimits(mut self, commands: &str) -> Self {
        self.command = shell(&format!("{commands}; exec \"$@\""));
        self
    }

    /// Sends its standard output elsewhere.
    pub fn stdout(mut self, output: impl Into<Stdio>) -> Self {
        self.stdout = output.into();
        self
    }

    /// Sends its standard error elsewhere. It listens on this address, which its log can't tell.
    pub fn stderr(mut self, errors: impl Into<Stdio>, address: SocketAddr) -> Self {
        self.stderr = errors.into();
        self.config.insert_str(0, &format!("listen = \"{address}\"\n"));
        self.address = Some(address);
        self
    }

    /// Counts in this Redis, with a generous timeout, and is started once its worker is connected there.
    pub fn redis(self, redis: &RedisServer) -> Self {
        self.store(
            redis,
            &format!("timeout = \"{}ms\"", (patience() / 2).min(Duration::from_mins(1)).as_millis()),
        )
    }

    /// The same with these lines in `[store]`.
    pub fn store(self, redis: &RedisServer, store: &str) -> Self {
        self.store_at(&redis.url(), store)
    }

    /// The same with the Redis at this URL. The file gets a limit and a route for requests that find out whether the
    /// store responds.
    pub fn store_at(mut self, url: &str, store: &str) -> Self {
        // Keys of the whole file stand before its first table, and the route `ready` before all others.
        let is_key = |line: &&str| !line.trim_start().starts_with('[');
        let keys = self.config.split_inclusive('\n').take_while(is_key).map(str::len).sum();
        let (keys, tables) = self.config.split_at(keys);
        self.config = format!(
            "{keys}\n\
             [store]\nurl = \"{url}\"\n{store}\n\
             [limits.ready]\nrate = \"1000000/s\"\non_store_failure = \"deny\"\n\
             [[routes]]\nname = \"ready\"\npath = \"/ready\"\nhost = \"ready.test\"\nlimits = [\"ready\"]\n\
             inherit_limits = false\nrespond = {{ status = 200 }}\n\
             {tables}",
        );
        self.is_with_store = true;
        self
    }

    /// Starts it, and waits until it listens and its store responds.
    #[track_caller]
    pub fn start(self) -> Tidegate {
        let (address, is_with_store) = (self.address, self.is_with_store);
        let mut proxy = self.launch();
        proxy.address = if let Some(address) = address {
            eventually("it listens", || TcpStream::connect(address).is_ok());
            address
        } else {
            let mut is_running = true;
            eventually("it listens or ends", || {
                is_running = proxy.is_running();
                proxy.logged("listening on ") > 0 || !is_running
            });
            assert!(is_running, "it has ended");
            let line = proxy.wait_log("listening on ");
            let address = line.split("listening on ").nth(1).and_then(|rest| rest.split(' ').next());
            address.unwrap().parse().unwrap()
        };
        if is_with_store {
            proxy.wait_ready();
        }
        proxy
    }

    /// Starts the process, whose address is not known yet.
    fn launch(mut self) -> Tidegate {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tidegate.toml");
        std::fs::write(&file, completed(&self.config)).unwrap();
        self.command.args(["run", "-c"]).arg(&file).stdout(self.stdout).stderr(self.stderr);
        let mut process = Process::start(&mut self.command);
        let log = process.stderr.take().map_or_else(Arc::default, Log::of);
        let access = process.stdout.take().map_or_else(Arc::default, Log::of);
        Tidegate { process, address: SocketAddr::from(([0; 4], 0)), log, access, directory }
    }
}

impl Tidegate {
    /// A proxy with this file, which gets a listener on a free port unless it has some, one worker, and no access log.
    pub fn builder(config: &str) -> Builder {
        Builder {
            command: command(TIDEGATE),
            config: config.to_owned(),
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
            address: None,
            is_with_store: false,
        }
    }

    /// Starts a proxy with this file, and waits until it listens.
    #[track_caller]
    pub fn start(config: &str) -> Self {
        Self::builder(config).start()
    }

    /// Starts a proxy that forwards every request to this upstream.
    #[track_caller]
    pub fn forwarding_to(upstream: &str) -> Self {
        Self::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{upstream}\"\n"))
    }

    /// Starts one that counts in this Redis, and waits until it is connected there.
    #[track_caller]
    pub fn start_with(redis: &RedisServer, config: &str) -> Self {
        Self::builder(config).redis(redis).start()
    }

    /// Waits until the store responds to a proxy of [`Builder::redis`].
    #[track_caller]
    pub fn wait_ready(&self) {
        eventually("the store responds", || {
            get(self.address, "/ready", &["Host: ready.test"]).status() == 200
        });
    }

    /// Waits until its only worker has read everything that was sent to it before: by then it has answered a later
    /// request, which is invalid, so that it reaches no route.
    #[track_caller]
    pub fn wait_read(&self) {
        assert_eq!(get(self.address, "/%00", &[]).status(), 400);
    }

    /// Runs a proxy that fails to start, and returns its exit status and standard error.
    #[track_caller]
    pub fn fails(config: &str) -> (ExitStatus, Vec<String>) {
        let mut proxy = Self::builder(config).launch();
        let status = proxy.wait();
        // The thread that reads the lines may reach the end of the pipe after the process has ended.
        eventually("its standard error is read", || Arc::strong_count(&proxy.log) == 1);
        (status, proxy.lines())
    }

    /// The directory of its file.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes its file anew; it is completed as at the start.
    pub fn write(&self, config: &str) {
        std::fs::write(self.directory().join("tidegate.toml"), completed(config)).unwrap();
    }

    /// Writes its file anew and has it read, and waits until that is served.
    #[track_caller]
    pub fn reload(&self, config: &str) {
        self.write(config);
        let before = self.logged("was reloaded");
        self.signal("HUP");
        eventually("the file is read", || self.logged("was reloaded") > before);
    }

    /// How many lines with `text` it has logged so far.
    pub fn logged(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The addresses of its listeners, after waiting for `count` of them.
    #[track_caller]
    pub fn addresses(&self, count: usize) -> Vec<SocketAddr> {
        eventually("all listen", || self.logged("listening on ") >= count);
        let lines = self.lines();
        let said = lines.iter().filter_map(|line| line.split("listening on ").nth(1)?.split(' ').next());
        said.map(|address| address.parse().unwrap()).collect()
    }

    /// Where its admin interface listens.
    #[track_caller]
    pub fn admin(&self) -> SocketAddr {
        let line = self.wait_log("the admin interface is at http");
        line.split(&['/', ','][..]).nth(2).unwrap().parse().unwrap()
    }

    /// The value of a series in the metrics: the name of a metric with its labels, as the admin interface shows it.
    #[track_caller]
    pub fn metric(&self, series: &str) -> u64 {
        let metrics = get(self.admin(), "/metrics", &[]);
        let value = metrics.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in {}", metrics.text())).parse().unwrap()
    }

    /// How many decisions of a limit had this outcome, whatever has made them.
    #[track_caller]
    pub fn decisions(&self, limit: &str, outcome: &str) -> u64 {
        let start = format!("tidegate_decisions_total{{limit=\"{limit}\",outcome=\"{outcome}\",source=\"");
        let metrics = get(self.admin(), "/metrics", &[]);
        let found = metrics.text().lines().filter(|line| line.starts_with(&start));
        found.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends it a signal, named without SIG.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// Lets it have no more than so many files and sockets open.
    #[track_caller]
    pub fn limit_files(&self, count: usize) {
        let pid = self.process.id().to_string();
        let status = command("prlimit").args(["--pid", &pid, &format!("--nofile={count}:")]).status();
        assert!(status.unwrap().success(), "can't limit the files of {pid}");
    }

    /// Waits for a log line with `text`.
    #[track_caller]
    pub fn wait_log(&self, text: &str) -> String {
        let lines = self.log.lines.lock().unwrap();
        let is_missing = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(text));
        let (lines, _) = self.log.more.wait_timeout_while(lines, patience(), is_missing).unwrap();
        let line = lines.iter().find(|line| line.contains(text)).cloned();
        // Not while it is locked: the log is shown when a test fails.
        drop(lines);
        line.unwrap_or_else(|| panic!("the log does not say {text:?}"))
    }

    /// The lines of its access log, after waiting for `count` of them.
    #[track_caller]
    pub fn accesses(&self, count: usize) -> Vec<String> {
        eventually("the access log has its lines", || self.access.lines.lock().unwrap().len() >= count);
        self.access.lines.lock().unwrap().clone()
    }

    /// The lines that it has logged so far.
    pub fn lines(&self) -> Vec<String> {
        // Also after a panic, since a failed test prints the log.
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it exits.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().is_none()
    }

    /// Sends SIGTERM, and waits until it exits.
    #[track_caller]
    pub fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// The memory that it has in use, in KiB.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that it has had in use, in KiB.
    #[track_caller]
    pub fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// The processor time that it has taken.
    #[track_caller]
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // Behind the name, in the kernel's hundredths of a second: user's and system's (proc(5)).
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// How often its threads have gone to sleep, and so were woken.
    #[track_caller]
    pub fn sleeps(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        // A thread may end meanwhile.
        let statuses =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
        let count = |status: String| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse().unwrap()
        };
        statuses.map(count).sum()
    }

    #[track_caller]
    pub fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // So that the log is complete.
        self.process.kill();
        if std::thread::panicking() {
            eprintln!("the proxy's log: {:#?}", self.lines());
        }
    }
}

/// A file with everything that a test leaves out.
fn completed(config: &str) -> String {
    let mut text = String::new();
    // Keys of the whole file are before its first table.
    let is_table = |line: &str| line.trim_start().starts_with('[');
    let has_address = config.lines().take_while(|line| !is_table(line)).any(|line| line.contains("listen"));
    if !has_address && !config.contains("[[listeners]]") {
        text.push_str("listen = \"127.0.0.1:0\"\n");
    }
    if !config.contains("workers =") {
        text.push_str("workers = 1\n");
    }
    text.push_str(config);
    if !config.contains("[log]") {
        text.push_str("\n[log]\naccess = \"off\"\n");
    }
    text
}

/// A shell that runs this script, whose arguments are the program.
fn shell(script: &str) -> Command {
    let mut shell = command("sh");
    shell.args(["-c", script, "sh", TIDEGATE]);
    shell
}

/// Runs a test with a proxy that counts in memory, and with one that counts in a Redis of its own.
pub fn over_both_stores(config: &str, test: impl Fn(&Tidegate)) {
    test(&Tidegate::start(config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, config));
}

/// The result of `work`, and how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
