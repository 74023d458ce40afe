//! `acme` in the `tls` of a listener: for which hosts certificates are obtained.

use rustls::pki_types::DnsName;

use super::item::Item;
use crate::gate::HostPattern;

/// What `acme` of a listener asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AcmeNames {
    /// Nothing.
    Off,
    /// The host names of routes.
    OfRoutes,
    /// These names.
    Given(Vec<String>),
}

/// Reads `acme` of the `tls` of a listener.
pub(super) fn names(item: Item<'_>) -> Option<AcmeNames> {
    if item.is_boolean() {
        return item.boolean().map(|is_on| if is_on { AcmeNames::OfRoutes } else { AcmeNames::Off });
    }
    let form = "write acme = true for the hosts of the routes, or the names: acme = [\"api.example.com\"]";
    let names = item.list_of(form, name)?;
    if names.is_empty() {
        return item.reject(item.error("`acme` has no names").help(form));
    }
    Some(AcmeNames::Given(names))
}

fn name(item: Item<'_>) -> Option<String> {
    let text = item.string_like("a host name", "such as \"api.example.com\"")?;
    match HostPattern::parse(&text.value) {
        Some(pattern @ HostPattern::Wildcard(_)) => {
            let problem =
                text.error(format!("no certificate can be obtained for {pattern}: wildcards need DNS-01"));
            let cure =
                "name each host, or obtain the certificate elsewhere and name its files in `certificates`";
            text.reject(problem.help(cure))
        }
        Some(HostPattern::Exact(host)) if is_dns_name(&host) => Some(host.into()),
        _ => {
            let problem = text.error(format!("{} is not a host name", text.quoted()));
            text.reject(problem.help("such as \"api.example.com\", without scheme and port"))
        }
    }
}

/// Whether a host can be the name of a certificate: it is no address.
pub(super) fn is_dns_name(host: &str) -> bool {
    DnsName::try_from(host).is_ok() && host.parse::<std::net::IpAddr>().is_err()
}
