//! Key parts in the forms of other programs, such as `ip` and `x-api-key`, for messages that propose the right form.

use crate::gate::KeyPart;
use crate::suggest::nearest;

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
const WORDS: [(&[&str], &str); 10] = [
    (&["uri", "url", "request_uri", "location", "endpoint", "request_path"], "path"),
    (&["all", "any", "none", "total", "everyone", "server", "constant", "*", ""], "global"),
    (&["hostname", "domain", "vhost", "server_name", "authority"], "host"),
    (&["verb", "request_method", "http_method"], "method"),
    (&["route_name", "route_id"], "route"),
    (&["sub", "subject", "user", "user_id", "userid", "token", "bearer"], "jwt:sub"),
    (&["api_key", "apikey", "x_api_key", "key"], "header:x-api-key"),
    (&["session", "session_id", "sessionid", "sid"], "cookie:session"),
    (&["certificate", "cert", "client_cert", "mtls", "tls"], "tls:subject"),
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
pub(super) fn cure(before: &str, written: &str) -> Option<String> {
    let parts: Vec<&str> = written.split([',', '|', '+']).map(str::trim).collect();
    if parts.len() > 1 && before.is_empty() {
        let all: Option<Vec<String>> =
            parts.into_iter().map(|one| part(one).map(|part| format!("\"{part}\""))).collect();
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
    part(written).map(|part| format!("write \"{before}{part}\""))
}

/// The part that a text may mean.
fn part(written: &str) -> Option<String> {
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
