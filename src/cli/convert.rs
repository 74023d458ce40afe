//! `tidegate convert`.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output::{CommandResult, Failure, complain, report_write};
use crate::config;
use crate::convert::{self, Account, Converted, Finding, SourceFile, SourceFormat, SyntaxError};
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  tidegate convert nginx /etc/nginx/nginx.conf > tidegate.toml
  tidegate convert nginx -o tidegate.toml /etc/nginx/sites-enabled/api
  tidegate convert haproxy /etc/haproxy/haproxy.cfg > tidegate.toml
  tidegate convert traefik dynamic.yaml > tidegate.toml
  deck gateway dump -o - | tidegate convert kong - > tidegate.toml
  tidegate convert traefik /etc/traefik/dynamic/ > tidegate.toml
  kubectl get ingress,service -A -o yaml | tidegate convert kubernetes - > tidegate.toml
  tidegate convert envoy-ratelimit config.yaml > tidegate.toml

What can't be converted is listed with its line on standard error, and is a comment at its place in the output. A second
pass over the input counts its limits of requests and restrictions of access; the last line says how many of them the
output has, if only in part. The output is valid; read it, and try it with `tidegate explain` and `tidegate replay` before it gets traffic.

Exit status: 0 on success, 1 if the output exists or can't be written, has no routes, is not valid yet, or lacks a
restriction that is not listed, 2 if the input can't be read.";

/// The arguments of `tidegate convert`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConvertArgs {
    /// The program whose configuration the files are.
    #[arg(value_enum)]
    origin: SourceProgram,
    /// The files of one configuration; of a directory, all files in it. `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Of Envoy's rate-limit service: make routes, for a tidegate in place of Envoy, instead of the rules of a service for Envoy.
    #[arg(long)]
    routes: bool,
    /// Write into this file, which must not exist, instead of to standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

// In the help backticks would be shown.
#[allow(clippy::doc_markdown)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceProgram {
    /// nginx: limit_req, limit_conn, server, location, upstream, map, geo.
    Nginx,
    /// HAProxy: stick tables, http-request deny, frontends, backends, ACLs.
    Haproxy,
    /// The dynamic configuration of Traefik, in YAML or TOML: rateLimit, inFlightReq, routers, services.
    Traefik,
    /// The declarative configuration of Kong: the plugin rate-limiting, services, routes, upstreams.
    Kong,
    /// Objects of Kubernetes: Ingress with ingress-nginx, HTTPRoute, BackendTrafficPolicy, Traefik's Middleware and IngressRoute.
    Kubernetes,
    /// The descriptors of Envoy's rate-limit service (envoyproxy/ratelimit).
    EnvoyRatelimit,
}

impl SourceProgram {
    /// The format of its files; `as_routes` applies to Envoy's rate-limit service only.
    fn format(self, as_routes: bool) -> SourceFormat {
        match self {
            Self::Nginx => SourceFormat::Nginx,
            Self::Haproxy => SourceFormat::Haproxy,
            Self::Traefik => SourceFormat::Traefik,
            Self::Kong => SourceFormat::Kong,
            Self::Kubernetes => SourceFormat::Kubernetes,
            Self::EnvoyRatelimit if as_routes => SourceFormat::EnvoyRatelimitRoutes,
            Self::EnvoyRatelimit => SourceFormat::EnvoyRatelimit,
        }
    }
}

/// A file that was read.
struct ReadFile {
    name: String,
    text: String,
    /// The directory of the files that it names.
    directory: PathBuf,
}

/// Converts a configuration; prints the result, and what was not converted.
pub(super) fn convert(args: &ConvertArgs) -> CommandResult {
    if args.routes && args.origin != SourceProgram::EnvoyRatelimit {
        let error = "--routes is for envoy-ratelimit: from the others there are always routes";
        return Err(Failure::Usage.error(error));
    }
    let mut files = Vec::new();
    for path in &args.files {
        for path in args.origin.files(path)? {
            files.push(read(&path)?);
        }
    }
    let format = args.origin.format(args.routes);
    let sources = files.iter().map(|ReadFile { name, text, directory }| SourceFile { name, text, directory });
    let converted = convert::convert(format, &sources.collect::<Vec<_>>())
        .map_err(|SyntaxError { place, message }| Failure::Usage.error(format!("{place}: {message}")))?;
    let names: Vec<&str> = files.iter().map(|file| &*file.name).collect();
    let title = format!("Converted from {} ({}) by `tidegate convert`.", format.name(), names.join(", "));
    let toml = convert::toml(&converted, &title);
    // The output is an invalid configuration only if a value has a form that this command does not know.
    let check = config::parse(&toml, "the output", &|_| None);
    write(args.output.as_deref(), &toml)?;
    list(&converted);
    let result = verdict(&converted, check.err().map(|report| report.to_string()));
    complain(tally(&converted.account));
    result
}

impl SourceProgram {
    /// The files of a path: itself, or the files in a directory with the endings of this program.
    fn files(self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        if !path.is_dir() {
            return Ok(vec![path.to_owned()]);
        }
        let endings: &[&str] = match self {
            Self::Nginx => &["conf"],
            Self::Haproxy => &["cfg"],
            Self::Traefik => &["yaml", "yml", "toml"],
            Self::Kong | Self::Kubernetes | Self::EnvoyRatelimit => &["yaml", "yml", "json"],
        };
        let failed = |error| Failure::Usage.error(format!("can't read {}: {error}", path.display()));
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let inner = entry.map_err(failed)?.path();
            let ending = inner.extension().and_then(OsStr::to_str);
            if inner.is_file() && ending.is_some_and(|ending| endings.contains(&ending)) {
                found.push(inner);
            }
        }
        if found.is_empty() {
            let error = format!("{} has no files that end with .{}", path.display(), endings.join(" or ."));
            return Err(Failure::Usage.error(error).help(["name the files"]));
        }
        found.sort();
        Ok(found)
    }
}

fn read(path: &Path) -> Result<ReadFile, Failure> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "<stdin>".to_owned() } else { path.display().to_string() };
    let text = if is_stdin { read_stdin() } else { fs::read_to_string(path) };
    let text = text.map_err(|error| Failure::Usage.error(format!("can't read {name}: {error}")))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    // Certificates keep their place, wherever the output is.
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    Ok(ReadFile { name, text, directory })
}

fn read_stdin() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// Writes to a new file, or to standard output.
fn write(output: Option<&Path>, text: &str) -> CommandResult {
    let Some(path) = output else {
        let mut out = io::stdout().lock();
        return report_write("standard output", out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    };
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let help = "`convert` replaces no files; choose another name, or remove the file";
        let help = (error.kind() == io::ErrorKind::AlreadyExists).then_some(help);
        Failure::Running.error(format!("can't write to {}: {error}", path.display())).help(help)
    })
}

/// Prints what was not converted.
fn list(converted: &Converted) {
    let findings = converted.findings();
    for Finding { place, text, reason, changes_behaviour, .. } in &findings {
        let kind = if *changes_behaviour { "not converted" } else { "for information" };
        complain(format!("{place}: {kind}: {text}\n  {reason}"));
    }
    let changes = findings.iter().filter(|finding| finding.changes_behaviour).count();
    let counts = converted.counts().into_iter().map(|(count, thing)| counted(count, thing));
    let counts: Vec<String> = counts.collect();
    complain(format!(
        "converted to {}; {} behaviour, {} for information",
        counts.join(", "),
        if changes == 1 { "1 remark changes".to_owned() } else { format!("{changes} remarks change") },
        if findings.len() - changes == 1 {
            "1 is".to_owned()
        } else {
            format!("{} are", findings.len() - changes)
        }
    ));
}

/// Fails if the output is not what it claims to be, which it is not with this report.
fn verdict(converted: &Converted, report: Option<String>) -> CommandResult {
    let lost = (converted.account.lost > 0).then(|| {
        let restrictions = counted(converted.account.lost, "restriction");
        format!("error: the conversion lost {restrictions} of access, which the list above names")
    });
    let empty = "error: nothing in the input became a route: the output serves nothing";
    let empty = converted.is_empty().then(|| empty.to_owned());
    let invalid =
        report.map(|report| format!("{report}\nerror: the output is not valid yet: correct it as described"));
    let errors: Vec<String> = [lost, empty, invalid].into_iter().flatten().collect();
    errors.iter().for_each(complain);
    if errors.is_empty() { Ok(()) } else { Err(Failure::Running) }
}

/// How much of what limits requests or restricts access is in the output.
fn tally(account: &Account) -> String {
    let Account { limits, access, .. } = account;
    let of_limits = format!("{} of {} converted", limits.converted, counted(limits.all, "limit"));
    let of_access = format!(", {} of {}", access.converted, counted(access.all, "other restriction"));
    if access.all == 0 { of_limits } else { of_limits + &of_access }
}
