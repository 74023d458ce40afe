//! The scripts that run in Redis: the files of `lua/`, joined.
//!
//! A line `--@inline NAME` is replaced by the text of `lua/snippets/NAME.lua`, so that each step of the arithmetic is written
//! once without the cost of a function call. A snippet reads and writes local variables of the script around it; its first lines
//! list them.
//!
//! # Fast paths
//! `take.lua` decides the most frequent requests, which take or peek at units of any number of token buckets, GCRAs and fixed
//! windows without a ban, a block or granted units: they need no function at all, and inline the steps of `debt.lua` and
//! `fixed_window.lua`. `take_one.lua`, the beginning of that script, decides a call with one charge on a token bucket or GCRA,
//! and needs hardly a table: that saves a quarter of the instructions with which Redis runs it (43 000 instead of 56 000), and
//! half of those of a check (31 000 instead of 60 000; Redis 7.0, callgrind). `tests/it/proof/fast_path.rs` compares the results
//! of all these code paths byte by byte.
//!
//! These fast paths overwrite a state in place (SETRANGE, which costs half as much as SET) if the time to live of its key is
//! long enough. So that they know it, a debt is followed by the time at which its key expires; the key of a window expires when
//! the window ends.
//!
//! Redis' own bounded counter (`BITFIELD … OVERFLOW FAIL INCRBY` with `PEXPIRE`) took 0.53 of the script's CPU time for a fixed
//! window with 30 requests in a call, and 0.30 with one request (Redis 7.0, one run). It is not used: it can't be charged
//! together with another limit, has no bans or blocks, depends on the proxy's clock, and leaves a key without TTL between its
//! two commands.

use std::sync::{Arc, LazyLock};

use fred::clients::Client;
use fred::error::Error;
use fred::types::Value;
use fred::types::config::Options;
use tokio::time::Instant;

use super::cluster::{self, Command};

/// A script, and the name under which Redis keeps it.
#[derive(Debug)]
pub struct Script {
    /// Its text.
    pub source: String,
    /// The SHA-1 of its text in hexadecimal.
    pub sha: String,
}

impl Script {
    fn new(text: &str) -> Self {
        let source = inlined(text);
        Self { sha: fred::util::sha1_hash(&source), source }
    }
}

/// The names and texts of files of `lua/snippets`.
macro_rules! snippets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../lua/snippets/", $name, ".lua")))),*]
    };
}

const SNIPPETS: &[(&str, &str)] = snippets![
    "clock",
    "debt_decide",
    "debt_drain",
    "debt_policy",
    "debt_reset",
    "debt_state",
    "decide_charge",
    "in_use",
    "read_policies",
    "set",
    "take_debts",
    "window_decide",
    "window_start",
    "window_state",
    "window_units",
];

/// The text with the snippets that it names in place of their names.
fn inlined(text: &str) -> String {
    let mut source = String::with_capacity(2 * text.len());
    for line in text.lines() {
        let name = line.trim_start().strip_prefix("--@inline ");
        match name.and_then(|name| SNIPPETS.iter().find(|(known, _)| *known == name)) {
            Some((_, snippet)) => source.push_str(&inlined(snippet)),
            None => source.extend([line, "\n"]),
        }
    }
    source
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

/// A call of a script. Only after a redirection and NOSCRIPT is it sent again, since these prove that nothing was charged.
pub(super) struct ScriptCall {
    command: Command,
    script: &'static Script,
}

impl ScriptCall {
    /// `args` without the script.
    pub fn new(client: Arc<Client>, script: &'static Script, mut args: Vec<Value>) -> Self {
        args.insert(0, script.sha.as_str().into());
        // A custom command of fred, because only these honour the options: fail at once while there is no connection, and never
        // send again.
        Self { command: Command::new(client, "EVALSHA", args, options()), script }
    }

    /// Runs it, until it is redirected.
    pub async fn run(&mut self) -> Result<Value, Error> {
        loop {
            let reply = self.command.send().await;
            if !self.sends_source(&reply) {
                return reply;
            }
        }
    }

    /// Runs it after `error`, a redirection, and follows all of them.
    pub async fn run_again(&mut self, mut error: Error, deadline: Instant) -> Result<Value, Error> {
        loop {
            let reply = self.command.send_again(error, deadline).await;
            if !self.sends_source(&reply) {
                return reply;
            }
            match self.run().await {
                Err(next) if cluster::may_be_retried(&next) => error = next,
                reply => return reply,
            }
        }
    }

    /// Changes the command to one with the script's source if the server does not have it; returns whether.
    fn sends_source(&mut self, reply: &Result<Value, Error>) -> bool {
        let is_missing = reply.as_ref().is_err_and(|error| error.details().starts_with("NOSCRIPT"));
        if is_missing {
            self.command.rename("EVAL", self.script.source.as_str().into());
        }
        is_missing
    }
}

/// The options of every command: fail at once while there is no connection, and never send again.
pub(super) fn options() -> Options {
    Options { fail_fast: true, max_attempts: Some(1), ..Options::default() }
}

#[cfg(test)]
mod tests {
    use super::{CHANGE, RAISES, TAKE};

    #[test]
    fn every_snippet_is_known() {
        for script in [&TAKE, &RAISES, &CHANGE] {
            let unknown: Vec<&str> =
                script.source.lines().filter(|line| line.contains("--@inline")).collect();
            assert!(unknown.is_empty(), "not in SNIPPETS: {unknown:?}");
        }
    }
}
