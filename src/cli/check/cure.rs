//! What to change when something that the configuration points to does not work.

use std::io::{self, ErrorKind};
use std::time::Duration;

use super::connect::Fault;
use crate::jwt::FetchError;
use crate::otlp::ExportError;
use crate::store::{RedisSpec, StoreError};
use crate::time::format_duration;
use crate::upstream::ServerCheckError;

const REFUSED: &str = "nothing listens there: start the server, or correct its port";
const UNREACHABLE: &str = "correct the address, or allow the connection in the firewalls on the way";

/// A fault with the text of an error; what follows its first semicolon is what to change.
fn fault(text: &str, help: Option<&str>) -> Fault {
    let (message, own) = text.split_once("; ").map_or((text, None), |(message, own)| (message, Some(own)));
    Fault { message: message.to_owned(), help: own.or(help).map(str::to_owned) }
}

/// Nothing was found within the limit.
pub(super) fn timed_out(limit: Duration) -> Fault {
    fault(&format!("no answer within {}", format_duration(limit)), Some(UNREACHABLE))
}

/// The help for an error of a connection.
fn of_io(error: &io::Error) -> Option<&'static str> {
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
pub(super) fn of_server(error: &ServerCheckError) -> Fault {
    let help = match error {
        ServerCheckError::Name(..) => {
            Some("correct the name, or add it to the DNS or /etc/hosts of this machine")
        }
        ServerCheckError::Connect(error) if error.to_string().contains("HTTP/2") => {
            Some("write protocol = \"h1\" in this upstream, or turn HTTP/2 on at the server")
        }
        ServerCheckError::Connect(error) => of_io(error),
        ServerCheckError::Health { .. } => Some("correct `path` in `health` of this upstream, or the server"),
        ServerCheckError::TimedOut { is_tls: true, .. } => Some(
            "correct the address, allow the connection in the firewalls on the way, or write http:// if the server has no TLS",
        ),
        ServerCheckError::TimedOut { .. } => Some(UNREACHABLE),
    };
    fault(&error.to_string(), help)
}

/// A fault of a key set.
pub(super) fn of_keys(error: &FetchError) -> Fault {
    let help = match error {
        FetchError::Connect(error) => of_io(error),
        FetchError::Status(_) | FetchError::Keys(_) => Some(
            "correct `jwks` in [jwt]: OpenID providers name it `jwks_uri` in /.well-known/openid-configuration",
        ),
        FetchError::TimedOut => Some(UNREACHABLE),
        FetchError::Tls(_) | FetchError::Http(_) | FetchError::Body(_) => None,
    };
    fault(&error.to_string(), help)
}

/// A fault of a collector of spans.
pub(super) fn of_collector(error: &ExportError) -> Fault {
    let help = match error {
        ExportError::Connect(error) => of_io(error),
        ExportError::Status(..) => Some("correct `endpoint` or `headers` in [tracing]"),
        ExportError::Http(_) => Some("the collector must accept OTLP over HTTP: usually port 4318, not 4317"),
        ExportError::TimedOut => Some(UNREACHABLE),
        ExportError::Body(_) => None,
    };
    fault(&error.to_string(), help)
}

/// A fault of Redis.
pub(super) fn of_store(error: &StoreError, spec: &RedisSpec) -> Fault {
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
        _ if text.contains("reset by peer") || text.contains("closed") => Some("see the log of Redis"),
        _ if text.contains("no reply") => Some(UNREACHABLE),
        _ => None,
    };
    fault(&text, help)
}
