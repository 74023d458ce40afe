//! A way to a server that can become slow, or lead nowhere.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Passes on what it is sent, in both directions.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    way: Arc<Way>,
}

/// What happens on the way.
#[derive(Debug, Default)]
struct Way {
    /// How long every byte is on it, in milliseconds.
    delay: AtomicU64,
    is_dead: AtomicBool,
    /// How many connections were made.
    connections: AtomicUsize,
}

/// Bytes, and when they arrive.
type Arriving = (Instant, Vec<u8>);

impl Relay {
    /// One to this server.
    #[track_caller]
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Way::default());
        let shared = Arc::clone(&way);
        // It ends with the tests.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Who meets nobody is closed.
                let Ok(server) = TcpStream::connect(server) else { continue };
                shared.connections.fetch_add(1, Ordering::Relaxed);
                carry(&client, &server, &shared);
                carry(&server, &client, &shared);
            }
        });
        Self { address, way }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made over it.
    pub fn connections(&self) -> usize {
        self.way.connections.load(Ordering::Relaxed)
    }

    /// Delays what it is sent from now on for so long, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.way.delay.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Whether it loses what it is sent. A connection that has lost something never says anything again, and is not
    /// closed either.
    pub fn lose(&self, is_dead: bool) {
        self.way.is_dead.store(is_dead, Ordering::Relaxed);
    }
}

/// Passes on what comes from one side.
fn carry(from: &TcpStream, to: &TcpStream, way: &Arc<Way>) {
    let (from, to, way) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(way));
    to.set_nodelay(true).unwrap();
    let (sender, arriving) = channel();
    std::thread::spawn(move || take(from, &way, &sender));
    std::thread::spawn(move || deliver(to, &arriving));
}

fn take(mut from: TcpStream, way: &Way, sender: &Sender<Arriving>) {
    let mut bytes = [0; 16 * 1024];
    let mut is_dead = false;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        is_dead |= way.is_dead.load(Ordering::Relaxed);
        let delay = Duration::from_millis(way.delay.load(Ordering::Relaxed));
        if !is_dead && sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(mut to: TcpStream, arriving: &Receiver<Arriving>) {
    for (due, bytes) in arriving {
        // That is what it is for.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
    // The other side may be gone as well.
    let _ = to.shutdown(Shutdown::Write);
}
