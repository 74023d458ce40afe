//! `tidegate explain`.

mod descriptor;
mod explained;
mod forwarding;
mod limits;
mod report;
mod request;
mod routing;

use std::net::{IpAddr, Ipv4Addr};

use clap::{ArgAction, Args};

use super::file::FileArgs;
use super::output::{CommandResult, Failure, complain, print, print_json};
use crate::config::Loaded;
use crate::gate::{ClientIdentity, Descriptor};

const EXAMPLES: &str = "\
Examples:
  tidegate explain GET /v1/users
  tidegate explain POST https://api.example.com/v1/sessions -H 'X-Api-Key: k-4711' --from 203.0.113.9
  tidegate explain POST /login -d 'username=eve'
  tidegate explain GET /orders --consumer acme
  tidegate explain --json GET /orders | jq -r '.limits[].name'
  tidegate explain --descriptor edge generic_key=checkout,remote_address=203.0.113.9

Exit status: 0 if the request is explained, whatever its response is; 1 if the output fails; 2 for an invalid configuration, an \
invalid request or wrong usage.";

/// The request to explain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The method, such as GET.
    #[arg(required_unless_present = "descriptor")]
    method: Option<String>,
    /// The URL, or its path alone; a host in it becomes the Host header.
    #[arg(required_unless_present = "descriptor")]
    url: Option<String>,
    /// Explain a descriptor of the rate-limit service instead of a request: its domain, and its entries with commas between
    /// them.
    #[arg(
        long,
        action = ArgAction::Set,
        num_args = 2,
        value_names = ["DOMAIN", "KEY=VALUE,…"],
        conflicts_with_all = ["method", "url", "headers", "data", "from", "tls_subject", "consumer"]
    )]
    descriptor: Option<Vec<String>>,
    /// A header of the request; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "'NAME: VALUE'")]
    headers: Vec<String>,
    /// The body of the request, or @FILE for that of a file without its line ends; a form, unless a header names another
    /// Content-Type. Several are joined with &, as curl does.
    #[arg(short, long, value_name = "TEXT")]
    data: Vec<String>,
    /// The address of the peer that sends the request.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// The subject of the client's certificate, such as CN=worker,O=Example.
    #[arg(long, value_name = "NAME")]
    tls_subject: Option<String>,
    /// Explain it as a request of this consumer of the file, whatever credential it has.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// Explains a request.
pub(super) fn explain(args: &ExplainArgs) -> CommandResult {
    let usage = |error: String| {
        complain(format!("error: {error}"));
        Failure::Usage
    };
    if let Some([domain, entries]) = args.descriptor.as_deref() {
        return explain_descriptor(args, domain, entries);
    }
    let (method, url) = (args.method.as_deref().unwrap_or_default(), args.url.as_deref().unwrap_or_default());
    let body = request::body(&args.data).map_err(usage)?;
    let mut head = request::head(method, url, &args.headers).map_err(usage)?;
    if let Some(body) = &body {
        request::describe_body(&mut head, body);
    }
    let mut loaded = args.file.load()?;
    if let Some(name) = &args.consumer {
        assume_consumer(&mut loaded, name).map_err(usage)?;
    }
    let client = ClientIdentity { address: args.from, tls_subject: args.tls_subject.as_deref() };
    let explained = report::explain(&loaded, client, &head, body.as_deref());
    if args.json { print_json(&explained) } else { print(&explained.rows.into_text()) }
}

/// Explains a descriptor of the rate-limit service.
fn explain_descriptor(args: &ExplainArgs, domain: &str, entries: &str) -> CommandResult {
    let descriptor = Descriptor::parse(entries).map_err(|error| {
        complain(format!("error: {error}"));
        Failure::Usage
    })?;
    let loaded = args.file.load()?;
    let explained = descriptor::explain(&loaded, domain, &descriptor);
    if args.json { print_json(&explained) } else { print(&explained.rows.into_text()) }
}

/// Makes the consumer of this name that of every request.
fn assume_consumer(loaded: &mut Loaded, name: &str) -> Result<(), String> {
    let rules = loaded.config.snapshot.gate.consumers.as_mut();
    let rules = rules.ok_or_else(|| "the file has no [consumers]".to_owned())?;
    rules.assumed = Some(rules.named(name)?.clone());
    Ok(())
}
