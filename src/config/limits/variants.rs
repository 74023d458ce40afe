//! `tiers` and `overrides`: other numbers of a limit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use super::key::key_part;
use super::limit_keys::{LimitKeys, NumbersKeys, TiersKeys};
use super::names::{KeyNames, no_key, no_name};
use super::rate_parts;
use crate::config::consumers::{OwnNumbers, ReadConsumers};
use crate::config::item::Item;
use crate::config::keys::DeclaredKeys as _;
use crate::config::numbers::Numbers;
use crate::config::quota::{quota, warn, written};
use crate::config::rate::{is_rate, written_period};
use crate::config::report::Problem;
use crate::config::table::{Name, Table, in_order};
use crate::consumers::is_tier_name;
use crate::gate::{KeyPart, KeyRule, OTHER_METHOD, Rules, Tiers, is_method_value};
use crate::id_vec::Id as _;
use crate::limit::{Algorithm, Policy, PolicyId, Quota};

/// The limit that variants belong to.
pub(super) struct Base<'b, 'a> {
    pub name: &'b str,
    pub algorithm: Option<Algorithm>,
    /// The numbers of the limit itself, where they could be read.
    pub numbers: Option<&'b Numbers<'a>>,
    pub names: KeyNames<'b>,
    pub consumers: &'b ReadConsumers<'b>,
    /// Whether the response decides the cost of a request.
    pub settled: bool,
}

/// Other numbers of a limit.
pub(super) struct Variant {
    pub policy: Policy,
    pub numbers: Box<str>,
    /// Its name in messages.
    pub label: String,
    pub span: Range<usize>,
}

/// The variants of a limit while they are read, in the order of their ids.
pub(super) struct Variants {
    pub all: Vec<Variant>,
    first: usize,
    /// Whether all of them are valid.
    pub is_valid: bool,
}

impl Variants {
    /// None yet; the first will have the id `first`.
    pub fn from(first: usize) -> Self {
        Self { all: Vec::new(), first, is_valid: true }
    }

    /// The id of the variant at this place.
    pub fn id(&self, place: usize) -> PolicyId {
        PolicyId::from_index(self.first + place)
    }

    fn add(&mut self, variant: Option<Variant>) -> Option<PolicyId> {
        let Some(variant) = variant else {
            self.is_valid = false;
            return None;
        };
        let id = self.id(self.all.len());
        self.all.push(variant);
        Some(id)
    }

    /// Reads `tiers`.
    pub fn tiers(&mut self, item: Option<Item<'_>>, base: &Base<'_, '_>) -> Option<Tiers> {
        let item = item?;
        let read = self.read_tiers(item, base);
        self.is_valid &= read.is_some();
        read
    }

    fn read_tiers(&mut self, item: Item<'_>, base: &Base<'_, '_>) -> Option<Tiers> {
        let table = Table::<TiersKeys>::of(item, "`tiers`")?;
        let by = table.by().with(by);
        let entries: Vec<_> = table.entries().into_iter().filter(|(name, _)| name.text != "by").collect();
        if entries.is_empty() {
            let problem = item.error("`tiers` names no tier");
            let example = "{ by = \"header:x-plan\", pro = { rate = \"1000/minute\" } }";
            return item.reject(problem.help(format!("such as {example}")));
        }
        let mut tiers = Vec::new();
        for (name, item) in entries {
            if by == Some(KeyPart::Method) && !is_method_value(name.text) {
                item.reader.report(tier_without_method(&name));
            }
            let variant = if is_tier_name(name.text) {
                let label = format!("tier `{}`", name.text);
                let make = |quota| Policy::tier(base.name, name.text, quota);
                variant(&name, item, label, base, make)
            } else {
                let problem =
                    Problem::error(name.span.clone(), format!("`{}` can't be the name of a tier", name.text));
                item.reject(problem.help("a name has 1 to 64 characters from A-Z, a-z, 0-9, _, - and ."))
            };
            if by == Some(KeyPart::Consumer) && !base.consumers.have_tier(name.text) {
                item.reader.report(base.consumers.tier_of_nobody(name.span.clone(), name.text));
            }
            tiers.push(self.add(variant).map(|id| (Box::from(name.text), id)));
        }
        let tiers: Vec<(Box<str>, PolicyId)> = tiers.into_iter().collect::<Option<_>>()?;
        Some(Tiers::new(by?, tiers))
    }

    /// Reads `overrides`, and adds them to the rules.
    pub fn overrides(&mut self, item: Option<Item<'_>>, base: &Base<'_, '_>, rules: &mut Rules) {
        let Some(item) = item else { return };
        let help = "each key has its numbers: overrides = { \"192.0.2.7\" = { rate = \"1000/minute\" } }";
        let Some(entries) = item.entries_or(help).map(|entries| in_order(item.reader, entries)) else {
            self.is_valid = false;
            return;
        };
        for (name, item) in entries {
            let label = format!("override `{}`", name.text);
            let variant = variant(&name, item, label, base, |quota| Policy::new(base.name, quota));
            let id = self.add(variant);
            let problem = match base.names.named(name.text) {
                None => continue,
                Some(Err(error)) => {
                    let problem = Problem::error(name.span.clone(), no_key(&format!("`{}`", name.text)));
                    no_name(problem, &error, false)
                }
                Some(Ok(named)) => {
                    let Some(id) = id else { continue };
                    let Some(twin) = rules.add(named, name.text, KeyRule::Override(id)) else { continue };
                    let title = format!("`{}` names the same key as `{twin}`", name.text);
                    Problem::error(name.span.clone(), title).help("a key has one override: leave one out")
                }
            };
            item.reader.report(problem);
            self.is_valid = false;
        }
    }

    /// Adds the numbers of consumers as overrides of their keys. Equal numbers have one policy: consumers may be many.
    pub fn consumers(&mut self, all: &[OwnNumbers<'_>], base: &Base<'_, '_>, rules: &mut Rules) {
        let is_by_consumer =
            base.names.spec.is_none_or(|spec| spec.parts.first() == Some(&KeyPart::Consumer));
        let mut policies: HashMap<String, PolicyId> = HashMap::new();
        for OwnNumbers { consumer, limit, item } in all {
            let what = format!("consumer `{consumer}`");
            let problem = if is_by_consumer {
                let variant = variant(limit, *item, what, base, |quota| Policy::new(base.name, quota));
                let id = match variant {
                    // `Debug` shows all numbers of a quota.
                    Some(variant) => match policies.entry(format!("{:?}", variant.policy.quota)) {
                        Entry::Occupied(id) => Some(*id.get()),
                        Entry::Vacant(vacant) => self.add(Some(variant)).map(|id| *vacant.insert(id)),
                    },
                    None => self.add(None),
                };
                let named = base.names.named(&consumer.replace('|', r"\|")).and_then(Result::ok);
                let (Some(id), Some(named)) = (id, named) else { continue };
                let Some(twin) = rules.add(named, consumer, KeyRule::Override(id)) else { continue };
                let title = format!("`overrides` of limit `{}` names `{twin}` already", base.name);
                Problem::error(limit.span.clone(), title).help("a key has one override: leave one out")
            } else {
                let title = format!("limit `{}` does not count by consumer", base.name);
                let help = "own numbers of consumers are for limits with key = \"consumer\", or whose first part it is";
                Problem::error(limit.span.clone(), title).help(help)
            };
            item.reader.report(problem);
            self.is_valid = false;
        }
    }
}

fn tier_without_method(name: &Name<'_>) -> Problem {
    let title = format!("tier `{}` never applies: it is not a registered method", name.text);
    let help = format!(
        "methods are written in upper case; requests with any other method have the tier `{OTHER_METHOD}`"
    );
    Problem::warning(name.span.clone(), title).help(help)
}

/// Reads the part whose values are the names of tiers.
fn by(item: Item<'_>) -> Option<KeyPart> {
    let part = key_part(item)?;
    let problem = match part {
        KeyPart::Global => item.error("`by` cannot be `global`, which is the same for all requests"),
        KeyPart::ClientIp => item
            .error("`by` cannot be `client_ip`: tier names are not addresses")
            .help("to give an address other numbers, name it in `overrides`"),
        KeyPart::Path => item.error("`by` cannot be `path`: tier names are not paths").help(
            "name a segment of it in the route, path = \"/{plan}/*\", and write by = \"path_param:plan\"",
        ),
        KeyPart::TlsSubject | KeyPart::TlsSan => item
            .error(format!("`by` cannot be `{part}`: tier names are not those of certificates"))
            .help("to give a certificate other numbers, name it in `overrides`"),
        KeyPart::Body(_) => item
            .error(format!("`by` cannot be `{part}`: tiers do not depend on the body of a request"))
            .help("such as by = \"header:x-plan\", which a trusted proxy sets, or by = \"jwt:plan\""),
        part => return Some(part),
    };
    item.reject(problem)
}

fn variant(
    name: &Name<'_>,
    item: Item<'_>,
    label: String,
    base: &Base<'_, '_>,
    policy: impl FnOnce(Quota) -> Policy,
) -> Option<Variant> {
    let mut table =
        Table::with_some(item, label.clone(), NumbersKeys::KEYS, &numbers_form(name, item, base))?;
    let has_parts = rate_parts::reject(&mut table);
    let own = Numbers::read(&mut table, base.algorithm).filter(|_| !has_parts);
    reject_limit_keys(&mut table);
    table.close();
    let (own, algorithm) = (own?, base.algorithm?);
    if own.is_empty {
        item.reader.report(Problem::warning(
            name.span.clone(),
            format!("{label} changes nothing: it sets no number"),
        ));
    }
    let all = own.clone().over(base.numbers?);
    let quota = quota(algorithm, &all, base.settled)?;
    warn(algorithm, &own, &all);
    let numbers = written(algorithm, &all);
    Some(Variant { policy: policy(quota), numbers, label, span: name.span.clone() })
}

/// How to write the numbers of a tier or an override that has no table: as a rate, with the period of the limit if only
/// its units are given.
fn numbers_form(name: &Name<'_>, item: Item<'_>, base: &Base<'_, '_>) -> String {
    let of_limit = base.numbers.and_then(|numbers| numbers.rates.first());
    let period = of_limit.filter(|rate| !rate.text.from_env).map(|rate| written_period(&rate.text.value));
    let rate = match (item.text(), item.integer_text()) {
        (Some(rate), _) if is_rate(rate) => rate.to_owned(),
        (_, Some(units)) => format!("{units}/{}", period.unwrap_or("minute")),
        _ => "1000/minute".to_owned(),
    };
    let is_bare = name.text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let key = if is_bare { name.text.to_owned() } else { format!("{:?}", name.text) };
    match base.algorithm {
        Some(Algorithm::Concurrency) => {
            format!("write its numbers as a table: {key} = {{ max_in_flight = 100 }}")
        }
        _ => format!("write its numbers as a table: {key} = {{ rate = \"{rate}\" }}"),
    }
}

/// Rejects the keys of a limit that a tier or an override can't change.
fn reject_limit_keys(table: &mut Table<'_, LimitKeys>) {
    let is_fixed = |name: &&str| NumbersKeys::KEYS.get(name).is_none();
    for key in LimitKeys::KEYS.all.iter().map(|key| key.name).filter(is_fixed) {
        if table.exclude(key) {
            let span = table.key_span(key).unwrap_or_else(|| table.span());
            let title = format!("`{key}` is the same for all tiers and overrides of a limit");
            table.reader.report(Problem::error(span, title).help("set it in the limit itself"));
        }
    }
}
