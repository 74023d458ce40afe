//! `limit_req` and `limit_conn`, and their zones, as limits.

use std::collections::{HashMap, HashSet};

use super::keys::{NginxVariables, When, ZoneKey};
use super::tree::Directive;
use crate::model::{DenyStatus, Limit, TomlAlgorithm, UniqueNames};
use crate::note::Note;

/// The most requests in flight that a limit can have.
pub(crate) const MOST_IN_FLIGHT: u64 = 10_000;

/// The limits that were made so far.
pub(super) struct NginxLimits<'d> {
    variables: NginxVariables<'d>,
    request_zones: HashMap<&'d str, &'d Directive>,
    connection_zones: HashMap<&'d str, &'d Directive>,
    used: HashSet<&'d str>,
    names: UniqueNames,
    made: Vec<Made>,
    pub all: Vec<Limit>,
}

/// How a location uses a zone.
pub(super) struct Usage<'d> {
    pub directive: &'d Directive,
    pub is_dry_run: bool,
    /// The status of its denials.
    pub status: DenyStatus,
    /// The number of its server.
    pub server: usize,
}

/// The identity of a limit: uses of a zone that are equal in it become one limit.
#[derive(PartialEq, Eq)]
struct ZoneIdentity {
    zone: String,
    algorithm: TomlAlgorithm,
    is_shadow: bool,
    server: Option<usize>,
    /// Of its key.
    parts: Vec<String>,
}

struct Made {
    identity: ZoneIdentity,
    applied: Applied,
}

/// A limit of a location.
#[derive(Clone, Debug)]
pub(super) struct Applied {
    pub name: String,
    /// The requests that it applies to, if not all.
    pub when: Option<When>,
}

/// The rate of a zone.
pub(crate) struct ZoneRate {
    /// As tidegate has it.
    pub text: String,
    /// The rate that nginx applies, if it differs.
    pub rounded: Option<String>,
}

impl<'d> NginxLimits<'d> {
    /// No limits yet; the zones and variables are among these directives.
    pub fn new(directives: &'d [Directive]) -> Self {
        let zones = |name: &str| {
            let zones = directives.iter().filter(move |directive| directive.name == name);
            zones.filter_map(|it| Some((it.option("zone")?.split(':').next()?, it))).collect()
        };
        Self {
            variables: NginxVariables::of(directives),
            request_zones: zones("limit_req_zone"),
            connection_zones: zones("limit_conn_zone"),
            used: HashSet::new(),
            names: UniqueNames::default(),
            made: Vec::new(),
            all: Vec::new(),
        }
    }

    /// Notes on the zones that no location uses.
    pub fn unused(&self) -> Vec<Note> {
        let zones = self.request_zones.iter().chain(&self.connection_zones);
        let unused = zones.filter(|(name, _)| !self.used.contains(*name));
        unused.map(|(_, zone)| zone.finding("no location that was converted uses this zone")).collect()
    }

    /// The limit of a `limit_req`, and notes for its location.
    pub fn requests(&mut self, usage: &Usage<'d>) -> Result<(Vec<Applied>, Vec<Note>), Note> {
        let directive = usage.directive;
        let fail = |reason: String| directive.finding(reason);
        let name = directive.option("zone").ok_or_else(|| fail("it names no zone".to_owned()))?;
        let zone = self.request_zones.get(name).copied();
        let zone = zone.ok_or_else(|| fail(format!("there is no limit_req_zone `{name}`")))?;
        self.used.insert(name);
        let rate =
            rate(zone.option("rate").unwrap_or("")).ok_or_else(|| fail("its zone has no rate".to_owned()))?;
        let number = |name: &str| directive.option(name).map_or(Some(0), |text| text.parse().ok());
        let burst: u64 = number("burst").ok_or_else(|| fail("its burst is no number".to_owned()))?;
        let delay: u64 = number("delay").ok_or_else(|| fail("its delay is no number".to_owned()))?;
        let mut notes = Vec::new();
        let algorithm = if burst == 0 || directive.has("nodelay") || delay >= burst {
            TomlAlgorithm::Gcra { rate: rate.text, burst }
        } else if delay == 0 {
            TomlAlgorithm::LeakyBucket { rate: rate.text, queue: burst }
        } else {
            let reason = format!(
                "the same requests are denied, but those after the first {delay} of a burst are not delayed: a limit \
                 of tidegate delays all early requests (leaky_bucket) or none"
            );
            notes.push(directive.finding(reason));
            TomlAlgorithm::Gcra { rate: rate.text, burst }
        };
        let applied = self.limit(usage, zone, name, &algorithm)?;
        notes.extend(self.separate(usage, name, &applied[0]));
        if let (Some(rounded), Some(limit)) = (rate.rounded, self.find(&applied[0].name)) {
            let note = Note::text(rounded);
            if !limit.notes.contains(&note) {
                limit.notes.push(note);
            }
        }
        Ok((applied, notes))
    }

    /// The limit of a `limit_conn`, and notes for its location.
    pub fn connections(&mut self, usage: &Usage<'d>) -> Result<(Vec<Applied>, Vec<Note>), Note> {
        let directive = usage.directive;
        let name = directive.args.first().map_or("", String::as_str);
        let zone = self.connection_zones.get(name).copied();
        let zone = zone.ok_or_else(|| directive.finding(format!("there is no limit_conn_zone `{name}`")))?;
        self.used.insert(name);
        let number = directive.arg(1).parse().ok().filter(|number| (1..=MOST_IN_FLIGHT).contains(number));
        let max_in_flight = number.ok_or_else(|| {
            directive.finding(format!("max_in_flight is a number from 1 to {MOST_IN_FLIGHT}"))
        })?;
        let applied = self.limit(usage, zone, name, &TomlAlgorithm::Concurrency { max_in_flight })?;
        let notes = self.separate(usage, name, &applied[0]).into_iter().collect();
        Ok((applied, notes))
    }

    /// The status of the denials of a limit, if it denies.
    pub fn deny_status(&self, name: &str) -> Option<DenyStatus> {
        self.all.iter().find(|limit| limit.name == name)?.deny_status
    }

    fn find(&mut self, name: &str) -> Option<&mut Limit> {
        self.all.iter_mut().find(|limit| limit.name == name)
    }

    /// A finding if a zone is now used by several limits, which count separately.
    fn separate(&self, usage: &Usage<'_>, zone: &str, applied: &Applied) -> Option<Note> {
        let own = &self.made.iter().find(|made| made.applied.name == applied.name)?.identity.parts;
        let is_other = |made: &&Made| made.applied.name != applied.name && made.identity.parts == *own;
        let of_zone =
            self.made.iter().filter(|made| made.identity.zone == zone && made.identity.server.is_none());
        let other = of_zone.take_while(|made| made.applied.name != applied.name).find(is_other)?;
        let reason = format!(
            "nginx counts the zone `{zone}` for all of its numbers together; the limits `{}` and `{}` count separately",
            other.applied.name, applied.name
        );
        Some(usage.directive.finding(reason))
    }

    /// The limit of a zone with these numbers, which is made if it is new.
    fn limit(
        &mut self,
        usage: &Usage<'_>,
        zone: &Directive,
        name: &str,
        algorithm: &TomlAlgorithm,
    ) -> Result<Vec<Applied>, Note> {
        let rules = self.variables.rules(zone.arg(0)).map_err(|reason| {
            usage.directive.finding(format!(
                "the key `{}` of its zone ({}): {reason}",
                zone.arg(0),
                zone.place
            ))
        })?;
        let limits = rules.into_iter().map(|rule| {
            let identity = ZoneIdentity {
                zone: name.to_owned(),
                algorithm: algorithm.clone(),
                is_shadow: usage.is_dry_run,
                server: rule.is_of_server.then_some(usage.server),
                parts: rule.parts.clone(),
            };
            self.with_rule(usage, zone, identity, rule)
        });
        Ok(limits.collect())
    }

    /// The limit with this rule of its key.
    fn with_rule(
        &mut self,
        usage: &Usage<'_>,
        zone: &Directive,
        identity: ZoneIdentity,
        rule: ZoneKey,
    ) -> Applied {
        if let Some(made) = self.made.iter().find(|made| made.identity == identity) {
            let applied = made.applied.clone();
            if let Some(limit) = self.find(&applied.name) {
                limit.uses.push(usage.directive.place.clone());
            }
            return applied;
        }
        let limit_name = self.names.unique(&identity.zone);
        let when = rule.when.clone();
        let mut limit = new_limit(limit_name.clone(), identity.algorithm.clone(), rule);
        limit.is_shadow = usage.is_dry_run;
        limit.deny_status = (!usage.is_dry_run).then_some(usage.status);
        limit.notes.splice(0..0, [zone, usage.directive].map(Directive::origin));
        self.all.push(limit);
        let applied = Applied { name: limit_name, when };
        self.made.push(Made { identity, applied: applied.clone() });
        applied
    }
}

fn new_limit(name: String, algorithm: TomlAlgorithm, rule: ZoneKey) -> Limit {
    let mut limit = Limit::new(name, algorithm, rule.parts);
    limit.on_missing = rule.on_missing;
    limit.allow = rule.allow;
    limit.notes = rule.notes.into_iter().map(Note::Text).collect();
    limit
}

/// Reads `10r/s` or `30r/m`.
pub(crate) fn rate(text: &str) -> Option<ZoneRate> {
    let (number, unit, seconds) = match text.strip_suffix("r/s") {
        Some(number) => (number, "s", 1),
        None => (text.strip_suffix("r/m")?, "minute", 60),
    };
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    // nginx counts in thousandths of a request each second.
    let thousandths = number.checked_mul(1000)? / seconds;
    let is_exact = thousandths * seconds == number * 1000;
    let rounded = || {
        format!(
            "nginx rounds {text} down to {}.{:03} requests a second; tidegate does not round",
            thousandths / 1000,
            thousandths % 1000
        )
    };
    Some(ZoneRate { text: format!("{number}/{unit}"), rounded: (!is_exact).then(rounded) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_nginx() {
        let texts = ["10r/s", "30r/m", "100r/m", "1r/m"].map(|text| rate(text).unwrap());
        assert_eq!(texts.each_ref().map(|rate| &*rate.text), ["10/s", "30/minute", "100/minute", "1/minute"]);
        let rounded = texts.map(|rate| rate.rounded.unwrap_or_default());
        assert_eq!([&*rounded[0], &*rounded[1]], ["", ""]);
        assert!(rounded[2].contains("1.666") && rounded[3].contains("0.016"), "{rounded:?}");
        assert!(rate("10").is_none() && rate("0r/s").is_none() && rate("1.5r/s").is_none());
    }
}
