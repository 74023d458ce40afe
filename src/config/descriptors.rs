//! `[[descriptors]]`: the rules of the rate-limit service.

use std::ops::Range;

use super::item::Item;
use super::keys::keys;
use super::limits::{NamedLimits, ReadLimit, ReadLimits};
use super::report::Problem;
use super::routes::MAX_LIMITS;
use super::table::Table;
use crate::gate::{Cost, Descriptor, DescriptorRule, DescriptorTable, EntryPattern, KeyPart};
use crate::limit::{PolicyId, Quota};

/// The most entries of a rule.
const MAX_ENTRIES: usize = 100;

keys! {
    /// The keys of a rule for descriptors.
    DescriptorKeys {
        /// The domain, which clients of the service send with their descriptors
        domain: Text, required "edge";
        /// The entries of a descriptor in their order: `"key"` for any value, `"key=value"` for one value, and
        /// `"key=begin*"` for a pattern, in which `\*` is an asterisk
        entries("match"): List<Text>, required ["remote_address"];
        /// Names of limits; without any, such descriptors are unlimited
        limits: List<Text> = [];
        /// Whether such descriptors are always over the limit
        block: Boolean = false;
        /// For the `replaces` of other rules
        name: Text;
        /// Names of rules which do not apply to a request with a descriptor of this rule
        replaces: List<Text> = [];
        /// Whether hits are charged in full, also beyond the limits, which then deny until the excess has come back: for
        /// hits that Envoy reports at the end of a stream
        charge_late: Boolean = false;
    }
}

/// All rules.
#[derive(Default)]
pub(super) struct ReadDescriptors {
    pub table: DescriptorTable,
    /// The span of each rule, in their order.
    pub spans: Vec<Range<usize>>,
}

impl ReadDescriptors {
    /// The limits of rules that charge hits whatever the limits allow.
    pub fn late_limits(&self) -> impl Iterator<Item = PolicyId> {
        self.table.rules().iter().filter(|rule| rule.charges_late).flat_map(|rule| &rule.limits).copied()
    }

    /// The limits that rules name.
    pub fn limits(&self) -> impl Iterator<Item = &PolicyId> {
        self.table.rules().iter().flat_map(|rule| &rule.limits)
    }
}

/// Reads all rules.
pub(super) fn descriptors(item: Option<Item<'_>>, limits: &ReadLimits) -> Option<ReadDescriptors> {
    let mut read = ReadDescriptors::default();
    let Some(item) = item else { return Some(read) };
    let items = item.list("write [[descriptors]] with two brackets")?;
    let mut is_valid = true;
    let mut replacing: Vec<(Item<'_>, Vec<Box<str>>)> = Vec::new();
    for (number, item) in (1..).zip(items) {
        let Some((domain, entries, rule)) = descriptor(number, item, limits) else {
            is_valid = false;
            continue;
        };
        replacing.push((item, rule.replaces.clone()));
        read.spans.push(item.span());
        if let Err(earlier) = read.table.add(&domain, &entries, rule) {
            let problem = item.error("this rule matches the same descriptors as an earlier one");
            let problem = problem.related(read.spans[earlier].clone(), "the earlier one");
            is_valid = item
                .reject::<()>(problem.help("write all limits of these descriptors in one rule"))
                .is_some();
        }
    }
    for (item, names) in replacing {
        let has = |name: &str| read.table.rules().iter().any(|rule| rule.name.as_deref() == Some(name));
        if let Some(name) = names.iter().find(|name| !has(name)) {
            let problem = item.error(format!("this rule replaces `{name}`, and no rule has this name"));
            is_valid = item.reject::<()>(problem.help("give a rule this `name`")).is_some();
        }
    }
    is_valid.then_some(read)
}

fn descriptor(
    number: usize,
    item: Item<'_>,
    limits: &ReadLimits,
) -> Option<(String, Vec<EntryPattern>, DescriptorRule)> {
    let table = Table::<DescriptorKeys>::of(item, format!("descriptor {number}"))?;
    let domain = table.domain().with(|item| named(item, "a domain"));
    let entries = table.entries().with(entries);
    let named_limits = limits.resolve_all(table.limits().item());
    let blocks = table.block().read();
    let name = table.name().with(|item| named(item, "the name of a rule"));
    let replaces = table.replaces().item().list_of("put the names in brackets: [\"a\"]", |item| {
        named(item, "the name of a rule").map(String::into_boxed_str)
    });
    let charges_late = table.charge_late().read();
    if blocks == Some(true) && !named_limits.is_empty() {
        let problem = table.limits().item().error("a rule that blocks its descriptors needs no limits");
        let _: Option<()> = item.reject(problem.help("leave `limits` or `block` out"));
        return None;
    }
    if named_limits.len() > MAX_LIMITS {
        let problem =
            table.limits().item().error(format!("descriptor {number} has {} limits", named_limits.len()));
        return item.reject(problem.help(format!("it has at most {MAX_LIMITS}")));
    }
    table.close();
    let entries = entries?;
    let mut rule = DescriptorRule {
        name: name.ok()?.map(String::into_boxed_str),
        replaces: replaces?,
        blocks: blocks?,
        charges_late: charges_late?,
        ..DescriptorRule::default()
    };
    rule.needs_address = check_limits(item, &named_limits, &entries, limits)?;
    rule.limits = named_limits.into_iter().map(|(id, _)| id).collect();
    Some((domain?, entries, rule))
}

fn named(item: Item<'_>, what: &str) -> Option<String> {
    let text = item.string()?;
    text.parsed(what, "write at least one character", |text| (!text.is_empty()).then(|| text.to_owned()))
}

/// Reads the entries of a rule.
fn entries(item: Item<'_>) -> Option<Vec<EntryPattern>> {
    let entries = item.list_of("put the entries in brackets: [\"remote_address\"]", |item| {
        let text = item.string()?;
        EntryPattern::parse(&text.value).map_or_else(
            |error| text.reject(text.error(error).help("write \"key\", \"key=value\" or \"key=begin*\"")),
            Some,
        )
    })?;
    if entries.is_empty() {
        let problem = item.error("a rule needs at least one entry");
        return item.reject(problem.help("such as match = [\"remote_address\"]"));
    }
    if entries.len() > MAX_ENTRIES {
        return item.reject(item.error(format!("a rule has at most {MAX_ENTRIES} entries")));
    }
    Some(entries)
}

/// Rejects limits that can't count descriptors of this rule. Returns whether they need the address of the client.
fn check_limits(
    item: Item<'_>,
    named: &NamedLimits,
    entries: &[EntryPattern],
    all: &ReadLimits,
) -> Option<bool> {
    let (mut needs_address, mut is_valid) = (false, true);
    for (id, span) in named {
        let Some(limit) = all.get(*id) else { continue };
        let parts = || limit.rule.key.parts.iter().chain(limit.rule.tiers.iter().map(|tiers| &tiers.by));
        let locates = |part: &KeyPart| matches!(part, KeyPart::ClientIp | KeyPart::Country | KeyPart::Asn);
        let by_address = parts().any(locates) || limit.rule.rules.have_networks();
        let unfit = unfit(limit).or_else(|| parts().find_map(|part| unfit_part(part, entries))).or_else(|| {
            let has_address = entries.iter().any(|entry| *entry.key == *Descriptor::REMOTE_ADDRESS);
            (by_address && !has_address).then(|| {
                let title = "this limit needs the address of the client, and the rule has no entry `remote_address`";
                (title.to_owned(), "add the entry, or name a limit that does not need it".to_owned())
            })
        });
        needs_address |= by_address;
        if let Some((title, help)) = unfit {
            item.reader.report(Problem::error(span.clone(), title).help(help));
            is_valid = false;
        }
    }
    is_valid.then_some(needs_address)
}

/// Why a limit can't count any descriptor.
fn unfit(limit: &ReadLimit) -> Option<(String, String)> {
    let (title, help) = match &limit.policy.quota {
        Quota::Concurrency(_) => (
            "this limit counts requests in flight, and their end is not known here",
            "name a limit with a rate",
        ),
        Quota::LeakyBucket(_) => (
            "this limit delays requests, which is not possible here",
            "write algorithm = \"gcra\" for the same rate",
        ),
        _ if limit.policy.settles() => (
            "the response decides the cost of this limit, and it is not known here",
            "leave its form of `cost` out: clients send `hits_addend`, and with charge_late = true at the end of the response",
        ),
        _ if limit.policy.charges_by_status() => (
            "this limit charges by the status of the response, which is not known here",
            "leave `charge_on` out",
        ),
        _ if matches!(limit.rule.cost, Cost::Header { .. }) => (
            "this limit has its cost from a header, and descriptors have none",
            "clients send `hits_addend` instead",
        ),
        _ => return None,
    };
    Some((title.to_owned(), help.to_owned()))
}

/// Why descriptors of a rule lack a part of a key.
fn unfit_part(part: &KeyPart, entries: &[EntryPattern]) -> Option<(String, String)> {
    let forms = || {
        let keys: Vec<String> = entries.iter().map(|entry| format!("\"descriptor:{}\"", entry.key)).collect();
        format!("its entries are the parts {}", keys.join(", "))
    };
    match part {
        KeyPart::Global | KeyPart::ClientIp | KeyPart::Country | KeyPart::Asn => None,
        KeyPart::Descriptor(key) => match entries.iter().filter(|entry| *entry.key == **key).count() {
            1 => None,
            0 => Some((format!("this limit counts by `{part}`, and the rule has no entry `{key}`"), forms())),
            _ => Some((
                format!("this limit counts by `{part}`, and the rule has several entries `{key}`"),
                "let the client send them with different keys".to_owned(),
            )),
        },
        _ => Some((format!("this limit counts by `{part}`, which descriptors do not have"), forms())),
    }
}
