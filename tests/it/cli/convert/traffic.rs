//! The same requests at the same times to an origin and to tidegate, and a table of what both have decided.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Tidegate, WebServer, Wire, connect_from, scaled};

/// For how long traffic is repeated whose requests were sent or handled late.
const PATIENCE: Duration = Duration::from_mins(3);

/// Requests that are sent together, or one after the other if none of them is delayed by design: two requests at once can both
/// create the bucket of a client in Traefik, which then admits one too many.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// When it is sent, after the first one.
    pub at: Duration,
    pub requests: usize,
    /// The first line of the requests without the protocol.
    pub request: &'static str,
    /// Their other header lines; `ATTEMPT` is replaced by a number, so that a repetition has keys of its own.
    pub headers: &'static str,
    /// The address of the client.
    pub client: &'static str,
}

/// The traffic for one limit.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub bursts: Vec<Burst>,
    /// How much later than planned a burst may be sent so that all decisions are still the same.
    pub margin: Duration,
    /// How long a response takes by design, where that is bounded: one that arrives later, beyond the margin, was to a request
    /// that a server may have handled too late.
    pub longest: Option<Duration>,
}

/// The statuses of a burst, in order, and when each response arrived after the burst was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub statuses: Vec<u16>,
    pub times: Vec<Duration>,
}

/// What an origin and tidegate have decided about the bursts of a scenario.
pub struct Compared {
    pub name: &'static str,
    pub bursts: Vec<(Burst, Outcome, Outcome)>,
}

/// How many requests of the scenario with this name tidegate has denied.
pub fn denied(compared: &[Compared], name: &str) -> usize {
    let of_name = compared.iter().filter(|it| it.name == name).flat_map(|it| &it.bursts);
    of_name.flat_map(|(_, _, tidegate)| &tidegate.statuses).filter(|status| **status == 429).count()
}

/// Bursts of GET requests at these milliseconds.
pub fn bursts(path: &'static str, plan: &[(u64, usize)]) -> Vec<Burst> {
    let burst = |&(at, requests): &(u64, usize)| Burst {
        at: Duration::from_millis(at),
        requests,
        request: path,
        headers: "",
        client: "127.0.0.1",
    };
    plan.iter().map(burst).collect()
}

/// Converts the configuration of an origin, and starts tidegate with the result, on another port.
#[track_caller]
pub fn converted(origin: &str, server: &WebServer, file: &str) -> Tidegate {
    let path = server.path(file);
    let directory = path.parent().unwrap();
    let super::Finished { status, stdout, stderr } = super::tidegate(directory, &["convert", origin, file]);
    assert_eq!(status, 0, "{stderr}");
    // Traefik has its addresses in another file.
    let address = match origin {
        "traefik" => "127.0.0.1:8080".to_owned(),
        _ => server.addr([127, 0, 0, 1].into()).to_string(),
    };
    assert!(stdout.contains(&format!("\"{address}\"")), "{stdout}");
    Tidegate::start(&stdout.replace(&address, "127.0.0.1:0"))
}

/// Sends the scenarios to both servers, all at once. Returns what they have decided, in the order of the scenarios.
#[track_caller]
pub fn compare(origin: SocketAddr, tidegate: SocketAddr, scenarios: Vec<Scenario>) -> Vec<Compared> {
    let run = |scenario: Scenario| thread::spawn(move || play(origin, tidegate, &scenario));
    let running: Vec<_> = scenarios.into_iter().map(run).collect();
    running.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn play(origin: SocketAddr, tidegate: SocketAddr, scenario: &Scenario) -> Compared {
    let start = Instant::now();
    for attempt in (0..=u8::MAX).take_while(|_| start.elapsed() < scaled(PATIENCE)) {
        let client = |address| {
            let scenario = scenario.clone();
            thread::spawn(move || send(address, &scenario, attempt))
        };
        let clients = [origin, tidegate].map(client);
        let [origin, tidegate] = clients.map(|client| client.join().unwrap());
        if let (Some(origin), Some(tidegate)) = (origin, tidegate) {
            let bursts = scenario.bursts.iter().zip(origin).zip(tidegate);
            let bursts = bursts.map(|((burst, origin), tidegate)| (*burst, origin, tidegate)).collect();
            return Compared { name: scenario.name, bursts };
        }
    }
    panic!("{}: this machine is too busy to send and handle requests in time", scenario.name);
}

/// Sends a scenario to a server; `None` if a burst or a response was late. Each attempt has a client address and a host of its
/// own: requests of an earlier attempt may still be in flight.
fn send(address: SocketAddr, scenario: &Scenario, attempt: u8) -> Option<Vec<Outcome>> {
    let mut start = None;
    let mut readers = Vec::new();
    for burst in &scenario.bursts {
        let client = burst.client.replace("127.0.0.", &format!("127.0.{attempt}."));
        let connect = |_| Wire::over(connect_from(&client, address).unwrap());
        let wires: Vec<Wire> = (0..burst.requests).map(connect).collect();
        let start = *start.get_or_insert_with(Instant::now);
        thread::sleep((start + burst.at).saturating_duration_since(Instant::now()));
        let headers = burst.headers.replace("ATTEMPT", &attempt.to_string());
        let head = format!(
            "{} HTTP/1.1\r\nHost: api-{attempt}.test\r\n{headers}Connection: close\r\n\r\n",
            burst.request
        );
        let sent = Instant::now();
        for mut wire in wires {
            wire.send(&head);
            let method = burst.request.split(' ').next().unwrap();
            let latest = scenario.longest.map(|longest| burst.at + scenario.margin + longest);
            let (read, is_read) = channel::<()>();
            readers.push(thread::spawn(move || {
                let response = wire.read_response(method).unwrap();
                drop(read);
                let is_late = latest.is_some_and(|latest| start.elapsed() > latest);
                (!is_late).then(|| (sent.elapsed(), response.status()))
            }));
            if scenario.longest == Some(Duration::ZERO) {
                // It ends by the drop.
                let _ = is_read.recv();
            }
        }
        if start.elapsed() > burst.at + scenario.margin {
            return None;
        }
    }
    let responses: Option<Vec<_>> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    let mut responses = responses?.into_iter();
    let outcome = |burst: &Burst| {
        let mut responses: Vec<_> = responses.by_ref().take(burst.requests).collect();
        responses.sort_unstable();
        let mut statuses: Vec<u16> = responses.iter().map(|(_, status)| *status).collect();
        statuses.sort_unstable();
        Outcome { statuses, times: responses.into_iter().map(|(time, _)| time).collect() }
    };
    Some(scenario.bursts.iter().map(outcome).collect())
}

/// A table of decisions.
pub fn table(origin: &str, compared: &[Compared]) -> String {
    let mut text =
        format!("{:<24} {:>6}  {:>8}  {:<22} {:<22}\n", "LIMIT", "AT", "REQUESTS", origin, "tidegate");
    for Compared { name, bursts } in compared {
        for (burst, origin, tidegate) in bursts {
            let counts = |outcome: &Outcome| {
                let allowed =
                    outcome.statuses.iter().filter(|status| !matches!(**status, 403 | 429 | 503)).count();
                format!("{allowed} allowed, {} denied", outcome.statuses.len() - allowed)
            };
            let at = format!("{} ms", burst.at.as_millis());
            let columns = (counts(origin), counts(tidegate));
            writeln!(text, "{name:<24} {at:>6}  {:>8}  {:<22} {:<22}", burst.requests, columns.0, columns.1)
                .unwrap();
        }
    }
    text
}
