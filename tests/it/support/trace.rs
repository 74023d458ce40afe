//! Traces of requests with known clients: people who browse, programs that poll, offices, networks that share an address, a crawler
//! and retry storms.

mod behavior;

use std::io::{self, Write};
use std::net::Ipv4Addr;

use fastrand::Rng;
use jiff::fmt::strtime;
use tidegate::time::{Micros, Timestamp};

use behavior::Behavior;

const DAY: u64 = 86_400_000_000;

/// What a trace consists of.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// Equal seeds make equal traces.
    pub seed: u64,
    /// The start, at midnight in UTC.
    pub start: Timestamp,
    /// How many days it covers.
    pub days: u64,
    /// How many clients there are of each kind.
    pub clients: Vec<(ClientKind, u32)>,
}

/// A client of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceClient {
    /// What it does.
    pub kind: ClientKind,
    /// Its address.
    pub address: Ipv4Addr,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it arrives.
    pub at: Timestamp,
    /// The position of its client in [`Trace::clients`].
    pub client: u32,
    /// A number that selects its path.
    pub page: u16,
    /// The status of its response.
    pub status: u16,
}

/// Requests in the order of time, and their clients.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The clients.
    pub clients: Vec<TraceClient>,
    /// The requests.
    pub requests: Vec<TraceRequest>,
}

impl Default for TraceSettings {
    /// A week of 4,000 clients, one of which is a crawler, and two of which retry without a pause.
    fn default() -> Self {
        Self {
            seed: 1,
            start: Timestamp(1_767_571_200_000_000),
            days: 7,
            clients: vec![
                (ClientKind::Browser, 3_747),
                (ClientKind::Poller, 30),
                (ClientKind::Office, 200),
                (ClientKind::SharedAddress, 20),
                (ClientKind::Crawler, 1),
                (ClientKind::RetryStorm, 2),
            ],
        }
    }
}

impl Trace {
    /// Makes the trace of these settings.
    pub fn generate(settings: &TraceSettings) -> Self {
        let end = settings.start.after(Micros(settings.days * DAY));
        let mut clients = Vec::new();
        let mut requests = Vec::new();
        let kinds = settings.clients.iter().flat_map(|(kind, count)| (0..*count).map(|_| *kind));
        for (client, kind) in (0_u32..).zip(kinds) {
            clients.push(TraceClient { kind, address: address(client) });
            // Each client has random numbers of its own, so that it does not depend on the number of others.
            let seed = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(client);
            let mut behavior = Behavior::new(Rng::with_seed(seed), settings.start, settings.days);
            let made = behavior.requests(kind);
            let made = made.into_iter().filter(|hit| hit.at < end);
            requests.extend(made.map(|hit| TraceRequest {
                at: hit.at,
                client,
                page: hit.page,
                status: hit.status,
            }));
        }
        requests.sort_unstable_by_key(|request| (request.at, request.client, request.page));
        Self { clients, requests }
    }
}

/// Addresses of 10.0.0.0/8, spread over its networks.
fn address(client: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | (client.wrapping_mul(0x9e_3779) & 0x00ff_ffff))
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientKind {
    /// A person: some sessions a week, pages with their images and scripts at once, and pauses between pages.
    Browser,
    /// A program that polls at a fixed interval, day and night.
    Poller,
    /// A person at work: requests through the hours of the working day.
    Office,
    /// Many people behind one address, most by day.
    SharedAddress,
    /// A program that fetches page after page for hours each day.
    Crawler,
    /// A program that polls, and after an error retries without a pause for some minutes, every few days.
    RetryStorm,
}

impl ClientKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Browser, Self::Poller, Self::Office, Self::SharedAddress, Self::Crawler, Self::RetryStorm];

    /// The user agent that its requests have.
    pub fn user_agent(self) -> &'static str {
        match self {
            Self::Browser | Self::Office | Self::SharedAddress => {
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
            }
            Self::Poller => "python-requests/2.32.3",
            Self::Crawler => "ExampleBot/1.0 (+https://bot.example/)",
            Self::RetryStorm => "Go-http-client/1.1",
        }
    }
}

/// Writes the requests as an access log of nginx, in its `combined` format.
pub fn write_combined(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut second = u64::MAX;
    let mut time = String::new();
    for request in &trace.requests {
        let client = &trace.clients[request.client as usize];
        // Formatting a time takes longer than the rest of the line.
        if request.at.0 / 1_000_000 != second {
            second = request.at.0 / 1_000_000;
            time = formatted(second);
        }
        let (page, status) = (request.page, request.status);
        let bytes = 500 + u32::from(page) * 37;
        writeln!(
            out,
            "{} - - [{time}] \"GET /pages/{page} HTTP/1.1\" {status} {bytes} \"-\" \"{}\"",
            client.address,
            client.kind.user_agent()
        )?;
    }
    Ok(())
}

/// The time in the format of `$time_local`, in UTC.
fn formatted(second: u64) -> String {
    let instant = i64::try_from(second).ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
    let text = instant.and_then(|instant| strtime::format("%d/%b/%Y:%H:%M:%S +0000", instant).ok());
    text.unwrap_or_else(|| "-".to_owned())
}

mod tests {
    use std::collections::HashSet;

    use super::*;

    fn small() -> TraceSettings {
        let clients = ClientKind::ALL.map(|kind| (kind, 2)).to_vec();
        TraceSettings { clients, days: 2, ..TraceSettings::default() }
    }

    #[test]
    fn equal_seeds_make_equal_traces_in_the_order_of_time() {
        let trace = Trace::generate(&small());
        assert_eq!(trace.requests, Trace::generate(&small()).requests);
        assert_ne!(trace.requests, Trace::generate(&TraceSettings { seed: 2, ..small() }).requests);
        assert!(trace.requests.is_sorted_by_key(|request| request.at));
        let span = small().start.0..small().start.0 + 2 * DAY;
        assert!(trace.requests.iter().all(|request| span.contains(&request.at.0)));
    }

    #[test]
    fn clients_have_an_address_each_and_make_requests() {
        let trace = Trace::generate(&small());
        let addresses: HashSet<_> = trace.clients.iter().map(|client| client.address).collect();
        assert_eq!(addresses.len(), trace.clients.len());
        let active: HashSet<_> = trace.requests.iter().map(|request| request.client).collect();
        assert!(active.len() >= 11, "{}", active.len());
    }

    #[test]
    fn offices_work_by_day_and_crawlers_are_fast() {
        let trace = Trace::generate(&small());
        let of = |kind: ClientKind| {
            let is_of = |request: &&TraceRequest| trace.clients[request.client as usize].kind == kind;
            trace.requests.iter().filter(is_of).copied().collect::<Vec<_>>()
        };
        assert!(of(ClientKind::Office).iter().all(|request| request.at.0 % DAY > DAY / 4));
        assert!(of(ClientKind::Crawler).len() > 50 * of(ClientKind::Browser).len());
    }

    #[test]
    fn lines_are_those_of_nginx() {
        let client = TraceClient { kind: ClientKind::Crawler, address: [10, 0, 0, 7].into() };
        let request = TraceRequest { at: Timestamp(1_767_571_200_500_000), client: 0, page: 12, status: 200 };
        let mut text = Vec::new();
        write_combined(&Trace { clients: vec![client], requests: vec![request] }, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "10.0.0.7 - - [05/Jan/2026:00:00:00 +0000] \"GET /pages/12 HTTP/1.1\" 200 944 \"-\" \
             \"ExampleBot/1.0 (+https://bot.example/)\"\n"
        );
    }
}
