//! URLs of servers.

use http::Uri;
use rustls::pki_types::ServerName;

use crate::config::item::Text;
use crate::config::keys::keys;
use crate::config::table::{Table, read_defaults};
use crate::gate::{host_of, normalize};
use crate::upstream::ServerSpec;

keys! {
    /// The keys of a server that is a table.
    ServerKeys {
        /// The URL, where the server is a table
        url: Text, required "http://10.0.1.5:9000";
        /// The share of the requests in proportion to the weights of the other servers
        weight: Integer<1, 1_000, u32> = 1;
    }
}

pub(super) const FORM: &str = "write it as \"http://127.0.0.1:9000\"";

/// Reads `http://host[:port][/base]`, or the same with `https`: a server of the default weight.
pub(super) fn server_url(text: &Text<'_>) -> Option<ServerSpec> {
    match parse_url(&text.value) {
        Ok(server) => Some(server),
        Err((why, help)) => {
            let problem = text.error(why);
            text.reject(if help.is_empty() { problem } else { problem.help(help) })
        }
    }
}

/// Messages do not quote the URL: it may come from the environment.
fn parse_url(url: &str) -> Result<ServerSpec, (&'static str, &'static str)> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_tls = match scheme.as_deref() {
        Some("http") => false,
        Some("https") => true,
        Some(_) => return Err(("the URL of a server starts with http:// or https://", FORM)),
        None => return Err(("this is not a URL: it has no scheme", FORM)),
    };
    if url.contains('#') {
        return Err(("the URL of a server has no fragment", "leave out `#` and the text after it"));
    }
    let uri: Uri = url.parse().map_err(|_| ("this is not a URL", FORM))?;
    let authority = uri.authority().ok_or(("this URL has no host", FORM))?;
    if authority.as_str().contains('@') {
        return Err((
            "the URL of a server has no user information",
            "send credentials in a header: request_headers = { set = { authorization = \"${UPSTREAM_AUTH}\" } }",
        ));
    }
    if uri.query().is_some() {
        return Err(("the URL of a server has no query", "leave out `?` and the text after it"));
    }
    let port = match authority.port() {
        Some(port) if port.as_u16() == 0 => return Err(("no server listens on port 0", FORM)),
        Some(port) => port.as_u16(),
        None if authority.as_str().len() > authority.host().len() + 1 => {
            return Err(("this URL has no valid port", FORM));
        }
        None if is_tls => 443,
        None => 80,
    };
    let host = host_of(authority.as_str()).ok_or(("the URL has no valid host", FORM))?;
    let path = normalize(uri.path()).map_err(|_| ("the path of this URL is not valid", FORM))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if is_tls && ServerName::try_from(host).is_err() {
        return Err(("this host can't be the name in a certificate", FORM));
    }
    Ok(ServerSpec {
        is_tls,
        host: host.into(),
        port,
        base_path: path.sent.trim_end_matches('/').into(),
        weight: read_defaults(|table: Table<'_, ServerKeys>| table.weight().read()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, u16, String) {
        let server = parse_url(url).unwrap();
        (server.host.into(), server.port, server.base_path.into())
    }

    #[test]
    fn urls_are_read() {
        assert_eq!(parts("http://10.0.1.5:9000"), ("10.0.1.5".into(), 9000, String::new()));
        assert_eq!(parts("http://Api.internal/base/"), ("api.internal".into(), 80, "/base".into()));
        assert_eq!(parts("http://[::1]:9000/a/../b"), ("::1".into(), 9000, "/b".into()));
        assert_eq!(parts("HTTP://a./"), ("a".into(), 80, String::new()));
        assert_eq!(parts("HTTPS://a/b"), ("a".into(), 443, "/b".into()));
        assert_eq!(parts("https://[::1]:80"), ("::1".into(), 80, String::new()));
    }

    #[test]
    fn wrong_urls_are_refused() {
        for (url, why) in [
            ("ftp://a", "the URL of a server starts with http:// or https://"),
            ("https://-a", "this host can't be the name in a certificate"),
            ("127.0.0.1:9000", "this is not a URL: it has no scheme"),
            ("http://", "this is not a URL"),
            ("http://u:p@a", "the URL of a server has no user information"),
            ("http://a/?x=1", "the URL of a server has no query"),
            ("http://a/#x", "the URL of a server has no fragment"),
            ("http://a:0", "no server listens on port 0"),
            ("http://a:99999", "this URL has no valid port"),
            ("http://a b", "this is not a URL"),
            ("http://a/%00", "the path of this URL is not valid"),
        ] {
            assert_eq!(parse_url(url).unwrap_err().0, why, "{url}");
        }
    }
}
