//! A relay to a server that can delay or lose bytes, and close connections.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Forwards bytes in both directions.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    link: Arc<Link>,
}

/// The bytes of one direction.
#[derive(Clone, Copy, Debug)]
pub enum Flow {
    /// From clients to the server.
    Requests,
    /// From the server to clients.
    Replies,
}

/// The state of a relay.
#[derive(Debug)]
struct Link {
    server: Mutex<SocketAddr>,
    /// The client's side of each connection.
    clients: Mutex<Vec<TcpStream>>,
    /// The delay of every byte, in milliseconds.
    delay: AtomicU64,
    is_dead: AtomicBool,
    /// How many bytes of each flow still pass before a connection is closed; all if it is [`ALL`].
    passing: [AtomicUsize; 2],
    /// How many connections it has had.
    connections: AtomicUsize,
}

const ALL: usize = usize::MAX;

/// Bytes, and when they are due.
type Arriving = (Instant, Vec<u8>);

impl Relay {
    /// A relay to this server.
    #[track_caller]
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let link = Arc::new(Link {
            server: Mutex::new(server),
            clients: Mutex::default(),
            delay: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            passing: [AtomicUsize::new(ALL), AtomicUsize::new(ALL)],
            connections: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&link);
        // The thread ends with the tests.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The lock is held, so that a connection to an earlier server is not missed when it is replaced.
                let mut clients = shared.clients.lock().unwrap();
                // Without the server, the connection is closed.
                let Ok(server) = TcpStream::connect(*shared.server.lock().unwrap()) else { continue };
                shared.connections.fetch_add(1, Ordering::Relaxed);
                carry(Flow::Requests, &client, &server, &shared);
                carry(Flow::Replies, &server, &client, &shared);
                clients.push(client);
            }
        });
        Self { address, link }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, if the server is a Redis.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
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

    /// Closes a connection after so many more bytes of one direction: those that follow are lost.
    pub fn cut_after(&self, flow: Flow, bytes: usize) {
        self.link.passing[flow as usize].store(bytes, Ordering::SeqCst);
    }

    /// Whether the connection is still to be closed.
    pub fn will_cut(&self) -> bool {
        self.link.passing.iter().any(|passing| passing.load(Ordering::SeqCst) != ALL)
    }

    /// Closes all connections, and forwards further ones to another server.
    pub fn replace_server(&self, server: SocketAddr) {
        let mut clients = self.link.clients.lock().unwrap();
        *self.link.server.lock().unwrap() = server;
        // Some of them are closed already.
        clients.drain(..).for_each(|client| drop(client.shutdown(Shutdown::Both)));
    }
}

impl Link {
    /// How many of `count` bytes pass before the connection is closed; `None` if all do.
    fn pass(&self, flow: Flow, count: usize) -> Option<usize> {
        let passing = &self.passing[flow as usize];
        let rest = |left| if left == ALL || left < count { ALL } else { left - count };
        let left = passing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(rest(left))).unwrap();
        (left != ALL && left < count).then_some(left)
    }
}

/// Forwards bytes in one direction.
fn carry(flow: Flow, from: &TcpStream, to: &TcpStream, link: &Arc<Link>) {
    let (from, to, link) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(link));
    to.set_nodelay(true).unwrap();
    let (sender, arriving) = channel();
    std::thread::spawn(move || take(flow, from, &link, &sender));
    std::thread::spawn(move || deliver(to, &arriving));
}

fn take(flow: Flow, mut from: TcpStream, link: &Link, sender: &Sender<Arriving>) {
    let mut bytes = [0; 16 * 1024];
    let mut is_dead = false;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        is_dead |= link.is_dead.load(Ordering::Relaxed);
        let delay = Duration::from_millis(link.delay.load(Ordering::Relaxed));
        let passes = link.pass(flow, count);
        let due = Instant::now() + delay;
        if !is_dead && sender.send((due, bytes[..passes.unwrap_or(count)].to_vec())).is_err() {
            return;
        }
        if passes.is_some() {
            // The other direction ends as soon as it is noticed there.
            let _ = from.shutdown(Shutdown::Both);
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
