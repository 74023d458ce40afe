//! Servers of backends as upstreams.

use super::sections::{SERVER_TIMEOUTS, Section, SectionLine};
use crate::duration::{shown, timeout};
use crate::model::{TomlUpstream, UniqueNames};

/// The highest weight of a server.
const MOST_WEIGHT: u64 = 1_000;
/// The most retries of an upstream.
const MOST_RETRIES: u64 = 5;

/// Settings of servers without a value.
const FLAGS: [&str; 12] = [
    "agent-check",
    "allow-0rtt",
    "check-send-proxy",
    "check-ssl",
    "no-backup",
    "no-check",
    "no-ssl",
    "non-stick",
    "send-proxy",
    "send-proxy-v2",
    "stick",
    "tfo",
];

/// The upstreams of the sections with servers.
#[derive(Default)]
pub(super) struct Backends {
    names: UniqueNames,
    /// The names of sections with those of their upstreams.
    made: Vec<(String, String)>,
    pub upstreams: Vec<TomlUpstream>,
}

impl Backends {
    /// The name of the upstream of a section; `None` if none of its servers can be converted.
    pub fn name(&mut self, section: &Section) -> Option<String> {
        if let Some((_, name)) = self.made.iter().find(|(section_name, _)| section_name == section.name()) {
            return Some(name.clone());
        }
        let upstream = upstream(section, self.names.unique(section.name()));
        let name = upstream.name.clone();
        if upstream.servers.is_empty() {
            return None;
        }
        self.upstreams.push(upstream);
        self.made.push((section.name().to_owned(), name.clone()));
        Some(name)
    }
}

fn upstream(section: &Section, name: String) -> TomlUpstream {
    let header = &section.header;
    let notes = vec![header.origin()];
    let mut upstream = TomlUpstream { notes, name, ..TomlUpstream::default() };
    let checked = section
        .lines
        .iter()
        .find(|line| line.word(0) == "server" && line.words.iter().any(|word| word == "check"));
    let mut connections = Vec::new();
    for line in &section.lines {
        match line.word(0) {
            "server" => {
                let is_added = server(line, &mut upstream);
                connections.extend(is_added.then(|| (line, max_connections(line))));
            }
            "balance" => match balance(line) {
                Ok(balance) => upstream.balance = balance,
                Err(reason) => upstream.notes.push(line.finding(reason)),
            },
            "retries" => {
                upstream.retries = line.word(1).parse().ok().map(|retries: u64| retries.min(MOST_RETRIES));
            }
            "timeout" if line.word(1) == "server" => match milliseconds(line.word(2)) {
                Some(0) | None => upstream.notes.push(line.finding("this is no timeout")),
                Some(milliseconds) => upstream.timeout = timeout(milliseconds),
            },
            "timeout" if SERVER_TIMEOUTS.contains(&line.word(1)) => set_timeout(&mut upstream, line),
            "option" if line.word(1) == "httpchk" && checked.is_some() => {
                let path = line.words[2..].iter().find(|word| word.starts_with('/'));
                upstream.health_path = Some(path.map_or("/", String::as_str).to_owned());
            }
            "http-check" if line.begins(&["http-check", "send"]) => {
                upstream.health_path = line.after("uri").map(str::to_owned).or(upstream.health_path);
            }
            _ => {}
        }
    }
    upstream.limit_connections(&connections, |line| line.origin(), |line, reason| line.finding(reason));
    if let Some(line) = checked.filter(|_| upstream.health_path.is_none()) {
        let reason = "for `check`: tidegate makes no connections only to check servers. A request goes to another server if one accepts \
                      no connection; see also `health.path` of the upstream";
        let note = line.finding(reason);
        upstream.notes.push(if upstream.retries == Some(0) { note } else { note.for_information() });
    } else {
        set_checks(section, &mut upstream);
    }
    upstream
}

/// Sets a timeout of an upstream.
fn set_timeout(upstream: &mut TomlUpstream, line: &SectionLine) {
    let Some(time) = milliseconds(line.word(2)).filter(|time| *time > 0) else {
        upstream.notes.push(line.finding("this is no timeout"));
        return;
    };
    match line.word(1) {
        "connect" => drop(upstream.timeouts.insert("connect_timeout", shown(time))),
        "queue" => drop(upstream.timeouts.insert("pending_timeout", shown(time))),
        _ => drop(upstream.health.insert("timeout", format!("\"{}\"", shown(time)))),
    }
}

/// The settings of checks of a `server` or `default-server` line, by the keys of `health`.
const CHECKS: [(&str, &str); 3] =
    [("inter", "interval"), ("rise", "healthy_after"), ("fall", "unhealthy_after")];

/// Whether a `default-server` line says only how servers are checked.
pub(super) fn has_only_checks(line: &SectionLine) -> bool {
    line.words[1..].chunks(2).all(|pair| CHECKS.iter().any(|(word, _)| *word == pair[0]))
}

/// Sets how often servers are checked, of the first server that says so, where all say the same.
fn set_checks(section: &Section, upstream: &mut TomlUpstream) {
    let is_server = |line: &&SectionLine| matches!(line.word(0), "server" | "default-server");
    for (word, key) in CHECKS {
        let lines = section.lines.iter().filter(is_server);
        let mut values: Vec<(&SectionLine, &str)> =
            lines.filter_map(|line| Some((line, line.after(word)?))).collect();
        let Some((first, value)) = values.first().copied() else { continue };
        let toml = match word {
            "inter" => {
                milliseconds(value).filter(|time| *time > 0).map(|time| format!("\"{}\"", shown(time)))
            }
            _ => {
                value.parse::<u64>().ok().filter(|count| (1..=1_000).contains(count)).map(|it| it.to_string())
            }
        };
        values.retain(|(_, other)| *other != value);
        if let (Some(toml), true) = (toml, values.is_empty()) {
            upstream.health.insert(key, toml);
        } else {
            let line = values.first().map_or(first, |(line, _)| line);
            upstream
                .notes
                .push(line.finding(format!("an upstream has one `health.{key}` for all of its servers")));
        }
    }
}

/// The most connections of a `server` line, of its `maxconn`; none for no limit.
pub(super) fn max_connections(line: &SectionLine) -> Option<u64> {
    line.after("maxconn")?.parse().ok().filter(|most| *most > 0)
}

/// Adds a server; returns whether it can be converted.
fn server(line: &SectionLine, upstream: &mut TomlUpstream) -> bool {
    let has = |word: &str| line.words.iter().any(|other| other == word);
    let address = line.word(2).trim_start_matches("ipv4@").trim_start_matches("ipv6@");
    let socket = Some(address.trim_start_matches("unix@")).filter(|path| path.starts_with('/'));
    let is_other = address.starts_with("unix@") && socket.is_none() || address.starts_with("abns@");
    if is_other || socket.is_some() && has("ssl") || address.contains("${") {
        let reason = "tidegate forwards to addresses, names and Unix sockets with absolute paths, the latter without TLS";
        upstream.notes.push(line.finding(reason));
        return false;
    }
    for (word, reason) in
        [("backup", "tidegate has no backup servers"), ("disabled", "the server is disabled")]
    {
        if has(word) {
            upstream.notes.push(line.finding(format!("{reason}: it is left out")));
            return false;
        }
    }
    let weight = line.after("weight").and_then(|weight| weight.parse().ok()).unwrap_or(1);
    if weight == 0 {
        upstream.notes.push(line.finding("a server of weight 0 gets no requests: it is left out"));
        return false;
    }
    let scheme = if has("ssl") { "https" } else { "http" };
    if has("ssl") && line.after("verify") == Some("none") {
        upstream
            .notes
            .push(line.finding("tidegate verifies the certificate: name its authority in `tls.ca`"));
    }
    upstream.speaks_h2 |= line.after("proto") == Some("h2");
    let other = other_settings(line);
    if !other.is_empty() {
        let reason = format!(
            "tidegate has no counterpart of {} in `servers`: see the keys of upstreams",
            other.join(", ")
        );
        upstream.notes.push(line.finding(reason));
    }
    let url = socket.map_or_else(|| format!("{scheme}://{address}"), |path| format!("unix:{path}"));
    upstream.servers.push((url, weight.min(MOST_WEIGHT)));
    true
}

/// The settings of a server that are not converted.
fn other_settings(line: &SectionLine) -> Vec<String> {
    let mut other = Vec::new();
    let mut words = line.words.iter().skip(3);
    while let Some(word) = words.next() {
        match &**word {
            "check" | "ssl" | "enabled" => {}
            "weight" | "maxconn" | "verify" | "proto" | "alpn" | "id" => drop(words.next()),
            name if CHECKS.iter().any(|(known, _)| *known == name) => drop(words.next()),
            flag if FLAGS.contains(&flag) => other.push(format!("`{flag}`")),
            name => {
                other.push(format!("`{name}`"));
                words.next();
            }
        }
    }
    other
}

/// Reads a time of `HAProxy`, which is in milliseconds unless it has a unit.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[number.len()..] {
        "us" => return Some(number.parse::<u64>().ok()?.div_ceil(1_000)),
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The balancing of a line; `None` is the default.
fn balance(line: &SectionLine) -> Result<Option<String>, String> {
    let text = line.word(1);
    let balance = match text {
        "roundrobin" | "static-rr" => return Ok(None),
        "leastconn" => "least_requests".to_owned(),
        "source" => "hash:client_ip".to_owned(),
        "uri" => "hash:path".to_owned(),
        "random" => "power_of_two".to_owned(),
        "url_param" => format!("hash:query:{}", line.word(2)),
        _ if text.starts_with("random(") => "power_of_two".to_owned(),
        _ => {
            let header = text.strip_prefix("hdr(").and_then(|rest| rest.strip_suffix(')'));
            format!("hash:header:{}", header.ok_or("`balance` has no counterpart")?.to_ascii_lowercase())
        }
    };
    Ok(Some(balance))
}
