//! `[limits.NAME]`: from text to policies.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use super::WrittenLimit;
use super::quota;
use super::rate;
use super::reader::{Item, Reader};
use super::report::Problem;
use super::suggest::nearest;
use super::table::{Name, NotYet, Table};
use crate::gate::{KeyPart, KeySpec, OnMissing, Terms};
use crate::limit::{Algorithm, Policy, PolicyId};
use crate::limiter::OnStoreFailure;

const MAX_NAME: usize = 64;

/// Costs; nothing above can be counted exactly.
const COST: RangeInclusive<u64> = 0..=1 << 53;

/// Algorithms that the documentation knows and this version does not.
const ALGORITHMS_NOT_YET: [&str; 5] =
    ["fixed_window", "sliding_log", "sliding_window", "leaky_bucket", "concurrency"];

/// Keys that have a meaning for one algorithm only.
const OTHER_ALGORITHMS: [(&str, &str); 6] = [
    ("align", "fixed_window"),
    ("timezone", "fixed_window"),
    ("buckets", "sliding_window"),
    ("queue", "leaky_bucket"),
    ("max_in_flight", "concurrency"),
    ("lease", "concurrency"),
];

const NOT_YET: [NotYet; 8] = [
    ("cost_max", "a limit's cost is a whole number in this version"),
    ("charge_on", ""),
    ("trust", ""),
    ("allow", ""),
    ("block", ""),
    ("ban", ""),
    ("tiers", ""),
    ("overrides", ""),
];

/// Key parts that the documentation knows and this version does not.
const PARTS_NOT_YET: [&str; 1] = ["tls"];

/// All limits by name, those with a mistake too, so that a route which names one is not blamed.
#[derive(Default)]
pub(super) struct ReadLimits {
    limits: Vec<(Range<usize>, Option<ReadLimit>)>,
    names: HashMap<String, PolicyId>,
}

/// One limit.
pub(super) struct ReadLimit {
    pub policy: Policy,
    pub terms: Terms,
    pub on_failure: OnStoreFailure,
    pub written: WrittenLimit,
}

impl ReadLimits {
    /// The limit at a place, where it has no mistake.
    pub fn get(&self, id: PolicyId) -> Option<&ReadLimit> {
        self.limits.get(id.0 as usize).and_then(|(_, limit)| limit.as_ref())
    }

    /// Where the name of a limit stands.
    pub fn span(&self, id: PolicyId) -> Range<usize> {
        self.limits.get(id.0 as usize).map_or(0..0, |(span, _)| span.clone())
    }

    pub fn ids(&self) -> impl Iterator<Item = PolicyId> {
        (0..).map(PolicyId).take(self.limits.len())
    }

    /// All limits, if none of them has a mistake.
    pub fn into_all(self) -> Option<Vec<ReadLimit>> {
        self.limits.into_iter().map(|(_, limit)| limit).collect()
    }

    /// The limit that a string names.
    fn resolve(&self, item: Item<'_>) -> Option<(PolicyId, Range<usize>)> {
        let name = item.string_like("the name of a limit", "")?;
        if let Some(id) = self.names.get(&name.value) {
            return Some((*id, item.span()));
        }
        let problem = name.unknown("limit");
        name.refuse(match nearest(&name.value, self.names.keys().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if name.from_env => problem,
            None => problem.help(format!("define it: [limits.{}]", name.value)),
        })
    }

    /// The limits that an array names, each once, with their places.
    pub fn resolve_all(&self, item: Item<'_>) -> Vec<(PolicyId, Range<usize>)> {
        let mut found: Vec<(PolicyId, Range<usize>)> = Vec::new();
        for item in item.list("put the names in brackets: [\"per-client\"]").unwrap_or_default() {
            match self.resolve(item) {
                Some((id, _)) if found.iter().any(|(other, _)| *other == id) => {}
                Some(named) => found.push(named),
                None => {}
            }
        }
        found
    }
}

/// Reads all limits.
pub(super) fn limits(item: Option<Item<'_>>) -> ReadLimits {
    let mut read = ReadLimits::default();
    let Some(table) = item.and_then(|item| item.table("[limits]")) else { return read };
    for ((name, item), id) in table.entries().into_iter().zip((0..).map(PolicyId)) {
        let limit = limit(&name, item);
        read.names.insert(name.text.to_owned(), id);
        read.limits.push((name.span, limit));
    }
    read
}

fn limit(name: &Name<'_>, item: Item<'_>) -> Option<ReadLimit> {
    let name_is_right = check_name(name, item.reader);
    let mut table = item.table(format!("limit `{}`", name.text))?;
    let algorithm = match table.item("algorithm") {
        Some(item) => algorithm(item),
        None => Some(Algorithm::default()),
    };
    let rate = if algorithm.is_none() {
        // What a limit of another algorithm needs is not known here: read what is there, miss nothing.
        table.item("rate").filter(|item| !item.is_array()).and_then(rate::rate)
    } else {
        table.required("rate", "rate = \"100/minute\"").and_then(rate::rate)
    };
    let burst = table.item("burst");
    let quota = algorithm.and_then(|algorithm| quota::quota(algorithm, rate.as_ref(), burst));
    refill(&mut table, algorithm);
    let parts = match table.item("key") {
        Some(item) => key(item),
        None => Some(vec![KeyPart::ClientIp]),
    };
    let cost = match table.item("cost") {
        Some(item) => cost(item, quota.as_ref().map(|(quota, _)| quota.limit())),
        None => Some(1),
    };
    let on_failure = on_store_failure(table.item("on_store_failure"));
    let on_missing = on_missing(table.item("on_missing"));
    if let Some(item) = table.item("mode") {
        item.choice(&[("enforce", ())], &["shadow"]);
    }
    foreign(&mut table, algorithm);
    table.close(&NOT_YET);
    let (quota, burst) = quota?;
    let terms = Terms { key: KeySpec { parts: parts?, on_missing: on_missing? }, cost: cost? };
    let written = WrittenLimit { rate: rate?.text.value.into(), burst };
    name_is_right.then_some(())?;
    Some(ReadLimit { policy: Policy::new(name.text, quota), terms, on_failure: on_failure?, written })
}

fn check_name(name: &Name<'_>, reader: &Reader<'_>) -> bool {
    let is_right = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let right = !name.text.is_empty() && name.text.len() <= MAX_NAME && name.text.bytes().all(is_right);
    if !right {
        let problem =
            Problem::error(name.span.clone(), format!("`{}` can't be the name of a limit", name.text));
        reader.note(problem.help("a name has 1 to 64 characters from a-z, 0-9, - and _"));
    }
    right
}

fn algorithm(item: Item<'_>) -> Option<Algorithm> {
    let choices = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
    item.choice(&choices, &ALGORITHMS_NOT_YET)
}

fn refill(table: &mut Table<'_>, algorithm: Option<Algorithm>) {
    let Some(item) = table.item("refill") else { return };
    if algorithm == Some(Algorithm::Gcra) {
        belongs_elsewhere(table, "refill", "token_bucket", "gcra");
    } else {
        item.choice(&[("smooth", ())], &["interval"]);
    }
}

/// Refuses keys that mean nothing to this limit's algorithm. Where the algorithm itself was refused, they may
/// well belong to it.
fn foreign(table: &mut Table<'_>, algorithm: Option<Algorithm>) {
    for (key, owner) in OTHER_ALGORITHMS {
        if let (true, Some(algorithm)) = (table.takes_silently(key), algorithm) {
            belongs_elsewhere(table, key, owner, algorithm.name());
        }
    }
}

fn belongs_elsewhere(table: &Table<'_>, key: &str, owner: &str, own: &str) {
    let place = table.key_span(key).unwrap_or_else(|| table.span());
    let problem =
        Problem::error(place, format!("`{key}` belongs to the algorithm {owner}, and this limit is a {own}"));
    table.reader.note(problem.help(format!("leave `{key}` out")));
}

fn key(item: Item<'_>) -> Option<Vec<KeyPart>> {
    if !item.is_array() {
        return key_part(item).map(|part| vec![part]);
    }
    let items = item.list("")?;
    if items.is_empty() {
        let problem = item.error("a key needs at least one part");
        return item.refuse(problem.help("for one count for everybody write: key = \"global\""));
    }
    let parts: Vec<Option<KeyPart>> = items.into_iter().map(key_part).collect();
    parts.into_iter().collect()
}

fn key_part(item: Item<'_>) -> Option<KeyPart> {
    let text =
        item.string_like("a key part or an array of them", "such as \"client_ip\" or \"header:x-api-key\"")?;
    if let Some(part) = KeyPart::parse(&text.value) {
        return Some(part);
    }
    let (kind, name) =
        text.value.split_once(':').map_or((&*text.value, None), |(kind, name)| (kind, Some(name)));
    if PARTS_NOT_YET.contains(&kind) && !text.from_env {
        return item.not_yet(&format!("`{}`", text.value), "");
    }
    let problem = text.error(format!("{} is not a key part", text.quoted()));
    let named =
        KeyPart::FORMS.iter().find(|form| form.split_once(':').is_some_and(|(named, _)| named == kind));
    let kinds = KeyPart::FORMS.iter().map(|form| form.split(':').next().unwrap_or(form));
    text.refuse(match (named, nearest(kind, kinds)) {
        (Some(form), _) if name.is_none_or(str::is_empty) => problem.help(format!("say which: \"{form}\"")),
        (Some(_), _) => problem.help(format!("what stands after `{kind}:` can't be the name of one")),
        (None, Some(near)) if near == kind => problem.help(format!("write \"{near}\" alone")),
        (None, Some(near)) => problem.help(format!("did you mean `{near}`?")),
        (None, None) => problem.help(format!("the parts are {}", KeyPart::FORMS.join(", "))),
    })
}

fn cost(item: Item<'_>, limit: Option<u64>) -> Option<u64> {
    if item.is_string() {
        return item
            .not_yet("a cost taken from the request", "a limit's cost is a whole number in this version");
    }
    let cost = item.integer(&COST)?;
    match limit {
        Some(limit) if cost > limit => {
            let problem = item.error(format!(
                "no request could ever pass: it costs {cost}, and at most {limit} are there at once"
            ));
            item.refuse(problem.help(format!("a cost of at most {limit}, or a larger `burst`")))
        }
        _ => Some(cost),
    }
}

fn on_store_failure(item: Option<Item<'_>>) -> Option<OnStoreFailure> {
    use OnStoreFailure::{Allow, Deny, Local};
    let choices = [("local", Local), ("allow", Allow), ("deny", Deny)];
    item.map_or(Some(OnStoreFailure::default()), |item| item.choice(&choices, &[]))
}

fn on_missing(item: Option<Item<'_>>) -> Option<OnMissing> {
    use OnMissing::{ClientIp, Deny, Skip};
    let choices = [("client_ip", ClientIp), ("skip", Skip), ("deny", Deny)];
    item.map_or(Some(OnMissing::default()), |item| item.choice(&choices, &[]))
}
