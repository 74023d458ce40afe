//! One `[upstreams.NAME]`.

use std::cell::OnceCell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use super::overload::{self, Missing, OverloadKeys};
use super::resilience::{self, EjectKeys, HealthKeys, ReadKey};
use super::{FORM, ServerKeys, server_url};
use crate::config::item::Item;
use crate::config::keys::keys;
use crate::config::report::Problem;
use crate::config::table::{AnyTable, Name, Reported, Table, read_defaults};
use crate::config::tls::{self, ClientTlsKeys};
use crate::gate::KeyPart;
use crate::tls::{ClientTls, ClientTlsSpec};
use crate::upstream::{Balance, ServerSpec, UpstreamSpec};

keys! {
    /// The keys of an upstream.
    UpstreamKeys {
        /// An array of URLs `http://host[:port][/base]`, `https://…`, `unix:/path` or `srv://name`, or of tables; see
        /// [below](#sockets-and-services)
        servers: List<Either<Text, KeyTable<ServerKeys>>>, required ["http://10.0.1.5:9000"], by hand;
        /// How the server of a request is chosen; see [below](#which-server)
        balance: Text = "round_robin", by hand;
        /// With `hash`: the bound of requests in flight at a server, as a multiple of its fair part of all
        /// requests, at least 1. Further requests go to the next server. 0 for no bound; see
        /// [below](#which-server)
        hash_balance_factor: Decimal<0, 10> = 0, by hand;
        /// TLS options for `https` servers; see below
        tls: KeyTable<ClientTlsKeys>, by hand;
        /// The longest that a new connection may take, including the TLS handshake; see
        /// [below](#connections-that-take-long)
        connect_timeout: Duration<MILLISECOND, DAY> = "5s";
        /// The longest that a request waits for a connection while all are in use. With `overload`, unless
        /// its `mode` is `"shadow"`, the default is 500 ms, and a wait for admission is at most 100 ms
        pending_timeout: Duration<MILLISECOND, DAY> = "3s";
        /// From the end of the request to the head of the response
        response_timeout: Duration<MILLISECOND, DAY> = "60s";
        /// Between two reads of a response body, unless the server still reads the request body; also the longest
        /// that a write may block
        stall_timeout: Duration<MILLISECOND, DAY> = "60s";
        /// From the choice of a server to the last byte of the response, or `"off"`
        total_timeout: DurationOrOff<MILLISECOND, DAY> = "off";
        /// How often a request is sent again if that is safe
        retries: Integer<0, 5, u32> = 1;
        /// The share of the requests that may be sent again
        retry_budget: Decimal<0, 1> = 0.2;
        /// How long a request waits, and is sent again, while no server responds, or `"off"`; see
        /// [below](#servers-that-restart)
        retry_for: DurationOrOff<MILLISECOND, DAY> = "off";
        /// Connections to each address of a server over all workers, idle ones included
        max_connections: Integer<1, 1_000_000, usize> = 1024;
        /// A limit of requests in flight over all workers, which is learned, with priorities and a fair queue: `true` or a table;
        /// see [below](#overload)
        overload: Either<Boolean, KeyTable<OverloadKeys>> = false, by hand;
        /// Requests over all workers that may wait for a connection, 0 for none. With `overload` the default is 256 unless
        /// its `mode` is `"shadow"`
        max_pending: Integer<0, 1_000_000, usize> = 1024;
        /// Requests of one client in flight at once over all workers, up to the last byte of the response; more get
        /// 429 with `Retry-After: 1`. 0 for no limit
        max_requests_per_client: Integer<0, 1_000_000, Option<NonZeroUsize>> = 0;
        /// The most tunnels (WebSockets and other upgrades) that a client can have open at once, over all workers. Further
        /// handshakes get 503. 0 for no limit. With `overload`, a client is identified by `fair_by`, and the default is 64
        /// unless `mode` is `"shadow"`; see [tunnels](../overload.md#tunnels)
        max_tunnels_per_client: Integer<0, 1_000_000, Option<NonZeroUsize>> = 0;
        /// Health checks, such as `{ path = "/healthz" }`
        health: KeyTable<HealthKeys> => resilience::health;
        /// Ejection of a server after consecutive failures: a table with the keys below, or `"off"`
        eject: Either<Choice<OffWords>, KeyTable<EjectKeys>> = {} => |item| resilience::eject(item).ok();
        /// If a smaller share of the servers than this is healthy, requests go to all of them
        panic_threshold: Decimal<0, 1> = 0.5;
        /// How long the share of a server that is new or has recovered grows evenly to its full size
        slow_start: Duration<ZERO, DAY> = "0s";
        /// The version of HTTP to the servers: `"h1"` is HTTP/1.1, `"h2"` is HTTP/2; see [below](#http2-to-servers)
        is_http2("protocol"): Choice<ProtocolWords> = "h1";
    }
    mistaken IN_UPSTREAM
    reads UpstreamSpec(table, name: &str, balance: Option<Balance>) after {
        let factor = table.hash_balance_factor();
        let factor = resilience::hash_balance_factor(factor.read(), factor.item(), balance);
    } with {
        name: name.into(),
        servers: Vec::new(),
        tls: None,
        overload: None,
        balance: balance?,
        hash_balance_factor: factor.ok()?,
    }
}

/// The protocol names of ALPN (RFC 7301).
pub(super) const ALPN_HTTP_1: &[u8] = b"http/1.1";
pub(super) const ALPN_HTTP_2: &[u8] = b"h2";

/// TLS with default options, for HTTP/1.1 and for HTTP/2. Each is made once, since loading the system's certificates is
/// slow.
#[derive(Default)]
pub(super) struct DefaultTls([OnceCell<ClientTls>; 2]);

impl DefaultTls {
    /// TLS for these servers, if any of them needs it.
    pub fn for_servers(
        &self,
        item: Item<'_>,
        servers: &[ServerSpec],
        alpn: &[u8],
    ) -> Result<Option<ClientTls>, Reported> {
        if !servers.iter().any(|server| server.is_tls) {
            return Ok(None);
        }
        let default = &self.0[usize::from(alpn == ALPN_HTTP_2)];
        if let Some(tls) = default.get() {
            return Ok(Some(tls.clone()));
        }
        let spec = ClientTlsSpec { protocols: vec![alpn.to_vec()], ..ClientTlsSpec::default() };
        match ClientTls::new(spec) {
            Ok(tls) => Ok(Some(default.get_or_init(|| tls).clone())),
            Err(error) => {
                item.reject::<()>(item.error(error.to_string()));
                Err(Reported)
            }
        }
    }
}

/// The keys of requests by which an upstream chooses servers, and by which waiting requests take turns; and what a warning of its
/// limit shows.
#[derive(Default)]
pub(super) struct ReadKeys {
    /// That of `hash:PART`.
    pub hash: Option<ReadKey>,
    /// That of `overload`.
    pub fair_by: Option<ReadKey>,
    /// The span of the limit of requests, or else of connections, if the file has one.
    pub limit: Option<Range<usize>>,
}

/// Reads one upstream: its spec if it is valid, and its keys.
pub(super) fn upstream(
    name: &Name<'_>,
    item: Item<'_>,
    directory: &Path,
    default_tls: &DefaultTls,
) -> (Option<UpstreamSpec>, ReadKeys) {
    let name_is_valid = check_name(name, item);
    let label = format!("upstream `{}`", name.text);
    let table = match item.text().filter(|text| text.contains("://")) {
        Some(url) => {
            let help =
                format!("write its servers as a table: [upstreams.{}] with servers = [\"{url}\"]", name.text);
            Table::<UpstreamKeys>::of_or(item, label, &help)
        }
        None => Table::of(item, label),
    };
    let Some(table) = table else { return (None, ReadKeys::default()) };
    let (balance, hash) = table.balance().with(resilience::balance).unzip();
    let overload = table.overload().with(overload::overload);
    let missing = Missing {
        max_pending: table.max_pending().given().is_none(),
        pending_timeout: table.pending_timeout().given().is_none(),
        max_tunnels_per_client: table.max_tunnels_per_client().given().is_none(),
    };
    let settings = UpstreamKeys::read(&table, name.text, balance);
    let servers = table.servers().with(servers);
    warn_of_one(&table, servers.as_deref());
    if let (Some(settings), Some(overload)) = (&settings, &overload) {
        warn_of_tunnels(&table, settings, overload.as_ref().map(|overload| &overload.fair_by));
    }
    let is_http2 = settings.as_ref().is_some_and(|settings| settings.is_http2);
    let alpn = if is_http2 { ALPN_HTTP_2 } else { ALPN_HTTP_1 };
    let own_tls = table.tls().with(|item| tls::client(item, directory, &[alpn]));
    let tls = servers.as_deref().zip(own_tls.ok()).and_then(|(servers, own)| {
        encryption(&table, servers, own, || default_tls.for_servers(item, servers, alpn)).ok()
    });
    let max_connections = table.max_connections().given().map(Item::span);
    table.close();
    let is_valid = name_is_valid && overload.is_some();
    let overload = overload.flatten();
    let spec = settings.zip(servers).zip(tls).filter(|_| is_valid);
    let spec = spec.map(|((settings, servers), tls)| {
        let mut spec = UpstreamSpec { servers, tls, ..settings };
        if let Some(overload) = &overload {
            overload.apply(&mut spec, &missing);
        }
        spec
    });
    let (limit, fair_by) = overload.map(|overload| (overload.limit, overload.fair_by)).unzip();
    (spec, ReadKeys { hash: hash.flatten(), fair_by, limit: limit.flatten().or(max_connections) })
}

/// An upstream with these servers that has the default of every other key.
pub(in crate::config) fn with_defaults(name: &str, servers: Vec<ServerSpec>) -> UpstreamSpec {
    let read = |table: Table<'_, UpstreamKeys>| {
        UpstreamKeys::read(&table, name, Some(table.balance().with(resilience::balance)?.0))
    };
    UpstreamSpec { servers, ..read_defaults(read) }
}

/// The TLS of an upstream: that of its table `tls`, or else the default if a server needs it.
fn encryption(
    table: &Table<'_, UpstreamKeys>,
    servers: &[ServerSpec],
    own: Option<ClientTls>,
    default: impl FnOnce() -> Result<Option<ClientTls>, Reported>,
) -> Result<Option<ClientTls>, Reported> {
    let Some(item) = table.tls().given() else { return default() };
    if servers.iter().any(|server| server.is_tls) {
        return Ok(own);
    }
    let problem = item.error("`tls` is given, and no server is reached over TLS");
    item.reject::<()>(problem.help("start the URL of a server with https://"));
    Err(Reported)
}

/// Warns of keys that choose between servers where there is one server with one address.
fn warn_of_one(table: &AnyTable<'_>, servers: Option<&[ServerSpec]>) {
    let Some([server]) = servers else { return };
    if server.dns_name().is_some() {
        return;
    }
    for key in ["balance", "hash_balance_factor", "health", "eject", "panic_threshold", "slow_start"] {
        if let Some(span) = table.key_span(key) {
            let title = format!("`{key}` changes nothing here: all requests go to the only server");
            table.reader.report(Problem::warning(span, title).help("add another one to `servers`"));
        }
    }
}

/// Warns of a bound of tunnels that is never reached, since the bound of all requests of a client is lower.
fn warn_of_tunnels(table: &Table<'_, UpstreamKeys>, settings: &UpstreamSpec, fair_by: Option<&ReadKey>) {
    let (Some(requests), Some(tunnels)) = (settings.max_requests_per_client, settings.max_tunnels_per_client)
    else {
        return;
    };
    // Another key has its tunnels at several addresses.
    let is_by_address = fair_by.is_none_or(|key| key.spec.parts == [KeyPart::ClientIp]);
    if tunnels > requests
        && is_by_address
        && let Some(span) = table.key_span("max_tunnels_per_client")
    {
        let title =
            format!("no client reaches {tunnels} tunnels: it has at most {requests} requests in flight");
        let problem = Problem::warning(span, title);
        let requests = table.key_span("max_requests_per_client").unwrap_or_default();
        let problem = problem.related(requests, "tunnels count as requests too");
        table.reader.report(problem.help("write a smaller number, or raise `max_requests_per_client`"));
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
    let table = Table::<ServerKeys>::of(item, "this server")?;
    let url = table.url().with(|item| item.string_like("a URL", FORM));
    let server = url.and_then(|text| server_url(&text));
    let weight = table.weight().read();
    table.close();
    Some(ServerSpec { weight: weight?, ..server? })
}
