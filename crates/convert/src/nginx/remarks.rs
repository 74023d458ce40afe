//! Directives without a counterpart.

use super::scope::{GUARDS, restricts};
use super::tree::Directive;
use crate::note::Note;

/// Directives that are converted, each where it belongs.
const CONVERTED: &[&str] = &[
    "add_header",
    "auth_request_set",
    "client_max_body_size",
    "geo",
    "http",
    "limit_conn",
    "limit_conn_dry_run",
    "limit_conn_status",
    "limit_conn_zone",
    "limit_req",
    "limit_req_dry_run",
    "limit_req_status",
    "limit_req_zone",
    "listen",
    "location",
    "map",
    "proxy_connect_timeout",
    "proxy_next_upstream_tries",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "proxy_set_header",
    "real_ip_header",
    "real_ip_recursive",
    "return",
    "server",
    "server_name",
    "set_real_ip_from",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "upstream",
];
/// Beginnings of the names of directives that tidegate needs no counterpart of: processes, logs, buffers, sockets, defaults.
const NEEDLESS: &[&str] = &[
    "access_log",
    "aio",
    "auth_basic_user_file",
    "charset",
    "daemon",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_header_buffer_size",
    "default_type",
    "directio",
    "env",
    "error_log",
    "etag",
    "events",
    "fastcgi_temp_path",
    "http2",
    "include",
    "index",
    "keepalive_",
    "large_client_header_buffers",
    "limit_conn_log_level",
    "limit_req_log_level",
    "load_module",
    "log_",
    "map_hash_",
    "master_process",
    "merge_slashes",
    "open_",
    "port_in_redirect",
    "output_buffers",
    "pcre_jit",
    "pid",
    "postpone_output",
    "proxy_buffer",
    "proxy_busy_buffers_size",
    "proxy_cache_bypass",
    "proxy_http_version",
    "proxy_intercept_errors",
    "proxy_max_temp_file_size",
    "proxy_request_buffering",
    "proxy_temp_",
    "reset_timedout_connection",
    "scgi_temp_path",
    "sendfile",
    "server_name_in_redirect",
    "server_names_hash_",
    "server_tokens",
    "ssl_buffer_size",
    "ssl_dhparam",
    "ssl_ecdh_curve",
    "ssl_prefer_server_ciphers",
    "ssl_session_",
    "tcp_no",
    "thread_pool",
    "types",
    "user",
    "uwsgi_temp_path",
    "variables_hash_",
    "worker_",
];
/// Advice about directives without a counterpart, by the beginning of their name.
const ADVICE: &[(&str, &str)] = &[
    ("alias", "tidegate serves no files"),
    ("brotli", "tidegate does not compress responses"),
    ("client_body_timeout", "see `body_timeout` of `[[listeners]]`"),
    ("client_header_timeout", "see `header_timeout` of `[[listeners]]`"),
    ("error_page", "see `[answers]` for the bodies of tidegate's own responses"),
    ("fastcgi_", "tidegate speaks HTTP to servers, not FastCGI"),
    ("grpc_pass", "write an upstream with `protocol = \"h2\"`"),
    ("gzip", "tidegate does not compress responses"),
    ("if", "write a route with conditions on the host, the method, headers or the query"),
    ("limit_rate", "tidegate does not limit the rate of bytes"),
    ("proxy_cache", "tidegate does not cache responses"),
    ("proxy_hide_header", "use `response_headers = { remove = […] }` of the route"),
    ("proxy_next_upstream", "see `retries` of the upstream"),
    (
        "proxy_redirect",
        "write `location = true` to `rewrite` of the route: Location headers then get the client's view",
    ),
    ("proxy_ssl_", "see `tls` of the upstream"),
    ("resolver", "tidegate resolves names with /etc/resolv.conf"),
    ("rewrite", "a rewrite of tidegate has no regular expressions: see `rewrite` of a route"),
    ("root", "tidegate serves no files"),
    ("satisfy", "it combines the restrictions around it, which is not converted"),
    ("scgi_", "tidegate speaks HTTP to servers, not SCGI"),
    ("ssl_protocols", "tidegate accepts TLS 1.2 and 1.3"),
    ("send_timeout", "see `idle_timeout` of `[[listeners]]`"),
    ("set", "tidegate has no variables"),
    ("stream", "tidegate forwards HTTP only"),
    ("sub_filter", "tidegate does not change bodies"),
    ("try_files", "tidegate serves no files"),
    ("uwsgi_", "tidegate speaks HTTP to servers, not uwsgi"),
];

/// What changes nothing about how requests are served, by the beginning of the name of a directive.
const INFORMATION: &[(&str, &str)] = &[
    (
        "ssl_ciphers",
        "tidegate has the ciphers of TLS 1.3, and those of TLS 1.2 with forward secrecy and authentication",
    ),
    ("ssl_stapling", "tidegate staples no OCSP responses; clients do not need them"),
    ("ssl_trusted_certificate", "it is for stapled OCSP responses, which clients do not need"),
];

/// Whether a directive says what tidegate does in any case.
fn is_default(directive: &Directive) -> bool {
    let has_only = |known: &[&str]| directive.args.iter().all(|arg| known.contains(&&**arg));
    match &*directive.name {
        "satisfy" => directive.arg(0) != "any",
        // The number of tries is converted; other reasons to try again are not.
        "proxy_next_upstream" | "proxy_redirect" | "autoindex" | "gzip" | "ssl_early_data" => {
            directive.arg(0) == "off"
        }
        "ssl_protocols" => has_only(&["TLSv1.2", "TLSv1.3"]) && directive.args.len() == 2,
        _ => false,
    }
}

/// A note on a directive that is not converted, unless it needs no counterpart.
pub(super) fn remark(directive: &Directive) -> Option<Note> {
    let name = &*directive.name;
    let is_guard = GUARDS.contains(&name) && (name != "if" || restricts(directive));
    if is_guard
        || is_default(directive)
        || CONVERTED.contains(&name)
        || NEEDLESS.iter().any(|start| matches(name, start))
    {
        return None;
    }
    if let Some((_, reason)) = INFORMATION.iter().find(|(start, _)| name.starts_with(start)) {
        return Some(directive.finding(*reason).for_information());
    }
    let advice = ADVICE.iter().find(|(start, _)| name.starts_with(start));
    Some(directive.finding(advice.map_or("tidegate has no counterpart", |(_, advice)| advice)).of_block())
}

/// Whether a name is this one, or begins with it where that ends with `_` or is a beginning of several names.
fn matches(name: &str, start: &str) -> bool {
    let is_beginning = start.ends_with('_') || matches!(start, "proxy_buffer" | "tcp_no" | "sendfile");
    name == start || is_beginning && name.starts_with(start)
}

/// Notes on all directives of a block that are not converted.
pub(super) fn remarks(block: &[Directive]) -> impl Iterator<Item = Note> {
    block.iter().filter_map(remark)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::nginx::tree::Tree;

    #[test]
    fn location_headers_have_advice() {
        for (text, expected) in [("off", None), ("default", Some(true)), ("http://b/ /", Some(true))] {
            let text = format!("proxy_redirect {text};");
            let parsed = Tree::new(Path::new("")).parse("f", &text).unwrap();
            let found = remark(&parsed[0]).map(|note| note.to_string().contains("location = true"));
            assert_eq!(found, expected, "{text}");
        }
    }
}
