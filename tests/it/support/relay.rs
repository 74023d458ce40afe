//! A relay to a server that can delay or lose bytes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Forwards bytes in both directions.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    link: Arc<Link>,
}

/// The state of a relay.
#[derive(Debug, Default)]
struct Link {
    /// The delay of every byte, in milliseconds.
    delay: AtomicU64,
    is_dead: AtomicBool,
    /// How many connections it has had.
    connections: AtomicUsize,
}

/// Bytes, and when they are due.
type Arriving = (Instant, Vec<u8>);

impl Relay {
    /// A relay to this server.
    #[track_caller]
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let link = Arc::new(Link::default());
        let shared = Arc::clone(&link);
        // The thread ends with the tests.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Without the server, the connection is closed.
                let Ok(server) = TcpStream::connect(server) else { continue };
                shared.connections.fetch_add(1, Ordering::Relaxed);
                carry(&client, &server, &shared);
                carry(&server, &client, &shared);
            }
        });
        Self { address, link }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has had.
    pub fn connections(&self) -> usize {
        self.link.connections.load(Ordering::Relaxed)
    }

    /// Delays further bytes, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.link.delay.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Whether it loses bytes. A connection that has lost bytes forwards no more, and is not closed.
    pub fn lose(&self, is_dead: bool) {
        self.link.is_dead.store(is_dead, Ordering::Relaxed);
    }
}

/// Forwards bytes in one direction.
fn carry(from: &TcpStream, to: &TcpStream, link: &Arc<Link>) {
    let (from, to, link) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(link));
    to.set_nodelay(true).unwrap();
    let (sender, arriving) = channel();
    std::thread::spawn(move || take(from, &link, &sender));
    std::thread::spawn(move || deliver(to, &arriving));
}

fn take(mut from: TcpStream, link: &Link, sender: &Sender<Arriving>) {
    let mut bytes = [0; 16 * 1024];
    let mut is_dead = false;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        is_dead |= link.is_dead.load(Ordering::Relaxed);
        let delay = Duration::from_millis(link.delay.load(Ordering::Relaxed));
        if !is_dead && sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(mut to: TcpStream, arriving: &Receiver<Arriving>) {
    for (due, bytes) in arriving {
        // Real time is the purpose: bytes are delayed.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
    // The other side may have closed the connection, too.
    let _ = to.shutdown(Shutdown::Write);
}
