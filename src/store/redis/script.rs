//! The scripts that run in Redis: the files of `lua/`, joined.

use std::sync::LazyLock;

/// A script, and the name under which Redis keeps it.
#[derive(Debug)]
pub struct Script {
    /// Its text.
    pub source: &'static str,
    /// The SHA-1 of its text in hexadecimal.
    pub sha: String,
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, sha: fred::util::sha1_hash(source) }
    }
}

/// `lua/take.lua` behind the algorithms that it calls.
pub static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/shared.lua"),
        include_str!("../../../lua/debt.lua"),
        include_str!("../../../lua/token_bucket.lua"),
        include_str!("../../../lua/interval.lua"),
        include_str!("../../../lua/gcra.lua"),
        include_str!("../../../lua/fixed_window.lua"),
        include_str!("../../../lua/timeline.lua"),
        include_str!("../../../lua/sliding_log.lua"),
        include_str!("../../../lua/sliding_window.lua"),
        include_str!("../../../lua/leaky_bucket.lua"),
        include_str!("../../../lua/concurrency.lua"),
        include_str!("../../../lua/hold.lua"),
        include_str!("../../../lua/take.lua"),
    ))
});

/// `lua/change.lua`, which changes what holds keys back.
pub static CHANGE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/shared.lua"),
        include_str!("../../../lua/hold.lua"),
        include_str!("../../../lua/change.lua"),
    ))
});
