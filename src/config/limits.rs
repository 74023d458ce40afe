//! `[limits.NAME]`: from text to policies.

mod ahead;
mod beside_cost;
mod charging;
mod cost;
mod cost_keys;
mod cost_parts;
mod fit;
mod key;
mod limit_keys;
mod names;
mod prices;
mod rate_parts;
mod reserved;
mod settled;
mod variants;
mod weights;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub(super) use self::cost_keys::PricesKeys;
pub(super) use self::key::{key, part};
pub(super) use self::limit_keys::{LimitKeys, NumbersKeys};
use self::limit_keys::{MAX_UNITS, Mode};
pub(super) use self::names::Naming;

pub(super) use self::ahead::Counting;
use self::ahead::ReadAhead;
use self::cost::ReadCost;
use self::fit::Fit;
use self::names::KeyNames;
use self::settled::MAX_CAPACITIES;
use self::variants::{Base, Variant, Variants};
use super::consumers::ReadConsumers;
use super::item::Item;
use super::numbers::Numbers;
use super::quota::{quota, warn, written};
use super::rate::is_rate;
use super::reader::Reader;
use super::report::Problem;
use super::table::{AnyTable, Name, Table, in_order};
use crate::gate::{
    BodyField, Cost, KeyPart, KeyRule, KeySpec, LimitRule, Networks, Rules, SettledCost, Tiers, Trust,
};
use crate::id_vec::IdVec;
use crate::limit::{Algorithm, Policy, PolicyId, Quota, Soft};
use crate::limiter::OnStoreFailure;
use crate::suggest::nearest;

const MAX_NAME: usize = 64;
const TABLE: &str = "a limit is a table with a name: [limits.per-client] with rate = \"100/minute\"";

/// All limits by name, including invalid ones, so that a route that names one is not reported.
#[derive(Default)]
pub(super) struct ReadLimits {
    limits: IdVec<PolicyId, (Range<usize>, Option<ReadLimit>)>,
    names: HashMap<String, PolicyId>,
}

/// Limits, with the spans of their names where the file refers to them.
pub(super) type NamedLimits = Vec<(PolicyId, Range<usize>)>;

/// Other sections of the file that limits refer to.
struct Context<'c> {
    naming: &'c Naming,
    consumers: &'c ReadConsumers<'c>,
    /// Whether limits are counted in Redis.
    counting: Counting,
    /// The directory of the file.
    directory: &'c Path,
}

/// One limit.
pub(super) struct ReadLimit {
    pub policy: Policy,
    pub rule: LimitRule,
    pub on_failure: OnStoreFailure,
    pub numbers: Box<str>,
    /// The span of `ahead`, unless it is `"off"`.
    pub ahead: Option<Range<usize>>,
    /// Its tiers and overrides, and then the policies of classes, in the order of their ids.
    variants: Vec<Variant>,
}

/// All policies: first those of the limits, then those of their tiers, overrides and classes.
#[derive(Default)]
pub(super) struct Policies {
    pub all: Vec<(Policy, OnStoreFailure)>,
    pub numbers: IdVec<PolicyId, Box<str>>,
    /// The rule of each limit.
    pub rules: IdVec<PolicyId, LimitRule>,
    /// The limit of each tier, override and class.
    pub variants: Vec<PolicyId>,
}

impl Policies {
    /// Lets keys of these limits owe units that are charged whatever the limits allow.
    pub fn allow_debts(&mut self, limits: &[PolicyId]) {
        let own = self.rules.ids().chain(self.variants.iter().copied());
        for (limit, (policy, _)) in own.zip(&mut self.all) {
            if limits.contains(&limit) && !policy.settles() {
                let most = policy.quota.limit().saturating_mul(MAX_CAPACITIES).min(MAX_UNITS);
                *policy = policy.clone().with_settlement(most);
            }
        }
    }
}

impl ReadLimit {
    /// Its policy, and those of its tiers and overrides.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        std::iter::once(&self.policy).chain(self.variants.iter().map(|variant| &variant.policy))
    }
}

impl ReadLimits {
    /// The limit of an id, if it is valid.
    pub fn get(&self, id: PolicyId) -> Option<&ReadLimit> {
        self.limits.get(id).and_then(|(_, limit)| limit.as_ref())
    }

    /// Whether there is a limit of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The limit with the most similar name.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.names.keys().map(String::as_str))
    }

    /// The span of the name of a limit.
    pub fn span(&self, id: PolicyId) -> Range<usize> {
        self.limits.get(id).map_or(0..0, |(span, _)| span.clone())
    }

    pub fn ids(&self) -> impl Iterator<Item = PolicyId> {
        self.limits.ids()
    }

    /// For each limit whose key or tiers have a matching part: the first one, and the span of the limit's name.
    pub fn with_part(
        &self,
        is_match: impl Fn(&KeyPart) -> bool + Copy,
    ) -> impl Iterator<Item = (&KeyPart, Range<usize>)> {
        self.ids().filter_map(move |id| {
            let rule = &self.get(id)?.rule;
            let mut parts = rule.key.parts.iter().chain(rule.tiers.iter().map(|tiers| &tiers.by));
            Some((parts.find(|part| is_match(part))?, self.span(id)))
        })
    }

    /// The fields of the body that these limits count by.
    pub fn body_fields(&self, ids: &[PolicyId]) -> Box<[BodyField]> {
        let mut fields: Vec<BodyField> = Vec::new();
        for part in ids.iter().filter_map(|id| self.get(*id)).flat_map(|limit| &limit.rule.key.parts) {
            if let KeyPart::Body(field) = part
                && !fields.contains(field)
            {
                fields.push(field.clone());
            }
        }
        fields.into()
    }

    /// The costs of these limits that responses settle.
    pub fn settled_costs<'s>(&'s self, ids: &'s [PolicyId]) -> impl Iterator<Item = &'s SettledCost> {
        ids.iter().filter_map(|id| self.get(*id)?.rule.cost.settled())
    }

    /// The policies of all limits, if all of them are valid.
    pub fn into_policies(self) -> Option<Policies> {
        let limits: Vec<ReadLimit> =
            self.limits.into_iter().map(|(_, limit)| limit).collect::<Option<_>>()?;
        let mut read = Policies::default();
        let mut variants = Vec::new();
        for limit in limits {
            read.all.push((limit.policy, limit.on_failure));
            read.numbers.push(limit.numbers);
            let id = read.rules.push(limit.rule);
            variants.extend(limit.variants.into_iter().map(|variant| (variant, id, limit.on_failure)));
        }
        for (variant, id, on_failure) in variants {
            read.all.push((variant.policy, on_failure));
            read.numbers.push(variant.numbers);
            read.variants.push(id);
        }
        Some(read)
    }

    /// The limit that a string names.
    fn resolve(&self, item: Item<'_>) -> Option<(PolicyId, Range<usize>)> {
        if item.is_table() {
            return self.reject_inline(item, "a limit has a name, and is not defined here");
        }
        let name = item.string_like("the name of a limit", "")?;
        if let Some(id) = self.names.get(&name.value) {
            return Some((*id, item.span()));
        }
        if !name.from_env && is_rate(&name.value) {
            return self.reject_inline(item, "this is a rate, and not the name of a limit");
        }
        let problem = name.unknown("limit");
        name.reject(match self.nearest(&name.value) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if name.from_env => problem,
            None => problem.help(format!("define it: [limits.{}] with rate = \"100/minute\"", name.value)),
        })
    }

    /// Rejects a limit, or its rate, where the name of a limit belongs.
    fn reject_inline<T>(&self, item: Item<'_>, title: &str) -> Option<T> {
        let rate = item.text_of("rate").or_else(|| item.text()).unwrap_or("100/minute");
        let name = if self.has("per-client") { "NAME" } else { "per-client" };
        let help = format!(
            "define it as a table, [limits.{name}] with rate = \"{rate}\", and name it here: [\"{name}\"]"
        );
        item.reject(item.error(title).help(help))
    }

    /// The limits that an array names, each once, with the spans of their names.
    pub fn resolve_all(&self, item: Item<'_>) -> Vec<(PolicyId, Range<usize>)> {
        let mut found: Vec<(PolicyId, Range<usize>)> = Vec::new();
        if item.is_table() {
            let _: Option<()> = self.reject_inline(item, "limits have names, and are not defined here");
            return found;
        }
        let help = match item.text() {
            Some(name) if self.has(name) => format!("put it in brackets: [\"{name}\"]"),
            _ => "put the names in brackets: [\"per-client\"]".to_owned(),
        };
        for item in item.list(&help).unwrap_or_default() {
            match self.resolve(item) {
                Some((id, _)) if found.iter().any(|(other, _)| *other == id) => {}
                Some(named) => found.push(named),
                None => {}
            }
        }
        found
    }
}

/// Reads all limits. Files that they name are relative to `directory`.
pub(super) fn limits(
    item: Option<Item<'_>>,
    naming: &Naming,
    consumers: &ReadConsumers<'_>,
    counting: Counting,
    directory: &Path,
) -> ReadLimits {
    let mut read = ReadLimits::default();
    let entries = item.and_then(|item| Some(in_order(item.reader, item.entries_or(TABLE)?)));
    let Some(entries) = entries else { return read };
    // The policies of all limits come first, and then those of their tiers and overrides.
    let mut next = entries.len();
    let context = Context { naming, consumers, counting, directory };
    for (name, item) in entries {
        let limit = limit(&name, item, &context, next);
        next += limit.as_ref().map_or(0, |limit| limit.variants.len());
        let id = read.limits.push((name.span, limit));
        read.names.insert(name.text.to_owned(), id);
    }
    read
}

/// Reads a limit; its tiers and overrides will have the ids from `next` on.
fn limit(name: &Name<'_>, item: Item<'_>, context: &Context<'_>, next: usize) -> Option<ReadLimit> {
    let Context { naming, consumers, counting, directory } = *context;
    let name_is_valid = check_name(name, item.reader);
    let mut table = Table::of_or(item, format!("limit `{}`", name.text), TABLE)?;
    let algorithm = table.algorithm().read();
    let numbers = read_numbers(&mut table, algorithm);
    let cost = cost::read_cost(&table, algorithm, directory);
    let settled = cost.as_ref().is_some_and(ReadCost::settles);
    let quota = algorithm.zip(numbers.as_ref()).and_then(|(algorithm, numbers)| {
        warn(algorithm, numbers, numbers);
        quota(algorithm, numbers, settled)
    });
    let (parts, on_missing) = (table.key().with(key::key), table.on_missing().read());
    let missing_status = key::missing_status(&table, on_missing);
    let spec = parts.zip(on_missing).map(|(parts, on_missing)| KeySpec { parts, on_missing });
    let (on_failure, mode) = (table.on_store_failure().read(), table.mode().read());
    let warn_at = table.warn_at().with(charging::warn_at);
    let ban = charging::enforced_ban(&table, mode);
    let deny_status = charging::read_deny_status(&table, mode);
    let bans = table.ban().given().filter(|_| matches!(ban, Ok(Some(_))));
    let ahead = ReadAhead::read(&table, algorithm, counting).filter(|ahead| ahead.fits(quota.as_ref(), bans));
    let names = KeyNames { naming, spec: spec.as_ref() };
    let mut rules = Rules::default();
    let networks = networks(&table, names, mode, &mut rules);
    let base = Base { name: name.text, algorithm, numbers: numbers.as_ref(), names, consumers, settled };
    let mut variants = Variants::from(next);
    let tiers = variants.tiers(table.tiers().given(), &base);
    variants.overrides(table.overrides().given(), &base, &mut rules);
    variants.consumers(consumers.own_numbers(name.text), &base, &mut rules);
    let classes = reserved::classes(&table, &mut variants, &base, quota.as_ref());
    let trust = charging::trust(&table);
    warn_of_untrusted(&table, naming, trust, cost.as_ref(), tiers.as_ref());
    let charge_on = charging::charge_on(&table, algorithm, settled);
    let cost = cost.and_then(|cost| fitting(cost, algorithm?, quota.as_ref()?, &variants.all));
    table.close();
    let (block, allow) = networks?;
    (rules.block, rules.allow) = (block, allow);
    let (missing_status, deny_status) = (missing_status?, deny_status.ok()?);
    let (key, cost, trust) = (spec?, cost?, trust?);
    let rule = LimitRule { key, missing_status, deny_status, cost, trust, rules, tiers, classes };
    let (ban, charge_on, ahead) = (ban.ok()?, charge_on?, ahead?);
    let (shadow, soft) =
        (charging::is_passive(mode), Soft { warn_at: warn_at.ok()?, marks: mode? == Mode::Mark });
    let completed = |mut policy: Policy| {
        (policy.ban, policy.shadow, policy.soft) = (ban, shadow, soft);
        let mut policy =
            ahead.apply(cost::applied(policy.with_charge_on(Arc::clone(&charge_on)), &rule.cost));
        // A kept slot could be the last one that a lower class may take.
        policy.keeps_slots &= rule.classes.is_none();
        policy
    };
    (name_is_valid && variants.is_valid).then_some(())?;
    let numbers = written(algorithm?, numbers.as_ref()?);
    let policy = completed(Policy::new(name.text, quota?));
    let variants =
        variants.all.into_iter().map(|one| Variant { policy: completed(one.policy), ..one }).collect();
    let ahead = ahead.item().map(Item::span);
    Some(ReadLimit { policy, rule, on_failure: on_failure?, numbers, ahead, variants })
}

/// Reads the numbers of a limit.
fn read_numbers<'a>(table: &mut Table<'a, LimitKeys>, algorithm: Option<Algorithm>) -> Option<Numbers<'a>> {
    let has_parts = rate_parts::reject(table);
    let numbers = Numbers::read(table, algorithm);
    if !has_parts {
        Numbers::require(table, algorithm);
    }
    numbers
}

/// Reads `block` and `allow`: returns the networks of each, and adds the names to the rules.
fn networks(
    table: &Table<'_, LimitKeys>,
    names: KeyNames<'_>,
    mode: Option<Mode>,
    rules: &mut Rules,
) -> Option<(Networks, Networks)> {
    let block = table.block().given();
    if let Some(item) = block.filter(|_| charging::is_passive(mode)) {
        charging::ignored(item, "blocks", mode);
    }
    let block = names::list(block, names, KeyRule::Block, rules);
    let allow = names::list(table.allow().given(), names, KeyRule::Allow, rules);
    Some((block?, allow?))
}

/// Warns where the cost or the tier comes from headers, and no proxy is trusted to set them.
fn warn_of_untrusted(
    table: &AnyTable<'_>,
    naming: &Naming,
    trust: Option<Trust>,
    cost: Option<&ReadCost<'_>>,
    tiers: Option<&Tiers>,
) {
    if trust != Some(Trust::Proxies) || !naming.client_ip.trusted_proxies.is_empty() {
        return;
    }
    if let Some(header) = cost.and_then(ReadCost::header) {
        charging::never_trusted(table, "cost", &format!("header:{header}"));
    }
    if let Some(tiers) = tiers.filter(|tiers| tiers.by.is_client_supplied()) {
        charging::never_trusted(table, "tiers", &tiers.by.to_string());
    }
}

/// The cost, if it fits the limit and all its tiers and overrides.
fn fitting(cost: ReadCost<'_>, algorithm: Algorithm, own: &Quota, variants: &[Variant]) -> Option<Cost> {
    let mut fits = vec![Fit { quota: own, variant: None }];
    fits.extend(
        variants.iter().map(|one| Fit {
            quota: &one.policy.quota,
            variant: Some((one.label.clone(), one.span.clone())),
        }),
    );
    cost.fitting(algorithm, &fits)
}

fn check_name(name: &Name<'_>, reader: &Reader<'_>) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let is_valid = !name.text.is_empty() && name.text.len() <= MAX_NAME && name.text.bytes().all(is_allowed);
    if !is_valid {
        let problem =
            Problem::error(name.span.clone(), format!("`{}` can't be the name of a limit", name.text));
        reader.report(problem.help("a name has 1 to 64 characters from a-z, 0-9, - and _"));
    }
    is_valid
}
