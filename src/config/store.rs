//! `[store]`: where limits are counted, and how Redis is reached.

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;

use super::item::{Item, TextItem};
use super::keys::keys;
use super::keys::kinds::words;
use super::table::{Reported, Table};
use super::tls::{self, ClientTlsKeys};
use crate::limit::KeyHasher;
use crate::store::redis::{RedisAddress, RedisTarget, UrlError};
use crate::store::{RedisSpec, Servers, StoreSpec};

const FORM: &str = "write redis://host:6379, redis://user:password@host:6379/0 or unix:///run/redis.sock";
const FORMS: &str = "with Sentinel redis-sentinel://a:26379,b:26379/?service=NAME, for a cluster \
                     redis-cluster://a:6379,b:6379; rediss instead of redis is TLS";

const EXAMPLE: &str = "such as \"redis://127.0.0.1:6379\"";

/// The most servers of `urls`.
const MAX_SERVERS: usize = 64;

const MAX_PREFIX: usize = 128;

/// A shorter secret could be found by brute force.
const MIN_HASH_KEY: usize = 16;

words!(ClockWords: bool = [("server", false), ("client", true)]);

keys! {
    /// The keys of `[store]`.
    StoreKeys {
        /// The URL of Redis, in one of the forms below
        url: Text;
        /// Instead of `url`: the URLs of several Redis servers, 64 at most, which know nothing of each other. Each key is on one of
        /// them; see [redis.md](../redis.md#several-servers)
        urls: List<Text>;
        /// TLS options, for a URL with `rediss`; see [redis.md](../redis.md#tls)
        tls: KeyTable<ClientTlsKeys>;
        /// With `redis-sentinel`: the user name for the Sentinels
        sentinel_username: Text;
        /// With `redis-sentinel`: the password for the Sentinels
        sentinel_password: Text;
        /// The longest that a request waits for Redis; at least 1.5 times the round trip
        timeout: Duration<MILLISECOND, MINUTE> = "50ms";
        /// The prefix of every key in Redis: 1 to 128 visible characters without braces
        prefix: Text = "tidegate";
        /// Whose time counts. `"client"` is for a Redis that does not allow TIME in scripts; the clocks of all
        /// proxies must then agree within a second, and no limit can grant units with `ahead`
        clock: Choice<ClockWords> = "server";
        /// A secret of 16 bytes or more, the same on all proxies. It keeps attackers from guessing the keys in
        /// Redis
        hash_key: Text;
        /// The number of proxies that share the limits. It sets the [share](../redis.md#when-redis-is-unavailable) of
        /// each while Redis is unavailable; `check` warns if it is missing and Redis is on another machine
        instances: Integer<1, 100_000, NonZeroU64> = 1;
        /// The number of keys [in the process](#keys-in-the-process); with `url`, of keys that are known here in
        /// case Redis becomes unavailable
        max_keys: Integer<1, 1_000_000_000, usize> = 1_000_000;
    }
    mistaken IN_STORE
}

/// The settings of `[store]`.
pub(super) struct ReadStore {
    pub spec: StoreSpec,
    pub hasher: KeyHasher,
    pub instances: NonZeroU64,
    pub max_keys: usize,
    /// The span of the URL of a Redis on another machine, if `instances` is not set.
    pub shared: Option<Range<usize>>,
}

/// Reads the store; without a URL, limits are counted in this process. Files are relative to `directory`.
pub(super) fn store(table: Table<'_, StoreKeys>, directory: &Path) -> Option<ReadStore> {
    let span = table.key_span("url").or_else(|| table.key_span("urls"));
    let url = span.filter(|_| table.instances().given().is_none());
    let targets = targets(&table, directory);
    let (timeout, prefix) = (table.timeout().read(), table.prefix().with(prefix));
    let (client_clock, hash_key) = (table.clock().read(), table.hash_key().with(hash_key));
    let (instances, max_keys) = (table.instances().read(), table.max_keys().read());
    table.close();
    let targets = targets.ok()?;
    let shared = url.filter(|_| !targets.iter().all(is_on_this_machine));
    let (timeout, prefix, client_clock) = (timeout?, prefix?, client_clock?);
    let server = |target: RedisTarget| {
        (target.name(), RedisSpec { target, timeout, prefix: prefix.clone(), client_clock })
    };
    let servers = Servers::named(targets.into_iter().map(server).collect());
    let spec = servers.map_or(StoreSpec::Memory, |servers| StoreSpec::Redis(Box::new(servers)));
    let hasher = hash_key.ok()?.unwrap_or_else(|| KeyHasher::new(None));
    Some(ReadStore { spec, hasher, instances: instances?, max_keys: max_keys?, shared })
}

/// Reads the prefix of stored keys. Braces in it would move every key to one slot of a Redis Cluster.
fn prefix(item: Item<'_>) -> Option<Box<str>> {
    let help = "a prefix has 1 to 128 visible ASCII characters, and no braces";
    let text = item.string()?;
    text.parsed("a prefix for stored keys", help, |text| {
        let is_valid = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}'));
        (is_valid && !text.is_empty() && text.len() <= MAX_PREFIX).then(|| text.into())
    })
}

fn hash_key(item: Item<'_>) -> Option<KeyHasher> {
    let text = item.string()?;
    if text.value.len() < MIN_HASH_KEY {
        let problem = text.error(format!("`hash_key` must have at least {MIN_HASH_KEY} bytes"));
        return text.reject(problem.help("make one with: openssl rand -hex 32"));
    }
    Some(KeyHasher::new(Some(text.value.as_bytes())))
}

/// Reads the addresses of Redis: of one server, of several, or none without a URL. Files are relative to `directory`.
fn targets(table: &Table<'_, StoreKeys>, directory: &Path) -> Result<Vec<RedisTarget>, Reported> {
    let one = table.url().with(|item| url(&item.string_like("a URL", EXAMPLE)?));
    let several = table.urls().with(urls);
    let is_one_way = is_one_way(table);
    let tls_item = table.tls().given();
    let tls = table.tls().with(|item| tls::client(item, directory, &[]));
    let (username, password) = (table.sentinel_username().read(), table.sentinel_password().read());
    let (one, several, username, password) = (one?, several?, username?, password?);
    let mut targets: Vec<RedisTarget> = several.unwrap_or_default().into_iter().chain(one).collect();
    let fits_tls = fits_tls(&targets, tls_item);
    let fits_sentinel = fits_sentinel(&targets, [&username, &password].into_iter().flatten());
    if !(is_one_way && fits_sentinel && fits_tls) {
        return Err(Reported);
    }
    let tls = tls?;
    let filled = |text: &Option<TextItem<'_>>| {
        text.as_ref().map(|text| text.value.clone()).filter(|value| !value.is_empty())
    };
    for target in &mut targets {
        if let (Some(own), Some(tls)) = (&mut target.tls, &tls) {
            own.clone_from(tls);
        }
        if let RedisAddress::Sentinel { username: name, password: word, .. } = &mut target.address {
            (*name, *word) = (filled(&username), filled(&password));
        }
    }
    Ok(targets)
}

/// Rejects `url` beside `urls`.
fn is_one_way(table: &Table<'_, StoreKeys>) -> bool {
    let (Some(_), Some(urls)) = (table.url().given(), table.urls().given()) else { return true };
    let problem =
        urls.error("`url` and `urls` are given: either one server has all keys, or several have their share");
    urls.reject::<()>(problem.help("leave one of them out; the server of `url` can be one of `urls`"));
    false
}

/// Reads the URLs of several servers, each of which is there once.
fn urls(item: Item<'_>) -> Option<Vec<RedisTarget>> {
    let items = item.list("such as [\"redis://a:6379\", \"redis://b:6379\"]")?;
    if !(1..=MAX_SERVERS).contains(&items.len()) {
        let problem = item.error(format!("`urls` must have 1 to {MAX_SERVERS} URLs, not {}", items.len()));
        return item.reject(problem.help(if items.is_empty() {
            "leave it out to count in this process, or list the servers"
        } else {
            "list fewer servers, or write a Redis Cluster in `url`"
        }));
    }
    let (mut known, mut targets) = (HashSet::new(), Vec::new());
    for item in &items {
        let Some(target) = item.string_like("a URL", EXAMPLE).and_then(|text| server_url(&text)) else {
            continue;
        };
        if !known.insert(target.name()) {
            return reject_same_name(*item, &target);
        }
        targets.push(target);
    }
    (targets.len() == items.len()).then_some(targets)
}

/// Rejects a URL with the name of an earlier one. Two groups of Sentinels can have the same service name, and other servers.
fn reject_same_name<T>(item: Item<'_>, target: &RedisTarget) -> Option<T> {
    let problem = match &target.address {
        RedisAddress::Sentinel { service, .. } => {
            let title = format!(
                "two URLs have the service `{service}`; keys are assigned by the name of the service"
            );
            item.error(title).help(
                "give each service its own name, or another database; list each group of Sentinels once",
            )
        }
        _ => item.error("this server is there twice").help("leave it out"),
    };
    item.reject(problem)
}

/// Reads the URL of one of several servers.
fn server_url(text: &TextItem<'_>) -> Option<RedisTarget> {
    let target = url(text)?;
    if let RedisAddress::Cluster(_) = target.address {
        let problem = text.error("this is a Redis Cluster, which spreads keys over its nodes by itself");
        return text
            .reject(problem.help("write it in `url`, or name servers that are no nodes of a Cluster"));
    }
    Some(target)
}

/// Whether a Redis is reached by a Unix socket or at a loopback address. Sentinels and clusters are on several machines.
fn is_on_this_machine(target: &RedisTarget) -> bool {
    match &target.address {
        RedisAddress::Tcp(node) => is_loopback(&node.host),
        RedisAddress::Unix(_) => true,
        RedisAddress::Sentinel { .. } | RedisAddress::Cluster(_) => false,
    }
}

/// Whether a host, without brackets, is this machine in any case: an address, or a name (RFC 6761).
pub(super) fn is_loopback(host: &str) -> bool {
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// Rejects `tls` without a URL with TLS.
fn fits_tls(targets: &[RedisTarget], item: Option<Item<'_>>) -> bool {
    let Some(item) = item.filter(|_| targets.iter().all(|target| target.tls.is_none())) else { return true };
    let problem = item.error("`tls` is given, and no URL has a scheme with TLS");
    item.reject::<()>(problem.help("start the URL with rediss://, rediss-sentinel:// or rediss-cluster://"));
    false
}

/// Rejects credentials of Sentinels with a URL that names none.
fn fits_sentinel<'a>(targets: &[RedisTarget], given: impl Iterator<Item = &'a TextItem<'a>>) -> bool {
    if targets.iter().any(|target| matches!(target.address, RedisAddress::Sentinel { .. })) {
        return true;
    }
    let mut fits = true;
    for text in given {
        let title = format!("`{}` is given, and no URL names a Sentinel", text.item.name);
        text.reject::<()>(
            text.error(title).help("leave it out, or write redis-sentinel://HOSTS/?service=NAME"),
        );
        fits = false;
    }
    fits
}

/// Reads the URL of a Redis. A URL with an `@` may have its password in any of its parts, so that no message
/// quotes any part of it.
fn url(text: &TextItem<'_>) -> Option<RedisTarget> {
    let error = match RedisTarget::parse(&text.value) {
        Ok(target) => return Some(target),
        Err(error) => error,
    };
    let may_be_secret = text.from_env || text.value.contains('@');
    let problem = match error {
        UrlError::Malformed(why) => text.error(format!("this is not a Redis URL: {why}")),
        UrlError::NoHost => text.error("this is not a Redis URL: it has no host"),
        UrlError::NoPath => text.error("this is not a Redis URL: it has no path to a socket"),
        UrlError::NoService => {
            let problem = text.error("this URL does not name the service that the Sentinels monitor");
            return text
                .reject(problem.help("add `?service=NAME`, with the name in their `sentinel monitor`"));
        }
        UrlError::Tls(error) => return text.reject(text.error(error.to_string())),
        UrlError::Scheme(_) if may_be_secret => text.error("this is not a Redis URL: its scheme is unknown"),
        UrlError::Database(_) if may_be_secret => {
            text.error("the path after the host is not a database number from 0 to 255")
        }
        UrlError::Extra(_) if may_be_secret => text.error("the part after `?` or `#` is not supported"),
        error => text.error(format!("this is not a Redis URL: {error}")),
    };
    let problem = problem.help(FORM).help(FORMS);
    text.reject(if may_be_secret {
        problem.help("in a password, write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F and % as %25")
    } else {
        problem
    })
}
