//! Lines without a counterpart.

use super::sections::Line;
use crate::cli::convert::note::Note;

/// Lines that are converted where they belong, or that tidegate needs no counterpart of, by their first words.
const KNOWN: &[&[&str]] = &[
    &["acl"],
    &["balance"],
    &["bind"],
    &["default_backend"],
    &["description"],
    &["http-check", "connect"],
    &["http-check", "send"],
    &["http-request", "allow"],
    &["http-request", "deny"],
    &["http-request", "set-header"],
    &["http-request", "del-header"],
    &["http-request", "tarpit"],
    &["http-request", "track-sc0"],
    &["http-request", "track-sc1"],
    &["http-request", "track-sc2"],
    &["http-response", "set-header"],
    &["log"],
    &["log-format"],
    &["log-tag"],
    &["mode"],
    &["no", "option"],
    &["option"],
    &["retries"],
    &["server"],
    &["stick-table"],
    &["tcp-request", "connection", "track-sc0"],
    &["tcp-request", "connection", "track-sc1"],
    &["tcp-request", "connection", "track-sc2"],
    &["tcp-request", "content", "track-sc0"],
    &["tcp-request", "content", "track-sc1"],
    &["tcp-request", "content", "track-sc2"],
    &["tcp-request", "inspect-delay"],
    &["unique-id-format"],
    &["use_backend"],
];
/// What to do about lines without a counterpart, by their first words.
const ADVICE: &[(&[&str], &str)] = &[
    (&["compression"], "tidegate does not compress responses"),
    (&["cookie"], "for the same server for a client use `balance = \"hash:cookie:NAME\"`"),
    (&["default-server"], "write its settings to the upstream"),
    (&["errorfile"], "see `[answers]` for the bodies of tidegate's own responses"),
    (&["http-request", "redirect"], "tidegate does not redirect"),
    (&["http-request", "return"], "write a route with `respond`"),
    (
        &["http-request", "set-path"],
        "tidegate does not rewrite paths, except for `rewrite = { strip_prefix = … }`",
    ),
    (
        &["http-request", "replace-path"],
        "tidegate does not rewrite paths, except for `rewrite = { strip_prefix = … }`",
    ),
    (&["maxconn"], "set `max_connections` of `[[listeners]]`"),
    (&["rate-limit"], "tidegate limits requests, not new connections; see `max_connections_per_client`"),
    (&["redirect"], "tidegate does not redirect"),
    (&["stats"], "see `[admin]`"),
    (&["stick"], "for the same server for a client use `balance = \"hash:PART\"`"),
    (&["tcp-request", "connection", "reject"], "see `max_connections_per_client` of `[[listeners]]`"),
    (&["timeout", "check"], "set `health.timeout` of the upstream"),
    (&["timeout", "client"], "see `idle_timeout` and `body_timeout` of `[[listeners]]`"),
    (&["timeout", "connect"], "set `connect_timeout` of the upstream"),
    (&["timeout", "http-keep-alive"], "set `idle_timeout` of `[[listeners]]`"),
    (&["timeout", "http-request"], "set `header_timeout` of `[[listeners]]`"),
    (&["timeout", "queue"], "set `pending_timeout` of the upstream"),
    (&["timeout", "server"], "set `response_timeout` and `stall_timeout` of the upstream"),
    (&["timeout", "tunnel"], "set `tunnel_timeout` of `[[listeners]]`"),
];

/// A note on a line that is not converted, unless it needs no counterpart.
pub(super) fn remark(line: &Line) -> Option<Note> {
    if KNOWN.iter().any(|words| line.begins(words)) {
        return None;
    }
    let advice = ADVICE.iter().find(|(words, _)| line.begins(words));
    Some(line.finding(advice.map_or("tidegate has no counterpart", |(_, advice)| advice)))
}
