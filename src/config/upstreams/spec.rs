//! One `[upstreams.NAME]`.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use super::default_tls::{ALPN_HTTP_1, ALPN_HTTP_2, DefaultTls};
use super::read_key::ReadKey;
use super::resilience;
use super::url::{FORM, server_url};
use crate::config::item::Item;
use crate::config::keys::{SERVER, UPSTREAM};
use crate::config::report::Problem;
use crate::config::table::{Name, Reported, Table, read_defaults};
use crate::config::tls;
use crate::tls::ClientTls;
use crate::upstream::{Balance, ServerSpec, UpstreamSpec};

/// Reads one upstream: its spec if it is valid, and the key of `hash:PART` if that selects its servers.
pub(super) fn upstream(
    name: &Name<'_>,
    item: Item<'_>,
    directory: &Path,
    default_tls: &DefaultTls,
) -> (Option<UpstreamSpec>, Option<ReadKey>) {
    let name_is_valid = check_name(name, item);
    let label = format!("upstream `{}`", name.text);
    let table = match item.text().filter(|text| text.contains("://")) {
        Some(url) => {
            let help =
                format!("write its servers as a table: [upstreams.{}] with servers = [\"{url}\"]", name.text);
            Table::of_or(item, label, &UPSTREAM, &help)
        }
        None => Table::of(item, label, &UPSTREAM),
    };
    let Some(table) = table else { return (None, None) };
    let (balance, key) = balance(&table).unzip();
    let settings = settings(name.text, balance, &table);
    let servers = table.required("servers").and_then(servers);
    warn_of_one(&table, servers.as_deref());
    let is_http2 = settings.as_ref().is_some_and(|settings| settings.is_http2);
    let alpn = if is_http2 { ALPN_HTTP_2 } else { ALPN_HTTP_1 };
    let own_tls = table.optional("tls", |item| tls::client(item, directory, &[alpn]));
    let tls = servers.as_deref().zip(own_tls.ok()).and_then(|(servers, own)| {
        encryption(&table, servers, own, || default_tls.for_servers(item, servers, alpn)).ok()
    });
    table.close();
    let spec = settings.zip(servers).zip(tls);
    let spec = spec.map(|((settings, servers), tls)| UpstreamSpec { servers, tls, ..settings });
    (spec.filter(|_| name_is_valid), key.flatten())
}

/// An upstream with these servers that has the default of every other key.
pub(in crate::config) fn with_defaults(name: &str, servers: Vec<ServerSpec>) -> UpstreamSpec {
    let read = |table: Table<'_>| settings(name, Some(balance(&table)?.0), &table);
    UpstreamSpec { servers, ..read_defaults(&UPSTREAM, read) }
}

/// Reads `balance`, with the key of `hash:PART`.
fn balance(table: &Table<'_>) -> Option<(Balance, Option<ReadKey>)> {
    let item = table.item("balance");
    let (balance, spec) = resilience::balance(item)?;
    Some((balance, spec.map(|spec| ReadKey { spec, span: item.span() })))
}

/// Reads everything but `balance`, `servers` and `tls`.
fn settings(name: &str, balance: Option<Balance>, table: &Table<'_>) -> Option<UpstreamSpec> {
    let is_http2 = table.choice("protocol", &[("h1", false), ("h2", true)]);
    let timeouts = timeouts(table);
    let retries = table.small("retries");
    let retry_for = table.duration_or_off("retry_for");
    let (retry_budget, panic_threshold) = (table.decimal("retry_budget"), table.decimal("panic_threshold"));
    let (max_connections, max_pending) = (table.count("max_connections"), table.count("max_pending"));
    let per_client = table.count("max_requests_per_client");
    let hash_balance_factor = resilience::hash_balance_factor(balance, table);
    let health = table.optional("health", resilience::health);
    let eject = resilience::eject(table.item("eject"));
    let slow_start = table.duration("slow_start");
    let timeouts = timeouts?;
    Some(UpstreamSpec {
        name: name.into(),
        servers: Vec::new(),
        tls: None,
        is_http2: is_http2?,
        connect_timeout: timeouts.connect,
        pending_timeout: timeouts.pending,
        response_timeout: timeouts.response,
        stall_timeout: timeouts.stall,
        total_timeout: timeouts.total,
        balance: balance?,
        hash_balance_factor: hash_balance_factor.ok()?,
        retries: retries?,
        retry_budget: retry_budget?,
        retry_for: retry_for.ok()?,
        max_connections: max_connections?,
        max_pending: max_pending?,
        max_requests_per_client: NonZeroUsize::new(per_client?),
        health: health.ok()?,
        eject: eject.ok()?,
        panic_threshold: panic_threshold?,
        slow_start: slow_start?,
    })
}

struct Timeouts {
    connect: Duration,
    pending: Duration,
    response: Duration,
    stall: Duration,
    total: Option<Duration>,
}

fn timeouts(table: &Table<'_>) -> Option<Timeouts> {
    let connect = table.duration("connect_timeout");
    let pending = table.duration("pending_timeout");
    let response = table.duration("response_timeout");
    let stall = table.duration("stall_timeout");
    let total = table.duration_or_off("total_timeout").ok();
    Some(Timeouts { connect: connect?, pending: pending?, response: response?, stall: stall?, total: total? })
}

/// The TLS of an upstream: that of its table `tls`, or else the default if a server needs it.
fn encryption(
    table: &Table<'_>,
    servers: &[ServerSpec],
    own: Option<ClientTls>,
    default: impl FnOnce() -> Result<Option<ClientTls>, Reported>,
) -> Result<Option<ClientTls>, Reported> {
    let Some(item) = table.given("tls") else { return default() };
    if servers.iter().any(|server| server.is_tls) {
        return Ok(own);
    }
    let problem = item.error("`tls` is given, and no server is reached over TLS");
    item.reject::<()>(problem.help("start the URL of a server with https://"));
    Err(Reported)
}

/// Warns of keys that choose between servers where there is one server with one address.
fn warn_of_one(table: &Table<'_>, servers: Option<&[ServerSpec]>) {
    let Some([server]) = servers else { return };
    if server.literal().is_none() {
        return;
    }
    for key in ["balance", "hash_balance_factor", "health", "eject", "panic_threshold", "slow_start"] {
        if let Some(span) = table.key_span(key) {
            let title = format!("`{key}` changes nothing here: all requests go to the only server");
            table.reader.report(Problem::warning(span, title).help("add another one to `servers`"));
        }
    }
}

fn check_name(name: &Name<'_>, item: Item<'_>) -> bool {
    let is_valid =
        !name.text.is_empty() && !name.text.contains("://") && !name.text.contains(char::is_control);
    if !is_valid {
        let title = format!("`{}` is not a valid name of an upstream", name.text);
        let problem = Problem::error(name.span.clone(), title);
        item.reject::<()>(problem.help("write a URL into its `servers`, or into the `upstream` of a route"));
    }
    is_valid
}

fn servers(item: Item<'_>) -> Option<Vec<ServerSpec>> {
    let servers = item.list_of("put the URLs in brackets: [\"http://10.0.1.5:9000\"]", server)?;
    if servers.is_empty() {
        let problem = item.error("an upstream needs at least one server");
        return item.reject(problem.help("add one: [\"http://10.0.1.5:9000\"]"));
    }
    Some(servers)
}

fn server(item: Item<'_>) -> Option<ServerSpec> {
    if !item.is_table() {
        let text = item.string_like("a URL, or a table with `url` and `weight`", FORM)?;
        return server_url(&text);
    }
    let table = Table::of(item, "this server", &SERVER)?;
    let url = table.required("url").and_then(|item| item.string_like("a URL", FORM));
    let server = url.and_then(|text| server_url(&text));
    let weight = table.small("weight");
    table.close();
    Some(ServerSpec { weight: weight?, ..server? })
}
