//! `[store]`.

use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;

use super::item::Item;
use super::redis;
use super::table::Table;
use crate::limit::KeyHasher;
use crate::store::{RedisSpec, StoreSpec};

const MAX_PREFIX: usize = 128;

/// A shorter secret could be found by brute force.
const MIN_HASH_KEY: usize = 16;

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
pub(super) fn store(table: Table<'_>, directory: &Path) -> Option<ReadStore> {
    let url = table.key_span("url").filter(|_| table.key_span("instances").is_none());
    let target = redis::target(&table, directory);
    let timeout = table.duration("timeout");
    let prefix = prefix(table.item("prefix"));
    let client_clock = table.choice("clock", &[("server", false), ("client", true)]);
    let hash_key = table.optional("hash_key", hash_key);
    let instances = table.integer("instances").and_then(NonZeroU64::new);
    let max_keys = table.count("max_keys");
    table.close();
    let target = target.ok()?;
    let shared = url.filter(|_| target.as_ref().is_some_and(|target| !redis::is_on_this_machine(target)));
    let (timeout, prefix, client_clock) = (timeout?, prefix?, client_clock?);
    let spec = target.map_or(StoreSpec::Memory, |target| {
        StoreSpec::Redis(RedisSpec { target, timeout, prefix, client_clock })
    });
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
