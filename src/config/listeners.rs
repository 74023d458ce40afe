//! `listen` and `[[listeners]]`.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;

use http::StatusCode;

use super::item::Item;
use super::keys::keys;
use super::keys::kinds::words;
use super::redirects;
use super::report::Problem;
use super::route_actions::{self, DENY_STATUS, DecideWords};
use super::table::{AnyTable, Reported, Table, read_defaults};
use super::tls::{self, ListenerTlsKeys};
use super::top::TopKeys;
use crate::gate::ClientIp;
use crate::proxy::ForwardAuth;
use crate::server::{HeaderCase, ListenerSpec, Protocols, Service};

const FORM: &str =
    "write address and port: \"127.0.0.1:8080\", \"0.0.0.0:8080\" for every address, \"[::1]:8080\"";

words!(HeaderCaseWords: HeaderCase = [("lower", HeaderCase::Lower), ("title", HeaderCase::Title)]);
words!(ServeWords: Service = [("proxy", Service::Proxy), ("envoy-ratelimit", Service::EnvoyRatelimit)]);

keys! {
    /// The keys of a listener.
    ListenerKeys {
        /// Address and port, such as `"0.0.0.0:8080"` or `"[::1]:8080"`
        address: Text, required "0.0.0.0:8080", by hand;
        /// A name by which routes select the listener, such as `"internal"`
        name: Text, or "none", by hand;
        /// What the listener serves: with `"proxy"` the routes, with `"envoy-ratelimit"` the rate-limit
        /// service of Envoy, which decides by [`[[descriptors]]`](descriptors.md)
        serve: Choice<ServeWords> = "proxy", by hand;
        /// Whether all requests, but those of an ACME server, get 308 to the same URL by `https`, on the port of the listener
        /// with `tls`: 443 if there is one, or else the first
        redirect_to_https: Boolean = false, by hand;
        /// Versions of HTTP: `"h1"` is HTTP/1.1 and 1.0, `"h2"` is HTTP/2; see [below](#http2-to-clients)
        protocols: List<Choice<ProtocolWords>> = ["h2", "h1"], by hand;
        /// TLS; see [below](#tls-to-clients)
        tls: KeyTable<ListenerTlsKeys>, by hand;
        /// Whether connections start with a PROXY header; see [below](#proxy-protocol)
        proxy_protocol: Boolean = false => |item| proxy_protocol(item, client_ip);
        /// `"decide"`: each request here is the authorization request of a trusted proxy, and gets the decision on
        /// the original request that it describes; see [forward auth](../forward-auth.md)
        respond: Choice<DecideWords>, or "as their routes say", by hand;
        #[doc = DENY_STATUS]
        deny_status: Integer<400, 599, StatusCode>, or "that of the denial", by hand;
        /// Open connections over all workers. When the limit is reached, a new connection replaces an idle one or
        /// is closed at once; see [below](#when-all-connections-of-a-listener-are-in-use). A warning at startup
        /// says if the limit of open files is too low for this number
        max_connections: Integer<1, 10_000_000, usize> = 10_000;
        /// Open connections of one client over all workers, 0 for no limit; see [below](#connections-of-one-client)
        max_connections_per_client: Integer<0, 10_000_000, Option<NonZeroUsize>> = 0;
        /// For the PROXY header and the TLS handshake together
        handshake_timeout: Duration<MILLISECOND, DAY> = "10s";
        /// From the first byte of a request head to its last
        header_timeout: Duration<MILLISECOND, DAY> = "10s";
        /// Between two reads of a request body
        body_timeout: Duration<MILLISECOND, DAY> = "30s";
        /// The average rate in bytes per second at which a client has to send a request body and read a response, 0
        /// for no minimum; see [below](#slow-clients)
        min_body_rate: Integer<0, 1_000_000_000, Option<NonZeroU32>> = 240;
        /// Between requests of a connection; also the longest that a write to the client may block, unless the
        /// client still sends a body
        idle_timeout: Duration<MILLISECOND, DAY> = "75s";
        /// How long both sides of a WebSocket may be silent, and the client of a gRPC call
        tunnel_timeout: Duration<MILLISECOND, DAY> = "1h";
        /// The size of a request head; a larger one gets 431
        max_header_bytes: Size<1_024, 1_048_576> = "32KiB";
        /// The number of headers of a request; more get 431
        max_headers: Integer<1, 10_000, usize> = 100;
        /// How the names of response headers are written over HTTP/1.1: `content-type`, or with `"title"` `Content-Type`,
        /// for clients that compare names with regard to case. Over HTTP/2 they are always in lower case
        header_case: Choice<HeaderCaseWords> = "lower";
    }
    mistaken IN_LISTENER
    reads ListenerSpec(table, address: Option<SocketAddr>, context: ListenerContext<'_>) after {
        let ListenerContext { directory, client_ip } = context;
        let (service, protocols) = (table.serve().read(), protocols(table));
        let (name, redirects) = (table.name().with(name), table.redirect_to_https().read());
        let offered = protocols.map(Protocols::by_alpn).unwrap_or_default();
        let tls = table.tls().with(|item| tls::listener(item, directory, &offered));
        let forward_auth = if service == Some(Service::EnvoyRatelimit) {
            reject_keys_of_routes(table)
        } else {
            route_actions::of_listener(&table.respond(), &table.deny_status(), client_ip)
        };
    } with {
        address: address?,
        name: name.ok()?.map(Into::into),
        redirect: redirects?.then(|| redirects::to_https(443)),
        service: service?,
        protocols: protocols?,
        tls: tls.ok()?,
        forward_auth: forward_auth.ok()?,
    }
}

/// Other settings that listeners refer to.
#[derive(Clone, Copy)]
pub(super) struct ListenerContext<'c> {
    /// The directory that files are relative to.
    pub directory: &'c Path,
    pub client_ip: Option<&'c ClientIp>,
}

/// Reads the listeners: the values of `listen` and of `listeners` in the file.
pub(super) fn listeners(
    short: Option<Item<'_>>,
    long: Option<Item<'_>>,
    top: &AnyTable<'_>,
    context: ListenerContext<'_>,
) -> Option<Vec<ListenerSpec>> {
    let (short_span, long_span) = (short.map(Item::span), top.key_span("listeners"));
    // If the file has both, both are read, so that all mistakes are reported at once.
    let short = short.map(address);
    let long = long.map(|item| several(item, context));
    match (short, long) {
        (Some(_), Some(_)) => {
            let problem = Problem::error(
                short_span.unwrap_or_default(),
                "`listen` and [[listeners]] can't be used together",
            )
            .related(long_span.unwrap_or_default(), "the listeners")
            .help("keep [[listeners]], and move this address there");
            top.reader.report(problem);
            None
        }
        (Some(address), None) => Some(vec![with_defaults(address?)]),
        (None, Some(specs)) => specs,
        (None, None) => top.reader.is_for_library().then(Vec::new),
    }
}

/// Reports a file without listeners, once its tables have been read: one of them may have `listen` in the wrong place.
pub(super) fn require(top: &Table<'_, TopKeys>) {
    let is_there = top.listen().given().is_some() || top.listeners().given().is_some();
    if is_there || top.reader.is_for_library() || top.reader.is_misplaced("listen") {
        return;
    }
    let problem = Problem::without_span("the file has neither `listen` nor [[listeners]]");
    let problem = problem.help("add as the first line: listen = \"127.0.0.1:8080\"").derived();
    let is_in_admin = top.admin().given().and_then(|admin| admin.value_of("listen")).is_some();
    top.reader.report(if is_in_admin {
        problem.help("the `listen` in [admin] is the address of the admin interface")
    } else {
        problem
    });
}

fn several(item: Item<'_>, context: ListenerContext<'_>) -> Option<Vec<ListenerSpec>> {
    let items = item.list("write [[listeners]] with two brackets")?;
    if items.is_empty() {
        return item.reject(item.error("there must be at least one listener"));
    }
    let mut specs: Vec<Option<ListenerSpec>> = Vec::new();
    for &item in &items {
        let spec = listener(item, context);
        if let Some(spec) = &spec
            && spec.address.port() != 0
            && specs.iter().flatten().any(|other| other.address == spec.address)
        {
            item.reject::<()>(item.error("another listener has this address already"));
        }
        let has_name_of = |other: &ListenerSpec| spec.as_ref().is_some_and(|spec| other.name == spec.name);
        if let Some(named) = item.value_of("name")
            && specs.iter().flatten().any(has_name_of)
        {
            named.reject::<()>(named.error("another listener has this name already"));
        }
        specs.push(spec);
    }
    let mut specs: Vec<ListenerSpec> = specs.into_iter().collect::<Option<_>>()?;
    redirects::choose_ports(&items, &mut specs);
    Some(specs)
}

/// A listener at this address that has the default of every other key.
pub(super) fn with_defaults(address: SocketAddr) -> ListenerSpec {
    let context = ListenerContext { directory: Path::new(""), client_ip: None };
    read_defaults(|table| ListenerKeys::read(&table, Some(address), context))
}

fn listener(item: Item<'_>, context: ListenerContext<'_>) -> Option<ListenerSpec> {
    let table = Table::<ListenerKeys>::of(item, "this listener")?;
    let read = ListenerKeys::read(&table, table.address().with(address), context);
    table.close();
    read
}

/// Reads the name of a listener.
fn name(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.parsed(
        "a name for a listener",
        "write letters, digits, `-`, `_` and `.`: name = \"internal\"",
        |name| ((1..=64).contains(&name.len()) && name.chars().all(is_name)).then(|| name.to_owned()),
    )
}

/// Rejects keys that are about the routes, which a listener of the rate-limit service does not serve.
fn reject_keys_of_routes(table: &Table<'_, ListenerKeys>) -> Result<Option<ForwardAuth>, Reported> {
    let given = [table.respond().given(), table.deny_status().given(), table.tunnel_timeout().given()];
    let mut is_wrong = false;
    for item in given.into_iter().flatten() {
        let title = format!("`{}` is about the routes, which this listener does not serve", item.name);
        item.reject::<()>(item.error(title).help("leave it out, or write serve = \"proxy\""));
        is_wrong = true;
    }
    if is_wrong { Err(Reported) } else { Ok(None) }
}

/// Reads which versions of HTTP a listener accepts.
fn protocols(table: &Table<'_, ListenerKeys>) -> Option<Protocols> {
    let item = table.protocols().item();
    let chosen = item.list_of("put it in brackets: [\"h1\"]", |item| table.protocols().element(item))?;
    if chosen.is_empty() {
        return item.reject(item.error("there must be at least one protocol").help("leave it out for both"));
    }
    Some(Protocols { h1: chosen.contains(&false), h2: chosen.contains(&true) })
}

fn proxy_protocol(item: Item<'_>, client_ip: Option<&ClientIp>) -> Option<bool> {
    let is_on = item.boolean()?;
    if is_on && client_ip.is_some_and(|client_ip| client_ip.trusted_proxies.is_empty()) {
        let problem = item.error(
            "no client could connect here: PROXY headers are accepted only from trusted proxies, and `trusted_proxies` is empty",
        );
        let help = "name the networks of the load balancers that send it: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";
        return item.reject(problem.help(help).derived());
    }
    Some(is_on)
}

/// Reads an address with its port.
pub(super) fn address(item: Item<'_>) -> Option<SocketAddr> {
    let text = item.string_like("an address with a port", FORM)?;
    text.parsed("an address with a port", FORM, |text| text.parse().ok())
}
