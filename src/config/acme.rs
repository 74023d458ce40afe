//! `[acme]`.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use rustls::pki_types::CertificateDer;
use url::Url;

use super::item::Item;
use super::keys::keys;
use super::keys::kinds::words;
use super::report::Problem;
use super::table::Table;
use super::tls;
use crate::acme::{AcmeSpec, ChallengeKind, ExternalAccount, check_storage};
use crate::gate::HostPattern;
use crate::tls::{ClientTls, ClientTlsSpec};

/// `[acme]`, whose names are those of listeners.
pub(super) struct ReadAcme<'a> {
    pub spec: AcmeSpec,
    /// The value in the file.
    pub table: Item<'a>,
}

const TERMS: &str = "read the terms of the authority, and then write: terms_of_service_agreed = true";

words!(ChallengeWords: ChallengeKind =
    [("http-01", ChallengeKind::Http01), ("tls-alpn-01", ChallengeKind::TlsAlpn01)]);

keys! {
    /// The keys of `[acme]`.
    AcmeKeys {
        /// `true`: you have read the terms of the authority, and agree to them
        terms_of_service_agreed: Boolean, required true, by hand;
        /// The directory for the account, certificates and private keys, with mode 0700; created if it does not
        /// exist
        storage: Text, required "/var/lib/tidegate/acme" => |item| storage(item, base);
        /// Where the authority may write to you
        email: Text => email;
        /// The URL of the directory of the ACME server
        directory: Text = "https://acme-v02.api.letsencrypt.org/directory" => directory;
        /// A file with the certificate authorities to trust instead, for the ACME server itself
        authorities("ca"): Text, or "the system's authorities" => |item| authorities(item, base);
        /// How the authority validates names: `"http-01"` by a request to port 80, `"tls-alpn-01"` by a TLS
        /// handshake with port 443
        challenge: Choice<ChallengeWords> = "http-01";
        /// External account binding: credentials of an account with the authority, if it requires one
        external_account("eab"): KeyTable<EabKeys> => external_account;
    }
    mistaken IN_ACME
    reads AcmeSpec(table, base: &Path) with { names: Vec::new() }
}

keys! {
    /// The keys of `eab` in `[acme]`.
    EabKeys {
        /// The key identifier
        key_id("kid"): Text, required "kid-1" => |item| Some(item.string()?.value);
        /// The key in base64url, as authorities show it
        key("hmac_key"): Text, required "${EAB_HMAC_KEY}" => hmac_key;
    }
    reads ExternalAccount(table)
}

/// Reads `[acme]`. Files are relative to `base`.
pub(super) fn acme<'a>(item: Item<'a>, base: &Path) -> Option<ReadAcme<'a>> {
    let table = Table::<AcmeKeys>::of(item, "[acme]")?;
    let agreed = table.terms_of_service_agreed().with(agreed);
    let spec = AcmeKeys::read(&table, base);
    table.close();
    agreed?;
    Some(ReadAcme { spec: spec?, table: item })
}

fn agreed(item: Item<'_>) -> Option<()> {
    if item.boolean()? {
        return Some(());
    }
    let title = "the authority issues certificates only to those who agree to its terms of service";
    item.reject(item.error(title).help(TERMS))
}

fn storage(item: Item<'_>, directory: &Path) -> Option<PathBuf> {
    let text = item.string_like("a directory", "such as \"/var/lib/tidegate/acme\"")?;
    let path = text.path(directory);
    match check_storage(&path) {
        Ok(()) => Some(path),
        Err(error) => text.reject(text.error(error.to_string()).help(error.help())),
    }
}

fn email(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "such as \"ops@example.com\", without mailto:";
    text.parsed("an email address", help, |text| {
        let (user, host) = text.split_once('@')?;
        let is_valid = !user.is_empty()
            && HostPattern::parse(host).is_some()
            && user.bytes().all(|byte| byte.is_ascii_graphic() && !b":?&,<>\"".contains(&byte));
        is_valid.then(|| text.to_owned())
    })
}

/// Reads the URL of the ACME server.
fn directory(item: Item<'_>) -> Option<Url> {
    let help = "such as \"https://acme-staging-v02.api.letsencrypt.org/directory\"";
    let text = item.string_like("a URL", help)?;
    let url: Url = text.parsed("a URL", help, |text| text.parse().ok())?;
    if url.scheme() != "https" || url.host_str().is_none() {
        let problem = text.error("an ACME server is asked over https:// only (RFC 8555 §6.1)");
        return text.reject(problem.help(help));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let problem = text.error("an ACME server has accounts, and no user names in its URL");
        return text.reject(problem.help("to bind the account to one of the authority, use `eab`"));
    }
    Some(url)
}

fn authorities(item: Item<'_>, directory: &Path) -> Option<Vec<CertificateDer<'static>>> {
    let authorities = tls::certificates(item, directory)?;
    let spec = ClientTlsSpec { authorities: Some(authorities.clone()), ..ClientTlsSpec::default() };
    match ClientTls::new(spec) {
        Ok(_) => Some(authorities),
        Err(error) => item.reject(item.error(error.to_string())),
    }
}

fn external_account(item: Item<'_>) -> Option<ExternalAccount> {
    let table = Table::<EabKeys>::of(item, "`eab`")?;
    let read = EabKeys::read(&table);
    table.close();
    read
}

/// Reads a key in base64url, with padding or without. The message does not quote it.
fn hmac_key(item: Item<'_>) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        general_purpose::NO_PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const BASE64URL: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);
    let text = item.string()?;
    match BASE64URL.decode(&text.value) {
        Ok(key) if !key.is_empty() => Some(key),
        _ => {
            text.reject(text.error("`hmac_key` is not base64url").help("copy it from the authority as it is"))
        }
    }
}

/// The problem of a file with `[acme]` in a build that has no ACME.
pub(super) fn not_built() -> Problem {
    let title = "this tidegate can't obtain certificates for [acme]: it was built without the feature `acme`";
    Problem::without_span(title).help("build it with its default features, or name files in `certificates`")
}
