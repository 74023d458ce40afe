//! `[acme]`.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use rustls::pki_types::CertificateDer;
use url::Url;

use super::item::Item;
use super::keys::{ACME, EAB};
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

/// Reads `[acme]`. Files are relative to `directory`.
pub(super) fn acme<'a>(item: Item<'a>, directory: &Path) -> Option<ReadAcme<'a>> {
    let table = Table::of(item, "[acme]", &ACME)?;
    let agreed = table.required("terms_of_service_agreed").and_then(agreed);
    let storage = table.required("storage").and_then(|item| storage(item, directory));
    let email = table.optional("email", email);
    let url = self::directory(table.item("directory"));
    let authorities = table.optional("ca", |item| authorities(item, directory));
    let kinds = [ChallengeKind::Http01, ChallengeKind::TlsAlpn01].map(|kind| (kind.name(), kind));
    let challenge = table.choice("challenge", &kinds);
    let external_account = table.optional("eab", external_account);
    table.close();
    agreed?;
    let spec = AcmeSpec {
        directory: url?,
        authorities: authorities.ok()?,
        email: email.ok()?,
        external_account: external_account.ok()?,
        storage: storage?,
        challenge: challenge?,
        names: Vec::new(),
    };
    Some(ReadAcme { spec, table: item })
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
    let path = directory.join(&text.value);
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
    let table = Table::of(item, "`eab`", &EAB)?;
    let key_id = table.required("kid").and_then(Item::string);
    let key = table.required("hmac_key").and_then(hmac_key);
    table.close();
    Some(ExternalAccount { key_id: key_id?.value, key: key? })
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
