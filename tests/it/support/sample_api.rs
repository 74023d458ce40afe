//! A small API in Python over Flask, as people have one behind the proxy.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use super::{Process, command, eventually, free_address};

/// The running API of `tests/sample_api/app.py`.
pub struct SampleApi {
    _process: Process,
    address: SocketAddr,
}

impl SampleApi {
    /// Starts it, and waits until it listens.
    pub fn start() -> Self {
        let address = free_address();
        let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sample_api/app.py");
        // Debian's Python, which has Debian's Flask; another one may come first in PATH.
        let mut command = command("/usr/bin/python3");
        command.arg(app).arg(address.port().to_string());
        let mut process = Process::start_silent(&mut command);
        eventually("the sample API listens", || {
            assert!(process.try_wait().is_none(), "it has ended: is Flask installed? see scripts/setup");
            TcpStream::connect(address).is_ok()
        });
        Self { _process: process, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
