//! The proxy: the real binary as a process of its own.

use std::io::{BufRead as _, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{PATIENCE, RedisServer, eventually, get, signal};

/// A running proxy.
#[derive(Debug)]
pub struct Tidegate {
    process: Child,
    address: SocketAddr,
    log: Arc<Log>,
    access: Arc<Log>,
    directory: TempDir,
}

/// What it has written, in lines.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Tidegate {
    /// Starts one and waits until it listens. The file gets a listener on a free port, unless it has some, and
    /// no access log.
    #[track_caller]
    pub fn start(config: &str) -> Self {
        Self::start_in(config, &[])
    }

    /// Starts one with these variables in its environment.
    #[track_caller]
    pub fn start_in(config: &str, env: &[(&str, &str)]) -> Self {
        launch(command(), config, env).listening()
    }

    /// Starts one that is given a listening socket, as systemd does it.
    #[track_caller]
    pub fn start_on(socket: &TcpListener, config: &str) -> Self {
        let mut shell = Command::new("sh");
        let passes_on = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
        shell.args(["-c", passes_on, "sh", env!("CARGO_BIN_EXE_tidegate")]);
        shell.stdin(OwnedFd::from(socket.try_clone().unwrap()));
        launch(shell, config, &[]).listening()
    }

    /// Starts one within the limits that these commands of the shell set.
    #[track_caller]
    pub fn start_limited(limits: &str, config: &str) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("{limits}; exec \"$@\"");
        shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tidegate")]);
        launch(shell, config, &[]).listening()
    }

    /// Starts one whose standard output goes elsewhere.
    #[track_caller]
    pub fn start_into(output: impl Into<Stdio>, config: &str) -> Self {
        launch_into([output.into(), Stdio::piped()], command(), config, &[]).listening()
    }

    /// Starts one on an address that its file names, whose standard error goes elsewhere.
    #[track_caller]
    pub fn start_saying_to(errors: impl Into<Stdio>, address: SocketAddr, config: &str) -> Self {
        let config = format!("listen = \"{address}\"\n{config}");
        let started = launch_into([Stdio::piped(), errors.into()], command(), &config, &[]);
        eventually("it listens", || TcpStream::connect(address).is_ok());
        let mut proxy = started;
        proxy.address = address;
        proxy
    }

    /// Waits until it listens.
    #[track_caller]
    fn listening(self) -> Self {
        let mut proxy = self;
        let line = proxy.wait_log("listening on ");
        let address = line.split("listening on ").nth(1).and_then(|rest| rest.split(' ').next());
        proxy.address = address.unwrap().parse().unwrap();
        proxy
    }

    /// Starts one that counts in `redis`, and waits until its worker is connected there. The file gets one
    /// worker, a store that may take its time, and a limit and a route for asking whether it is ready.
    #[track_caller]
    pub fn start_with(redis: &RedisServer, config: &str) -> Self {
        Self::start_with_store(redis, "timeout = \"5s\"", config)
    }

    /// The same with these lines in `[store]`.
    #[track_caller]
    pub fn start_with_store(redis: &RedisServer, store: &str, config: &str) -> Self {
        let url = redis.url();
        // Keys of the whole file stand before its first table, and the route to ask before all others.
        let keys: usize = config
            .split_inclusive('\n')
            .take_while(|line| !line.trim_start().starts_with('['))
            .map(str::len)
            .sum();
        let (keys, tables) = config.split_at(keys);
        let proxy = Self::start(&format!(
            "{keys}\n\
             [store]\nurl = \"{url}\"\n{store}\n\
             [limits.ready]\nrate = \"1000000/s\"\non_store_failure = \"deny\"\n\
             [[routes]]\nname = \"ready\"\npath = \"/ready\"\nhost = \"ready.test\"\nlimits = [\"ready\"]\n\
             inherit_limits = false\nrespond = {{ status = 200 }}\n\
             {tables}",
        ));
        proxy.wait_ready();
        proxy
    }

    /// Waits until the store answers a proxy of [`Tidegate::start_with`].
    #[track_caller]
    pub fn wait_ready(&self) {
        eventually("the store answers", || {
            get(self.address, "/ready", &["Host: ready.test"]).status() == 200
        });
    }

    /// Runs one that is to end by itself: how it ends, and what it says on standard error.
    #[track_caller]
    pub fn fails(config: &str) -> (ExitStatus, Vec<String>) {
        let mut proxy = launch(command(), config, &[]);
        let status = proxy.wait();
        // The last line may come after the end of the process; a pipe at its end wakes the reader at once.
        eventually("it says why", || proxy.lines().iter().any(|line| line.starts_with("error")));
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

    /// How many lines that hold `text` it has said so far.
    pub fn logged(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Where its listeners are, of which it waits for so many.
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
        let line = self.wait_log("the admin interface is at http://");
        line.split("http://").nth(1).unwrap().parse().unwrap()
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
        let status = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={count}:")]).status();
        assert!(status.unwrap().success(), "can't limit the files of {pid}");
    }

    /// Waits for a line that holds `text`.
    #[track_caller]
    pub fn wait_log(&self, text: &str) -> String {
        let lines = self.log.lines.lock().unwrap();
        let is_missing = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(text));
        let (lines, _) = self.log.more.wait_timeout_while(lines, PATIENCE, is_missing).unwrap();
        let line = lines.iter().find(|line| line.contains(text)).cloned();
        // Not while it is locked: the log is shown when a test fails.
        drop(lines);
        line.unwrap_or_else(|| panic!("the log does not say {text:?}"))
    }

    /// The lines of its access log, of which it waits for so many.
    #[track_caller]
    pub fn accesses(&self, count: usize) -> Vec<String> {
        eventually("the access log has its lines", || self.access.lines.lock().unwrap().len() >= count);
        self.access.lines.lock().unwrap().clone()
    }

    /// What it has said so far.
    pub fn lines(&self) -> Vec<String> {
        // Also after a panic: a test that fails shows what was said.
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually("the proxy ends", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Asks it to end, and waits for that.
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

    #[track_caller]
    pub fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the proxy's log: {:#?}", self.lines());
        }
    }
}

/// A file with everything that a test leaves out.
fn completed(config: &str) -> String {
    let mut text = String::new();
    if !config.contains("listen") {
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

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.stdin(Stdio::null());
    command
}

/// Starts one by this command, whose address is not known yet.
fn launch(command: Command, config: &str, env: &[(&str, &str)]) -> Tidegate {
    launch_into([Stdio::piped(), Stdio::piped()], command, config, env)
}

fn launch_into(
    [output, errors]: [Stdio; 2],
    mut command: Command,
    config: &str,
    env: &[(&str, &str)],
) -> Tidegate {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    std::fs::write(&file, completed(config)).unwrap();
    let mut process = command
        .args(["run", "-c"])
        .arg(&file)
        .envs(env.iter().copied())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .unwrap();
    let log = process.stderr.take().map_or_else(Arc::default, Log::of);
    let access = process.stdout.take().map_or_else(Arc::default, Log::of);
    Tidegate { process, address: SocketAddr::from(([0; 4], 0)), log, access, directory }
}

impl Log {
    /// Reads all that comes.
    fn of(output: impl Read + Send + 'static) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                written.lines.lock().unwrap().push(line);
                written.more.notify_all();
            }
        });
        log
    }
}

/// Runs a test with a proxy that counts in memory, and with one that counts in a Redis of its own.
pub fn over_both_stores(config: &str, test: impl Fn(&Tidegate)) {
    test(&Tidegate::start(config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, config));
}

/// How long something takes.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
