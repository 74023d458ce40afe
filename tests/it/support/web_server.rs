//! Web servers that are installed on this machine, which end with their test.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Process, Wire, command, eventually, free_address, signal};

/// The time zone of all servers, in the form of POSIX, which needs no files: 5:30 hours ahead of UTC.
pub const ZONE: &str = "IST-5:30";

/// A running server, which listens on the same port of both loopback addresses.
#[derive(Debug)]
pub struct WebServer {
    process: Process,
    port: u16,
    directory: TempDir,
}

impl WebServer {
    /// Starts a program, and waits until it has responded to a request. `configure` writes files for a port to the server's
    /// directory, and returns the arguments.
    #[track_caller]
    pub fn start(program: &str, request: &[u8], configure: impl Fn(&Path, u16) -> Vec<String>) -> Self {
        let mut errors = String::new();
        for _ in 0..10 {
            let (directory, port) = (tempfile::tempdir().unwrap(), free_address().port());
            let arguments = configure(directory.path(), port);
            let mut server = Self { process: spawn(program, &arguments, directory.path()), port, directory };
            // Another process may take the port before the server does; then another port may do.
            if server.wait_ready(request) {
                return server;
            }
            errors = fs::read_to_string(server.path("stderr")).unwrap();
        }
        panic!("{program} does not start: {errors}");
    }

    /// Its address for clients that have this one.
    pub fn addr(&self, client: IpAddr) -> SocketAddr {
        SocketAddr::new(client, self.port)
    }

    /// A file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sends it a signal, named without SIG.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// Stops it. Its directory remains.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal("TERM");
        self.process.wait();
    }

    /// Whether it responds to a request before it ends.
    fn wait_ready(&mut self, request: &[u8]) -> bool {
        let address = self.addr([127, 0, 0, 1].into());
        let (mut has_ended, mut stream) = (false, None);
        eventually("the server listens or ends", || {
            has_ended = self.process.try_wait().is_some();
            stream = TcpStream::connect(address).ok();
            has_ended || stream.is_some()
        });
        let Some(stream) = stream.filter(|_| !has_ended) else { return false };
        let mut wire = Wire::over(stream);
        wire.send(request);
        wire.read_response("GET").is_ok()
    }
}

/// Starts a program in a directory, where its output goes to the files `stdout` and `stderr`.
fn spawn(program: &str, arguments: &[String], directory: &Path) -> Process {
    let mut command = command(program);
    command.args(arguments).current_dir(directory).env("TZ", ZONE).env("HOME", directory);
    command.env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
    command.stdout(File::create(directory.join("stdout")).unwrap());
    command.stderr(File::create(directory.join("stderr")).unwrap());
    Process::start(&mut command)
}
