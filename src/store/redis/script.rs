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
