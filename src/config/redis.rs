//! Where a Redis is, and how it is reached: `url`, `tls` and the Sentinels' credentials in `[store]`.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::reader::{Item, Text};
use super::report::Problem;
use super::table::Table;
use crate::store::redis::{Endpoint, Target, UrlError};
use crate::tls::{ClientTls, ClientTlsSpec, TlsError};

const FORM: &str = "write redis://host:6379, redis://user:password@host:6379/0 or unix:///run/redis.sock";
const FORMS: &str = "with Sentinel redis-sentinel://a:26379,b:26379/?service=NAME, for a cluster \
                     redis-cluster://a:6379,b:6379; rediss in the place of redis is TLS";

/// Something is there and wrong, as has been said.
pub(super) struct Refused;

/// Reads where a Redis is; none is right too. Files are looked for from `directory`.
pub(super) fn target(table: &mut Table<'_>, directory: &Path) -> Result<Option<Target>, Refused> {
    let target = given(table.item("url"), |item| {
        url(&item.string_like("a URL", "such as \"redis://127.0.0.1:6379\"")?)
    });
    let place = table.item("tls");
    let tls = given(place, |item| tls(item, directory));
    let username = given(table.item("sentinel_username"), Item::string);
    let password = given(table.item("sentinel_password"), Item::string);
    let (target, username, password) = (target?, username?, password?);
    let fits_tls = fits_tls(target.as_ref(), place);
    if !fits_sentinel(target.as_ref(), [&username, &password].into_iter().flatten()) || !fits_tls {
        return Err(Refused);
    }
    let tls = tls?;
    let Some(mut target) = target else { return Ok(None) };
    target.tls = tls.or(target.tls);
    if let Endpoint::Sentinel { username: name, password: word, .. } = &mut target.endpoint {
        let filled = |text: Option<Text<'_>>| text.map(|text| text.value).filter(|value| !value.is_empty());
        (*name, *word) = (filled(username), filled(password));
    }
    Ok(Some(target))
}

fn given<'a, T>(
    item: Option<Item<'a>>,
    read: impl FnOnce(Item<'a>) -> Option<T>,
) -> Result<Option<T>, Refused> {
    item.map_or(Ok(None), |item| read(item).map(Some).ok_or(Refused))
}

/// Refuses `tls` beside a URL without.
fn fits_tls(target: Option<&Target>, place: Option<Item<'_>>) -> bool {
    let Some(item) = place.filter(|_| target.is_none_or(|target| target.tls.is_none())) else { return true };
    let problem = item.error("`tls` is given, and `url` has nothing that is spoken to over TLS");
    item.refuse::<()>(problem.help("begin the URL with rediss://, rediss-sentinel:// or rediss-cluster://"));
    false
}

/// Refuses credentials of Sentinels beside a URL of none.
fn fits_sentinel<'a>(target: Option<&Target>, given: impl Iterator<Item = &'a Text<'a>>) -> bool {
    if target.is_some_and(|target| matches!(target.endpoint, Endpoint::Sentinel { .. })) {
        return true;
    }
    let mut fits = true;
    for text in given {
        let title = format!("`{}` is given, and `url` names no Sentinel", text.item.name);
        text.refuse::<()>(
            text.error(title).help("leave it out, or write redis-sentinel://HOSTS/?service=NAME"),
        );
        fits = false;
    }
    fits
}

/// Reads the URL of a Redis. A URL with an `@` may have its password in any of its parts, so that no message
/// repeats a part of it.
fn url(text: &Text<'_>) -> Option<Target> {
    let error = match Target::parse(&text.value) {
        Ok(target) => return Some(target),
        Err(error) => error,
    };
    let may_be_secret = text.from_env || text.value.contains('@');
    let problem = match error {
        UrlError::Malformed(why) => text.error(format!("this is not the URL of a Redis: {why}")),
        UrlError::NoHost => text.error("this is not the URL of a Redis: it has no host"),
        UrlError::NoPath => text.error("this is not the URL of a Redis: it has no path of a socket"),
        UrlError::NoService => {
            let problem =
                text.error("this URL does not say which service's master the Sentinels are asked for");
            return text
                .refuse(problem.help("add `?service=NAME`, with the name in their `sentinel monitor`"));
        }
        UrlError::Tls(error) => return text.refuse(text.error(error.to_string())),
        UrlError::Scheme(_) if may_be_secret => {
            text.error("this is not the URL of a Redis: its scheme is not one that is known")
        }
        UrlError::Database(_) if may_be_secret => {
            text.error("what follows the host is no database number from 0 to 255")
        }
        UrlError::Extra(_) if may_be_secret => text.error("what follows `?` or `#` is not understood"),
        error => text.error(format!("this is not the URL of a Redis: {error}")),
    };
    let problem = problem.help(FORM).help(FORMS);
    text.refuse(if may_be_secret {
        problem.help("in a password, write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F and % as %25")
    } else {
        problem
    })
}

fn tls(item: Item<'_>, directory: &Path) -> Option<ClientTls> {
    let mut table = item.table("`tls`")?;
    let authorities = given(table.item("ca"), |item| certificates(item, directory));
    let (cert, key) = (table.item("cert"), table.item("key"));
    let certificate = given(cert, |item| certificates(item, directory));
    let private_key = given(key, |item| private_key(item, directory));
    let server_name = given(table.item("server_name"), server_name);
    table.close(&[]);
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
        return item.refuse(item.error(title).help(format!("add {help}")));
    }
    // Everything that is wrong has been said by now.
    let spec = ClientTlsSpec {
        authorities: authorities.ok()?,
        identity: certificate.ok()?.zip(private_key.ok()?),
        server_name: server_name.ok()?,
        protocols: Vec::new(),
    };
    let error = match ClientTls::new(spec) {
        Ok(tls) => return Some(tls),
        Err(error) => error,
    };
    let place = match error {
        TlsError::Identity(_) => cert.unwrap_or(item),
        _ => item,
    };
    place.refuse(place.error(error.to_string()))
}

fn certificates(item: Item<'_>, directory: &Path) -> Option<Vec<CertificateDer<'static>>> {
    let text = file(item)?;
    let (shown, pem) = read(&text, directory)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Some(certificates),
        Ok(_) => no_pem(&text, &shown, "has no certificate", "CERTIFICATE"),
        Err(error) => no_pem(&text, &shown, &format!("is no file of certificates: {error}"), "CERTIFICATE"),
    }
}

fn private_key(item: Item<'_>, directory: &Path) -> Option<PrivateKeyDer<'static>> {
    let text = file(item)?;
    let (shown, pem) = read(&text, directory)?;
    // What is wrong with a key is not said in more detail: it is a secret.
    PrivateKeyDer::from_pem_slice(&pem)
        .ok()
        .or_else(|| no_pem(&text, &shown, "has no private key that can be read", "PRIVATE KEY"))
}

fn file(item: Item<'_>) -> Option<Text<'_>> {
    item.string_like("a file", "name a PEM file, such as \"ca.pem\"")
}

fn read(text: &Text<'_>, directory: &Path) -> Option<(String, Vec<u8>)> {
    let path = directory.join(&text.value);
    let shown = path.display().to_string();
    match std::fs::read(&path) {
        Ok(bytes) => Some((shown, bytes)),
        Err(error) => text.refuse(text.error(format!("can't read {shown}: {error}"))),
    }
}

fn no_pem<T>(text: &Text<'_>, shown: &str, what: &str, kind: &str) -> Option<T> {
    let problem: Problem = text.error(format!("{shown} {what}"));
    text.refuse(problem.help(format!("a PEM file has a part that begins with -----BEGIN {kind}-----")))
}

fn server_name(item: Item<'_>) -> Option<ServerName<'static>> {
    let text = item.string()?;
    text.parsed("a name or an address", "such as \"redis.internal\"", |text| {
        ServerName::try_from(text.to_owned()).ok()
    })
}
