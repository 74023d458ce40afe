//! `tidegate simulate`.

mod arrivals;
mod backend;
mod decimal;
mod jsonl;
mod keys;
mod picture;
mod player;
mod svg;
mod table;
mod tally;
mod words;

use std::collections::HashSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::arrivals::Arrival;
use self::backend::Backend;
use self::player::Player;
use super::output::{self, complain};
use super::{Failure, FileArgs, Outcome, load};
use crate::config::Loaded;
use crate::gate::Gate;
use crate::limit::{Key, Policy, PolicyId};
use crate::store::StoreError;
use crate::store::redis::Target;
use crate::suggest::nearest;
use crate::telemetry::has_colours;

/// Pictures of more arrivals than this show nothing.
const MAX_DRAWN: usize = 5_000;
/// So many names are listed where an unknown one is like none of them.
const NAMED: usize = 10;

/// What to play, and where.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The limits that each arrival meets, all or nothing; with --compare, each by itself.
    #[arg(long = "limit", value_name = "NAME[,NAME]", value_delimiter = ',', required = true)]
    limits: Vec<String>,
    /// The arrivals, one a line; `-` or nothing for standard input.
    ///
    /// A line is `SECONDS [KEY [COST [FLIGHT]]]`. SECONDS count from the Unix epoch, with up to six decimals;
    /// lines are played as they stand, and a time that steps back is a clock that is set back. KEY is free text
    /// without blanks and stands for the whole key; COST replaces the limit's own; FLIGHT is how many seconds
    /// a request holds its slot of a concurrency limit once it is forwarded, which is after any delay. Slots
    /// that end at the time of an arrival are free for it. A word that starts with `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,
    /// Play them in this Redis, through its scripts; otherwise in memory, whatever the file says.
    ///
    /// Keys have a prefix of their own and are deleted at the end.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How to show what becomes of them.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Play the arrivals against each limit alone, side by side.
    #[arg(long)]
    compare: bool,
}

const EXAMPLES: &str = "\
Examples:
  Eight requests at once against the limit of the quickstart:
    yes 0 | head -n 8 | tidegate simulate -c config/quickstart.toml --limit per-client

  A picture of what two limits would do, each alone:
    tidegate simulate --limit per-key,daily --compare --arrivals burst.txt --format svg > burst.svg

A limit in shadow mode says what it would do, unless it is played together with one that enforces.";

/// How to show what becomes of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each, and a summary.
    Table,
    /// A JSON object for each; with --compare, for each and each limit.
    Jsonl,
    /// A picture.
    Svg,
}

/// What is played.
#[derive(Debug)]
struct Script<'a> {
    gate: &'a Gate,
    policies: &'a [Policy],
    /// The limits that each player has.
    casts: Vec<Vec<PolicyId>>,
    compare: bool,
    arrivals: &'a [Arrival],
}

/// Why a run breaks off.
#[derive(Debug, thiserror::Error)]
enum Problem {
    /// There is no Redis.
    #[error(
        "can't reach {0}: {1}\nhelp: name a Redis that runs with --store URL, or leave --store out to play in memory"
    )]
    Away(String, StoreError),
    /// The store did not answer, or not with sense.
    #[error("the store can't be asked: {0}")]
    Store(#[from] StoreError),
    /// Standard output can't be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// Somebody does not want to wait.
    #[error("interrupted")]
    Interrupted,
}

/// Plays arrivals against limits.
pub(super) fn simulate(args: &SimulateArgs) -> Outcome {
    let wrong = |said: String| {
        complain(said);
        Failure::Usage
    };
    let target = args
        .store
        .as_deref()
        .map(Target::parse)
        .transpose()
        .map_err(|error| wrong(format!("error: --store is not the URL of a Redis: {error}")))?;
    let loaded = load(&args.file)?;
    let limits = limits(&args.limits, &loaded).map_err(wrong)?;
    let arrivals = read_arrivals(args).map_err(wrong)?;
    let gate = &loaded.config.site.gate;
    let script = Script {
        gate,
        policies: &gate.limits.policies,
        casts: if args.compare { limits.into_iter().map(|id| vec![id]).collect() } else { vec![limits] },
        compare: args.compare,
        arrivals: &arrivals,
    };
    let failed = |error: &dyn std::fmt::Display| {
        complain(format!("error: {error}"));
        Failure::Running
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(|error| failed(&error))?.block_on(play(&script, target.as_ref(), args.format)) {
        Err(Problem::Output(error)) => output::written("standard output", Err(error)),
        played => played.map_err(|error| failed(&error)),
    }
}

/// The limits of these names, each once.
fn limits(names: &[String], loaded: &Loaded) -> Result<Vec<PolicyId>, String> {
    let policies = &loaded.config.site.gate.limits.policies;
    let mut found = Vec::new();
    for name in names {
        let mut all_ids = policies.iter().zip((0..).map(PolicyId));
        // Limits come before their overrides, which are stored under the same name.
        let Some((_, id)) = all_ids.find(|(policy, _)| *policy.stored == **name) else {
            return Err(format!("error: unknown limit `{name}`\nhelp: {}", advice(name, policies)));
        };
        if !found.contains(&id) {
            found.push(id);
        }
    }
    Ok(found)
}

/// What to name in place of a name that no limit has.
fn advice(name: &str, policies: &[Policy]) -> String {
    let mut seen = HashSet::new();
    let all: Vec<&str> =
        policies.iter().map(|policy| &*policy.stored).filter(|name| seen.insert(*name)).collect();
    if let Some(near) = nearest(name, all.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    match all.len().checked_sub(NAMED) {
        _ if all.is_empty() => "the file has no limits".to_owned(),
        None | Some(0) => format!("the file has {}", all.join(", ")),
        Some(more) => format!("the file has {} and {more} more", all[..NAMED].join(", ")),
    }
}

fn read_arrivals(args: &SimulateArgs) -> Result<Vec<Arrival>, String> {
    let file = args.arrivals.as_deref().filter(|file| file.as_os_str() != "-");
    if file.is_none() && io::stdin().is_terminal() {
        complain("reading arrivals from the terminal, such as `0.25 alice`; Ctrl-D ends them");
    }
    let arrivals = arrivals::read(file)?;
    if args.format == Format::Svg && arrivals.len() > MAX_DRAWN {
        return Err(format!(
            "error: a picture shows at most {MAX_DRAWN} arrivals, and these are {}\n\
             help: play a part of them, or choose another --format",
            arrivals.len()
        ));
    }
    Ok(arrivals)
}

/// Plays everything, and deletes what it has stored, also if it breaks off.
async fn play(script: &Script<'_>, target: Option<&Target>, format: Format) -> Result<(), Problem> {
    let keys = script.keys();
    let away = |error| Problem::Away(target.map_or_else(String::new, ToString::to_string), error);
    let venue = Backend::open(target, keys.len()).await.map_err(away)?;
    let players =
        script.casts.iter().map(|limits| Player::new(script.gate, &venue, limits.clone())).collect();
    // In memory nothing waits, so that nothing could be interrupted but by the signal itself.
    let played = if target.is_none() {
        show(script, players, format).await
    } else {
        tokio::select! {
            played = show(script, players, format) => played,
            _ = tokio::signal::ctrl_c() => Err(Problem::Interrupted),
        }
    };
    let cleared = venue.clear(script.policies, &keys).await;
    if let (Err(_), Some(prefix)) = (&cleared, venue.prefix()) {
        complain(format!("warning: keys that begin with {prefix} are left; Redis deletes them in time"));
    }
    played.and(cleared.map_err(Problem::Store))
}

async fn show(script: &Script<'_>, mut players: Vec<Player<'_>>, format: Format) -> Result<(), Problem> {
    let stdout = io::stdout();
    let colours = has_colours(&stdout);
    let mut out = io::BufWriter::new(stdout.lock());
    match format {
        Format::Table => table::write(script, &mut players, colours, &mut out).await?,
        Format::Jsonl => jsonl::write(script, &mut players, &mut out).await?,
        Format::Svg => {
            let picture = picture::take(script, &mut players).await?;
            out.write_all(svg::draw(&picture).as_bytes())?;
        }
    }
    out.flush()?;
    Ok(())
}

impl Script<'_> {
    /// Everything that the arrivals are counted under, each once.
    fn keys(&self) -> Vec<(PolicyId, Key)> {
        let limits = self.casts.iter().flatten();
        let charges =
            limits.flat_map(|id| self.arrivals.iter().map(|one| keys::asked(self.gate, *id, one).charge));
        let mut keys: Vec<(PolicyId, Key)> = charges.map(|charge| (charge.policy, charge.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// A key as people see it: without characters that would do something to a terminal or a picture.
fn shown_key(key: &str) -> String {
    key.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
