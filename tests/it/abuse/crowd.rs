//! Good clients, who go on asking whatever others do.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::support::{Frames, TlsClient, Wire, block, connect_from, eventually, frames};

/// An answer that comes later is none.
const DEADLINE: Duration = Duration::from_secs(3);
/// Between two requests of a client: a crowd is not to be a load itself.
const PAUSE: Duration = Duration::from_millis(5);
/// What the good come from, unlike those who mean harm.
const HOME: &str = "127.0.0.1";

/// Asks once; none if no answer comes.
type Ask = Box<dyn FnMut() -> Option<u16> + Send>;

/// Clients at work, each on a thread of its own.
pub struct Crowd {
    is_over: Arc<AtomicBool>,
    members: Vec<Member>,
}

struct Member {
    name: &'static str,
    thread: Option<JoinHandle<()>>,
    asked: Arc<Mutex<Vec<(bool, Duration)>>>,
}

/// What has come of requests.
#[derive(Clone, Copy)]
pub struct Share {
    asked: usize,
    answered: usize,
    p95: Duration,
    /// Whoever got less than the others.
    worst: (&'static str, usize, usize),
}

impl Share {
    /// The part of requests that were answered, in percent.
    #[allow(clippy::cast_precision_loss)] // Thousands at most.
    pub fn percent(&self) -> f64 {
        100.0 * self.answered as f64 / self.asked as f64
    }

    /// In which 95 of 100 requests were answered.
    pub fn p95(&self) -> Duration {
        self.p95
    }

    /// Who got least, and how many answers to how many requests.
    pub fn worst(&self) -> String {
        let (name, answered, asked) = self.worst;
        format!("{name}: {answered} of {asked}")
    }
}

impl Crowd {
    /// Those who keep their connections: over HTTP/1.1, over TLS, and over HTTP/2.
    pub fn faithful(
        plain: SocketAddr,
        tls: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> Vec<(&'static str, Ask)> {
        vec![
            ("HTTP/1.1, kept", over_http1(plain, true)),
            ("TLS, kept", over_tls(tls, Arc::clone(config), true)),
            ("HTTP/2", over_http2(plain)),
        ]
    }

    /// The same, and those who come anew with each request.
    pub fn all(plain: SocketAddr, tls: SocketAddr, config: &Arc<ClientConfig>) -> Vec<(&'static str, Ask)> {
        let mut members = Self::faithful(plain, tls, config);
        members.push(("HTTP/1.1, new", over_http1(plain, false)));
        members.push(("TLS, new", over_tls(tls, Arc::clone(config), false)));
        members
    }

    /// Sets them to work.
    pub fn start(members: Vec<(&'static str, Ask)>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |(name, mut ask): (&'static str, Ask)| {
            let asked = Arc::default();
            let (log, is_over): (Arc<Mutex<Vec<_>>>, _) = (Arc::clone(&asked), Arc::clone(&is_over));
            let work = move || {
                while !is_over.load(Ordering::SeqCst) {
                    let start = Instant::now();
                    let is_answered = ask() == Some(200);
                    let took = start.elapsed();
                    log.lock().unwrap().push((is_answered && took < DEADLINE, took));
                    std::thread::sleep(PAUSE);
                }
            };
            Member { name, thread: Some(std::thread::spawn(work)), asked }
        };
        Self { members: members.into_iter().map(start).collect(), is_over }
    }

    /// Forgets what was until now.
    pub fn forget(&self) {
        for member in &self.members {
            member.asked.lock().unwrap().clear();
        }
    }

    /// What has come of requests, once each has had an end of so many.
    #[track_caller]
    pub fn share(&self, least: usize) -> Share {
        let has_asked = |member: &Member| member.asked.lock().unwrap().len() >= least;
        eventually("the crowd goes on", || self.members.iter().all(has_asked));
        let (mut times, mut answered, mut worst) = (Vec::new(), 0, None::<(&str, usize, usize)>);
        for member in &self.members {
            let asked = member.asked.lock().unwrap();
            let good = asked.iter().filter(|(is_answered, _)| *is_answered).count();
            times.extend(asked.iter().map(|(_, took)| *took));
            answered += good;
            if worst.is_none_or(|(_, least, of)| good * of < least * asked.len()) {
                worst = Some((member.name, good, asked.len()));
            }
        }
        times.sort_unstable();
        Share { asked: times.len(), answered, p95: times[times.len() * 95 / 100], worst: worst.unwrap() }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for member in &mut self.members {
            let _ = member.thread.take().unwrap().join();
        }
    }
}

/// Asks the server behind the proxy if it keeps its connection, or else the proxy itself.
fn over_http1(address: SocketAddr, keeps: bool) -> Ask {
    let mut kept = None::<Wire>;
    Box::new(move || {
        let mut wire = kept.take().or_else(|| Some(Wire::over(connect_from(HOME, address).ok()?)))?;
        let path = if keeps { "/good" } else { "/own" };
        wire.try_send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).ok()?;
        let answer = wire.read_response("GET").ok()?;
        kept = keeps.then_some(wire);
        Some(answer.status())
    })
}

fn over_tls(address: SocketAddr, config: Arc<ClientConfig>, keeps: bool) -> Ask {
    let mut kept = None::<TlsClient>;
    Box::new(move || {
        let anew = || TlsClient::over(connect_from(HOME, address).ok()?, &config, "a.test").ok();
        let mut client = kept.take().or_else(anew)?;
        let answer = client.get(if keeps { "/good" } else { "/own" }).ok()?;
        kept = keeps.then_some(client);
        Some(answer.status())
    })
}

/// Asks a hundred times on each connection, which need no more window than there is.
fn over_http2(address: SocketAddr) -> Ask {
    let head = block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/good")]);
    let mut kept = None::<(Frames, u32)>;
    Box::new(move || {
        let anew = || Some((Frames::over(connect_from(HOME, address).ok()?).try_begin(&[]).ok()?, 1));
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
