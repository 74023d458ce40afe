//! For which names `[acme]` obtains certificates: those that listeners ask for.

use std::net::SocketAddr;

use super::acme::ReadAcme;
use super::item::Item;
use super::report::Problem;
use super::routes::ReadRoute;
use super::table::Reported;
use super::tls::{AcmeNames, acme_names, is_dns_name};
use crate::acme::{AcmeSpec, ChallengeKind};
use crate::gate::HostPattern;
use crate::server::ListenerSpec;
use crate::tls::ServerTls;

/// A listener that asks for certificates.
struct Asking<'l> {
    /// The value of `acme` in its `tls`.
    acme: Item<'l>,
    names: AcmeNames,
    address: SocketAddr,
    tls: &'l ServerTls,
}

/// Has the certificates of listeners managed that ask for it; returns the settings with all names. `item` is the value that
/// the file has for listeners.
pub(super) fn assign(
    acme: Option<ReadAcme<'_>>,
    item: Option<Item<'_>>,
    specs: &[ListenerSpec],
    routes: &[ReadRoute],
) -> Result<Option<AcmeSpec>, Reported> {
    let asking = asking(item, specs);
    let Some(ReadAcme { mut spec, table }) = acme else {
        for one in &asking {
            let problem = one.acme.error("`acme` asks for certificates, and the file has no [acme]");
            let help = "add a table [acme] with terms_of_service_agreed = true and storage = \"/var/lib/tidegate/acme\"";
            one.acme.reject::<()>(problem.help(help).derived());
        }
        return if asking.is_empty() { Ok(None) } else { Err(Reported) };
    };
    if asking.is_empty() {
        let problem = table.error("no listener uses [acme]: none has `acme` in its `tls`");
        let help =
            "add a listener with address = \"0.0.0.0:443\" and tls = { acme = true }, or leave [acme] out";
        table.reject::<()>(problem.help(help).derived());
        return Err(Reported);
    }
    let found: Vec<Option<Vec<String>>> = asking.iter().map(|one| one.names(routes)).collect();
    for (one, names) in asking.iter().zip(found) {
        let names = names.ok_or(Reported)?;
        spec.names.extend(names.iter().cloned());
        one.tls.manage(names);
    }
    spec.names.sort_unstable();
    spec.names.dedup();
    warn_of_port(&spec, table, specs, &asking);
    Ok(Some(spec))
}

/// The listeners that ask for certificates. Their values were read before, so what is wrong with them is reported.
fn asking<'l>(item: Option<Item<'l>>, specs: &'l [ListenerSpec]) -> Vec<Asking<'l>> {
    let items = item.filter(|item| item.is_array()).and_then(|item| item.list(""));
    let asked = |(item, spec): (Item<'l>, &'l ListenerSpec)| {
        let acme = item.value_of("tls")?.value_of("acme")?;
        let names = acme_names(acme).filter(|names| *names != AcmeNames::Off)?;
        Some(Asking { acme, names, address: spec.address, tls: spec.tls.as_ref()? })
    };
    items.into_iter().flatten().zip(specs).filter_map(asked).collect()
}

impl Asking<'_> {
    /// The names for which the listener needs certificates.
    fn names(&self, routes: &[ReadRoute]) -> Option<Vec<String>> {
        if let AcmeNames::Given(names) = &self.names {
            return Some(names.clone());
        }
        let mut found: Vec<String> = Vec::new();
        for read in routes {
            match &read.route.host {
                Some(pattern) if self.tls.has_certificate_for(&pattern.to_string()) => {}
                Some(HostPattern::Exact(host))
                    if is_dns_name(host) && found.iter().all(|own| **own != **host) =>
                {
                    found.push(String::from(&**host));
                }
                Some(pattern @ HostPattern::Wildcard(_)) => {
                    self.acme.reader.report(no_wildcard(pattern, read));
                }
                _ => {}
            }
        }
        if found.is_empty() {
            let title =
                "no certificate can be obtained: no route has a `host` that is a name without a certificate";
            let help = "name the hosts of this listener: acme = [\"api.example.com\"]";
            return self.acme.reject(self.acme.error(title).help(help).derived());
        }
        Some(found)
    }
}

fn no_wildcard(pattern: &HostPattern, read: &ReadRoute) -> Problem {
    let title = format!(
        "no certificate is obtained for {pattern}, the host of route `{}`: wildcards need DNS-01",
        read.route.name
    );
    let help =
        "name hosts of it in `acme` of the listener, or a certificate from elsewhere in `certificates`";
    Problem::warning(read.span.clone(), title).help(help)
}

/// Warns if nothing listens where the authority validates names.
fn warn_of_port(spec: &AcmeSpec, table: Item<'_>, specs: &[ListenerSpec], asking: &[Asking<'_>]) {
    let (port, is_there, address) = match spec.challenge {
        ChallengeKind::Http01 => {
            let is_there = specs.iter().any(|spec| spec.tls.is_none() && spec.address.port() == 80);
            (80, is_there, "address = \"0.0.0.0:80\", without `tls`")
        }
        ChallengeKind::TlsAlpn01 => {
            (443, asking.iter().any(|one| one.address.port() == 443), "address = \"0.0.0.0:443\" and `acme`")
        }
    };
    if !is_there {
        let kind = spec.challenge.name();
        let title = format!("the authority validates names at port {port} ({kind}), and no listener has it");
        let help = format!("add a listener with {address}, unless port {port} is forwarded to one of these");
        table.reader.report(Problem::warning(table.span(), title).help(help));
    }
}
