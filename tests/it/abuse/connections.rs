//! Many connections that one thread uses.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::scaled;

/// Nonblocking connections.
pub struct Connections(Vec<Connection>);

struct Connection {
    stream: TcpStream,
    is_open: bool,
    received: Vec<u8>,
}

impl Connections {
    /// Opens `count` connections.
    #[track_caller]
    pub fn new(count: usize, connect: impl Fn() -> TcpStream) -> Self {
        let connection = |_| {
            let stream = connect();
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            Connection { stream, is_open: true, received: Vec::new() }
        };
        Self((0..count).map(connection).collect())
    }

    /// Sends these bytes over each, or as many of them as the socket takes at once.
    pub fn send(&mut self, bytes: &[u8]) {
        for connection in self.0.iter_mut().filter(|connection| connection.is_open) {
            match connection.stream.write(bytes) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => connection.is_open = false,
                _ => {}
            }
        }
    }

    /// Reads the available bytes of each; how many connections the proxy has not closed.
    pub fn open(&mut self) -> usize {
        let mut bytes = [0; 4096];
        for connection in self.0.iter_mut().filter(|connection| connection.is_open) {
            loop {
                match connection.stream.read(&mut bytes) {
                    Ok(count @ 1..) => connection.received.extend(&bytes[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Ok(_) | Err(_) => {
                        connection.is_open = false;
                        break;
                    }
                }
            }
        }
        self.0.iter().filter(|connection| connection.is_open).count()
    }

    /// The bytes that each has received.
    pub fn received(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|connection| &*connection.received)
    }

    /// The connections themselves.
    pub fn streams(&self) -> impl Iterator<Item = &TcpStream> {
        self.0.iter().map(|connection| &connection.stream)
    }

    /// Sends these bytes one by one over each, again and again, until the proxy has closed all, within this time.
    #[track_caller]
    pub fn drip(&mut self, bytes: &[u8], within: Duration) {
        let start = Instant::now();
        for byte in bytes.iter().cycle() {
            self.send(&[*byte]);
            if self.open() == 0 {
                return;
            }
            assert!(start.elapsed() < scaled(within), "{} are open after {within:?}", self.open());
            // The slow sending is what is tested.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the proxy has closed all.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) {
        let start = Instant::now();
        while self.open() > 0 {
            assert!(start.elapsed() < scaled(within), "{} are open after {within:?}", self.open());
            // A pause between two attempts, as in `eventually`.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
