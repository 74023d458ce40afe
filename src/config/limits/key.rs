//! A limit's `key`, and help for the forms that other programs have of its parts.

use http::StatusCode;

use super::limit_keys::LimitKeys;
use crate::config::item::{Item, TextItem};
use crate::config::table::Table;
use crate::gate::{KeyPart, OnMissing};
use crate::suggest::nearest;

/// Reads one part or several.
pub(in crate::config) fn key(item: Item<'_>) -> Option<Vec<KeyPart>> {
    if !item.is_array() {
        return key_part(item).map(|part| vec![part]);
    }
    let items = item.list("")?;
    if items.is_empty() {
        let problem = item.error("a key needs at least one part");
        return item.reject(problem.help("for one count of all requests write: key = \"global\""));
    }
    item.list_of("", key_part)
}

/// Reads one part.
pub(super) fn key_part(item: Item<'_>) -> Option<KeyPart> {
    let text =
        item.string_like("a key part or an array of them", "such as \"client_ip\" or \"header:x-api-key\"")?;
    part(&text, &text.value)
}

/// Parses a part; problems are reported at `text`, which contains it.
pub(in crate::config) fn part(text: &TextItem<'_>, written: &str) -> Option<KeyPart> {
    if let Some(part) = KeyPart::parse(written) {
        return Some(part);
    }
    let (kind, name) = written.split_once(':').map_or((written, None), |(kind, name)| (kind, Some(name)));
    let problem = text.error(format!("{} is not a key part", text.quoted()));
    let named =
        KeyPart::FORMS.iter().find(|form| form.split_once(':').is_some_and(|(named, _)| named == kind));
    let kinds = KeyPart::FORMS.iter().map(|form| form.split(':').next().unwrap_or(form));
    let near = nearest(kind, kinds);
    let form = match (named, near) {
        (Some(&"tls:subject"), _) => Some("write \"tls:subject\" or \"tls:san\"".to_owned()),
        (Some(form), _) if name.is_none_or(str::is_empty) => Some(format!("add the name: \"{form}\"")),
        (None, Some(near)) if near == kind => Some(format!("write \"{near}\" without a name")),
        _ => None,
    };
    // Messages do not repeat values from the environment.
    let before = text.value.strip_suffix(written).unwrap_or_default();
    let cure = form.or_else(|| if text.from_env { None } else { cure(before, written) });
    text.reject(problem.help(match (cure, named, near) {
        (Some(cure), ..) => cure,
        (None, Some(&"body:/FIELD"), _) => {
            "write a JSON Pointer (RFC 6901) after `body:`, such as \"body:/user/name\"; a slash in a name is written as ~1".to_owned()
        }
        (None, Some(_), _) => format!("the name after `{kind}:` is not valid"),
        (None, None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None, None) => format!("the parts are {}", KeyPart::FORMS.join(", ")),
    }))
}

/// Reads the status of a request that is denied because it lacks a part.
pub(super) fn missing_status(
    table: &Table<'_, LimitKeys>,
    on_missing: Option<OnMissing>,
) -> Option<StatusCode> {
    let status = table.missing_status().read()?;
    if let Some(item) = table.missing_status().given()
        && on_missing.is_some_and(|on_missing| on_missing != OnMissing::Deny)
    {
        let problem = item.error(
            "`missing_status` is for requests that are denied, and this limit denies none that lack a part",
        );
        return item.reject(problem.help("add on_missing = \"deny\", or leave `missing_status` out"));
    }
    Some(status)
}

/// Names for the address of the client.
const ADDRESSES: [&str; 18] = [
    "ip",
    "ips",
    "addr",
    "address",
    "ip_address",
    "client",
    "clientip",
    "client_addr",
    "client_address",
    "source",
    "source_ip",
    "src",
    "src_ip",
    "remote",
    "remote_ip",
    "remote_addr",
    "remote_address",
    "binary_remote_addr",
];
/// Headers in which proxies report the address of the client.
const ADDRESS_HEADERS: [&str; 6] =
    ["x_forwarded_for", "x_real_ip", "forwarded", "cf_connecting_ip", "true_client_ip", "x_client_ip"];
/// Words for a part that has another name here.
const WORDS: [(&[&str], &str); 11] = [
    (&["uri", "url", "request_uri", "location", "endpoint", "request_path"], "path"),
    (&["all", "any", "none", "total", "everyone", "server", "constant", "*", ""], "global"),
    (&["hostname", "domain", "vhost", "server_name", "authority"], "host"),
    (&["verb", "request_method", "http_method"], "method"),
    (&["route_name", "route_id"], "route"),
    (&["sub", "subject", "user", "user_id", "userid", "token", "bearer"], "jwt:sub"),
    (&["api_key", "apikey", "x_api_key", "key"], "header:x-api-key"),
    (&["session", "session_id", "sessionid", "sid"], "cookie:session"),
    (&["certificate", "cert", "client_cert", "mtls", "tls"], "tls:subject"),
    (&["san", "spiffe", "spiffe_id", "subject_alt_name"], "tls:san"),
    (&["tenant", "account", "customer", "plan", "org"], "consumer"),
];
/// Headers without a dash in their names.
const HEADERS: [&str; 7] = ["authorization", "origin", "referer", "cookie", "from", "te", "via"];
/// Other names of the kinds that have a name behind them.
const KINDS: [(&[&str], &str); 7] = [
    (&["header", "headers", "http", "request_header", "hdr", "req_header"], "header"),
    (&["cookie", "cookies"], "cookie"),
    (&["query", "arg", "args", "param", "params", "query_param", "query_string"], "query"),
    (&["jwt", "claim", "claims", "token"], "jwt"),
    (&["path_param", "path_params", "segment"], "path_param"),
    (&["form", "form_field", "post"], "form"),
    (&["body", "json"], "body"),
];

/// How to write a text that is not a key part; none if it resembles nothing. `before` is what the value has before the
/// part, such as `hash:`.
fn cure(before: &str, written: &str) -> Option<String> {
    let parts: Vec<&str> = written.split([',', '|', '+']).map(str::trim).collect();
    if parts.len() > 1 && before.is_empty() {
        let all: Option<Vec<String>> =
            parts.into_iter().map(|one| part_form(one).map(|part| format!("\"{part}\""))).collect();
        return Some(format!("several parts are an array: [{}]", all?.join(", ")));
    }
    let word = normal(written);
    if ADDRESS_HEADERS.contains(&&*word) && before.is_empty() {
        let header = word.replace('_', "-");
        return Some(format!(
            "the address that proxies report there is the part \"client_ip\": name the proxies in [client_ip] \
             `trusted_proxies`, and header = \"{header}\""
        ));
    }
    part_form(written).map(|part| format!("write \"{before}{part}\""))
}

/// The part that a text may mean.
fn part_form(written: &str) -> Option<String> {
    let meant = if KeyPart::parse(written).is_some() { written.to_owned() } else { meant(written)? };
    KeyPart::parse(&meant).map(|_| meant)
}

fn meant(written: &str) -> Option<String> {
    let word = normal(written);
    if ADDRESSES.contains(&&*word) {
        return Some("client_ip".to_owned());
    }
    if let Some((_, part)) = WORDS.iter().find(|(words, _)| words.contains(&&*word)) {
        return Some((*part).to_owned());
    }
    if let Some((kind, name)) = named(written) {
        return Some(format!("{kind}:{name}"));
    }
    let lower = written.trim().to_ascii_lowercase();
    let is_misspelled = || nearest(&word, KeyPart::FORMS).is_some() && !lower.starts_with("x-");
    let is_header = HEADERS.contains(&&*lower)
        || (lower.contains('-') && !lower.contains([':', '.']) && !is_misspelled());
    is_header.then(|| format!("header:{lower}"))
}

/// A kind and a name in another form: `headers:x-plan`, `jwt.sub`, `$http_x_plan`.
fn named(written: &str) -> Option<(&'static str, String)> {
    let is_variable = written.starts_with('$');
    let written = written.trim_start_matches('$').trim();
    let separators: &[char] = if is_variable { &['_'] } else { &[':', '.'] };
    let (kind, name) = written.split_once(separators)?;
    let (_, kind) = KINDS.iter().find(|(words, _)| words.contains(&&*normal(kind)))?;
    let name = name.trim();
    Some((
        kind,
        match *kind {
            "header" if is_variable => name.to_ascii_lowercase().replace('_', "-"),
            "header" => name.to_ascii_lowercase(),
            "body" => format!("/{}", name.trim_start_matches('/').replace('.', "/")),
            _ => name.to_owned(),
        },
    ))
}

fn normal(text: &str) -> String {
    text.trim().trim_start_matches('$').to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_other_programs_are_recognized() {
        for (written, meant) in [
            ("ip", "client_ip"),
            ("Remote-Addr", "client_ip"),
            ("$binary_remote_addr", "client_ip"),
            ("x-api-key", "header:x-api-key"),
            ("X-API-Key", "header:x-api-key"),
            ("X-Tenant", "header:x-tenant"),
            ("Authorization", "header:authorization"),
            ("headers:X-Plan", "header:x-plan"),
            ("header: x-plan", "header:x-plan"),
            ("header.x-plan", "header:x-plan"),
            ("$http_x_plan", "header:x-plan"),
            ("$arg_q", "query:q"),
            ("$cookie_session", "cookie:session"),
            ("query.q", "query:q"),
            ("jwt.sub", "jwt:sub"),
            ("claim:plan", "jwt:plan"),
            ("body.user.name", "body:/user/name"),
            ("body:user", "body:/user"),
            ("url", "path"),
            ("", "global"),
        ] {
            assert_eq!(cure("", written), Some(format!("write \"{meant}\"")), "{written}");
        }
        for written in ["colour", "jwt:", "path:1", "client-ip", "cliant-ip", "a:b", "global:x"] {
            assert_eq!(cure("", written), None, "{written}");
        }
    }

    #[test]
    fn several_parts_are_an_array() {
        assert_eq!(
            cure("", "ip,path").as_deref(),
            Some("several parts are an array: [\"client_ip\", \"path\"]")
        );
        assert_eq!(cure("", "client_ip|colour"), None);
        assert_eq!(cure("hash:", "ip").as_deref(), Some("write \"hash:client_ip\""));
    }

    #[test]
    fn a_header_with_the_address_is_the_client_ip() {
        assert!(
            cure("", "X-Forwarded-For").is_some_and(|cure| cure.contains("header = \"x-forwarded-for\""))
        );
    }
}
