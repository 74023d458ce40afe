//! Lines without a counterpart.

use super::backends::has_only_checks;
use super::rules::action;
use super::sections::{Section, SectionLine};
use crate::note::Note;

/// Lines that are converted where they belong, or that tidegate needs no counterpart of, by their first words.
const KNOWN: &[&[&str]] = &[
    &["acl"],
    &["balance"],
    &["bind"],
    &["capture"],
    &["default_backend"],
    &["description"],
    &["http-check", "connect"],
    &["http-check", "send"],
    &["http-request", "capture"],
    &["http-request", "set-log-level"],
    &["http-request", "track-sc0"],
    &["http-request", "track-sc1"],
    &["http-request", "track-sc2"],
    &["log"],
    &["log-format"],
    &["log-tag"],
    &["mode"],
    &["no", "log"],
    &["no", "option"],
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
    &["timeout", "check"],
    &["timeout", "client"],
    &["timeout", "connect"],
    &["timeout", "http-keep-alive"],
    &["timeout", "http-request"],
    &["timeout", "queue"],
    &["timeout", "server"],
    &["unique-id-format"],
    &["use_backend"],
];
/// Advice about lines without a counterpart, by their first words.
const ADVICE: &[(&[&str], &str)] = &[
    (&["compression"], "tidegate does not compress responses"),
    (&["cookie"], "for the same server for a client use `balance = \"hash:cookie:NAME\"`"),
    (&["default-server"], "write its settings to the upstream"),
    (&["errorfile"], "see `[answers]` for the bodies of tidegate's own responses"),
    (&["maxconn"], "set `max_connections` of `[[listeners]]`"),
    (&["rate-limit"], "tidegate limits requests, not new connections; see `max_connections_per_client`"),
    (&["stats"], "see `[admin]`"),
    (&["stick"], "for the same server for a client use `balance = \"hash:PART\"`"),
    (&["timeout", "tunnel"], "set `tunnel_timeout` of `[[listeners]]`"),
];
/// What changes nothing about how requests are served, by the first words of a line.
const INFORMATION: &[(&[&str], &str)] = &[
    (
        &["option", "http-server-close"],
        "tidegate keeps connections to servers: set `idle_timeout` of the upstream",
    ),
    (&["option", "httpclose"], "tidegate keeps connections to clients and servers"),
    (&["option", "forceclose"], "tidegate keeps connections to clients and servers"),
    (&["timeout", "client-fin"], "a connection that one side has closed ends with the other timeouts"),
    (&["timeout", "server-fin"], "a connection that one side has closed ends with the other timeouts"),
];

/// Limits of the process.
pub(super) const PROCESS_LIMITS: [&str; 4] = ["maxconn", "maxconnrate", "maxsessrate", "maxsslrate"];

/// Options that are converted, or that tidegate needs no counterpart of: logs, sockets, and what it does in any case.
const NEEDLESS_OPTIONS: &[&str] = &[
    "clitcpka",
    "contstats",
    "dontlog-normal",
    "dontlognull",
    "forwarded",
    "forwardfor",
    "http-ignore-probes",
    "http-keep-alive",
    "http-no-delay",
    "httpchk",
    "httplog",
    "httpslog",
    "log-health-checks",
    "log-separate-errors",
    "logasap",
    "redispatch",
    "socket-stats",
    "splice-auto",
    "splice-request",
    "splice-response",
    "srvtcpka",
    "tcp-smart-accept",
    "tcp-smart-connect",
    "tcplog",
    "tcpka",
];
/// Advice about other options.
const OPTIONS: &[(&str, &str)] = &[
    ("accept-invalid-http-request", "tidegate rejects requests that are no valid HTTP"),
    ("accept-invalid-http-response", "tidegate rejects responses that are no valid HTTP"),
    ("accept-unsafe-violations-in-http-request", "tidegate rejects requests that are no valid HTTP"),
    ("accept-unsafe-violations-in-http-response", "tidegate rejects responses that are no valid HTTP"),
    ("allbackups", "tidegate has no backup servers"),
    ("disable-h2-upgrade", "set `protocols = [\"h1\"]` of `[[listeners]]`"),
    ("http-buffer-request", "tidegate forwards bodies while they arrive"),
    ("http-restrict-req-hdr-names", "tidegate forwards all valid names of headers"),
    ("originalto", "tidegate sends no X-Original-To"),
    ("persist", "tidegate sends no requests to servers that are down"),
];

/// A note on a line of a section that is not converted, unless it needs no counterpart.
pub(super) fn remark_in(section: &Section, line: &SectionLine) -> Option<Note> {
    if line.word(0) == "cookie" && changes_no_cookie(section, line) {
        let reason = "no server has a `cookie` that it would write to the cookies of servers";
        return Some(line.finding(reason).for_information());
    }
    remark(line)
}

/// Whether a `cookie` line has no effect: with `rewrite` the cookies of servers get values that none of the servers has.
fn changes_no_cookie(section: &Section, line: &SectionLine) -> bool {
    let is_server =
        |line: &&SectionLine| matches!(line.word(0), "server" | "default-server" | "server-template");
    let mut servers = section.lines.iter().filter(is_server);
    line.words.len() == 3
        && line.word(2) == "rewrite"
        && servers.all(|server| server.words.iter().all(|word| word != "cookie"))
}

/// The same for a line that is judged alone.
pub(super) fn remark(line: &SectionLine) -> Option<Note> {
    if let Some((_, reason)) = INFORMATION.iter().find(|(words, _)| line.begins(words)) {
        return Some(line.finding(*reason).for_information());
    }
    if is_default_error(line) {
        let reason =
            "the file of the distribution has the text that HAProxy has in any case; see `[answers]`";
        return Some(line.finding(reason).for_information());
    }
    if redirects_to_https(line).is_some() || line.word(0) == "default-server" && has_only_checks(line) {
        return None;
    }
    if line.word(0) == "option" {
        return option(line);
    }
    if action(line).is_some() || KNOWN.iter().any(|words| line.begins(words)) {
        return None;
    }
    let advice = ADVICE.iter().find(|(words, _)| line.begins(words));
    Some(line.finding(advice.map_or("tidegate has no counterpart", |(_, advice)| advice)))
}

/// Whether a line names the file that Debian's package has for the response of a status.
fn is_default_error(line: &SectionLine) -> bool {
    line.word(0) == "errorfile" && line.word(2) == format!("/etc/haproxy/errors/{}.http", line.word(1))
}

/// Whether a line redirects requests to HTTPS, under any condition.
pub(super) fn is_to_https(line: &SectionLine) -> bool {
    let start = ["redirect", "scheme", "https"];
    line.begins(&start)
        || line.word(0) == "http-request" && line.words[1..].starts_with(&start.map(str::to_owned))
}

/// The status of a redirect of all requests by plain HTTP to HTTPS, if a line is one.
pub(super) fn redirects_to_https(line: &SectionLine) -> Option<u16> {
    if !is_to_https(line) {
        return None;
    }
    let skipped = if line.word(0) == "http-request" { 4 } else { 3 };
    let words: Vec<&str> = line.words.iter().skip(skipped).map(String::as_str).collect();
    let rest = &words[..];
    let (status, condition) = match rest {
        ["code", status, condition @ ..] => (status.parse().ok()?, condition),
        _ => (302, rest),
    };
    let is_plain = matches!(condition, ["if", "!{", "ssl_fc", "}"] | ["unless", "{", "ssl_fc", "}"]);
    (is_plain && matches!(status, 301 | 302 | 303 | 307 | 308)).then_some(status)
}

/// A note on a line of `global`, most of which are about the process.
pub(super) fn of_process(line: &SectionLine) -> Option<Note> {
    let reason = match line.word(0) {
        "maxconn" => return None,
        _ => "tidegate limits requests, not new connections; see `max_connections` of `[[listeners]]`",
    };
    PROCESS_LIMITS.contains(&line.word(0)).then(|| line.finding(reason))
}

/// A note on an `option`.
fn option(line: &SectionLine) -> Option<Note> {
    let has_arguments = line.words.len() > 2;
    let reason = match line.word(1) {
        "forwardfor" if has_arguments => "tidegate sends X-Forwarded-For with every request",
        "forwarded" if has_arguments => "tidegate sends Forwarded with `for`, `host` and `proto`",
        "httpchk" if line.word(2) == "HEAD" => {
            let reason = "tidegate checks servers with GET, to which they respond with the same status";
            return Some(line.finding(reason).for_information());
        }
        "httpchk" if !matches!(line.word(2), "" | "GET") && !line.word(2).starts_with('/') => {
            "tidegate checks servers with GET"
        }
        name if NEEDLESS_OPTIONS.contains(&name) => return None,
        name => {
            let advice = OPTIONS.iter().find(|(option, _)| *option == name);
            advice.map_or("tidegate has no counterpart", |(_, advice)| advice)
        }
    };
    Some(line.finding(reason))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{SourceFile, SourceFormat, convert};

    #[test]
    fn a_cookie_that_no_server_has_changes_nothing() {
        for (lines, changes_behaviour) in [
            ("cookie s rewrite\n server a a:80", false),
            ("cookie s rewrite\n server a a:80 cookie a", true),
            ("cookie s rewrite dynamic\n server a a:80", true),
            ("cookie s insert\n server a a:80", true),
        ] {
            let text = format!("defaults\n mode http\nlisten l\n bind :80\n {lines}\n");
            let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
            let findings = convert(SourceFormat::Haproxy, &[file]).unwrap().findings();
            let cookie = findings.iter().find(|it| it.text.starts_with("cookie")).unwrap();
            assert_eq!(cookie.changes_behaviour, changes_behaviour, "{lines}");
        }
    }
}
