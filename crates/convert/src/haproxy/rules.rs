//! Rules for requests: limits, refused requests, and changes of headers.

use super::actions::{Action, action};
use super::conditions::{Acls, Conjunction};
use super::criteria::Criterion;
use super::limits::HaproxyLimits;
use super::matches::{Restricted, matches, selected, widest};
use super::sections::{Section, SectionLine};
use crate::model::{TomlRoute, TomlTarget};
use crate::note::Note;

/// The status of a denial, unless the rule has another one.
const DEFAULT_STATUS: u16 = 403;
/// What happens to the requests that a rule may refuse, if its condition can't be converted.
const CONSEQUENCE: &str = "the requests that it may concern get 501 until you replace this route";

/// The rules of a section for requests.
#[derive(Default)]
pub(super) struct SectionRules {
    pub notes: Vec<Note>,
    pub limits: Vec<Restricted>,
    /// Routes for requests that are refused, or that must not be forwarded without a rule that is not converted.
    pub refused: Vec<TomlRoute>,
    pub set_headers: Vec<(String, String)>,
    pub remove_headers: Vec<String>,
    pub set_response_headers: Vec<(String, String)>,
    pub remove_response_headers: Vec<String>,
}

/// Converts rules.
pub(super) struct RuleMaker<'s> {
    pub limits: HaproxyLimits<'s>,
    /// The statuses of denials by limits, each with the first rule that has it.
    pub statuses: Vec<(u16, &'s SectionLine)>,
}

impl<'s> RuleMaker<'s> {
    /// The rules of a section.
    pub fn rules(&mut self, section: &'s Section) -> SectionRules {
        let acls = Acls::of(section);
        let mut rules = SectionRules::default();
        let mut exempt: Vec<String> = Vec::new();
        for line in &section.lines {
            match action(line) {
                Some(Action::Allow) => {
                    if let Some(networks) = exempted(&acls, line) {
                        exempt.extend(networks);
                    } else {
                        let reason = "only networks can be exempted from the rules that follow";
                        rules.notes.push(line.finding(reason));
                    }
                }
                Some(Action::Refuse { status, target, note }) => {
                    let others = self.count(section, (line, status), &exempt, &mut rules);
                    rules.notes.extend(note.filter(|_| !others.is_empty()));
                    refuse(line, &others, &target, !exempt.is_empty(), &mut rules);
                }
                Some(Action::Lost(reason)) => lose(line, reason, &acls.alternatives(line), &mut rules),
                Some(Action::Header) => header(line, &mut rules),
                None => {}
            }
        }
        rules
    }

    /// Adds the limits of a rule with this status. Returns the alternatives of its condition that compare no counter.
    fn count(
        &mut self,
        section: &'s Section,
        (line, status): (&'s SectionLine, Option<u16>),
        exempt: &[String],
        rules: &mut SectionRules,
    ) -> Vec<Conjunction> {
        let is_counted =
            |conjunction: &Conjunction| conjunction.iter().any(|term| term.criterion.is_counter());
        let all = Acls::of(section).alternatives(line);
        let (counted, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_counted);
        let status = status.unwrap_or(DEFAULT_STATUS);
        if line.begins(&["tcp-request", "connection"]) && !counted.is_empty() {
            let reason = "see `max_connections_per_client` of `[[listeners]]`";
            rules.notes.push(line.finding(reason));
            return others;
        }
        for conjunction in counted {
            match self.limits.of_rule(section, line, &conjunction, exempt) {
                Ok(limits) if limits.is_empty() => {}
                Ok(limits) => {
                    rules.limits.extend(limits);
                    if self.statuses.iter().all(|(known, _)| *known != status) {
                        self.statuses.push((status, line));
                    }
                }
                Err(note) if rules.notes.contains(&note) => {}
                Err(note) => rules.notes.push(note),
            }
        }
        others
    }
}

/// The networks that a rule admits.
fn exempted(acls: &Acls<'_>, line: &SectionLine) -> Option<Vec<String>> {
    let [terms] = &acls.condition(line).ok()?[..] else { return None };
    let [term] = &terms[..] else { return None };
    match &term.criterion {
        Criterion::Source(networks) if !term.is_negated => Some(networks.clone()),
        _ => None,
    }
}

/// Adds routes for the requests that a rule refuses.
fn refuse(
    line: &SectionLine,
    alternatives: &[Conjunction],
    target: &TomlTarget,
    has_exempt: bool,
    rules: &mut SectionRules,
) {
    if has_exempt && !alternatives.is_empty() {
        let reason = "earlier rules exempt networks from it, which routes can't do";
        return lose(line, reason, alternatives, rules);
    }
    let selections = match matches(alternatives) {
        Ok(selections) => selections,
        Err(reason) => return lose(line, &reason, alternatives, rules),
    };
    let note = Note::text(format!("{}: {}", line.place, line.words.join(" ")));
    add(selections.iter().map(|it| TomlRoute { target: target.clone(), ..selected(it) }), note, rules);
}

/// Adds routes with 501 for all requests for which a rule that is not converted may restrict access.
fn lose(line: &SectionLine, reason: &str, alternatives: &[Conjunction], rules: &mut SectionRules) {
    let selections = widest(alternatives);
    let note = line.finding(format!("{reason}: {CONSEQUENCE}"));
    add(selections.iter().map(|it| TomlRoute { target: TomlTarget::missing(), ..selected(it) }), note, rules);
}

/// Adds routes, of which the first one gets the note.
fn add(routes: impl Iterator<Item = TomlRoute>, note: Note, rules: &mut SectionRules) {
    let start = rules.refused.len();
    rules.refused.extend(routes);
    if let Some(first) = rules.refused.get_mut(start) {
        first.notes.push(note);
    }
}

/// Adds the change of a header that a rule makes.
fn header(line: &SectionLine, rules: &mut SectionRules) {
    let (name, value) = (line.word(2).to_ascii_lowercase(), line.word(3));
    let is_own =
        matches!(&*name, "x-forwarded-proto" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-port");
    if line.words.iter().any(|word| word == "if" || word == "unless") || value.contains('%') {
        // tidegate sets these itself.
        if !is_own {
            rules.notes.push(
                line.finding("headers of a route have constant values, and no conditions of their own"),
            );
        }
        return;
    }
    match (line.word(0), line.word(1)) {
        ("http-request", "set-header") if !is_own => rules.set_headers.push((name, value.to_owned())),
        ("http-request", "del-header") => rules.remove_headers.push(name),
        ("http-response", "set-header") => rules.set_response_headers.push((name, value.to_owned())),
        ("http-response", "del-header") => rules.remove_response_headers.push(name),
        _ => {}
    }
}
