//! The tables `tls` of a listener, of an upstream and of Redis, and `acme` in that of a listener.

use std::path::Path;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};

use super::item::{Item, TextItem};
use super::keys::keys;
use super::report::Problem;
use super::table::{Reported, Table};
use crate::gate::HostPattern;
use crate::time::Clock;
use crate::tls::{ClientTls, ClientTlsSpec, Identity, ServerTls, ServerTlsSpec, TlsError};

const CLIENT_CA: &str =
    " A file with certificate authorities: every client must show a certificate that one of them has signed";

keys! {
    /// The keys of a table `tls` for connections to servers.
    ClientTlsKeys [own table] {
        /// A file with the certificate authorities to trust instead
        ca: Text, or "the system's authorities";
        /// A file with the client certificate, followed by its intermediate certificates; requires `key`
        cert: Text;
        /// A file with the private key of the client certificate; requires `cert`
        key: Text;
        /// The name or address that the certificate of the server must have; also sent as SNI
        server_name: Text, or "the host of the URL";
    }
    mistaken IN_CLIENT_TLS
}

keys! {
    /// The keys of `tls` in a listener.
    ListenerTlsKeys [own table] {
        /// A table for each certificate; required without `acme`
        certificates: List<KeyTable<CertificateKeys>>;
        /// Certificates that [`[acme]`](acme.md) obtains: `true` for the hosts of all routes, or a list of names
        acme: Either<Boolean, List<Text>>;
        #[doc = CLIENT_CA]
        client_ca: Text;
    }
    mistaken IN_SERVER_TLS
}

keys! {
    /// The keys of `tls` in `[admin]`.
    ServerTlsKeys [own table] {
        /// A table for each certificate
        certificates: List<KeyTable<CertificateKeys>>, required [{ cert = "api.pem", key = "api.key" }];
        #[doc = CLIENT_CA]
        client_ca: Text;
    }
    mistaken IN_SERVER_TLS
}

keys! {
    /// The keys of a certificate of a listener.
    CertificateKeys {
        /// The file with the certificate, followed by its intermediate certificates
        cert: Text, required "api.pem";
        /// The file with the private key
        key: Text, required "api.key";
    }
}

/// A certificate with its intermediate certificates, and its key.
type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads how connections to servers are encrypted. Files are relative to `directory`; `protocols` are offered (ALPN).
pub(super) fn client(item: Item<'_>, directory: &Path, protocols: &[&[u8]]) -> Option<ClientTls> {
    let help = "an https:// or rediss:// URL is enough for TLS; its options are a table: tls = { ca = \"internal.pem\" }";
    let table = Table::<ClientTlsKeys>::of_or(item, "`tls`", help)?;
    let authorities = table.ca().with(|item| certificates(item, directory));
    let (ca, cert) = (table.ca().given(), table.cert().given());
    let identity = pair(&table, directory);
    let server_name = table.server_name().with(server_name);
    table.close();
    let spec = ClientTlsSpec {
        authorities: authorities.ok()?,
        identity: identity.ok()?,
        server_name: server_name.ok()?,
        protocols: owned(protocols),
    };
    let error = match ClientTls::new(spec) {
        Ok(tls) => return Some(tls),
        Err(error) => error,
    };
    let item = match error {
        TlsError::Identity(_) => cert.unwrap_or(item),
        TlsError::Authority(_) => ca.unwrap_or(item),
        TlsError::Setup(_) => item,
    };
    item.reject(unusable(item, &error))
}

/// The problem of TLS settings that can't be used.
pub(super) fn unusable(item: Item<'_>, error: &TlsError) -> Problem {
    let problem = item.error(error.to_string());
    match error.help() {
        Some(help) => problem.help(help),
        None => problem,
    }
}

/// Reads how connections of clients are encrypted.
pub(super) fn listener(item: Item<'_>, directory: &Path, protocols: &[&[u8]]) -> Option<ServerTls> {
    const HELP: &str = "write certificates = [{ cert = \"api.pem\", key = \"api.key\" }], or acme = true";
    let table = Table::<ListenerTlsKeys>::of_or(item, "`tls`", HELP)?;
    let names = table.acme().with(acme_names);
    let is_managed = !matches!(names, Ok(None | Some(AcmeNames::Off)));
    let identities = match table.certificates().given() {
        Some(item) => identities(item, directory),
        None if is_managed => Some(Vec::new()),
        None => {
            let problem =
                item.error("TLS needs a certificate, and `tls` has neither `certificates` nor `acme`");
            item.reject(problem.help(HELP).derived())
        }
    };
    let authorities = table.client_ca().with(|item| certificates(item, directory));
    let at = table.client_ca().given().unwrap_or(item);
    table.close();
    let tls = server(at, identities, authorities, protocols)?;
    names.is_ok().then_some(tls)
}

/// Reads how connections to the admin interface are encrypted.
pub(super) fn admin(item: Item<'_>, directory: &Path, protocols: &[&[u8]]) -> Option<ServerTls> {
    let table = Table::<ServerTlsKeys>::of(item, "`tls`")?;
    let identities = table.certificates().with(|item| identities(item, directory));
    let authorities = table.client_ca().with(|item| certificates(item, directory));
    let at = table.client_ca().given().unwrap_or(item);
    table.close();
    server(at, identities, authorities, protocols)
}

/// Makes the settings for clients; a problem with them is reported at `item`.
fn server(
    item: Item<'_>,
    identities: Option<Vec<Identity>>,
    authorities: Result<Option<Vec<CertificateDer<'static>>>, Reported>,
    protocols: &[&[u8]],
) -> Option<ServerTls> {
    let spec = ServerTlsSpec {
        identities: identities?,
        client_authorities: authorities.ok()?,
        protocols: owned(protocols),
    };
    ServerTls::new(spec).map_err(|error| item.reject::<()>(unusable(item, &error))).ok()
}

fn owned(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.to_vec()).collect()
}

fn identities(item: Item<'_>, directory: &Path) -> Option<Vec<Identity>> {
    let form = "put certificates and keys in brackets: [{ cert = \"api.pem\", key = \"api.key\" }]";
    let items = item.list(form)?;
    if items.is_empty() {
        return item.reject(item.error("TLS needs at least one certificate").help(form));
    }
    let identities: Vec<Option<Identity>> =
        items.into_iter().enumerate().map(|(index, item)| identity(item, index == 0, directory)).collect();
    identities.into_iter().collect()
}

fn identity(item: Item<'_>, is_first: bool, directory: &Path) -> Option<Identity> {
    let table = Table::<CertificateKeys>::of(item, "this certificate")?;
    let (cert, key) = (table.cert().item(), table.key().item());
    let certificate = cert.and_then(|item| certificates(item, directory));
    let private_key = key.and_then(|item| private_key(item, directory));
    table.close();
    let cert = cert?;
    let identity = match Identity::new(certificate?, private_key?) {
        Ok(identity) => identity,
        Err(error) => return cert.reject(unusable(cert, &error)),
    };
    let now = Clock::System.now();
    if identity.not_after() < now {
        let title = format!("this certificate expired at {}", identity.not_after().rfc3339());
        cert.reader.report(Problem::warning(cert.span(), title).help("clients reject it; renew it"));
    } else if now < identity.not_before() {
        let title = format!("this certificate is not valid before {}", identity.not_before().rfc3339());
        let help = "clients reject it until then; check the clock of this machine";
        cert.reader.report(Problem::warning(cert.span(), title).help(help));
    }
    if !is_first && identity.names().is_empty() {
        let title = "this certificate has no names: it is never used";
        let help =
            "only the first certificate is used for unknown names; add subject alternative names to this one";
        cert.reader.report(Problem::warning(cert.span(), title).help(help));
    }
    Some(identity)
}

/// Reads `cert` and `key`: both or neither.
fn pair(table: &Table<'_, ClientTlsKeys>, directory: &Path) -> Result<Option<Pair>, Reported> {
    let (cert, key) = (table.cert().given(), table.key().given());
    let certificate = table.cert().with(|item| certificates(item, directory));
    let private_key = table.key().with(|item| private_key(item, directory));
    let lone = match (cert, key) {
        (Some(cert), None) => {
            Some((cert, "key", "the key that belongs to the certificate: key = \"client.key\""))
        }
        (None, Some(key)) => {
            Some((key, "cert", "the certificate that belongs to the key: cert = \"client.pem\""))
        }
        _ => None,
    };
    if let Some((item, missing, help)) = lone {
        let title = format!("`{}` is given without `{missing}`", item.name);
        item.reject::<()>(item.error(title).help(format!("add {help}")));
        return Err(Reported);
    }
    Ok(certificate?.zip(private_key?))
}

pub(super) fn certificates(item: Item<'_>, directory: &Path) -> Option<Vec<CertificateDer<'static>>> {
    let text = file(item)?;
    let (shown, pem) = read(&text, directory)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Some(certificates),
        Ok(_) => no_pem(&text, &shown, "has no certificate", "CERTIFICATE"),
        Err(PemError::MissingSectionEnd { .. }) => {
            let problem = text.error(format!("{shown} ends in the middle of a certificate"));
            text.reject(problem.help("copy the whole file again"))
        }
        Err(error) => {
            no_pem(&text, &shown, &format!("is not a file of certificates: {error}"), "CERTIFICATE")
        }
    }
}

fn private_key(item: Item<'_>, directory: &Path) -> Option<PrivateKeyDer<'static>> {
    let text = file(item)?;
    let (shown, pem) = read(&text, directory)?;
    if is_encrypted(&pem) {
        let problem = text.error(format!(
            "the private key in {shown} is encrypted, and tidegate can't read encrypted keys"
        ));
        let help = "decrypt it into a file that only tidegate may read: openssl pkey -in KEY -out PLAIN";
        return text.reject(problem.help(help));
    }
    // The message has no details of the key: it is a secret.
    PrivateKeyDer::from_pem_slice(&pem)
        .ok()
        .or_else(|| no_pem(&text, &shown, "has no private key that can be read", "PRIVATE KEY"))
}

/// Whether a key is encrypted, in either of the two formats (RFC 7468 §11, RFC 1421 §4.6.1.1).
fn is_encrypted(pem: &[u8]) -> bool {
    let lines = || pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines().any(|line| line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----" || line == b"Proc-Type: 4,ENCRYPTED")
}

fn file(item: Item<'_>) -> Option<TextItem<'_>> {
    item.string_like("a file", "name a PEM file, such as \"ca.pem\"")
}

fn read(text: &TextItem<'_>, directory: &Path) -> Option<(String, Vec<u8>)> {
    let (path, bytes) = text.read_file(directory);
    let shown = path.display().to_string();
    match bytes {
        Ok(bytes) => Some((shown, bytes)),
        Err(error) => text.reject(text.unreadable(&path, &error)),
    }
}

fn no_pem<T>(text: &TextItem<'_>, shown: &str, reason: &str, kind: &str) -> Option<T> {
    let problem: Problem = text.error(format!("{shown} {reason}"));
    text.reject(problem.help(format!("a PEM file has a part that starts with -----BEGIN {kind}-----")))
}

fn server_name(item: Item<'_>) -> Option<ServerName<'static>> {
    let text = item.string()?;
    text.parsed("a name or an address", "such as \"server.internal\"", |text| {
        ServerName::try_from(text.to_owned()).ok()
    })
}

/// The names for which a listener asks for certificates, by `acme` in its `tls`.
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
pub(super) fn acme_names(item: Item<'_>) -> Option<AcmeNames> {
    if item.is_boolean() {
        return item.boolean().map(|is_on| if is_on { AcmeNames::OfRoutes } else { AcmeNames::Off });
    }
    let form = "write acme = true for the hosts of the routes, or the names: acme = [\"api.example.com\"]";
    let names = item.list_of(form, acme_name)?;
    if names.is_empty() {
        return item.reject(item.error("`acme` has no names").help(form));
    }
    Some(AcmeNames::Given(names))
}

fn acme_name(item: Item<'_>) -> Option<String> {
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
