//! The script that runs in Redis: the files of `lua/`, joined.

use std::sync::OnceLock;

/// `lua/take.lua` behind the algorithms that it calls.
pub const SOURCE: &str = concat!(
    "local ALGORITHMS = {}\n",
    include_str!("../../../lua/debt.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/gcra.lua"),
    include_str!("../../../lua/take.lua"),
);

/// The name under which Redis keeps the script: the SHA-1 of its source in hexadecimal.
pub fn sha() -> &'static str {
    static SHA: OnceLock<String> = OnceLock::new();
    SHA.get_or_init(|| fred::util::sha1_hash(SOURCE))
}
