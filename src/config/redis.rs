//! The address of Redis, and how it is reached: `url`, `tls` and the Sentinels' credentials in `[store]`.

use std::net::IpAddr;
use std::path::Path;

use super::item::{Item, Text};
use super::table::{Reported, Table};
use super::tls;
use crate::store::redis::{RedisAddress, Target, UrlError};

const FORM: &str = "write redis://host:6379, redis://user:password@host:6379/0 or unix:///run/redis.sock";
const FORMS: &str = "with Sentinel redis-sentinel://a:26379,b:26379/?service=NAME, for a cluster \
                     redis-cluster://a:6379,b:6379; rediss instead of redis is TLS";

/// Reads the address of Redis; `None` without a URL. Files are relative to `directory`.
pub(super) fn target(table: &Table<'_>, directory: &Path) -> Result<Option<Target>, Reported> {
    let target =
        table.optional("url", |item| url(&item.string_like("a URL", "such as \"redis://127.0.0.1:6379\"")?));
    let tls_item = table.given("tls");
    let tls = table.optional("tls", |item| tls::client(item, directory, &[]));
    let username = table.optional("sentinel_username", Item::string);
    let password = table.optional("sentinel_password", Item::string);
    let (target, username, password) = (target?, username?, password?);
    let fits_tls = fits_tls(target.as_ref(), tls_item);
    if !fits_sentinel(target.as_ref(), [&username, &password].into_iter().flatten()) || !fits_tls {
        return Err(Reported);
    }
    let tls = tls?;
    let Some(mut target) = target else { return Ok(None) };
    target.tls = tls.or(target.tls);
    if let RedisAddress::Sentinel { username: name, password: word, .. } = &mut target.address {
        let filled = |text: Option<Text<'_>>| text.map(|text| text.value).filter(|value| !value.is_empty());
        (*name, *word) = (filled(username), filled(password));
    }
    Ok(Some(target))
}

/// Whether a Redis is reached by a Unix socket or at a loopback address. Sentinels and clusters are on several machines.
pub(super) fn is_on_this_machine(target: &Target) -> bool {
    match &target.address {
        RedisAddress::Tcp(node) => is_loopback(&node.host),
        RedisAddress::Unix(_) => true,
        RedisAddress::Sentinel { .. } | RedisAddress::Cluster(_) => false,
    }
}

/// Whether a host, without brackets, is this machine in any case: an address, or a name (RFC 6761).
pub(super) fn is_loopback(host: &str) -> bool {
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// Rejects `tls` with a URL without TLS.
fn fits_tls(target: Option<&Target>, item: Option<Item<'_>>) -> bool {
    let Some(item) = item.filter(|_| target.is_none_or(|target| target.tls.is_none())) else { return true };
    let problem = item.error("`tls` is given, and the scheme of `url` is not one with TLS");
    item.reject::<()>(problem.help("start the URL with rediss://, rediss-sentinel:// or rediss-cluster://"));
    false
}

/// Rejects credentials of Sentinels with a URL that names none.
fn fits_sentinel<'a>(target: Option<&Target>, given: impl Iterator<Item = &'a Text<'a>>) -> bool {
    if target.is_some_and(|target| matches!(target.address, RedisAddress::Sentinel { .. })) {
        return true;
    }
    let mut fits = true;
    for text in given {
        let title = format!("`{}` is given, and `url` names no Sentinel", text.item.name);
        text.reject::<()>(
            text.error(title).help("leave it out, or write redis-sentinel://HOSTS/?service=NAME"),
        );
        fits = false;
    }
    fits
}

/// Reads the URL of a Redis. A URL with an `@` may have its password in any of its parts, so that no message
/// quotes any part of it.
fn url(text: &Text<'_>) -> Option<Target> {
    let error = match Target::parse(&text.value) {
        Ok(target) => return Some(target),
        Err(error) => error,
    };
    let may_be_secret = text.from_env || text.value.contains('@');
    let problem = match error {
        UrlError::Malformed(why) => text.error(format!("this is not a Redis URL: {why}")),
        UrlError::NoHost => text.error("this is not a Redis URL: it has no host"),
        UrlError::NoPath => text.error("this is not a Redis URL: it has no path to a socket"),
        UrlError::NoService => {
            let problem = text.error("this URL does not name the service that the Sentinels monitor");
            return text
                .reject(problem.help("add `?service=NAME`, with the name in their `sentinel monitor`"));
        }
        UrlError::Tls(error) => return text.reject(text.error(error.to_string())),
        UrlError::Scheme(_) if may_be_secret => text.error("this is not a Redis URL: its scheme is unknown"),
        UrlError::Database(_) if may_be_secret => {
            text.error("the path after the host is not a database number from 0 to 255")
        }
        UrlError::Extra(_) if may_be_secret => text.error("the part after `?` or `#` is not supported"),
        error => text.error(format!("this is not a Redis URL: {error}")),
    };
    let problem = problem.help(FORM).help(FORMS);
    text.reject(if may_be_secret {
        problem.help("in a password, write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F and % as %25")
    } else {
        problem
    })
}
