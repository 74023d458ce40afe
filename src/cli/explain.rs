//! `tidegate explain`.

mod forwarding;
mod limits;
mod report;
mod request;
mod routing;
mod rows;

use std::net::{IpAddr, Ipv4Addr};

use clap::Args;

use super::output::{complain, print};
use super::{Failure, FileArgs, Outcome, load};
use crate::gate::ClientIdentity;

/// The request to explain.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The method, such as GET.
    method: String,
    /// The URL, or only its path; a host in it goes into the Host header.
    url: String,
    /// A header of the request; can be given several times.
    #[arg(short = 'H', long = "header", value_name = "'NAME: VALUE'")]
    headers: Vec<String>,
    /// The address that the request comes from.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// The subject of the certificate that the client shows, such as CN=worker,O=Example.
    #[arg(long, value_name = "NAME")]
    tls_subject: Option<String>,
}

/// Tells what a request would meet.
pub(super) fn explain(args: &ExplainArgs) -> Outcome {
    let head = request::head(&args.method, &args.url, &args.headers).map_err(|error| {
        complain(format!("error: {error}"));
        Failure::Usage
    })?;
    let loaded = load(&args.file)?;
    let caller = ClientIdentity { address: args.from, tls_subject: args.tls_subject.as_deref() };
    print(&report::tell(&loaded, caller, &head))
}
