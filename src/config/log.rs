//! `[log]`.

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use tracing::Level;

use super::client_ip::header_name;
use super::consumers::ReadConsumers;
use super::item::Item;
use super::table::Table;
use crate::telemetry::{AccessLog, AccessOnly, LogKeys, LogSpec};

/// The most headers that are logged.
const MAX_HEADERS: usize = 16;
/// Headers that hold credentials.
const SECRET: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

/// The settings of the log, and the headers that the access log has.
pub(super) type ReadLog = (LogSpec, Box<[HeaderName]>);

/// Reads `[log]`.
pub(super) fn log(table: Table<'_>, consumers: &ReadConsumers<'_>) -> Option<ReadLog> {
    let access = [("json", AccessLog::Json), ("text", AccessLog::Text), ("off", AccessLog::Off)];
    let access = table.choice("access", &access);
    let access_only = [("all", AccessOnly::All), ("denied", AccessOnly::Denied)];
    let access_only = table.choice("access_only", &access_only);
    let access_sample = table.decimal("access_sample");
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    let level = table.choice("level", &levels);
    let keys = [("hash", LogKeys::Hash), ("plain", LogKeys::Plain), ("off", LogKeys::Off)];
    let keys = table.choice("keys", &keys);
    let headers = headers(table.item("headers"), consumers.credential_header());
    table.close();
    let spec = LogSpec {
        level: level?,
        access: access?,
        access_only: access_only?,
        access_sample: access_sample?,
        keys: keys?,
    };
    Some((spec, headers?))
}

/// Reads the names of logged headers, each once.
fn headers(item: Item<'_>, credential: Option<&HeaderName>) -> Option<Box<[HeaderName]>> {
    let help = "put the names in brackets: [\"user-agent\"]";
    let read = |item: Item<'_>| {
        let name = header_name(item, "such as \"user-agent\"")?;
        if SECRET.contains(&name) || Some(&name) == credential {
            let problem = item.error(format!("`{name}` holds credentials, which are not logged"));
            return item
                .reject(problem.help("log `consumer` and `key`, which identify the client without them"));
        }
        Some(name)
    };
    let mut names: Vec<HeaderName> = Vec::new();
    for name in item.list_of(help, read)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > MAX_HEADERS {
        let problem = item.error(format!("there are {} logged headers", names.len()));
        return item.reject(problem.help(format!("a line has at most {MAX_HEADERS}")));
    }
    Some(names.into())
}
