//! `tidegate check`.

mod certificates;
mod connect;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::connect::ConnectionCheck;
use super::describe;
use super::file::{self, PathArgs};
use super::output::{self, CommandResult, Failure, complain, print, report_write};
use crate::admin::api::ProblemInfo;
use crate::config::{Config, Loaded, Report};
use crate::gate::Cost;
use crate::limit::PolicyId;
use crate::server::listen_permission;
use crate::store::StoreSpec;
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  tidegate check
  tidegate check /etc/tidegate/tidegate.toml
  envsubst < tidegate.toml.in | tidegate check -
  tidegate check --strict tidegate.toml        (in CI: warnings are errors)
  tidegate check --connect                     (also tries Redis, upstreams, key sets, certificates)
  tidegate check --json tidegate.toml | jq '.errors[0].message'

Exit status: 0 if the configuration is valid, 1 if a check of --connect fails (with --strict: or has a warning), 2 if the \
configuration is invalid (with --strict: or has warnings) or for wrong usage.";

/// The arguments of `tidegate check`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    file: PathArgs,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Print the errors and warnings as JSON, each with its file, line, column, message and help
    #[arg(long)]
    json: bool,
    /// Also try what a valid configuration points to: Redis, with all permissions that are needed; the key set of `[jwt]`; every
    /// server, with TLS and health check; the collector of `[tracing]`; and whether certificates expire
    #[arg(long)]
    connect: bool,
    /// How long each step of a check of --connect may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration, requires = "connect")]
    timeout: Duration,
}

/// Checks the configuration; prints its problems and warnings, and a summary if it is valid.
pub(super) fn check(args: &CheckArgs) -> CommandResult {
    let path = args.file.path()?;
    let name = file::name(&path);
    match file::read(&path) {
        Ok(loaded) if args.json => {
            print_json(args, &loaded, CheckReport::of_valid(name, &loaded, args.strict))
        }
        Ok(loaded) => print_text(args, &name, &loaded),
        Err(report) if args.json => {
            CheckReport::of_invalid(name, &report).print()?;
            Err(Failure::Usage)
        }
        Err(report) => Err(file::complain_of(&report)),
    }
}

/// Prints the result for a file without errors as JSON.
fn print_json(args: &CheckArgs, loaded: &Loaded, mut report: CheckReport) -> CommandResult {
    if !report.valid {
        report.print()?;
        return Err(Failure::Usage);
    }
    if args.connect {
        report.connections = Some(connect::connect(&loaded.config, args.timeout)?);
    }
    report.print()?;
    connect::outcome(report.connections.as_deref().unwrap_or_default(), args.strict)
}

/// Prints the warnings and the summary of a file without errors.
fn print_text(args: &CheckArgs, name: &str, loaded: &Loaded) -> CommandResult {
    print_warnings(&loaded.warnings)?;
    for warning in permission_warnings(name, &loaded.config) {
        let help = warning.help.join("\n");
        complain(format!("warning: {}: {}\n  help: {help}", warning.file, warning.message));
    }
    if args.strict && !loaded.warnings.is_empty() {
        let count = counted(loaded.warnings.len(), "warning");
        complain(format!("\n{name}: {count}, which --strict does not allow"));
        return Err(Failure::Usage);
    }
    let mut lines = vec![format!("{name} is valid: {}", summary(loaded))];
    lines.extend(granting_limits(&loaded.config));
    lines.extend(uncompressed_routes(&loaded.config));
    print(&lines.join("\n"))?;
    if !args.connect {
        return Ok(());
    }
    let connections = connect::connect(&loaded.config, args.timeout)?;
    print(&connect::lines(&connections).join("\n"))?;
    connect::outcome(&connections, args.strict)
}

/// A warning for each address on which this user may not listen. It depends on the user, so --strict accepts it.
fn permission_warnings(file: &str, config: &Config) -> Vec<ProblemInfo> {
    let errors = config.listeners.iter().filter_map(|listener| listen_permission(listener.address));
    let warnings = errors.map(|error| ProblemInfo {
        file: file.to_owned(),
        line: None,
        column: None,
        end_line: None,
        end_column: None,
        message: format!("this user may not listen on {}", error.address),
        help: error.help().into_iter().collect(),
    });
    warnings.collect()
}

fn print_warnings(warnings: &Report) -> CommandResult {
    if warnings.is_empty() { Ok(()) } else { report_write("standard error", warnings.print()) }
}

/// A line for each limit that grants units ahead of requests, or keeps freed slots.
fn granting_limits(config: &Config) -> impl Iterator<Item = String> {
    let limits = config.snapshot.gate.limits();
    limits.filter_map(|(_, policy)| Some(format!("limit {}: {}", policy.name, describe::ahead(policy)?)))
}

/// A line for each route whose responses a limit reads, so that servers are asked not to compress them.
fn uncompressed_routes(config: &Config) -> impl Iterator<Item = String> {
    let gate = &config.snapshot.gate;
    let reads = |id: &&PolicyId| match &gate.limit_rules[**id].cost {
        Cost::Settled(cost) => cost.basis.reads_response(),
        Cost::Fixed(_) | Cost::Header { .. } => false,
    };
    let routes = gate.routes.routes().iter().zip(config.snapshot.actions.iter());
    let forwarding = routes.filter(|(_, action)| action.target.forwarding().is_some());
    forwarding.filter_map(move |(route, _)| {
        let limit = &gate.limits.policies[*route.limits.iter().find(reads)?].name;
        Some(format!(
            "route {}: responses are not compressed, since limit {limit} reads their cost",
            route.name
        ))
    })
}

/// Summarizes a configuration, such as `1 route, 2 limits, 1 upstream, counts in this process`.
fn summary(loaded: &Loaded) -> String {
    let config = &loaded.config;
    let snapshot = &config.snapshot;
    let store = match &config.store {
        StoreSpec::Memory => "counts in this process".to_owned(),
        StoreSpec::Redis(servers) if servers.are_several() => {
            format!("{} of Redis", counted(servers.iter().count(), "server"))
        }
        StoreSpec::Redis(servers) => format!("store {}", servers.first().target),
    };
    let mut counts = vec![
        counted(snapshot.gate.routes.routes().len(), "route"),
        counted(snapshot.gate.limit_rules.len(), "limit"),
        counted(snapshot.upstreams.len(), "upstream"),
        store,
    ];
    let included = loaded.included.len();
    counts.extend((included > 0).then(|| counted(included, "included file")));
    let acme = config.acme.as_ref();
    counts.extend(
        acme.map(|acme| format!("{} from {}", counted(acme.names.len(), "certificate"), acme.server())),
    );
    counts.join(", ")
}

/// The result of a check, for other programs.
#[derive(Debug, Serialize)]
struct CheckReport {
    /// The name of the file.
    file: String,
    /// Whether the file is accepted.
    pub valid: bool,
    errors: Vec<ProblemInfo>,
    /// The warnings of a file without errors.
    warnings: Vec<ProblemInfo>,
    /// Counts of the parts of a valid file.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<CheckSummary>,
    /// The checks of --connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Vec<ConnectionCheck>>,
}

#[derive(Debug, Serialize)]
struct CheckSummary {
    routes: usize,
    limits: usize,
    upstreams: usize,
    /// `memory`, or the address of Redis; those of several servers with commas between them.
    store: String,
}

impl CheckReport {
    /// The result for a valid file; with `strict` only a file without warnings is accepted.
    pub fn of_valid(file: String, loaded: &Loaded, strict: bool) -> Self {
        let snapshot = &loaded.config.snapshot;
        let summary = CheckSummary {
            routes: snapshot.gate.routes.routes().len(),
            limits: snapshot.gate.limit_rules.len(),
            upstreams: snapshot.upstreams.len(),
            store: loaded.config.store.address().unwrap_or_else(|| "memory".to_owned()),
        };
        Self {
            valid: !strict || loaded.warnings.is_empty(),
            errors: Vec::new(),
            warnings: [problems(&file, &loaded.warnings), permission_warnings(&file, &loaded.config)]
                .concat(),
            summary: Some(summary),
            connections: None,
            file,
        }
    }

    /// The result for an invalid file.
    pub fn of_invalid(file: String, report: &Report) -> Self {
        let errors = problems(&file, report);
        Self { file, valid: false, errors, warnings: Vec::new(), summary: None, connections: None }
    }

    /// Prints it to standard output.
    pub fn print(&self) -> CommandResult {
        output::print_json(self)
    }
}

/// The problems of a report; a file that can't be read has no name there.
fn problems(file: &str, report: &Report) -> Vec<ProblemInfo> {
    let mut problems = report.problems();
    for problem in problems.iter_mut().filter(|problem| problem.file.is_empty()) {
        file.clone_into(&mut problem.file);
    }
    problems
}
