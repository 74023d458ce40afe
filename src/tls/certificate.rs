//! Names, validity and subject of X.509 certificates.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use super::subject;
use crate::time::{Micros, Timestamp};

/// The names and the validity of a server certificate.
#[derive(Debug)]
pub struct CertificateInfo {
    /// The DNS names in lower case, wildcards as `*.example.com`.
    pub names: Vec<String>,
    /// When the certificate starts to be valid.
    pub not_before: Timestamp,
    /// When the certificate expires.
    pub not_after: Timestamp,
}

impl CertificateInfo {
    /// Parses a certificate; none if it is malformed.
    pub(super) fn parse(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = parse(certificate)?;
        let extension = certificate.subject_alternative_name().ok()?;
        let names = extension.iter().flat_map(|extension| &extension.value.general_names);
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        let time = |time: ASN1Time| {
            // Before 1970 counts as the epoch, as on the wall clock.
            let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
            Timestamp(seconds.saturating_mul(Micros::SECOND.0))
        };
        let validity = certificate.validity();
        let (not_before, not_after) = (time(validity.not_before), time(validity.not_after));
        Some(Self { names: names.filter_map(dns).collect(), not_before, not_after })
    }

    /// Whether it is for this host name in lower case. A wildcard matches the whole first label (RFC 6125 §6.4.3).
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let rest = host.split_once('.').map(|(_, rest)| rest);
        self.names
            .iter()
            .any(|name| name == host || name.strip_prefix("*.").is_some_and(|own| Some(own) == rest))
    }
}

/// The subject of a certificate as text; none if it is empty.
pub(super) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let subject = subject::format(parse(certificate)?.subject());
    (!subject.is_empty()).then_some(subject)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate).ok().map(|(_, certificate)| certificate)
}
