//! Steady load: some connections for each route, each with one request after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{Client, Message, eventually};

/// Connections for each route.
const CONNECTIONS: usize = 3;
/// Between two requests of a connection.
const PAUSE: Duration = Duration::from_millis(5);

/// A request and its outcome.
#[derive(Clone, Debug)]
pub struct Sample {
    pub path: &'static str,
    pub status: u16,
    /// Whether the response shows that Redis has counted it.
    pub is_counted: bool,
    pub at: Instant,
    pub took: Duration,
}

/// Running clients.
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<LoadClient>,
}

struct LoadClient {
    thread: JoinHandle<Vec<Sample>>,
    /// How many rounds it has completed: a request for its path and a canary.
    rounds: Arc<AtomicUsize>,
}

impl Load {
    /// Starts clients of each route of a proxy.
    pub fn start(proxy: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let paths = ["/local", "/allow", "/deny", "/all"];
        let start = |path| {
            let rounds = Arc::new(AtomicUsize::new(0));
            let (is_over, completed) = (Arc::clone(&is_over), Arc::clone(&rounds));
            let thread = std::thread::spawn(move || run_client(proxy, path, &is_over, &completed));
            LoadClient { thread, rounds }
        };
        let clients = paths.into_iter().flat_map(|path| [path; CONNECTIONS]).map(start).collect();
        Self { is_over, clients }
    }

    /// Waits until every client has completed `count` more rounds, each of which takes two pauses at least.
    #[track_caller]
    pub fn wait_rounds(&self, count: usize) {
        let rounds = |client: &LoadClient| client.rounds.load(Ordering::Relaxed);
        let before: Vec<usize> = self.clients.iter().map(rounds).collect();
        for round in 1..=count {
            // Each round may take as long as a single event of other tests.
            eventually("every client completes a round", || {
                self.clients.iter().zip(&before).all(|(client, before)| rounds(client) >= before + round)
            });
        }
    }

    /// Stops the clients; the outcomes of all requests with limits, and of the canaries, which have none.
    #[track_caller]
    pub fn stop(&mut self) -> (Vec<Sample>, Vec<Sample>) {
        self.is_over.store(true, Ordering::Relaxed);
        let samples = self.clients.drain(..).flat_map(|client| client.thread.join().unwrap());
        samples.partition(|sample| sample.path != "/free")
    }
}

/// Sends requests until the load is over. Every second request is a canary, on the same connection and so served by the same
/// worker.
fn run_client(
    proxy: SocketAddr,
    path: &'static str,
    is_over: &AtomicBool,
    rounds: &AtomicUsize,
) -> Vec<Sample> {
    let mut client = Client::connect(proxy);
    let mut samples = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        for path in [path, "/free"] {
            let start = Instant::now();
            let response = client.get(path, &[]);
            samples.push(Sample { at: start, took: start.elapsed(), ..Sample::new(path, &response) });
            // A steady load, whose rate does not depend on how fast the responses come.
            std::thread::sleep(PAUSE);
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    samples
}

impl Sample {
    fn new(path: &'static str, response: &Message) -> Self {
        // `/local` shows the remaining units in either case.
        let is_counted = response.header("x-ratelimit-remaining").is_some() && path != "/local";
        Self { path, status: response.status(), is_counted, at: Instant::now(), took: Duration::ZERO }
    }
}
