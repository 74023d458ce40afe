//! Well-behaved clients that send requests during an attack.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::support::{Frames, TlsClient, Wire, block, connect_from, eventually, frames, scaled};

/// A later response counts as none on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(3);
/// The pause between two requests of a client, so that the good clients are no load themselves.
const PAUSE: Duration = Duration::from_millis(5);
/// The address of the good clients.
const CLIENT: &str = "127.0.0.1";

/// Sends a request; returns the status, or nothing without a response.
type Exchange = Box<dyn FnMut() -> Option<u16> + Send>;

/// Running clients, each on a thread of its own.
pub struct GoodClients {
    is_over: Arc<AtomicBool>,
    members: Vec<Member>,
}

struct Member {
    name: &'static str,
    thread: Option<JoinHandle<()>>,
    log: Arc<Mutex<Vec<(bool, Duration)>>>,
}

/// The outcome of the clients' requests.
#[derive(Clone, Copy)]
pub struct ServiceLevel {
    requests: usize,
    responses: usize,
    p95: Duration,
    /// The client with the fewest responses: its name, responses and requests.
    worst: (&'static str, usize, usize),
}

impl ServiceLevel {
    /// The share of requests that got a response, in percent.
    #[allow(clippy::cast_precision_loss)] // Thousands at most.
    pub fn percent(&self) -> f64 {
        100.0 * self.responses as f64 / self.requests as f64
    }

    /// The 95th percentile of the response times.
    pub fn p95(&self) -> Duration {
        self.p95
    }

    /// The client with the fewest responses, for messages.
    pub fn worst(&self) -> String {
        let (name, responses, requests) = self.worst;
        format!("{name}: {responses} of {requests}")
    }
}

impl GoodClients {
    /// Clients with persistent connections: over HTTP/1.1, over TLS, and over HTTP/2.
    pub fn persistent(
        plain: SocketAddr,
        tls: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> Vec<(&'static str, Exchange)> {
        vec![
            ("HTTP/1.1, persistent", over_http1(plain, true)),
            ("TLS, persistent", over_tls(tls, Arc::clone(config), true)),
            ("HTTP/2", over_http2(plain)),
        ]
    }

    /// The same, and clients that make a new connection for each request.
    pub fn all(
        plain: SocketAddr,
        tls: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> Vec<(&'static str, Exchange)> {
        let mut members = Self::persistent(plain, tls, config);
        members.push(("HTTP/1.1, new", over_http1(plain, false)));
        members.push(("TLS, new", over_tls(tls, Arc::clone(config), false)));
        members
    }

    /// Starts the clients.
    pub fn start(members: Vec<(&'static str, Exchange)>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |(name, mut exchange): (&'static str, Exchange)| {
            let log: Arc<Mutex<Vec<_>>> = Arc::default();
            let (written, is_over) = (Arc::clone(&log), Arc::clone(&is_over));
            let work = move || {
                while !is_over.load(Ordering::SeqCst) {
                    let start = Instant::now();
                    let is_served = exchange() == Some(200);
                    let took = start.elapsed();
                    written.lock().unwrap().push((is_served && took < scaled(DEADLINE), took));
                    // A steady load, whose rate does not depend on how fast the responses come.
                    std::thread::sleep(PAUSE);
                }
            };
            Member { name, thread: Some(std::thread::spawn(work)), log }
        };
        Self { members: members.into_iter().map(start).collect(), is_over }
    }

    /// Discards the outcomes until now.
    pub fn reset(&self) {
        for member in &self.members {
            member.log.lock().unwrap().clear();
        }
    }

    /// The outcome of the requests, once each client has sent `least` of them.
    #[track_caller]
    pub fn service_level(&self, least: usize) -> ServiceLevel {
        let has_asked = |member: &Member| member.log.lock().unwrap().len() >= least;
        eventually("the good clients continue", || self.members.iter().all(has_asked));
        let (mut times, mut responses, mut worst) = (Vec::new(), 0, None::<(&str, usize, usize)>);
        for member in &self.members {
            let log = member.log.lock().unwrap();
            let good = log.iter().filter(|(is_served, _)| *is_served).count();
            times.extend(log.iter().map(|(_, took)| *took));
            responses += good;
            if worst.is_none_or(|(_, least, of)| good * of < least * log.len()) {
                worst = Some((member.name, good, log.len()));
            }
        }
        times.sort_unstable();
        ServiceLevel {
            requests: times.len(),
            responses,
            p95: times[times.len() * 95 / 100],
            worst: worst.unwrap(),
        }
    }
}

impl Drop for GoodClients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for member in &mut self.members {
            let _ = member.thread.take().unwrap().join();
        }
    }
}

/// Requests for the server behind the proxy over a persistent connection, or for the proxy itself over new ones.
fn over_http1(address: SocketAddr, keeps: bool) -> Exchange {
    let mut kept = None::<Wire>;
    Box::new(move || {
        let mut wire = kept.take().or_else(|| Some(Wire::over(connect_from(CLIENT, address).ok()?)))?;
        let path = if keeps { "/good" } else { "/own" };
        wire.try_send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).ok()?;
        let response = wire.read_response("GET").ok()?;
        kept = keeps.then_some(wire);
        Some(response.status())
    })
}

fn over_tls(address: SocketAddr, config: Arc<ClientConfig>, keeps: bool) -> Exchange {
    let mut kept = None::<TlsClient>;
    Box::new(move || {
        let anew = || TlsClient::over(connect_from(CLIENT, address).ok()?, &config, "a.test").ok();
        let mut client = kept.take().or_else(anew)?;
        let response = client.get(if keeps { "/good" } else { "/own" }).ok()?;
        kept = keeps.then_some(client);
        Some(response.status())
    })
}

/// A hundred requests on each connection, for which the initial window suffices.
fn over_http2(address: SocketAddr) -> Exchange {
    let head = block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/good")]);
    let mut kept = None::<(Frames, u32)>;
    Box::new(move || {
        let anew = || Some((Frames::over(connect_from(CLIENT, address).ok()?).try_begin(&[]).ok()?, 1));
        let (mut frames, stream) = kept.take().or_else(anew)?;
        let flags = frames::END_STREAM | frames::END_HEADERS;
        frames.try_send(frames::HEADERS, flags, stream, &head).ok()?;
        let status = frames.status(stream)?.ok()?;
        let is_last = |frame: &frames::Frame| frame.stream == stream && frame.flags & frames::END_STREAM != 0;
        while !is_last(&frames.read()?) {}
        kept = (stream < 200).then_some((frames, stream + 2));
        Some(status)
    })
}
