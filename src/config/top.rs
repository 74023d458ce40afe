//! The top level of the file, and its keys that configure the process.

use std::time::Duration;

use super::acme::AcmeKeys;
use super::admin::AdminKeys;
use super::answers::AnswersKeys;
use super::client_ip::ClientIpKeys;
use super::consumers::{ConsumerKeys, ConsumersKeys};
use super::cors::CorsKeys;
use super::descriptors::DescriptorKeys;
use super::geo::GeoKeys;
use super::jwt::JwtKeys;
use super::keys::kinds::words;
use super::keys::{self, Block, DeclaredKeys as _, keys};
use super::limits::{LimitKeys, PricesKeys};
use super::listeners::ListenerKeys;
use super::log::{LogKeys, TracingKeys};
use super::policy_tests::TestKeys;
use super::route_keys::RouteKeys;
use super::store::StoreKeys;
use super::table::Table;
use super::upstreams::UpstreamKeys;

words!(AutoWords: () = [("auto", ())]);

keys! {
    /// The keys and tables of the file itself.
    TopKeys {
        /// Address and port; short for one `[[listeners]]` with defaults. The file has exactly one of the two
        listen: Text, or "";
        /// Where clients connect
        listeners: List<KeyTable<ListenerKeys>>, or "";
        /// Certificates from an ACME server, such as Let's Encrypt
        acme: KeyTable<AcmeKeys>, or "";
        /// Other files of the configuration: paths, or patterns with `*` and `?`, relative to the directory of the file;
        /// see [below](#several-files)
        include: List<Text> = [];
        /// Threads that serve requests; `"auto"` is one per CPU
        workers: Either<Choice<AutoWords>, Integer<1, 1024, usize>> = "auto";
        /// After SIGTERM or SIGINT, how long new requests are served as before while `/ready` responds with 503; a
        /// second SIGINT ends the delay
        shutdown_delay: Duration<ZERO, DAY> = "0s";
        /// How long the drain that follows waits for requests in flight; a SIGINT during the drain exits at once
        shutdown_grace: Duration<ZERO, DAY> = "30s";
        /// Reload the file whenever it changes; see [operations.md](operations.md#reload)
        watch: Boolean = false;
        /// Limits of every route, and of requests that match no route
        default_limits: List<Text> = [];
        /// How the address of a client is found
        client_ip: KeyTable<ClientIpKeys>, or "";
        /// Databases of countries and autonomous systems
        geo: KeyTable<GeoKeys>, or "";
        /// Which JSON Web Tokens are trusted
        jwt: KeyTable<JwtKeys>, or "";
        /// The named clients of the API, and their credentials
        consumers: KeyTable<ConsumersKeys>, or "";
        /// Which web pages may read responses
        cors: KeyTable<CorsKeys>, or "";
        /// Where limits are counted
        store: KeyTable<StoreKeys>, or "";
        /// Rate limits by name
        limits: NamedTable<KeyTable<LimitKeys>>, or "";
        /// Groups of servers by name
        upstreams: NamedTable<KeyTable<UpstreamKeys>>, or "";
        /// Which requests go where, and their limits
        routes: List<KeyTable<RouteKeys>>, or "";
        /// What the rate-limit service of Envoy counts
        descriptors: List<KeyTable<DescriptorKeys>>, or "";
        /// How responses describe limits
        answers: KeyTable<AnswersKeys>, or "";
        /// The admin interface
        admin: KeyTable<AdminKeys>, or "";
        /// The log and the access log
        log: KeyTable<LogKeys>, or "";
        /// Distributed tracing
        tracing: KeyTable<TracingKeys>, or "";
        /// What `tidegate test` checks; a proxy ignores it
        tests: List<KeyTable<TestKeys>>, or "";
    }
    mistaken IN_TOP
}

/// The tables of keys in docs/configuration.
#[must_use]
pub fn reference() -> Vec<Block> {
    sections().into_iter().map(keys::Section::into_block).collect()
}

fn sections() -> Vec<keys::Section> {
    let others = [
        ("consumers.toml", "[NAME] of the file of consumers", ConsumerKeys::KEYS),
        ("prices.toml", "the file of prices", PricesKeys::KEYS),
    ];
    keys::sections(TopKeys::KEYS, &others)
}

/// The documentation of every key and table of this name, such as `rate` or `limits.rate`, in lines of text.
///
/// # Errors
/// The most similar name, if there is one; no key has this name.
pub fn describe(name: &str) -> Result<Vec<String>, Option<String>> {
    keys::describe(TopKeys::KEYS.all, &sections(), name)
}

/// The documentation of each table.
#[must_use]
pub fn tables() -> Vec<keys::TableText> {
    keys::tables(&sections())
}

/// The JSON schema of the file.
#[must_use]
pub fn schema() -> serde_json::Value {
    keys::schema(TopKeys::KEYS)
}

/// The keys of the top level that configure the process.
pub(super) struct Process {
    pub workers: usize,
    pub shutdown_delay: Duration,
    pub shutdown_grace: Duration,
    pub watch: bool,
}

/// Reads them.
pub(super) fn process(top: &Table<'_, TopKeys>) -> Option<Process> {
    let (workers, watch) = (workers(top), top.watch().read());
    let (shutdown_delay, shutdown_grace) = (top.shutdown_delay().read(), top.shutdown_grace().read());
    Some(Process {
        workers: workers?,
        shutdown_delay: shutdown_delay?,
        shutdown_grace: shutdown_grace?,
        watch: watch?,
    })
}

fn workers(top: &Table<'_, TopKeys>) -> Option<usize> {
    let item = top.workers().item();
    if item.is_integer() {
        return top.workers().second(item);
    }
    let text = item.string_like("\"auto\" or a number of threads", "")?;
    let help = "write \"auto\" for one thread per CPU, or a number without quotes";
    text.parsed("a number of threads", help, |text| (text == "auto").then(all_cpus))
}

fn all_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
