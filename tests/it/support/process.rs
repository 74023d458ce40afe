//! Processes, which end with their test.

use std::io::{Read, Write as _};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::eventually;

/// The binary of this project.
pub const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// The tests that are left to `make test-all`, and why.
const NEEDS: &str = include_str!("../needs.txt");

/// What `make test` installs, and what each Debian has.
const QUICK_PROGRAMS: [&str; 15] = [
    "bash",
    "curl",
    "id",
    "openssl",
    "prlimit",
    "python3",
    "redis-cli",
    "redis-server",
    "script",
    "setpriv",
    "sh",
    "sha256sum",
    "sleep",
    "tidegate",
    "timeout",
];

/// A started process. When it is dropped, or has ended by itself, the kernel kills all of its process group: the processes that it
/// has started, too.
#[derive(Debug)]
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

/// A command without standard input, in a process group of its own. The kernel kills the process when the thread that started it
/// ends, and so when the tests are killed.
#[track_caller]
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(find(program.as_ref()));
    command.process_group(0).stdin(Stdio::null());
    command
}

/// Runs a command to its end with this standard input, of which it may read a part only.
#[track_caller]
pub fn output_with_input(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command);
    let mut stdin = process.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        process.output()
    })
}

/// Sends a signal, named without SIG, to a process of ours.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        _ => panic!("unknown signal {name}"),
    };
    kill_process(id(pid), signal).unwrap_or_else(|error| panic!("can't send {name} to {pid}: {error}"));
}

impl Process {
    /// Starts a command.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, status: None }
    }

    /// Starts a command whose output is not read.
    #[track_caller]
    pub fn start_silent(command: &mut Command) -> Self {
        Self::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Its status if it has ended.
    #[track_caller]
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Not reaped here: until then no other group gets this number.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(id(self.child.id())), options).unwrap()?;
            self.kill();
        }
        self.status
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the process ends", || self.try_wait().is_some());
        self.status.unwrap()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            // The number is that of the group until the process is reaped.
            let _ = kill_process_group(id(self.child.id()), Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }

    /// Reads its output to the end.
    #[track_caller]
    pub fn output(mut self) -> Output {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        // Both at once, so that the process never waits for one of them to be read.
        let (stdout, stderr) = std::thread::scope(|scope| {
            let stderr = scope.spawn(|| read(stderr));
            (read(stdout), stderr.join().unwrap())
        });
        Output { status: self.wait(), stdout, stderr }
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn id(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

fn read(output: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut output) = output {
        output.read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// The directory of the tools that `scripts/setup` does not install in directories of the system.
pub const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools");

/// The path of a program, which may be among the tools, or in the directory for administrators, which the PATH of other users lacks.
#[track_caller]
fn find(program: &Path) -> PathBuf {
    assert_listed(program);
    if program.components().count() > 1 {
        return program.to_owned();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(TOOLS).join("bin");
    let mut directories = [tools].into_iter().chain(std::env::split_paths(&path)).chain(["/usr/sbin".into()]);
    let found = directories.find_map(|directory| Some(directory.join(program)).filter(|file| file.is_file()));
    found.unwrap_or_else(|| panic!("{} is not installed; see scripts/setup", program.display()))
}

/// Fails if a test starts a program that `make test` does not install, and is not in the list of such tests. The name of the
/// thread is that of the test.
#[track_caller]
fn assert_listed(program: &Path) {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if program.components().count() > 2 && !program.starts_with("/usr") || QUICK_PROGRAMS.contains(&name) {
        return;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let is_listed =
        NEEDS.lines().filter_map(|line| line.split_once(' ')).any(|(prefix, _)| test.starts_with(prefix));
    assert!(
        is_listed || !test.contains("::"),
        "{test} starts {name}, which `make test` does not install: add the test to tests/it/needs.txt"
    );
}
