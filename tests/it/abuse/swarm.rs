//! Many connections in one hand.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Connections that never wait.
pub struct Swarm(Vec<Insect>);

struct Insect {
    stream: TcpStream,
    is_open: bool,
    said: Vec<u8>,
}

impl Swarm {
    /// So many of these.
    #[track_caller]
    pub fn new(count: usize, connect: impl Fn() -> TcpStream) -> Self {
        let insect = |_| {
            let stream = connect();
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            Insect { stream, is_open: true, said: Vec::new() }
        };
        Self((0..count).map(insect).collect())
    }

    /// Each sends this, or as much of it as is taken at once.
    pub fn send(&mut self, bytes: &[u8]) {
        for insect in self.0.iter_mut().filter(|insect| insect.is_open) {
            match insect.stream.write(bytes) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => insect.is_open = false,
                _ => {}
            }
        }
    }

    /// Each reads what is there; how many the other side has not closed.
    pub fn open(&mut self) -> usize {
        let mut bytes = [0; 4096];
        for insect in self.0.iter_mut().filter(|insect| insect.is_open) {
            loop {
                match insect.stream.read(&mut bytes) {
                    Ok(count @ 1..) => insect.said.extend(&bytes[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Ok(_) | Err(_) => {
                        insect.is_open = false;
                        break;
                    }
                }
            }
        }
        self.0.iter().filter(|insect| insect.is_open).count()
    }

    /// What each has heard that has read.
    pub fn said(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|insect| &*insect.said)
    }

    /// The connections themselves.
    pub fn streams(&self) -> impl Iterator<Item = &TcpStream> {
        self.0.iter().map(|insect| &insect.stream)
    }

    /// Each sends these bytes one by one, again and again, until the other side has closed all, within this time.
    #[track_caller]
    pub fn drip(&mut self, bytes: &[u8], within: Duration) {
        let deadline = Instant::now() + within;
        for byte in bytes.iter().cycle() {
            self.send(&[*byte]);
            if self.open() == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{} are open after {within:?}", self.open());
            // What makes it slow.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the other side has closed all.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        while self.open() > 0 {
            assert!(Instant::now() < deadline, "{} are open after {within:?}", self.open());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
