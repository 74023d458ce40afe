//! `tidegate simulate`.

mod admissions;
mod arrivals;
mod backend;
mod descriptor;
mod exact;
mod played;
mod player;
mod plotting;
mod proxies;
mod proxy_player;
mod rows;
mod scenario;
mod summary;
mod upstream;

use std::collections::HashSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};

use self::arrivals::SimulatedArrival;
use self::backend::Backend;
use self::descriptor::DescriptorTemplate;
use self::exact::ExactPlayer;
use self::player::{ArrivalPlayer, Decider, SimulateError};
use self::proxies::{ProxyArgs, have_ahead};
use self::proxy_player::ProxyPlayer;
use self::scenario::Scenario;
use self::upstream::UpstreamArgs;
use super::completions;
use super::file::{self, FileArgs};
use super::output::{self, CommandResult, Failure, complain};
use crate::gate::Gate;
use crate::limit::{Policy, PolicyId};
use crate::plot;
use crate::store::redis::RedisTarget;
use crate::suggest::nearest;
use crate::telemetry::has_colours;

/// The most arrivals of a plot: with more it could not be read.
const MAX_PLOTTED: usize = 5_000;
/// The most names that are listed as alternatives to an unknown one.
const MAX_LISTED: usize = 10;

/// The arguments of `tidegate simulate`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The limits to play against: all together, or each alone with --compare.
    ///
    /// Together, a request is charged on all of them or on none.
    #[arg(
        long = "limit",
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        required_unless_present_any = ["descriptor", "upstream"],
        conflicts_with = "descriptor",
        add = completions::limits()
    )]
    limits: Vec<String>,
    /// Play a descriptor of the rate-limit service against the limits of its rule: its domain, and its entries with commas
    /// between them.
    ///
    /// An entry without `=VALUE` has its value from the KEY of each arrival; if there are several, KEY has their values with
    /// commas between them. COST is the number of hits. All arrivals must have the same rule.
    #[arg(long, action = ArgAction::Set, num_args = 2, value_names = ["DOMAIN", "KEY[=VALUE],…"])]
    descriptor: Option<Vec<String>>,
    /// The file with the arrivals, one per line; `-` or nothing for standard input.
    ///
    /// A line is `SECONDS [KEY [COST [FLIGHT]]]`, and cost=COST, flight=FLIGHT and settle=UNITS may follow KEY. SECONDS count from the Unix epoch, with up to six decimals;
    /// lines are played in their order, and a time before that of the line above sets the clock back. KEY is any
    /// text without blanks, and is used as the whole key. COST replaces the limit's own cost. FLIGHT is how many
    /// seconds a request holds its slot of a concurrency limit after it is forwarded, which is after any delay. A
    /// slot that is released at the time of an arrival is free for it. UNITS are what the response costs a limit that settles
    /// its cost: at the end of the flight the difference to COST is refunded or charged. A word that starts with `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,
    /// Count in this Redis, with the scripts of the server; without it in memory, whatever the file says.
    ///
    /// Keys have a prefix of their own and are deleted at the end.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
    /// Play the arrivals against each limit alone, side by side.
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    proxies: ProxyArgs,
    #[command(flatten)]
    upstream: UpstreamArgs,
}

impl SimulateArgs {
    /// The file with the arrivals; none for standard input.
    fn arrivals_file(&self) -> Option<&Path> {
        self.arrivals.as_deref().filter(|file| !file::is_stdin(file))
    }
}

const EXAMPLES: &str = "\
Examples:
  Eight requests at once against the limit of the quickstart:
    yes 0 | head -n 8 | tidegate simulate -c config/quickstart.toml --limit per-client

  A plot of two limits, each alone:
    tidegate simulate --limit per-key,daily --compare --arrivals burst.txt --format svg > burst.svg

  A descriptor of the rate-limit service, with an address in each line of the file:
    tidegate simulate --descriptor edge generic_key=checkout,remote_address --arrivals addresses.txt

  The admission to an upstream whose servers have 16 slots and take 50 ms, at three times their capacity:
    tidegate simulate --upstream api --slots 16 --service-time 50ms --load 3 --format svg > api.svg

  What four proxies that are 20 ms away from Redis do with a limit that has `ahead`:
    tidegate simulate --limit per-key --proxies 4 --round-trip 20ms --arrivals day.txt | tail

A limit in shadow mode shows its decisions, unless it is played together with one that enforces.

Exit status: 0 on success, 1 if Redis or the output fails, 2 for an invalid configuration, invalid arrivals or wrong usage.";

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// One line per arrival, and a summary.
    Table,
    /// One JSON object per arrival; with --compare, per arrival and limit; with --upstream, per second.
    Jsonl,
    /// A plot of requests and remaining units over time; with --upstream, of the limit, waiting requests and refusals.
    Svg,
}

/// Plays arrivals against limits.
pub(super) fn simulate(args: &SimulateArgs) -> CommandResult {
    let usage = |message: String| {
        complain(message);
        Failure::Usage
    };
    let target = args
        .store
        .as_deref()
        .map(RedisTarget::parse)
        .transpose()
        .map_err(|error| usage(format!("error: --store is not a Redis URL: {error}")))?;
    let file = args.file.path()?;
    if args.upstream.name.is_some() {
        let loaded = file::load(&file)?;
        let simulated = args.upstream.simulation(&loaded, args.proxies.settings().count).map_err(usage)?;
        return output::report_write("standard output", upstream::write(&simulated, args.format));
    }
    if file::is_stdin(&file) && args.arrivals_file().is_none() {
        return Err(usage(
            "error: the configuration and the arrivals can't both come from standard input\n\
             help: name the file of the arrivals with --arrivals FILE"
                .to_owned(),
        ));
    }
    let loaded = file::load(&file)?;
    let gate = &loaded.config.snapshot.gate;
    let (limits, arrivals) = limits_and_arrivals(args, gate).map_err(usage)?;
    let players = if args.compare { limits.into_iter().map(|id| vec![id]).collect() } else { vec![limits] };
    args.proxies.check(gate, &players, &arrivals).map_err(usage)?;
    let scenario = Scenario {
        gate,
        policies: &gate.limits.policies,
        players,
        compare: args.compare,
        proxies: args.proxies.settings(),
        arrivals: &arrivals,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(|error| Failure::Running.error(error))?.block_on(play(
        &scenario,
        target.as_ref(),
        args.format,
    )) {
        // A closed pipe is not a failure.
        Err(SimulateError::Output(error)) => output::report_write("standard output", Err(error)),
        played => played.map_err(|error| Failure::Running.error(error)),
    }
}

/// The limits to play against, and the arrivals.
fn limits_and_arrivals(
    args: &SimulateArgs,
    gate: &Gate,
) -> Result<(Vec<PolicyId>, Vec<SimulatedArrival>), String> {
    let Some([domain, entries]) = args.descriptor.as_deref() else {
        let limits = limits(&args.limits, &gate.limits.policies)?;
        return Ok((limits, read_arrivals(args)?));
    };
    let descriptor = DescriptorTemplate::parse(domain, entries)?;
    let mut arrivals = read_arrivals(args)?;
    if arrivals.is_empty() {
        return Err("error: there are no arrivals, so no rule can be found\n\
                    help: write lines such as `0.25 ann` to standard input, or name a file with --arrivals"
            .to_owned());
    }
    let limits = descriptor.plan(gate, &mut arrivals)?;
    Ok((limits, arrivals))
}

/// Looks up limits by name; a name that is given twice counts once.
fn limits(names: &[String], policies: &[Policy]) -> Result<Vec<PolicyId>, String> {
    let mut found = Vec::new();
    for name in names {
        let mut all_ids = policies.iter().zip((0..).map(PolicyId));
        // Limits come before their overrides, which are stored under the same name.
        let Some((_, id)) = all_ids.find(|(policy, _)| *policy.stored == **name) else {
            return Err(format!("error: unknown limit `{name}`\nhelp: {}", alternatives(name, policies)));
        };
        if !found.contains(&id) {
            found.push(id);
        }
    }
    Ok(found)
}

/// Help for a name that no limit has: the most similar name, or all of them.
fn alternatives(name: &str, policies: &[Policy]) -> String {
    let mut seen = HashSet::new();
    let all: Vec<&str> =
        policies.iter().map(|policy| &*policy.stored).filter(|name| seen.insert(*name)).collect();
    if let Some(near) = nearest(name, all.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    match all.len().checked_sub(MAX_LISTED) {
        _ if all.is_empty() => "the file has no limits".to_owned(),
        None | Some(0) => format!("the file has {}", all.join(", ")),
        Some(more) => format!("the file has {} and {more} more", all[..MAX_LISTED].join(", ")),
    }
}

fn read_arrivals(args: &SimulateArgs) -> Result<Vec<SimulatedArrival>, String> {
    let file = args.arrivals_file();
    if file.is_none() && io::stdin().is_terminal() {
        complain("reading arrivals from the terminal, such as `0.25 alice`; end with Ctrl-D");
    }
    let arrivals = arrivals::read(file)?;
    if args.format == OutputFormat::Svg && arrivals.len() > MAX_PLOTTED {
        return Err(format!(
            "error: a plot shows at most {MAX_PLOTTED} arrivals, and there are {}\n\
             help: play fewer of them, or choose another --format",
            arrivals.len()
        ));
    }
    Ok(arrivals)
}

/// Plays everything, and deletes all keys that were stored, also after an error.
async fn play(
    scenario: &Scenario<'_>,
    target: Option<&RedisTarget>,
    format: OutputFormat,
) -> Result<(), SimulateError> {
    let keys = scenario.keys();
    let unreachable =
        |error| SimulateError::Unreachable(target.map_or_else(String::new, ToString::to_string), error);
    let backend = Backend::open(target, keys.len()).await.map_err(unreachable)?;
    // Counts every request at once, for comparison with limits that have `ahead`.
    let exact = Backend::open(None, keys.len()).await?;
    let new_player = |limits: &Vec<PolicyId>| player(scenario, limits, (&backend, &exact));
    let players = scenario.players.iter().map(new_player).collect();
    // In memory nothing is awaited that `select!` could interrupt; there SIGINT ends the process itself.
    let played = if target.is_none() {
        write_output(scenario, players, format).await
    } else {
        tokio::select! {
            played = write_output(scenario, players, format) => played,
            _ = tokio::signal::ctrl_c() => Err(SimulateError::Interrupted),
        }
    };
    let cleared = backend.clear(scenario.policies, &keys).await;
    if let (Err(_), Some(prefix)) = (&cleared, backend.prefix()) {
        complain(format!("warning: keys that start with {prefix} could not be deleted; they will expire"));
    }
    played.and(cleared.map_err(SimulateError::Store))
}

/// The player of limits that are counted in `backend`. For limits with `ahead` it compares with those of `exact`.
fn player<'a>(
    scenario: &Scenario<'a>,
    limits: &[PolicyId],
    (backend, exact): (&'a Backend, &'a Backend),
) -> ArrivalPlayer<'a> {
    let counted_in = |backend| ExactPlayer::new(scenario.gate, backend, limits.to_vec());
    let engine = if have_ahead(scenario.policies, limits) {
        let store = (scenario.gate, backend);
        let proxies = ProxyPlayer::new(store, limits.to_vec(), scenario.proxies, counted_in(exact));
        Decider::Proxies(Box::new(proxies))
    } else {
        Decider::Exact(counted_in(backend))
    };
    ArrivalPlayer::new(scenario.gate, limits.to_vec(), engine)
}

async fn write_output(
    scenario: &Scenario<'_>,
    mut players: Vec<ArrivalPlayer<'_>>,
    format: OutputFormat,
) -> Result<(), SimulateError> {
    let stdout = io::stdout();
    let colours = has_colours(&stdout);
    let mut out = io::BufWriter::new(stdout.lock());
    match format {
        OutputFormat::Table => rows::write(scenario, &mut players, colours, &mut out).await?,
        OutputFormat::Jsonl => rows::write_json(scenario, &mut players, &mut out).await?,
        OutputFormat::Svg => {
            let plot = plotting::play(scenario, &mut players).await?;
            out.write_all(plot::draw(&plot).as_bytes())?;
        }
    }
    out.flush()?;
    Ok(())
}
