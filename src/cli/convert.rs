//! `tidegate convert`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output::{CommandResult, Failure, complain, report_write};
use crate::config;
use crate::convert::{self, Converted, Finding, SourceFile, SourceFormat, SyntaxError};
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  tidegate convert nginx /etc/nginx/nginx.conf > tidegate.toml
  tidegate convert nginx -o tidegate.toml /etc/nginx/sites-enabled/api
  tidegate convert haproxy /etc/haproxy/haproxy.cfg > tidegate.toml
  tidegate convert traefik dynamic.yaml > tidegate.toml
  deck gateway dump -o - | tidegate convert kong - > tidegate.toml
  tidegate convert envoy-ratelimit config.yaml > tidegate.toml

What can't be converted is listed with its line on standard error, and is a comment at its place in the output. The
output is valid; read it, and try it with `tidegate explain` and `tidegate replay` before it gets traffic.

Exit status: 0 on success, 1 if the output exists or can't be written, or is not valid yet, 2 if the input can't be read.";

/// The arguments of `tidegate convert`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConvertArgs {
    /// The program whose configuration the file is.
    #[arg(value_enum)]
    origin: SourceProgram,
    /// The file; `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
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
            Self::EnvoyRatelimit if as_routes => SourceFormat::EnvoyRatelimitRoutes,
            Self::EnvoyRatelimit => SourceFormat::EnvoyRatelimit,
        }
    }
}

/// Converts a configuration; prints the result, and what was not converted.
pub(super) fn convert(args: &ConvertArgs) -> CommandResult {
    if args.routes && args.origin != SourceProgram::EnvoyRatelimit {
        let error = "--routes is for envoy-ratelimit: from the others there are always routes";
        return Err(Failure::Usage.error(error));
    }
    let is_stdin = args.file == Path::new("-");
    let name = if is_stdin { "<stdin>".to_owned() } else { args.file.display().to_string() };
    let text = if is_stdin { read_stdin() } else { fs::read_to_string(&args.file) };
    let text = text.map_err(|error| Failure::Usage.error(format!("can't read {name}: {error}")))?;
    let directory = args.file.parent().unwrap_or(Path::new(""));
    // Certificates keep their place, wherever the output is.
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let format = args.origin.format(args.routes);
    let file = SourceFile { name: &name, text: &text, directory: &directory };
    let converted = convert::convert(format, &file)
        .map_err(|SyntaxError { place, message }| Failure::Usage.error(format!("{place}: {message}")))?;
    let title = format!("Converted from {} ({name}) by `tidegate convert`.", format.name());
    let toml = convert::toml(&converted, &title);
    // The output is an invalid configuration only if a value has a form that this command does not know.
    let check = config::parse(&toml, "the output", &|_| None);
    write(args.output.as_deref(), &toml)?;
    summarize(&converted);
    check.map(drop).map_err(|report| {
        complain(format!("{report}\nerror: the output is not valid yet: correct it as described"));
        Failure::Running
    })
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
fn summarize(converted: &Converted) {
    let findings = converted.findings();
    for Finding { place, text, reason } in &findings {
        complain(format!("{place}: not converted: {text}\n  {reason}"));
    }
    let counts = converted.counts().into_iter().map(|(count, thing)| counted(count, thing));
    let counts: Vec<String> = counts.collect();
    complain(format!("converted {}; {} not converted", counts.join(", "), counted(findings.len(), "line")));
}
