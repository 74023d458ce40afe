//! `[log]` and `[tracing]`.

use std::path::{Path, PathBuf};

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use tracing::Level;

use super::client_ip::header_name;
use super::consumers::ReadConsumers;
use super::headers;
use super::item::{Item, TextItem};
use super::keys::keys;
use super::keys::kinds::words;
use super::report::Problem;
use super::table::Table;
use crate::otlp::{CollectorUrl, ExportSpec, TracingSpec};
use crate::telemetry::{self, AccessLog, AccessOnly, LogSpec, ParentTrust, Sampling};
use crate::tls::ClientTls;

/// The most headers that are logged.
const MAX_HEADERS: usize = 16;
/// Headers that hold credentials.
const SECRET: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

/// What `[log]` says.
pub(super) struct ReadLog {
    pub spec: LogSpec,
    /// The file of the access log; without one, it goes to standard output.
    pub access_file: Option<PathBuf>,
    /// The headers in the access log.
    pub headers: Box<[HeaderName]>,
}

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
        /// The access log, one line per request: `json`, `text` or `off`
        access: Choice<AccessWords> = "json";
        /// The file to which the access log is appended, such as `"/var/log/tidegate/access.log"`, instead of standard
        /// output. SIGUSR1 and a reload open it again
        access_file: Text, by hand;
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

/// Reads `[log]`. The file of the access log is relative to `directory`.
pub(super) fn log(
    table: Table<'_, LogKeys>,
    consumers: &ReadConsumers<'_>,
    directory: &Path,
) -> Option<ReadLog> {
    let spec = LogKeys::read(&table);
    let access_file = table.access_file().with(|item| {
        let text = item.string_like("a file", "such as \"/var/log/tidegate/access.log\"")?;
        Some(text.path(directory))
    });
    let headers = headers(table.headers().item(), consumers.credential_header());
    table.close();
    Some(ReadLog { spec: spec?, access_file: access_file.ok()?, headers: headers? })
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

const FORM: &str = "such as \"http://localhost:4318\"";
/// Headers that are written by the exporter itself.
const OWN: [&str; 2] = ["host", "content-type"];

words!(TrustWords: ParentTrust = [("proxies", ParentTrust::Proxies), ("any", ParentTrust::Any)]);

keys! {
    /// The keys of `[tracing]`.
    TracingKeys {
        /// The collector, such as `"http://localhost:4318"`: spans are exported to it by OTLP over HTTP, at the
        /// path `/v1/traces`. Without it no span is recorded, and traces are only passed on
        endpoint: Text;
        /// Headers of each request to the collector, as `{ name = "value" }`
        headers: NamedTable<Text>;
        /// How long the export of a batch may take, with its retries
        timeout: Duration<{ 100 * MILLISECOND }, MINUTE> = "10s";
        /// The resource attribute `service.name`
        service_name: Text = "tidegate";
        /// Further attributes of this process, as `{ "deployment.environment.name" = "production" }`
        resource_attributes: NamedTable<Text>;
        /// The share of traces that are sampled, unless `trust` says that the sender has decided
        sample: Decimal<0, 1> = 0.01;
        /// Whose `sampled` flag is obeyed: that of `trusted_proxies` of `[client_ip]`, or, with `"any"`, that of
        /// every client
        trust: Choice<TrustWords> = "proxies";
    }
}

/// Reads `[tracing]`.
pub(super) fn tracing(item: Item<'_>) -> Option<TracingSpec> {
    let table = Table::<TracingKeys>::of(item, "[tracing]")?;
    let (trust, ratio) = (table.trust().read(), table.sample().read());
    let endpoint = table.endpoint().with(endpoint);
    let headers = table.headers().with(|item| headers::pairs(item, header));
    let timeout = table.timeout().read();
    let resource = resource(&table);
    check_use(&table);
    table.close();
    let (headers, timeout, resource) = (headers.ok()?.unwrap_or_default(), timeout?, resource?);
    let export = |(endpoint, tls)| ExportSpec { endpoint, tls, headers, timeout, resource };
    Some(TracingSpec {
        sampling: Sampling { ratio: ratio?, trust: trust? },
        export: endpoint.ok()?.map(export),
    })
}

/// Reads the URL of the collector, and makes TLS to it if it needs that.
fn endpoint(item: Item<'_>) -> Option<(CollectorUrl, Option<ClientTls>)> {
    let text = item.string_like("the URL of a collector", FORM)?;
    let endpoint = match CollectorUrl::parse(&text.value) {
        Ok(endpoint) => endpoint,
        Err(error) => return text.reject(text.error(error.to_string()).help(FORM)),
    };
    if !endpoint.is_tls() {
        return Some((endpoint, None));
    }
    match ClientTls::with_system_roots() {
        Ok(tls) => Some((endpoint, Some(tls))),
        Err(error) => text.reject(text.error(error.to_string())),
    }
}

fn header(key: &super::table::Name<'_>, item: Item<'_>) -> Option<(http::HeaderName, http::HeaderValue)> {
    let name = headers::name(key, item);
    if let Some(name) = &name
        && (OWN.contains(&name.as_str()) || headers::OWN.contains(&name.as_str()))
    {
        let title = format!("`{name}` can't be set: tidegate writes it itself");
        return item.reject(Problem::error(key.span.clone(), title));
    }
    let mut value = item.string().and_then(|text| headers::value(&text))?;
    // Headers for a collector are credentials more often than not.
    value.set_sensitive(true);
    Some((name?, value))
}

/// Reads the attributes of the process.
fn resource(table: &Table<'_, TracingKeys>) -> Option<Vec<(Box<str>, Box<str>)>> {
    let service = table.service_name().read().and_then(|text| not_empty(&text));
    let others = table.resource_attributes().with(|item| {
        headers::pairs(item, |name, item| {
            if name.text == "service.name" {
                let problem = Problem::error(name.span.clone(), "`service.name` is the key `service_name`");
                return item.reject(problem.help("write service_name = \"…\" in [tracing]"));
            }
            Some((Box::from(name.text), item.string()?.value.into()))
        })
    });
    let version = ("service.version".into(), env!("CARGO_PKG_VERSION").into());
    let mut all = vec![("service.name".into(), service?), version];
    let others = others.ok()?.unwrap_or_default();
    all.retain(|(key, _): &(Box<str>, Box<str>)| others.iter().all(|(other, _)| other != key));
    all.extend(others);
    Some(all)
}

fn not_empty(text: &TextItem<'_>) -> Option<Box<str>> {
    if text.value.is_empty() {
        return text.reject(text.error("`service_name` is empty").help("leave it out for \"tidegate\""));
    }
    Some((&*text.value).into())
}

/// Warns of keys that have no effect without an endpoint.
fn check_use(table: &Table<'_, TracingKeys>) {
    if table.endpoint().given().is_some() {
        return;
    }
    for key in ["headers", "timeout", "service_name", "resource_attributes"] {
        if let Some(span) = table.key_span(key) {
            let title = format!("`{key}` has no effect: [tracing] has no `endpoint`, so no span is exported");
            table.reader.report(Problem::warning(span, title).help(format!("add endpoint, {FORM}")));
        }
    }
}
