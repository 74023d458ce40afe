//! `[log]`.

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use tracing::Level;

use super::client_ip::header_name;
use super::consumers::ReadConsumers;
use super::item::Item;
use super::keys::keys;
use super::keys::kinds::words;
use super::table::Table;
use crate::telemetry::{self, AccessLog, AccessOnly, LogSpec};

/// The most headers that are logged.
const MAX_HEADERS: usize = 16;
/// Headers that hold credentials.
const SECRET: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

/// The settings of the log, and the headers that the access log has.
pub(super) type ReadLog = (LogSpec, Box<[HeaderName]>);

words!(LevelWords: Level = [
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
]);
words!(AccessWords: AccessLog = [("json", AccessLog::Json), ("text", AccessLog::Text), ("off", AccessLog::Off)]);
words!(AccessOnlyWords: AccessOnly = [("all", AccessOnly::All), ("denied", AccessOnly::Denied)]);
words!(KeysWords: telemetry::LogKeys = [
    ("hash", telemetry::LogKeys::Hash),
    ("plain", telemetry::LogKeys::Plain),
    ("off", telemetry::LogKeys::Off),
]);

keys! {
    /// The keys of `[log]`.
    LogKeys {
        /// The lowest level of the log on standard error: `error`, `warn`, `info`, `debug` or `trace`
        level: Choice<LevelWords> = "info";
        /// The access log, one line per request on standard output: `json`, `text` or `off`
        access: Choice<AccessWords> = "json";
        /// `"denied"`: only requests that a limit has denied, with 403, 429 or 503
        access_only: Choice<AccessOnlyWords> = "all";
        /// The share of requests that are logged, chosen at random
        access_sample: Decimal<0, 1> = 1.0;
        /// How `key`, the key under which a limit denied the request, is logged: as a tag (`"hash"`), as the values
        /// of its parts (`"plain"`), or not at all (`"off"`)
        keys: Choice<KeysWords> = "hash";
        /// Request headers in the access log, such as `["user-agent"]`: at most 16, and none that holds credentials
        headers: List<Text> = [], by hand;
    }
    mistaken IN_LOG
    reads LogSpec(table)
}

/// Reads `[log]`.
pub(super) fn log(table: Table<'_, LogKeys>, consumers: &ReadConsumers<'_>) -> Option<ReadLog> {
    let spec = LogKeys::read(&table);
    let headers = headers(table.headers().item(), consumers.credential_header());
    table.close();
    Some((spec?, headers?))
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
