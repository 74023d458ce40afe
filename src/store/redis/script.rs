//! The scripts that run in Redis: the files of `lua/`, joined.
//!
//! # Fast paths
//! `take.lua` repeats the arithmetic of `debt.lua` and `fixed_window.lua` inline for the most frequent requests, which take or
//! peek at units of any number of token buckets, GCRAs and fixed windows without a ban, a block or granted units: they need no
//! function at all. `take_one.lua`, the beginning of that script, decides a call with one charge on a token bucket or GCRA, and
//! needs hardly a table. `tests/it/proof/fast_path.rs` compares the results of all these code paths byte by byte.
//!
//! These fast paths overwrite a state in place (SETRANGE, which costs half as much as SET) if the time to live of its key is
//! long enough. So that they know it, a debt is followed by the time at which its key expires; the key of a window expires when
//! the window ends.
//!
//! Redis' own bounded counter (`BITFIELD … OVERFLOW FAIL INCRBY` with `PEXPIRE`) took 0.53 of the script's CPU time for a fixed
//! window with 30 requests in a call, and 0.30 with one request (Redis 7.0, one run). It is not used: it can't be charged
//! together with another limit, has no bans or blocks, depends on the proxy's clock, and leaves a key without TTL between its
//! two commands.

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

/// A file as the body of a function.
macro_rules! function {
    ($name:literal, $file:literal) => {
        concat!($name, " = function()\n", include_str!(concat!("../../../lua/", $file)), "end\n")
    };
}

/// `lua/take_one.lua` and `lua/take.lua`, after the functions that are defined only if a request needs them.
pub static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        "local function others(...)\n",
        // Constants of its own, since each one outside of it that it uses would cost every call as much as its arithmetic.
        include_str!("../../../lua/constants.lua"),
        include_str!("../../../lua/shared.lua"),
        function!("local debt", "debt.lua"),
        function!("local timeline", "timeline.lua"),
        function!("local penalty", "penalty.lua"),
        function!("local grants", "grants.lua"),
        "local ALGORITHMS = {}\n",
        function!("ALGORITHMS.b", "token_bucket.lua"),
        function!("ALGORITHMS.i", "interval.lua"),
        function!("ALGORITHMS.g", "gcra.lua"),
        function!("ALGORITHMS.w", "fixed_window.lua"),
        function!("ALGORITHMS.l", "sliding_log.lua"),
        function!("ALGORITHMS.s", "sliding_window.lua"),
        function!("ALGORITHMS.q", "leaky_bucket.lua"),
        function!("ALGORITHMS.c", "concurrency.lua"),
        include_str!("../../../lua/decide.lua"),
        "end\n",
        include_str!("../../../lua/constants.lua"),
        include_str!("../../../lua/take_one.lua"),
        include_str!("../../../lua/take.lua"),
    ))
});

/// `lua/raises.lua`, which reads and changes raises.
pub static RAISES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../lua/raises.lua")));

/// `lua/change.lua`, which changes blocks, bans and counts of keys by hand.
pub static CHANGE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/constants.lua"),
        include_str!("../../../lua/shared.lua"),
        function!("local penalty", "penalty.lua"),
        include_str!("../../../lua/change.lua"),
    ))
});
