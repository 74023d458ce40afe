//! The requests to servers of upstreams in a span of time.

use std::sync::Arc;

use serde::Serialize;

use super::sums::{Cursor, ServerName, SortedByName};
use super::values::{Latency, SharedName, largest};
use crate::telemetry::counters::counted_since;
use crate::telemetry::upstreams::{AttemptOutcome, ServerSums, ServerValues, UpstreamValues};

/// The state of a server all of whose addresses are available.
const HEALTHY: &str = "healthy";

/// An upstream and its servers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct UpstreamActivity {
    name: SharedName,
    servers: Vec<ServerActivity>,
}

/// The requests to a server, and its health at the end.
#[derive(Clone, Debug, Serialize)]
struct ServerActivity {
    server: SharedName,
    state: &'static str,
    addresses: usize,
    healthy: usize,
    ejected: usize,
    requests: u64,
    failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

/// The requests to servers between two readings of their counters, and the number of servers that are not listed. `values`
/// are in ascending order of their labels.
pub(super) fn upstreams(
    earlier: &SortedByName<ServerName, ServerSums>,
    later: &SortedByName<ServerName, ServerSums>,
    values: &[UpstreamValues],
) -> (Vec<UpstreamActivity>, usize) {
    let (mut counted, mut known) = (Cursor::of(later), Cursor::of(earlier));
    let mut all: Vec<(Arc<str>, ServerActivity)> = Vec::new();
    for (upstream, values) in servers(values) {
        let label = (upstream, &*values.label);
        let later = counted.find(|(upstream, server)| (&**upstream, &**server).cmp(&label));
        let ((upstream, server), sums) = match later {
            Some((name, later)) => (name.clone(), since(known.seek(name), later)),
            None => ((upstream.into(), values.label.as_ref().into()), ServerSums::default()),
        };
        all.push((upstream, ServerActivity::new(server, values, &sums)));
    }
    let (mut listed, left_out) = largest(all, |(_, server)| (server.state != HEALTHY, server.requests));
    listed.sort_by(|one, other| (&one.0, &one.1.server.0).cmp(&(&other.0, &other.1.server.0)));
    let mut grouped: Vec<UpstreamActivity> = Vec::new();
    for (upstream, server) in listed {
        match grouped.last_mut().filter(|last| last.name.0 == upstream) {
            Some(last) => last.servers.push(server),
            None => grouped.push(UpstreamActivity { name: SharedName(upstream), servers: vec![server] }),
        }
    }
    (grouped, left_out)
}

/// The servers of all upstreams, with the label of their upstream.
fn servers(values: &[UpstreamValues]) -> impl Iterator<Item = (&str, &ServerValues)> {
    values.iter().flat_map(|upstream| upstream.servers.iter().map(|server| (&*upstream.label, server)))
}

fn since(earlier: Option<&ServerSums>, later: &ServerSums) -> ServerSums {
    let Some(earlier) = earlier else { return later.clone() };
    ServerSums {
        attempts: counted_since(&earlier.attempts, &later.attempts),
        first_bytes: later.first_bytes.since(&earlier.first_bytes),
        durations: later.durations.since(&earlier.durations),
    }
}

impl ServerActivity {
    fn new(server: Arc<str>, values: &ServerValues, sums: &ServerSums) -> Self {
        let counts = || AttemptOutcome::ALL.iter().zip(sums.attempts);
        Self {
            server: SharedName(server),
            state: state(values),
            addresses: values.addresses,
            healthy: values.healthy,
            ejected: values.ejected,
            requests: sums.attempts.iter().sum(),
            failures: counts().filter(|((attempt, _), _)| attempt.is_failure()).map(|(_, count)| count).sum(),
            latency: Latency::of(&sums.first_bytes),
        }
    }
}

pub(super) fn state(values: &ServerValues) -> &'static str {
    match values {
        ServerValues { addresses: 0, .. } => "unresolved",
        ServerValues { addresses, healthy, .. } if addresses == healthy => HEALTHY,
        ServerValues { healthy: 1.., .. } => "degraded",
        ServerValues { ejected: 1.., .. } => "ejected",
        _ => "unhealthy",
    }
}
