//! The scripts that run in Redis: the files of `lua/`, joined.
//!
//! A line `--@inline NAME` is replaced by the text of `lua/snippets/NAME.lua`, so that each step of the arithmetic is written
//! once without the cost of a function call. A snippet reads and writes local variables of the script around it; its first lines
//! list them. Constants are replaced by their numbers.
//!
//! # Fast paths
//! `take.lua` decides the most frequent requests, which take or peek at units of any number of token buckets, GCRAs and fixed
//! windows without a ban, a block or granted units: they need no function at all, and inline the steps of `debt.lua` and
//! `fixed_window.lua`. `take_one.lua`, the beginning of that script, decides a call with one such charge, or one on an interval
//! bucket or a queue, and needs hardly a table. For a token bucket that saves a quarter of the instructions with which Redis runs
//! it (43 000 instead of 56 000), and half of those of a check (31 000 instead of 60 000; Redis 7.0, callgrind).
//!
//! `take_lone.lua` decides a call with one charge of any other kind with the functions of its algorithm, unless it asks for a
//! grant, finds granted units, or belongs to a limit with reservations. To create all functions costs a call about 100 000
//! instructions, and those of one algorithm 5 000 to 9 000. `tests/it/proof/fast_path.rs` compares the results of all these code
//! paths byte by byte.
//!
//! These fast paths overwrite a state in place (SETRANGE, which costs half as much as SET) if the time to live of its key is
//! long enough. So that they know it, a debt is followed by the time at which its key expires; the key of a window expires when
//! the window ends.
//!
//! Redis' own bounded counter (`BITFIELD … OVERFLOW FAIL INCRBY` with `PEXPIRE`) took 0.53 of the script's CPU time for a fixed
//! window with 30 requests in a call, and 0.30 with one request (Redis 7.0, one run). It is not used: it can't be charged
//! together with another limit, has no bans or blocks, depends on the proxy's clock, and leaves a key without TTL between its
//! two commands.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use fred::clients::Client;
use fred::error::Error;
use fred::types::Value;
use fred::types::config::Options;
use tokio::time::Instant;

use super::cluster::{self, Command};

/// Files, one after the other.
macro_rules! files {
    ($($file:literal),*) => {
        concat!($(include_str!(concat!("../../../lua/", $file))),*)
    };
}

/// A script, and the name under which Redis keeps it.
#[derive(Debug)]
pub struct Script {
    /// Its text.
    pub source: String,
    /// The SHA-1 of its text in hexadecimal.
    pub sha: String,
}

impl Script {
    /// Joins the parts of a script.
    fn new(parts: &[&str]) -> Self {
        let shared: Constants = files!("constants.lua").lines().filter_map(constants_of).flatten().collect();
        let source: String =
            parts.iter().map(|part| with_constants(&inlined(part), shared.clone())).collect();
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
    "count_denial",
    "debt_decide",
    "debt_drain",
    "debt_policy",
    "debt_reset",
    "debt_state",
    "decide_charge",
    "in_use",
    "interval_decide",
    "interval_ticks",
    "kind",
    "log_late",
    "log_refund",
    "lone_interval",
    "lone_leaky",
    "lone_window",
    "parts_late",
    "parts_refund",
    "plain_charge",
    "plain_record",
    "policy",
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

/// Numbers by the names of constants.
type Constants = HashMap<String, String>;

/// The text without comments, and with numbers in place of `constants` and of those that it defines: a variable outside of the
/// functions that use it costs a call that creates them about as much as another function.
fn with_constants(text: &str, mut constants: Constants) -> String {
    let mut source = String::with_capacity(text.len());
    for line in text.lines() {
        if let Some(defined) = constants_of(line) {
            constants.extend(defined);
        } else if !line.trim_start().starts_with("-- ") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for word in line.split_inclusive(|c| !is_name(c)) {
                let name = word.trim_end_matches(|c| !is_name(c));
                source.push_str(constants.get(name).map_or(name, String::as_str));
                source.push_str(&word[name.len()..]);
            }
            source.push('\n');
        }
    }
    source
}

/// The names and numbers of a line that defines constants: `local NAME, … = NUMBER, …`, where a number may be a calculation.
fn constants_of(line: &str) -> Option<Vec<(String, String)>> {
    let (names, numbers) = line.strip_prefix("local ")?.split_once(" = ")?;
    let is_constant = names.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'_' | b',' | b' '));
    let is_number = numbers.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'^' | b'-' | b',' | b' '));
    let number = |text: &str| match text.parse::<u64>() {
        Ok(_) => text.to_owned(),
        Err(_) => format!("({text})"),
    };
    let pairs = names.split(", ").zip(numbers.split(", "));
    (is_constant && is_number).then(|| pairs.map(|(name, text)| (name.to_owned(), number(text))).collect())
}

/// `lua/take_one.lua`, `lua/take_lone.lua` and `lua/take.lua`. Between them is `functions_of`, which creates the functions of one
/// algorithm, or others that only some requests need.
pub static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        files!("take_one.lua"),
        "local function functions_of(name)\n",
        files!("shared.lua"),
        "if name == \"i\" then\n",
        files!("interval.lua"),
        "elseif name == \"w\" then\n",
        files!("fixed_window.lua"),
        "elseif name == \"c\" then\n",
        files!("concurrency.lua"),
        "elseif name == \"l\" then\n",
        files!("timeline.lua", "sliding_log.lua"),
        "elseif name == \"s\" then\n",
        files!("timeline.lua", "sliding_window.lua"),
        "elseif name == \"q\" then\n",
        files!("debt.lua", "leaky_bucket.lua"),
        "elseif name == \"b\" then\n",
        files!("debt.lua", "token_bucket.lua"),
        "elseif name == \"g\" then\n",
        files!("debt.lua", "gcra.lua"),
        "elseif name == \"penalty\" then\n",
        files!("penalty.lua"),
        "elseif name == \"grants\" then\n",
        files!("grants.lua"),
        "end\nend\n",
        files!("take_lone.lua"),
        "local function others(...)\n",
        files!("shared.lua", "decide.lua"),
        "end\n",
        files!("take.lua"),
    ])
});

/// `lua/raises.lua`, which reads and changes raises.
pub static RAISES: LazyLock<Script> = LazyLock::new(|| Script::new(&[files!("raises.lua")]));

/// `lua/change.lua`, which changes blocks, bans and counts of keys by hand.
pub static CHANGE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        "local function penalty()\n",
        files!("shared.lua", "penalty.lua"),
        "end\n",
        files!("change.lua"),
    ])
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
