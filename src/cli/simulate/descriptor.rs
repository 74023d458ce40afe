//! Arrivals of one descriptor of the rate-limit service.

use super::arrivals::{ArrivalCharge, DEFAULT_KEY, SimulatedArrival};
use super::scenario;
use crate::gate::{Descriptor, DescriptorPlan, DescriptorRule, Gate};
use crate::limit::{Charge, Key, PolicyId};
use crate::text::plural;
use crate::time::{Micros, format_seconds};

/// The key of a charge that is not counted.
const UNCOUNTED: Key = Key([0; 16]);

/// The descriptor of all arrivals. Entries without a value have one from the key of each arrival.
#[derive(Debug)]
pub(super) struct DescriptorTemplate<'a> {
    domain: &'a str,
    entries: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> DescriptorTemplate<'a> {
    /// Parses entries with commas between them, each `KEY=VALUE` or `KEY`. Rejects an entry without a key.
    pub fn parse(domain: &'a str, text: &'a str) -> Result<Self, String> {
        let entry = |entry: &'a str| {
            let (key, value) = entry.split_once('=').map_or((entry, None), |(key, value)| (key, Some(value)));
            if key.is_empty() {
                return Err(format!(
                    "error: `{entry}` is no entry of a descriptor\n\
                     help: write KEY=VALUE, or KEY alone for values from the arrivals"
                ));
            }
            Ok((key, value))
        };
        Ok(Self { domain, entries: text.split(',').map(entry).collect::<Result<_, _>>()? })
    }

    /// Plans the charges of all arrivals; returns the limits of the descriptor. Without arrivals there are none. Rejects arrivals
    /// that do not fit the descriptor, or that have several rules or no limits.
    pub fn plan(&self, gate: &Gate, arrivals: &mut [SimulatedArrival]) -> Result<Vec<PolicyId>, String> {
        let mut common: Option<&DescriptorRule> = None;
        for arrival in arrivals {
            let at = format_seconds(Micros(arrival.at.0));
            let wrong = |problem: String| format!("error: the arrival at {at} s: {problem}");
            let key = arrival.key.clone();
            let descriptor = self.descriptor(&key).map_err(wrong)?;
            let hits = arrival.cost.unwrap_or(1);
            if hits == 0 {
                return Err(wrong("zero hits charge nothing\nhelp: leave this line out".to_owned()));
            }
            let planned = gate.descriptors().plan(self.domain, &[(descriptor.clone(), hits)]);
            let mut plans = planned.map_err(|(_, error)| wrong(format!("`{descriptor}`: {error}")))?;
            let Some(plan) = plans.pop() else { continue };
            let rule = rule_with_limits(&plan)
                .map_err(|why| wrong(format!("`{descriptor}` {why}\nhelp: {}", self.help(&descriptor))))?;
            if common.is_some_and(|other| !std::ptr::eq(other, rule)) {
                return Err(wrong(format!(
                    "`{descriptor}` has another rule than earlier arrivals\n\
                     help: play the arrivals of each rule alone"
                )));
            }
            common = Some(rule);
            arrival.planned =
                Some(rule.limits.iter().map(|limit| charge(gate, &plan, *limit, hits)).collect());
        }
        Ok(common.map(|rule| rule.limits.clone()).unwrap_or_default())
    }

    /// The descriptor of an arrival with this key.
    fn descriptor<'k>(&self, key: &'k str) -> Result<Descriptor<'k>, String>
    where
        'a: 'k,
    {
        let open = self.entries.iter().filter(|(_, value)| value.is_none()).count();
        let mut values = key.splitn(open, ',');
        let given = if key == DEFAULT_KEY { 0 } else { values.clone().count().max(1) };
        if given != open {
            let help = match open {
                0 => "every entry of --descriptor has a value: leave KEY out, or write - in its place",
                1 => "KEY is the value of the entry without one",
                _ => "KEY has the values of the entries without one, with commas between them",
            };
            return Err(format!("the key `{key}` does not have {open} value{}\nhelp: {help}", plural(open)));
        }
        let entry = |(key, value): &(&'a str, Option<&'a str>)| {
            (*key, value.or_else(|| values.next()).unwrap_or_default())
        };
        Ok(Descriptor(self.entries.iter().map(entry).collect()))
    }

    fn help(&self, descriptor: &Descriptor<'_>) -> String {
        format!("see `tidegate explain --descriptor {} '{descriptor}'`", self.domain)
    }
}

/// The rule of a planned descriptor, if its limits can be played.
fn rule_with_limits<'g>(plan: &DescriptorPlan<'g>) -> Result<&'g DescriptorRule, &'static str> {
    match plan.rule {
        None => Err("has no rule, and is unlimited"),
        Some(rule) if rule.blocks => Err("has a rule with `block`, and is always over the limit"),
        Some(rule) if rule.limits.is_empty() => Err("has a rule without limits, and is unlimited"),
        Some(rule) if rule.charges_late => {
            Err("has a rule with `charge_late`: hits that are charged without asking can't be played")
        }
        Some(rule) => Ok(rule),
    }
}

/// The charge of a limit for an arrival.
fn charge(gate: &Gate, plan: &DescriptorPlan<'_>, limit: PolicyId, hits: u64) -> ArrivalCharge {
    if let Some(charge) = plan.charges.iter().find(|charge| gate.limit_of(charge.policy) == limit) {
        return ArrivalCharge { charge: *charge, preset: None };
    }
    let preset = if plan.blocked_by == Some(limit) || plan.lacking_for == Some(limit) {
        scenario::blocked(gate, limit)
    } else {
        scenario::unlimited(gate, limit)
    };
    ArrivalCharge { charge: Charge::take(limit, UNCOUNTED, hits), preset: Some(preset) }
}
