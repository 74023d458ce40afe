//! `allow` and `block`, and the keys of their names.

use ipnet::IpNet;

use crate::config::client_ip::{parse_network, warn_of_host_bits};
use crate::config::item::{Item, TextItem};
use crate::config::report::Problem;
use crate::gate::{ClientIp, KeyRule, KeySpec, NameError, NamedKeys, Networks, Rules};
use crate::limit::KeyHasher;

const FORM: &str = "such as \"10.1.0.0/16\", \"192.0.2.7\", \"2001:db8::/32\" or \"key:acme-42\"";

/// How names become keys.
pub(in crate::config) struct Naming {
    pub client_ip: ClientIp,
    pub hasher: KeyHasher,
}

/// Names of one limit.
#[derive(Clone, Copy)]
pub(super) struct KeyNames<'n> {
    pub naming: &'n Naming,
    /// Its key, where that could be read.
    pub spec: Option<&'n KeySpec>,
}

impl KeyNames<'_> {
    /// The key of a name; `None` where the limit's `key` itself is wrong.
    pub fn named(self, name: &str) -> Option<Result<NamedKeys, NameError>> {
        Some(self.spec?.named(name, &self.naming.client_ip, &self.naming.hasher))
    }
}

/// Reads a list of networks and names: adds the names to the rules, and returns the networks.
pub(super) fn list(
    item: Option<Item<'_>>,
    names: KeyNames<'_>,
    rule: KeyRule,
    rules: &mut Rules,
) -> Option<Networks> {
    let Some(item) = item else { return Some(Networks::default()) };
    let items = item.list("put them in brackets: [\"10.1.0.0/16\", \"key:acme-42\"]")?;
    let mut networks = Vec::new();
    let mut is_valid = true;
    for item in items {
        let Some(text) = item.string_like("a network or a name", FORM) else {
            is_valid = false;
            continue;
        };
        match text.value.strip_prefix("key:") {
            Some(name) => is_valid &= add_name(&text, name, names, rule, rules),
            None => match network(&text, rule) {
                Some(network) => networks.push(network),
                None => is_valid = false,
            },
        }
    }
    is_valid.then(|| networks.into_iter().collect())
}

fn add_name(text: &TextItem<'_>, name: &str, names: KeyNames<'_>, rule: KeyRule, rules: &mut Rules) -> bool {
    match names.named(name) {
        None => true,
        Some(Ok(key)) => {
            // `explain` and the admin interface show it.
            rules.add(key, text.shown().trim_start_matches("key:"), rule);
            true
        }
        Some(Err(error)) => {
            text.item.reader.report(no_name(text.error(no_key(&text.quoted())), &error, text.from_env));
            false
        }
    }
}

/// The message for a name that matches no key.
pub(super) fn no_key(name: &str) -> String {
    format!("{name} is not a key of this limit")
}

/// Adds the reason why a name matches no key.
pub(super) fn no_name(problem: Problem, error: &NameError, is_secret: bool) -> Problem {
    match error {
        // The error repeats the value.
        NameError::Value { expected, part, .. } if is_secret => {
            problem.help(format!("the value of {part} is {expected}"))
        }
        NameError::Count { .. } => problem
            .help(error.to_string())
            .help("write a bar that belongs to a value as \\|, in single quotes: 'a\\|b'"),
        NameError::Empty(_) | NameError::Value { .. } => problem.help(error.to_string()),
    }
}

fn network(text: &TextItem<'_>, rule: KeyRule) -> Option<IpNet> {
    let network = text.parsed("a network, nor a name such as \"key:NAME\"", FORM, parse_network)?;
    warn_of_host_bits(text, network);
    if network.prefix_len() == 0 {
        let title = if rule == KeyRule::Block {
            "this blocks every client"
        } else {
            "this exempts every client from the limit"
        };
        text.item.reader.report(Problem::warning(text.item.span(), title));
    }
    Some(network)
}
