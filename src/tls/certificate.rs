//! Names, validity and subject of X.509 certificates.

use std::fmt::Write as _;
use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::ToDer as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::time::{Micros, Timestamp};

/// The names of attribute types, as in RFC 4514 §3 and, for the rest, in OpenSSL.
const ATTRIBUTE_NAMES: [(&str, &str); 15] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.4", "SN"),
    ("2.5.4.42", "GN"),
    ("2.5.4.12", "title"),
    ("2.5.4.17", "postalCode"),
];

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

/// The names in the certificate of a client by which limits count.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PeerNames {
    /// The subject, in the format of RFC 4514; none if it is empty.
    pub subject: Option<String>,
    /// The subject alternative name that identifies the client, if there is one.
    pub san: Option<String>,
}

impl PeerNames {
    /// Parses a certificate; without names if it is malformed.
    pub(super) fn parse(certificate: &CertificateDer<'_>) -> Self {
        let Some(certificate) = parse(certificate) else { return Self::default() };
        let subject = format_subject(certificate.subject());
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map_or(&[][..], |extension| &extension.value.general_names);
        Self { subject: Some(subject).filter(|text| !text.is_empty()), san: identifying(names) }
    }
}

/// The name that identifies a client: the first URI, which is the only one in a certificate of SPIFFE; or else the first DNS
/// name, email address or IP address, whichever of these kinds is there.
fn identifying(names: &[GeneralName<'_>]) -> Option<String> {
    let kinds: [fn(&GeneralName<'_>) -> Option<String>; 4] = [
        |name| if let GeneralName::URI(uri) = name { Some((*uri).to_owned()) } else { None },
        |name| if let GeneralName::DNSName(name) = name { Some(name.to_ascii_lowercase()) } else { None },
        |name| if let GeneralName::RFC822Name(email) = name { Some((*email).to_owned()) } else { None },
        |name| if let GeneralName::IPAddress(bytes) = name { address(bytes) } else { None },
    ];
    kinds.iter().find_map(|kind| names.iter().filter_map(kind).find(|text| !text.is_empty()))
}

/// An IP address as text; none if it has neither 4 nor 16 bytes.
fn address(bytes: &[u8]) -> Option<String> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)).map(|address| address.to_string())
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate).ok().map(|(_, certificate)| certificate)
}

/// Formats a name by RFC 4514: the last attribute first, `CN=worker,O=Example\, Inc.`. Names that differ never have the same
/// text, since separators within values are escaped.
fn format_subject(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let sets: Vec<_> = name.iter_rdn().collect();
    for (set_index, set) in sets.iter().rev().enumerate() {
        let attributes: Vec<_> = set.iter().collect();
        for (index, attribute) in attributes.iter().rev().enumerate() {
            text.push_str(match (set_index, index) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            push_attribute(&mut text, attribute);
        }
    }
    text
}

fn push_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let oid = attribute.attr_type().to_id_string();
    let name = ATTRIBUTE_NAMES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
    text.push_str(name.unwrap_or(&oid));
    text.push('=');
    match attribute.as_str() {
        Ok(value) if name.is_some() => push_escaped(text, value),
        // RFC 4514 §2.4: a type without a name, and a value that is no string, is written in its encoding.
        _ => {
            text.push('#');
            for byte in attribute.attr_value().to_der_vec_raw().unwrap_or_default() {
                // Writing to a string can't fail.
                let _ = write!(text, "{byte:02X}");
            }
        }
    }
}

fn push_escaped(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (index, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            ' ' if index == 0 || index == last => text.push_str("\\ "),
            '#' if index == 0 => text.push_str("\\#"),
            '\0'..='\x1f' | '\x7f' => {
                let _ = write!(text, "\\{:02X}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    /// Compares the subject with that of OpenSSL.
    #[test]
    fn a_subject_is_formatted_by_rfc_4514() {
        let custom = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99999, 1]);
        let cases = [
            (vec![(DnType::CommonName, "worker")], "CN=worker"),
            (
                vec![
                    (DnType::CountryName, "DE"),
                    (DnType::OrganizationName, "Example, Inc."),
                    (DnType::CommonName, "a b"),
                ],
                r"CN=a b,O=Example\, Inc.,C=DE",
            ),
            (vec![(DnType::CommonName, " x+y=z ")], r"CN=\ x\+y=z\ "),
            (
                vec![(DnType::CommonName, "#1"), (DnType::OrganizationalUnitName, "a#\"<>;\\")],
                r#"OU=a#\"\<\>\;\\,CN=\#1"#,
            ),
            (vec![(DnType::CommonName, "Zoë"), (DnType::LocalityName, "a\tb\u{7f}")], r"L=a\09b\7F,CN=Zoë"),
            (vec![(custom(), "odd"), (DnType::CommonName, "a|b")], "CN=a|b,1.3.6.1.4.1.99999.1=#0C036F6464"),
            (vec![], ""),
        ];
        for (attributes, wanted) in cases {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            for (kind, value) in attributes {
                params.distinguished_name.push(kind, value);
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let found = super::PeerNames::parse(certificate.der()).subject;
            assert_eq!(found.as_deref().unwrap_or(""), wanted);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), certificate.pem()).unwrap();
            let arguments = ["x509", "-noout", "-subject", "-nameopt", "RFC2253,-esc_msb", "-in"];
            let output = Command::new("openssl").args(arguments).arg(file.path()).output().unwrap();
            assert_eq!(
                String::from_utf8(output.stdout).unwrap().trim_end_matches('\n'),
                format!("subject={wanted}")
            );
        }
    }
}
