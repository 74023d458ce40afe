//! Steady load: some connections for each route, each with one request after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{Client, Message};

/// Connections for each route.
const CONNECTIONS: usize = 3;
/// Between two requests of a connection.
const PAUSE: Duration = Duration::from_millis(5);

/// What came of a request.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: &'static str,
    pub status: u16,
    /// Whether it is known to have been counted in Redis.
    pub is_counted: bool,
    pub at: Instant,
    pub took: Duration,
}

/// Clients at work.
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Asked>>>,
}

impl Load {
    /// Starts clients of each route of a proxy.
    pub fn on(proxy: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let paths = ["/local", "/allow", "/deny", "/all"];
        let start = |path| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || ask_on(proxy, path, &is_over))
        };
        let clients = paths.into_iter().flat_map(|path| [path; CONNECTIONS]).map(start).collect();
        Self { is_over, clients }
    }

    /// What came of all requests: those with limits, and the canaries, which have none.
    #[track_caller]
    pub fn end(&mut self) -> (Vec<Asked>, Vec<Asked>) {
        self.is_over.store(true, Ordering::Relaxed);
        let asked = self.clients.drain(..).flat_map(|client| client.join().unwrap());
        asked.partition(|one| one.path != "/free")
    }
}

/// Asks again and again. Every second request is a canary, on the same connection and so of the same worker.
fn ask_on(proxy: SocketAddr, path: &'static str, is_over: &AtomicBool) -> Vec<Asked> {
    let mut client = Client::connect(proxy);
    let mut asked = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        for path in [path, "/free"] {
            let start = Instant::now();
            let answer = client.get(path, &[]);
            asked.push(Asked { at: start, took: start.elapsed(), ..Asked::of(path, &answer) });
            // The load is steady: it does not depend on how fast the answers come.
            std::thread::sleep(PAUSE);
        }
    }
    asked
}

impl Asked {
    fn of(path: &'static str, answer: &Message) -> Self {
        // `/local` says what is left in either case.
        let is_counted = answer.header("x-ratelimit-remaining").is_some() && path != "/local";
        Self { path, status: answer.status(), is_counted, at: Instant::now(), took: Duration::ZERO }
    }
}
