//! The result of a conversion, whatever the origin, before it is written as TOML.

use std::collections::{BTreeMap, HashSet};

use super::note::{FileLine, Finding, Note};
use super::restrictions::{Account, Restriction};
pub(super) use super::route::{
    Condition, ConditionKind, DenyStatus, Test, TomlAuthorization, TomlRoute, TomlTarget,
};

/// A configuration of tidegate, in the order in which it is written.
#[derive(Debug, Default)]
pub struct Converted {
    /// Notes about the whole file.
    pub(crate) notes: Vec<Note>,
    /// Where clients connect; a default is written if there is none.
    pub(crate) listeners: Vec<TomlListener>,
    /// `[client_ip]`.
    pub(crate) client_ip: TomlClientIp,
    /// `[store]`, if counts are shared.
    pub(crate) store: Option<TomlStore>,
    /// The response to denied requests, where it is not the default.
    pub(crate) denied: Option<TomlDenied>,
    /// `[limits.NAME]`.
    pub(crate) limits: Vec<Limit>,
    /// `default_limits`: names of limits.
    pub(crate) default_limits: Vec<String>,
    /// `[upstreams.NAME]`.
    pub(crate) upstreams: Vec<TomlUpstream>,
    /// `[[routes]]`, from the top.
    pub(crate) routes: Vec<TomlRoute>,
    /// `[[descriptors]]`, from the top.
    pub(crate) descriptors: Vec<TomlDescriptor>,
    /// The restrictions of the origin that are not accounted for yet.
    pub(crate) restrictions: Vec<Restriction>,
    /// How many restrictions were converted.
    pub account: Account,
}

/// `[[listeners]]`.
#[derive(Debug, Default)]
pub(super) struct TomlListener {
    pub notes: Vec<Note>,
    pub address: String,
    /// `name`, if routes select it.
    pub name: Option<String>,
    /// Files with certificates and their keys.
    pub certificates: Vec<(String, String)>,
    /// A file with the authorities of client certificates, if they are required.
    pub client_ca: Option<String>,
    pub proxy_protocol: bool,
    /// `max_connections`, where it is not the default.
    pub max_connections: Option<u64>,
    /// `serve`, where it is not the default.
    pub serves: Option<&'static str>,
    /// Timeouts by their keys, such as `idle_timeout`, where they are not the default.
    pub timeouts: BTreeMap<&'static str, String>,
}

/// `[client_ip]`; empty values are left out.
#[derive(Debug, Default)]
pub(super) struct TomlClientIp {
    pub notes: Vec<Note>,
    pub trusted_proxies: Vec<String>,
    pub header: Option<String>,
    pub ipv6_prefix: Option<u8>,
}

/// `[store]`.
#[derive(Debug)]
pub(super) struct TomlStore {
    pub notes: Vec<Note>,
    pub url: String,
}

/// `denied` of `[answers]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TomlDenied {
    pub notes: Vec<Note>,
    pub status: u16,
    /// Its body, as plain text.
    pub body: String,
}

/// `[limits.NAME]`.
#[derive(Debug)]
pub(super) struct Limit {
    pub notes: Vec<Note>,
    pub name: String,
    pub algorithm: TomlAlgorithm,
    /// Key parts; one or more.
    pub key: Vec<String>,
    /// `on_missing`, where it is not the default.
    pub on_missing: Option<&'static str>,
    /// Networks, and names of keys, to which the limit does not apply.
    pub allow: Vec<String>,
    /// Names of keys that are denied.
    pub block: Vec<String>,
    /// `deny_status`, where it is known.
    pub deny_status: Option<DenyStatus>,
    /// The statuses that are charged; all if there are none.
    pub charge_on: Vec<u16>,
    pub is_shadow: bool,
    /// `on_store_failure`, where it is not the default.
    pub on_store_failure: Option<&'static str>,
    /// Names of keys with their own rate.
    pub overrides: Vec<(String, String)>,
    /// Lines that it is made of, besides those of its notes.
    pub uses: Vec<FileLine>,
}

/// An algorithm with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TomlAlgorithm {
    TokenBucket { rate: String, burst: u64 },
    FixedWindow { rate: String },
    SlidingWindow { rate: String, buckets: u64 },
    Gcra { rate: String, burst: u64 },
    LeakyBucket { rate: String, queue: u64 },
    Concurrency { max_in_flight: u64 },
}

/// `[upstreams.NAME]`.
#[derive(Debug, Default)]
pub(super) struct TomlUpstream {
    pub notes: Vec<Note>,
    pub name: String,
    /// URLs with their weights.
    pub servers: Vec<(String, u64)>,
    /// `balance`, where it is not the default.
    pub balance: Option<String>,
    /// `retries`, where it is not the default.
    pub retries: Option<u64>,
    /// `max_connections`, where it is not the default.
    pub max_connections: Option<u64>,
    /// `response_timeout` and `stall_timeout`, such as `"30s"`, where they are not the default.
    pub timeout: Option<String>,
    /// Other timeouts by their keys, such as `connect_timeout`, where they are not the default.
    pub timeouts: BTreeMap<&'static str, String>,
    /// The path of health checks.
    pub health_path: Option<String>,
    /// Other keys of `health`, with values that are TOML.
    pub health: BTreeMap<&'static str, String>,
    /// Ejection after so many failures, for so many seconds.
    pub eject: Option<(u64, u64)>,
    pub speaks_h2: bool,
}

/// `[[descriptors]]`.
#[derive(Clone, Debug)]
pub(super) struct TomlDescriptor {
    pub notes: Vec<Note>,
    pub domain: String,
    /// `match`: entries with their patterns.
    pub entries: Vec<String>,
    /// Names of limits.
    pub limits: Vec<String>,
    pub blocks: bool,
    pub name: Option<String>,
    pub replaces: Vec<String>,
}

impl TomlDescriptor {
    /// A rule without limits.
    pub fn new(domain: &str, entries: Vec<String>) -> Self {
        Self {
            notes: Vec::new(),
            domain: domain.to_owned(),
            entries,
            limits: Vec::new(),
            blocks: false,
            name: None,
            replaces: Vec::new(),
        }
    }
}

/// The most connections to a server that an upstream can have.
const MOST_CONNECTIONS: u64 = 1_000_000;

impl TomlUpstream {
    /// Sets the most connections to each server, with the lines of all of its servers and their numbers as notes. An upstream has
    /// one number for all of its servers: if theirs differ, each line gets a finding.
    pub fn limit_connections<L>(
        &mut self,
        servers: &[(L, Option<u64>)],
        origin: impl Fn(&L) -> Note,
        finding: impl Fn(&L, String) -> Note,
    ) {
        let limited = || servers.iter().filter_map(|(line, most)| Some((line, (*most)?)));
        let Some((_, first)) = limited().next() else { return };
        let is_same = servers.iter().all(|(_, most)| *most == Some(first));
        if is_same && first <= MOST_CONNECTIONS {
            self.max_connections = Some(first);
            self.notes.extend(limited().map(|(line, _)| origin(line)));
        } else {
            let reason = format!(
                "an upstream has one `max_connections` for each of its servers, up to {MOST_CONNECTIONS}, and theirs differ: set it in the \
                 upstream"
            );
            self.notes.extend(limited().map(|(line, _)| finding(line, reason.clone())));
        }
    }
}

impl Limit {
    /// A limit with defaults for all that its name, algorithm and key do not say.
    pub fn new(name: String, algorithm: TomlAlgorithm, key: Vec<String>) -> Self {
        Self {
            notes: Vec::new(),
            name,
            algorithm,
            key,
            on_missing: None,
            allow: Vec::new(),
            block: Vec::new(),
            deny_status: None,
            charge_on: Vec::new(),
            is_shadow: false,
            on_store_failure: None,
            overrides: Vec::new(),
            uses: Vec::new(),
        }
    }
}

impl Converted {
    /// Makes each IPv6 address a client of its own, if a limit counts by addresses. `reason` says that the converted program does
    /// so, and becomes a note.
    pub(crate) fn count_each_ipv6_address(&mut self, reason: &str) {
        if self.limits.iter().any(|limit| limit.key.iter().any(|part| part == "client_ip")) {
            self.client_ip.ipv6_prefix = Some(128);
            self.client_ip.notes.push(Note::text(format!(
                "{reason}. A client has at least 2^64 of them, so the default of tidegate is a prefix of 64 bits: consider removing \
                 `ipv6_prefix`."
            )));
        }
    }

    /// Adds a note if denials have statuses of a program that are not those of tidegate.
    pub(crate) fn note_deny_statuses(&mut self, program: &str) {
        let of_limits = self.limits.iter().map(|limit| limit.deny_status);
        let mut statuses = of_limits.chain(self.routes.iter().map(|route| route.deny_status)).flatten();
        if statuses.any(|status| status != DenyStatus::DEFAULT) {
            self.notes.push(Note::text(format!(
                "Denials have the statuses of {program}: `deny_status`. Without it they have 429, which clients understand better."
            )));
        }
    }

    /// How many limits, routes and others there are, with the name of each.
    #[must_use]
    pub fn counts(&self) -> Vec<(usize, &'static str)> {
        let limits = (self.limits.len(), "limit");
        if self.descriptors.is_empty() {
            vec![(self.routes.len(), "route"), limits, (self.upstreams.len(), "upstream")]
        } else {
            vec![(self.descriptors.len(), "rule"), limits]
        }
    }

    /// Everything that was not converted, in the order of the origin's lines.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let of_limits = self.limits.iter().flat_map(|it| &it.notes);
        let mut findings: Vec<Finding> = Vec::new();
        for note in self.notes_without_limits().chain(of_limits) {
            if let Note::Finding(finding) = note {
                findings.push(finding.clone());
            }
        }
        findings.sort();
        findings.dedup();
        findings
    }

    /// Adds routes for the requests that routes refuse.
    pub(crate) fn add_refusals(&mut self) {
        self.routes =
            std::mem::take(&mut self.routes).into_iter().flat_map(TomlRoute::with_refusals).collect();
    }

    /// All notes but those of limits.
    pub(super) fn notes_without_limits(&self) -> impl Iterator<Item = &Note> {
        let lists = [&self.notes, &self.client_ip.notes].into_iter();
        let lists = lists
            .chain(self.listeners.iter().map(|it| &it.notes))
            .chain(self.store.iter().map(|it| &it.notes))
            .chain(self.denied.iter().map(|it| &it.notes))
            .chain(self.upstreams.iter().map(|it| &it.notes))
            .chain(self.routes.iter().map(|it| &it.notes))
            .chain(self.descriptors.iter().map(|it| &it.notes));
        lists.flatten()
    }

    /// The names of the limits that a route or a descriptor names.
    pub(super) fn named_limits(&self) -> impl Iterator<Item = &String> {
        let lists = self.routes.iter().map(|it| &it.limits);
        lists.chain(self.descriptors.iter().map(|it| &it.limits)).chain([&self.default_limits]).flatten()
    }

    /// Whether it serves nothing: no line of the origin became a route or a rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.descriptors.is_empty()
    }
}

/// The longest name of a limit.
const LONGEST: usize = 64;

/// Names that are in use.
#[derive(Debug, Default)]
pub(super) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// A name of a limit that is not in use yet, as similar as possible to this one.
    pub fn unique(&mut self, wanted: &str) -> String {
        let base = valid(wanted);
        let numbered = (2_usize..).map(|number| {
            let suffix = format!("-{number}");
            let kept: String = base.chars().take(LONGEST - suffix.len()).collect();
            kept + &suffix
        });
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(base);
        self.0.insert(name.clone());
        name
    }
}

/// The text with the characters of names of limits only: `a-z`, `0-9`, `-` and `_`.
fn valid(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let replaced = text.to_lowercase().replace(|c| !allowed(c), "-");
    let trimmed: String = replaced.trim_matches('-').chars().take(LONGEST).collect();
    if trimmed.is_empty() { "limit".to_owned() } else { trimmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = UniqueNames::default();
        let long = "x".repeat(100);
        let wanted = ["Per IP", "per ip", "per/ip", "", "é", &long, &long];
        let found = wanted.map(|name| names.unique(name));
        let expected = ["per-ip", "per-ip-2", "per-ip-3", "limit", "limit-2", &long[..64]];
        assert_eq!(found[..6], expected);
        assert_eq!(found[6], format!("{}-2", &long[..62]));
    }
}
