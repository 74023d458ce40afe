//! `[store]`.

use std::num::NonZeroU64;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use super::reader::Item;
use super::redis;
use crate::limit::KeyHasher;
use crate::store::{RedisSpec, StoreSpec};

const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);
const INSTANCES: RangeInclusive<u64> = 1..=100_000;
const MAX_KEYS: RangeInclusive<u64> = 1..=1_000_000_000;
const MAX_PREFIX: usize = 128;

/// A shorter secret could be found by trying.
const MIN_HASH_KEY: usize = 16;

/// What `[store]` says.
pub(super) struct ReadStore {
    pub spec: StoreSpec,
    pub hasher: KeyHasher,
    pub instances: NonZeroU64,
    pub max_keys: usize,
    /// Where the URL of a Redis stands that other proxies may share, if the file does not say how many do.
    pub shared: Option<Range<usize>>,
}

/// Reads the store; without a URL, counts live in this process. Files are looked for from `directory`.
pub(super) fn store(item: Option<Item<'_>>, directory: &Path) -> Option<ReadStore> {
    let Some(item) = item else { return Some(ReadStore::default()) };
    let default = ReadStore::default();
    let mut table = item.table("[store]")?;
    let url = table.key_span("url").filter(|_| table.key_span("instances").is_none());
    let target = redis::target(&mut table, directory);
    let timeout =
        table.item("timeout").map_or(Some(Duration::from_millis(50)), |item| item.duration(&TIMEOUT));
    let prefix = table.item("prefix").map_or(Some("tidegate".into()), prefix);
    let client_clock = table
        .item("clock")
        .map_or(Some(false), |item| item.choice(&[("server", false), ("client", true)], &[]));
    let hasher = table.item("hash_key").map_or(Some(KeyHasher::new(None)), hash_key);
    let instances = table.item("instances").map_or(Some(1), |item| item.integer(&INSTANCES));
    let max_keys = table.item("max_keys").map_or(Some(default.max_keys), |item| item.count(&MAX_KEYS));
    table.close();
    let target = target.ok()?;
    let shared = url.filter(|_| target.as_ref().is_some_and(|target| !redis::is_on_this_machine(target)));
    let spec = match (target, timeout?, prefix?, client_clock?) {
        (None, ..) => StoreSpec::Memory,
        (Some(target), timeout, prefix, client_clock) => {
            StoreSpec::Redis(RedisSpec { target, timeout, prefix, client_clock })
        }
    };
    let instances = NonZeroU64::new(instances?)?;
    Some(ReadStore { spec, hasher: hasher?, instances, max_keys: max_keys?, shared })
}

impl Default for ReadStore {
    fn default() -> Self {
        Self {
            spec: StoreSpec::Memory,
            hasher: KeyHasher::new(None),
            instances: NonZeroU64::MIN,
            max_keys: 1_000_000,
            shared: None,
        }
    }
}

/// Braces in a prefix would move every key to one place of a Redis Cluster.
fn prefix(item: Item<'_>) -> Option<Box<str>> {
    let help = "a prefix has 1 to 128 visible ASCII characters, and no braces";
    let text = item.string()?;
    text.parsed("a prefix for stored keys", help, |text| {
        let right = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}'));
        (right && !text.is_empty() && text.len() <= MAX_PREFIX).then(|| text.into())
    })
}

fn hash_key(item: Item<'_>) -> Option<KeyHasher> {
    let text = item.string()?;
    if text.value.len() < MIN_HASH_KEY {
        let problem = text.error(format!("`hash_key` must have at least {MIN_HASH_KEY} bytes"));
        return text.refuse(problem.help("make one with: openssl rand -hex 32"));
    }
    Some(KeyHasher::new(Some(text.value.as_bytes())))
}
