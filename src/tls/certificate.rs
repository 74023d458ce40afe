//! What we read of certificates: for which names they hold, how long, and whose they are.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use super::subject;
use crate::time::{Micros, Timestamp};

/// What a server's certificate says.
#[derive(Debug)]
pub(super) struct Facts {
    /// The names for which it holds, in lower case; a wildcard as it stands there, `*.example.com`.
    pub names: Vec<String>,
    /// The first instant at which it holds.
    pub begins: Timestamp,
    /// The last instant at which it holds.
    pub expires: Timestamp,
}

impl Facts {
    /// Reads them; `None` where that is no certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = read(certificate)?;
        let extension = certificate.subject_alternative_name().ok()?;
        let names = extension.iter().flat_map(|extension| &extension.value.general_names);
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        let time = |time: ASN1Time| {
            let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
            Timestamp(seconds.saturating_mul(Micros::SECOND.0))
        };
        let validity = certificate.validity();
        let (begins, expires) = (time(validity.not_before), time(validity.not_after));
        Some(Self { names: names.filter_map(dns).collect(), begins, expires })
    }
}

/// The subject of a certificate as text; none if it is empty.
pub(super) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let subject = subject::text(read(certificate)?.subject());
    (!subject.is_empty()).then_some(subject)
}

fn read<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate).ok().map(|(_, certificate)| certificate)
}
