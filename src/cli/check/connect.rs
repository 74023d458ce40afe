//! `tidegate check --connect`: tries the things that a configuration points to, with help for each kind of failure.

use std::io::{self, ErrorKind};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all};
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::certificates;
use crate::cli::output::{Failure, aligned};
use crate::config::Config;
use crate::jwt::{FetchError, Refresher};
use crate::otlp::{ExportError, ExportSpec, check_collector};
use crate::store::{Redis, RedisSpec, StoreError, StoreSpec, check_redis};
use crate::text::counted;
use crate::time::{format_duration, monotonic};
use crate::upstream::{ServerCheckError, UpstreamSpec, check_servers};

/// Tries everything at the same time, each for `limit` at most. Certificates come first: they need no connection. Fails if
/// nothing can be tried on this machine; the message has been printed.
pub(super) fn connect(config: &Config, limit: Duration) -> Result<Vec<ConnectionCheck>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Running.error(format!("can't connect: {error}")))?;
    let mut found = certificates::check(config);
    found.extend(runtime.block_on(try_all(config, limit)));
    Ok(found)
}

/// The table of all connections.
pub(super) fn lines(connections: &[ConnectionCheck]) -> Vec<String> {
    if connections.is_empty() {
        return vec!["the configuration points to nothing outside of this process".to_owned()];
    }
    aligned(["RESULT", "TARGET", "TIME", "FOUND"], connections.iter().map(ConnectionCheck::row))
}

/// Complains if a connection fails.
pub(super) fn outcome(connections: &[ConnectionCheck], strict: bool) -> Result<(), Failure> {
    let failed = connections.iter().filter(|connection| connection.is_failure(strict)).count();
    if failed == 0 {
        return Ok(());
    }
    Err(Failure::Running.error(format!("{failed} of {} failed", counted(connections.len(), "check"))))
}

async fn try_all(config: &Config, limit: Duration) -> Vec<ConnectionCheck> {
    let mut all: Vec<LocalBoxFuture<'_, Vec<ConnectionCheck>>> = Vec::new();
    let snapshot = &config.snapshot;
    if let StoreSpec::Redis(servers) = &config.store {
        let check = |spec| store(config, spec, limit).map(|found| vec![found]).boxed_local();
        all.extend(servers.iter().map(check));
    }
    if let Some(refresher) = snapshot.gate.jwt.as_ref().and_then(Refresher::new) {
        all.push(keys(refresher, limit).map(|found| vec![found]).boxed_local());
    }
    if let Some(export) = config.tracing.as_ref().and_then(|tracing| tracing.export.as_ref()) {
        all.push(collector(export, limit).map(|found| vec![found]).boxed_local());
    }
    all.extend(snapshot.upstreams.iter().map(|upstream| servers(upstream, limit).boxed_local()));
    join_all(all).await.into_iter().flatten().collect()
}

/// Runs a check within the limit.
async fn timed(
    target: String,
    limit: Duration,
    check: impl Future<Output = Result<String, Fault>>,
) -> ConnectionCheck {
    let started: Instant = monotonic();
    let found = timeout(limit, check).await;
    let found = found.unwrap_or_else(|_| Err(timeout_fault(limit)));
    ConnectionCheck::new(target, monotonic() - started, found)
}

async fn store(config: &Config, spec: &RedisSpec, limit: Duration) -> ConnectionCheck {
    let gate = &config.snapshot.gate;
    let reads_consumers = gate.consumers.as_ref().is_some_and(|rules| rules.stored.is_some());
    let check = async {
        let redis = Redis::connect(spec);
        redis.wait_connected(limit).await.map_err(|error| store_fault(&error, spec))?;
        let checked = check_redis(&redis, &gate.limits.policies, reads_consumers).await;
        checked.map_err(|error| store_fault(&error, spec))?;
        Ok("connected; all scripts and commands are permitted".to_owned())
    };
    // Boxed because it is large.
    timed(format!("store {}", spec.target), limit, Box::pin(check)).await
}

async fn keys(mut refresher: Refresher, limit: Duration) -> ConnectionCheck {
    let target = format!("keys {}", refresher.url());
    let check = async {
        match refresher.check().await {
            Ok(0) => Err(Fault {
                message: "it has no key that fits `algorithms`".to_owned(),
                help: Some("allow the algorithms of its keys: [jwt] algorithms".to_owned()),
            }),
            Ok(count) => Ok(format!("{} for the allowed algorithms", counted(count, "key"))),
            Err(error) => Err(keys_fault(&error)),
        }
    };
    timed(target, limit, check).await
}

async fn collector(export: &ExportSpec, limit: Duration) -> ConnectionCheck {
    let check = async {
        check_collector(export).await.map_err(|error| collector_fault(&error))?;
        Ok("accepts spans".to_owned())
    };
    timed(format!("collector {}", export.endpoint), limit, check).await
}

async fn servers(upstream: &UpstreamSpec, limit: Duration) -> Vec<ConnectionCheck> {
    let found = check_servers(upstream, limit).await;
    let connections = found.into_iter().map(|check| {
        let label = upstream.label();
        let mut target = if label == check.server { String::new() } else { format!(" {label}:") };
        target = format!("upstream{target} {}", check.server);
        if let Some(address) = check.address {
            target = format!("{target} at {address}");
        }
        ConnectionCheck::new(target, check.took, check.result.map_err(|error| server_fault(&error)))
    });
    connections.collect()
}

/// The check of one thing that the configuration points to.
#[derive(Debug, Serialize)]
pub(super) struct ConnectionCheck {
    pub result: ConnectionResult,
    /// The thing that was tried, such as `store redis://127.0.0.1:6379`.
    pub target: String,
    /// The duration of the check; none for what needs no connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The finding.
    pub message: String,
    /// The change to make after a failure or a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ConnectionResult {
    Ok,
    /// It works now, but not for long, or not for everything.
    Warning,
    Failed,
}

/// Why something does not work, and what to change.
struct Fault {
    pub message: String,
    pub help: Option<String>,
}

impl ConnectionCheck {
    /// A finding, after this time.
    fn new(target: String, took: Duration, found: Result<String, Fault>) -> Self {
        let seconds = Some((took.as_secs_f64() * 1_000_000.0).round() / 1_000_000.0);
        match found {
            Ok(message) => Self { result: ConnectionResult::Ok, target, seconds, message, help: None },
            Err(Fault { message, help }) => {
                Self { result: ConnectionResult::Failed, target, seconds, message, help }
            }
        }
    }

    /// Whether it counts as a failure; with `strict` warnings do as well.
    pub fn is_failure(&self, strict: bool) -> bool {
        match self.result {
            ConnectionResult::Ok => false,
            ConnectionResult::Warning => strict,
            ConnectionResult::Failed => true,
        }
    }

    /// Its line in the table: result, target, time, and what was found.
    pub fn row(&self) -> [String; 4] {
        let result = match self.result {
            ConnectionResult::Ok => "ok",
            ConnectionResult::Warning => "warning",
            ConnectionResult::Failed => "failed",
        };
        let time =
            self.seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1_000.0));
        let help = self.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
        [result.to_owned(), self.target.clone(), time, format!("{}{help}", self.message)]
    }
}

const REFUSED: &str = "nothing listens there: start the server, or correct its address";
const UNREACHABLE: &str = "correct the address, or allow the connection in the firewalls on the way";

/// A fault with the text of an error; what follows its first semicolon is what to change.
fn fault(text: &str, help: Option<&str>) -> Fault {
    let (message, own) = text.split_once("; ").map_or((text, None), |(message, own)| (message, Some(own)));
    Fault { message: message.to_owned(), help: own.or(help).map(str::to_owned) }
}

/// Nothing was found within the limit.
fn timeout_fault(limit: Duration) -> Fault {
    fault(&format!("no answer within {}", format_duration(limit)), Some(UNREACHABLE))
}

/// The help for an error of a connection.
fn io_help(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Some(REFUSED),
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Some(UNREACHABLE),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            Some("the server has closed the connection: see its log, and whether it speaks TLS on this port")
        }
        _ => None,
    }
}

/// A fault of a server of an upstream.
fn server_fault(error: &ServerCheckError) -> Fault {
    let help = match error {
        ServerCheckError::Name(..) => {
            Some("correct the name, or add it to the DNS or /etc/hosts of this machine")
        }
        ServerCheckError::Connect(error) if error.to_string().contains("HTTP/2") => {
            Some("write protocol = \"h1\" in this upstream, or turn HTTP/2 on at the server")
        }
        ServerCheckError::Connect(error) => io_help(error),
        ServerCheckError::Health { .. } => Some("correct `path` in `health` of this upstream, or the server"),
        ServerCheckError::TimedOut { is_tls: true, .. } => Some(
            "correct the address, allow the connection in the firewalls on the way, or write http:// if the server has no TLS",
        ),
        ServerCheckError::TimedOut { .. } => Some(UNREACHABLE),
    };
    fault(&error.to_string(), help)
}

/// A fault of a key set.
fn keys_fault(error: &FetchError) -> Fault {
    let help = match error {
        FetchError::Connect(error) => io_help(error),
        FetchError::Status(_) | FetchError::Keys(_) => Some(
            "correct `jwks` in [jwt]: OpenID providers name it `jwks_uri` in /.well-known/openid-configuration",
        ),
        FetchError::TimedOut => Some(UNREACHABLE),
        FetchError::Tls(_) | FetchError::Http(_) | FetchError::Body(_) => None,
    };
    fault(&error.to_string(), help)
}

/// A fault of a collector of spans.
fn collector_fault(error: &ExportError) -> Fault {
    let help = match error {
        ExportError::Connect(error) => io_help(error),
        ExportError::Status(..) => Some("correct `endpoint` or `headers` in [tracing]"),
        ExportError::Http(_) => Some("the collector must accept OTLP over HTTP: usually port 4318, not 4317"),
        ExportError::TimedOut => Some(UNREACHABLE),
        ExportError::Body(_) => None,
    };
    fault(&error.to_string(), help)
}

/// A fault of Redis.
fn store_fault(error: &StoreError, spec: &RedisSpec) -> Fault {
    let text = error.to_string();
    let slow = format!(
        "each call may take {}: raise `timeout` in [store], or use a Redis that is closer",
        format_duration(spec.timeout)
    );
    let help = match error {
        StoreError::Deadline | StoreError::Unsent => Some(&*slow),
        _ if text.contains("refused") => Some(REFUSED),
        _ if text.contains("NOAUTH") || text.contains("WRONGPASS") => {
            Some("correct the user and the password in `url` of [store]")
        }
        _ if text.contains("NOPERM") || text.contains("can't run this command") => Some(
            "give the user the permissions of docs/redis.md: +evalsha +eval +mget +set +setrange +del +pttl +time",
        ),
        _ if text.contains("READONLY") => Some("name the master: this is a replica"),
        _ if text.contains("MOVED") => {
            Some("it belongs to a cluster: write redis-cluster:// in `url` of [store]")
        }
        _ if text.contains("No such file") => {
            Some("correct the path in `url` of [store], or start Redis with `unixsocket`")
        }
        _ if ["reset by peer", "closed", "Broken pipe"]
            .iter()
            .any(|text_of_close| text.contains(text_of_close)) =>
        {
            Some("see the log of Redis")
        }
        _ if text.contains("no reply") => Some(UNREACHABLE),
        _ => None,
    };
    fault(&text, help)
}
