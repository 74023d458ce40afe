//! Stick tables, and the rules that deny by their counters, as limits.

use super::conditions::{Acls, Conjunction};
use super::criteria::{Criterion, StickCounter, Term, without_converters};
use super::matches::{Restricted, Selected, both, matches};
use super::sections::{Section, SectionLine};
use crate::model::{DenyStatus, Limit, TomlAlgorithm, UniqueNames};
use crate::note::Note;

/// Parts of a window: as exact as counters can be, at 8 bytes each.
const BUCKETS: u64 = 10;
/// The most requests in flight that a limit can have.
const MOST_IN_FLIGHT: u64 = 10_000;
/// The statuses that `HAProxy` counts as errors of clients.
const ERRORS: [u16; 18] =
    [400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 422, 429];

/// The limits that were made so far.
pub(super) struct HaproxyLimits<'s> {
    sections: &'s [Section],
    names: UniqueNames,
    /// The identity of each limit, in the order of `all`.
    made: Vec<RuleIdentity>,
    pub all: Vec<Limit>,
}

/// The identity of a limit: rules that are equal in it become one limit.
#[derive(PartialEq, Eq)]
struct RuleIdentity {
    /// The name of the counter: an error rate counts other requests than a request rate.
    counter: String,
    table: String,
    algorithm: TomlAlgorithm,
    key: String,
    allow: Vec<String>,
}

/// A rule that tracks a key in a stick table.
struct Track<'s> {
    line: &'s SectionLine,
    slot: u8,
    key: &'s str,
    table: &'s str,
    alternatives: Result<Vec<Conjunction>, String>,
}

/// A rule that denies while a counter exceeds a number.
struct CounterRule<'a> {
    counter: &'a StickCounter,
    most: u64,
    /// The line of the rule.
    deny: &'a SectionLine,
    /// Whether it also denies requests that are not tracked.
    is_narrowed: bool,
}

impl<'s> HaproxyLimits<'s> {
    pub fn new(sections: &'s [Section]) -> Self {
        Self { sections, names: UniqueNames::default(), made: Vec::new(), all: Vec::new() }
    }

    /// The limits of a rule that denies if all of these tests hold, of which one or more compare counters. `exempt` are
    /// networks that earlier rules admit.
    pub fn of_rule(
        &mut self,
        section: &'s Section,
        deny: &'s SectionLine,
        conjunction: &Conjunction,
        exempt: &[String],
    ) -> Result<Vec<Restricted>, Note> {
        let fail = |reason: String| deny.finding(reason);
        for term in conjunction {
            if let Criterion::Other(it) = &term.criterion {
                return Err(fail(it.reason.clone()));
            }
        }
        let (counters, others): (Vec<_>, Vec<_>) =
            conjunction.iter().partition(|term| term.criterion.is_counter());
        let [Term { is_negated: false, criterion: Criterion::Counter(counter, number) }] = counters[..]
        else {
            return Err(fail("a limit has one counter, and denies what exceeds it".to_owned()));
        };
        let mut scope = LimitScope { allow: exempt.to_vec(), ..LimitScope::default() };
        scope.add(&others.into_iter().cloned().collect::<Vec<_>>()).map_err(fail)?;
        let mut restricted = Vec::new();
        for track in self.tracks(section, counter).map_err(fail)? {
            let wanted = scope.only.clone();
            let mut scope = scope.clone();
            if !scope.track(&track).map_err(|reason| track.line.finding(reason))? {
                continue;
            }
            // A lookup before the request is tracked does not count it yet.
            let is_earlier = counter.slot.is_none()
                && track.line.word(0) == deny.word(0)
                && section.lines.iter().position(|line| line.place == deny.place)
                    < section.lines.iter().position(|line| line.place == track.line.place);
            let most = number.saturating_add(u64::from(is_earlier));
            let is_narrowed = counter.slot.is_none() && scope.only != wanted;
            let name = self.limit(&track, &CounterRule { counter, most, deny, is_narrowed }, &scope)?;
            let line = Some(deny.clone());
            restricted.push(Restricted { name, only: scope.only, except: scope.except, line });
        }
        Ok(restricted)
    }

    /// Sets the status of the denials of these limits by a rule. Returns notes on limits that have another one by an earlier rule.
    pub fn set_deny_status(
        &mut self,
        limits: &[Restricted],
        status: DenyStatus,
        line: &SectionLine,
    ) -> Vec<Note> {
        if let DenyStatus::Status(..400) = status {
            return vec![line.finding("a denial has a status from 400 to 599")];
        }
        let mut notes = Vec::new();
        for limit in self.all.iter_mut().filter(|it| limits.iter().any(|one| one.name == it.name)) {
            if *limit.deny_status.get_or_insert(status) != status {
                let reason = format!("the limit `{}` has another status by an earlier rule", limit.name);
                notes.push(line.finding(reason));
            }
        }
        notes
    }

    /// The rules that track the keys of a counter.
    fn tracks(&self, section: &'s Section, counter: &StickCounter) -> Result<Vec<Track<'s>>, String> {
        // A backend's rules may use what its frontend tracks.
        let frontends = self
            .sections
            .iter()
            .filter(|other| section.kind() == "backend" && matches!(other.kind(), "frontend" | "listen"));
        let all = std::iter::once(section).chain(frontends);
        let all = all.flat_map(tracks);
        let Some(slot) = counter.slot else {
            // A lookup of the address of the client, whichever rule tracks it.
            let table = counter.table.as_deref().unwrap_or(section.name());
            let found: Vec<Track<'_>> = all.filter(|it| it.table == table && it.key == "src").collect();
            let missing = || format!("no rule here tracks `src` in the table `{table}`");
            return if found.is_empty() { Err(missing()) } else { Ok(found) };
        };
        let found: Vec<Track<'_>> = all.filter(|it| it.slot == slot).collect();
        if found.is_empty() { Err(format!("no rule tracks sc{slot}")) } else { Ok(found) }
    }

    /// The limit of a counter, which is made if it is new.
    fn limit(
        &mut self,
        track: &Track<'_>,
        rule: &CounterRule<'_>,
        scope: &LimitScope,
    ) -> Result<String, Note> {
        let CounterRule { counter, most, deny, is_narrowed } = *rule;
        let table = counter.table.as_deref().unwrap_or(track.table);
        let missing = || deny.finding(format!("the section `{table}` has no stick-table"));
        let section = self.sections.iter().find(|section| section.name() == table).ok_or_else(missing)?;
        let line = section.find(&["stick-table"]).next().ok_or_else(missing)?;
        let (algorithm, charge_on) = algorithm(counter, most, line).map_err(|reason| deny.finding(reason))?;
        let (key, on_missing) = key(track.key).map_err(|reason| track.line.finding(reason))?;
        let (table, allow) = (table.to_owned(), scope.allow.clone());
        let made = RuleIdentity {
            counter: counter.name.clone(),
            table,
            algorithm: algorithm.clone(),
            key: key.clone(),
            allow,
        };
        let known = self.made.iter().position(|known| *known == made);
        if let Some(index) = known {
            self.all[index].uses.push(deny.place.clone());
            return Ok(self.all[index].name.clone());
        }
        let mut limit = Limit::new(self.names.unique(&made.table), algorithm, vec![key]);
        limit.notes = [line, track.line, deny].map(SectionLine::origin).to_vec();
        limit.notes.extend(differences(counter).map(Note::text));
        if counter.name == "http_req_cnt" {
            let reason = "HAProxy counts until no request has come for the `expire` of the table; the limit counts those of the last such \
                          period";
            limit.notes.push(deny.finding(reason));
        }
        if is_narrowed {
            let reason =
                "HAProxy also denies requests that it does not track; the limit is for those that it tracks";
            limit.notes.push(deny.finding(reason));
        }
        (limit.on_missing, limit.charge_on) = (on_missing, charge_on);
        limit.allow.clone_from(&scope.allow);
        let name = limit.name.clone();
        self.all.push(limit);
        self.made.push(made);
        Ok(name)
    }
}

/// The rules of a section that track keys.
fn tracks(section: &Section) -> impl Iterator<Item = Track<'_>> {
    section.lines.iter().filter_map(move |line| {
        let word = line.words.iter().position(|word| word.starts_with("track-sc"))?;
        let slot = line.word(word).strip_prefix("track-sc")?.parse().ok()?;
        let table = line.after("table").unwrap_or(section.name());
        let alternatives = Acls::of(section).condition(line);
        Some(Track { line, slot, key: line.word(word + 1), table, alternatives })
    })
}

/// The requests that a limit applies to.
#[derive(Clone, Debug, Default)]
struct LimitScope {
    allow: Vec<String>,
    only: Vec<Selected>,
    except: Vec<Selected>,
}

impl LimitScope {
    /// Adds tests that must all hold.
    fn add(&mut self, terms: &[Term]) -> Result<(), String> {
        let mut positive = Vec::new();
        for term in terms {
            match (&term.criterion, term.is_negated) {
                (Criterion::Source(networks), true) => self.allow.extend(networks.iter().cloned()),
                (Criterion::Source(_), false) => {
                    return Err("a limit can exempt networks, but not apply to some of them only".to_owned());
                }
                (Criterion::Path(_) | Criterion::Host(_) | Criterion::Method(_), true) => {
                    let opposite = Term { is_negated: false, criterion: term.criterion.clone() };
                    self.except.extend(matches(&[vec![opposite]])?);
                }
                _ => positive.push(term.clone()),
            }
        }
        if !positive.is_empty() {
            self.only = matches(&[positive])?;
        }
        Ok(())
    }

    /// Adds the condition of the rule that tracks. Whether there are requests for which both conditions hold.
    fn track(&mut self, track: &Track<'_>) -> Result<bool, String> {
        let alternatives = track.alternatives.clone()?;
        match &alternatives[..] {
            [terms] if terms.is_empty() => return Ok(true),
            [terms] if self.only.is_empty() => self.add(terms)?,
            _ if self.only.is_empty() => self.only = matches(&alternatives)?,
            _ => {
                let tracked = matches(&alternatives)?;
                let pairs = self.only.iter().flat_map(|only| tracked.iter().map(move |other| (only, other)));
                let common = pairs.filter_map(|(only, other)| both(only, other).transpose());
                self.only = common.collect::<Result<_, _>>()?;
                return Ok(!self.only.is_empty());
            }
        }
        Ok(true)
    }
}

/// The algorithm of a counter that may be at most this number, and the statuses that it counts.
fn algorithm(
    counter: &StickCounter,
    number: u64,
    table: &SectionLine,
) -> Result<(TomlAlgorithm, Vec<u16>), String> {
    let stores = table.words.windows(2).filter(|pair| pair[0] == "store").map(|pair| &*pair[1]);
    let stores = stores.collect::<Vec<_>>().join(",");
    let period = stores.split(',').map(str::trim).find_map(|stored| {
        let (name, period) = stored.split_once('(').unwrap_or((stored, ""));
        (name == counter.name).then(|| period.trim_end_matches(')'))
    });
    let period = period.ok_or_else(|| format!("its table does not store `{}`", counter.name))?;
    let window = |units: u64| {
        let period = period_of(period).ok_or_else(|| format!("`{period}` is no period"))?;
        if units == 0 {
            return Err("it denies every request".to_owned());
        }
        Ok(TomlAlgorithm::SlidingWindow { rate: format!("{units}/{period}"), buckets: BUCKETS })
    };
    match &*counter.name {
        "http_req_rate" => Ok((window(number)?, Vec::new())),
        "http_req_cnt" => {
            let expire = table.after("expire").and_then(period_of);
            let period = expire.ok_or("its table has no `expire`: the count never ends")?;
            let rate = format!("{number}/{period}");
            Ok((TomlAlgorithm::SlidingWindow { rate, buckets: BUCKETS }, Vec::new()))
        }
        // HAProxy compares before it knows the status: one more error is admitted.
        "http_err_rate" => Ok((window(number.saturating_add(1))?, ERRORS.to_vec())),
        "conn_cur" if (1..=MOST_IN_FLIGHT).contains(&number) => {
            Ok((TomlAlgorithm::Concurrency { max_in_flight: number }, Vec::new()))
        }
        "conn_cur" => Err(format!("max_in_flight is a number from 1 to {MOST_IN_FLIGHT}")),
        "conn_rate" => {
            Err("tidegate limits requests, not new connections; see `max_connections_per_client`".to_owned())
        }
        name => Err(format!("a limit has no counterpart of `{name}`")),
    }
}

/// A period of `HAProxy`, which is in milliseconds unless it has a unit.
fn period_of(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    let unit = match &text[digits.len()..] {
        "" | "ms" => "ms",
        unit @ ("s" | "m" | "h" | "d") => unit,
        _ => return None,
    };
    // A day without a number would be one of the calendar.
    Some(format!("{number}{unit}"))
}

/// The key part of a sample.
fn key(sample: &str) -> Result<(String, Option<&'static str>), String> {
    let (fetch, converters) = without_converters(sample);
    if !matches!(converters, "" | "lower") {
        return Err(format!("keys have no counterpart of the converter `{converters}`"));
    }
    let (name, argument) = match fetch.split_once('(') {
        Some((name, argument)) => (name, argument.trim_end_matches(')').split(',').next().unwrap_or("")),
        None => (fetch, ""),
    };
    let skip = Some("skip");
    match name {
        "src" => Ok(("client_ip".to_owned(), None)),
        "path" => Ok(("path".to_owned(), None)),
        "method" => Ok(("method".to_owned(), None)),
        "int" | "str" | "always_true" | "fe_id" | "fe_name" | "be_id" | "be_name" => {
            Ok(("global".to_owned(), None))
        }
        "hdr" | "req.hdr" | "req.fhdr" | "req.hdr_ip" | "hdr_ip" => match &*argument.to_ascii_lowercase() {
            "host" => Ok(("host".to_owned(), skip)),
            "x-forwarded-for" => {
                Err("set `trusted_proxies` of `[client_ip]`, and use the key `client_ip`".to_owned())
            }
            header => Ok((format!("header:{header}"), skip)),
        },
        "url_param" | "urlp" => Ok((format!("query:{argument}"), skip)),
        "req.cook" | "cook" => Ok((format!("cookie:{argument}"), skip)),
        _ => Err(format!("keys have no counterpart of `{sample}`")),
    }
}

/// How the decisions differ from those of `HAProxy`.
fn differences(counter: &StickCounter) -> Option<&'static str> {
    match &*counter.name {
        "http_req_rate" => Some(
            "HAProxy counts denied requests as well: a client that goes on gets nothing until it pauses. In tidegate a denied \
             request costs nothing. For the same effect add a ban.",
        ),
        "http_err_rate" => Some("In flight a request counts as an error until its status is known."),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units() {
        let cases =
            [("10s", Some("10s")), ("500", Some("500ms")), ("1d", Some("1d")), ("0", None), ("1w", None)];
        for (text, expected) in cases {
            assert_eq!(period_of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn samples_are_key_parts() {
        let cases = [
            ("src", Some("client_ip")),
            ("hdr(X-API-Key)", Some("header:x-api-key")),
            ("req.hdr(authorization),lower", Some("header:authorization")),
            ("url_param(token)", Some("query:token")),
            ("base32+src", None),
            ("src,ipmask(24)", None),
        ];
        for (sample, expected) in cases {
            assert_eq!(key(sample).ok().map(|(key, _)| key).as_deref(), expected, "{sample}");
        }
    }
}
