//! A small API in Python over Flask, as people have one behind the proxy.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{eventually, free_address};

/// The running API of `tests/sample_api/app.py`.
pub struct SampleApi {
    process: Child,
    address: SocketAddr,
}

impl SampleApi {
    /// Starts it, and waits until it listens.
    pub fn start() -> Self {
        let address = free_address();
        let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sample_api/app.py");
        // Debian's Python, which has Debian's Flask; another one may come first in PATH.
        let mut process = Command::new("/usr/bin/python3")
            .arg(app)
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the sample API listens", || {
            assert!(
                process.try_wait().unwrap().is_none(),
                "it has ended: is Flask installed? see scripts/setup"
            );
            TcpStream::connect(address).is_ok()
        });
        Self { process, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for SampleApi {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
