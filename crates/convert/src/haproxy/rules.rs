//! Rules for requests: limits, refused requests, and changes of headers.

use super::conditions::{Acls, Conjunction};
use super::criteria::Criterion;
use super::headers::change_header;
use super::limits::HaproxyLimits;
use super::matches::{Restricted, matches, selected, widest};
use super::remarks::{is_to_https, redirects_to_https};
use super::sections::{Section, SectionLine};
use crate::model::{DenyStatus, TomlRoute, TomlTarget};
use crate::note::Note;

/// The status of a denial, unless the rule has another one.
const DEFAULT_STATUS: DenyStatus = DenyStatus::Status(403);
/// The status for a backend without servers.
const NO_SERVER: DenyStatus = DenyStatus::Status(503);
/// The consequence for requests that a rule may refuse, if its condition can't be converted.
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
    /// Networks that the rules so far admit, whatever later rules say.
    exempt: Vec<String>,
}

/// A rule that denies by counters.
pub(super) struct CountedRule<'s, 'a> {
    pub line: &'s SectionLine,
    pub status: DenyStatus,
    /// It denies if one of these holds.
    pub alternatives: &'a [Conjunction],
}

/// Converts rules.
pub(super) struct RuleMaker<'s> {
    pub limits: HaproxyLimits<'s>,
}

impl<'s> RuleMaker<'s> {
    /// The rules of a section.
    pub fn rules(&mut self, section: &'s Section) -> SectionRules {
        let acls = Acls::of(section);
        let mut rules = SectionRules::default();
        for line in &section.lines {
            match action(line) {
                Some(Action::Allow) => {
                    if let Some(networks) = exempted(&acls, line) {
                        rules.exempt.extend(networks);
                    } else {
                        let reason = "only networks can be exempted from the rules that follow";
                        rules.notes.push(line.finding(reason));
                    }
                }
                Some(Action::Refuse { status, target, note }) => {
                    let others = self.count(section, line, status, &mut rules);
                    rules.notes.extend(note.filter(|_| !others.is_empty()));
                    refuse(line, &others, &target, &mut rules);
                }
                Some(Action::Lost(reason)) => lose(line, reason, &acls.alternatives(line), &mut rules),
                Some(Action::Header) => change_header(line, &mut rules),
                None => {}
            }
        }
        rules
    }

    /// Adds the limits of a rule with this status. Returns the alternatives of its condition that compare no counter.
    fn count(
        &mut self,
        section: &'s Section,
        line: &'s SectionLine,
        status: Option<DenyStatus>,
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
        self.add_limits(section, &CountedRule { line, status, alternatives: &counted }, rules);
        others
    }

    /// Adds the limits of a rule.
    pub fn add_limits(&mut self, section: &'s Section, rule: &CountedRule<'s, '_>, rules: &mut SectionRules) {
        let CountedRule { line, status, alternatives } = *rule;
        for conjunction in alternatives {
            match self.limits.of_rule(section, line, conjunction, &rules.exempt) {
                Ok(limits) if limits.is_empty() => {
                    rules.notes.push(line.finding("no request that it denies is tracked"));
                }
                Ok(limits) => {
                    rules.notes.extend(self.limits.set_deny_status(&limits, status, line));
                    rules.limits.extend(limits);
                }
                Err(note) => {
                    // The note may be on another line. Other alternatives of the rule may be converted.
                    let own = matches!(&note, Note::Finding(it) if it.place == line.place);
                    let notes = if own {
                        vec![note.lost()]
                    } else {
                        vec![line.finding("the rule that tracks is not converted").lost(), note]
                    };
                    let is_new = |note: &Note| !rules.notes.contains(note);
                    let notes: Vec<Note> = notes.into_iter().filter(is_new).collect();
                    rules.notes.extend(notes);
                }
            }
        }
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

/// Adds routes for the requests that a rule refuses by these alternatives, if it has any.
fn refuse(line: &SectionLine, alternatives: &[Conjunction], target: &TomlTarget, rules: &mut SectionRules) {
    if alternatives.is_empty() {
        return;
    }
    if !rules.exempt.is_empty() {
        let reason = "earlier rules exempt networks from it, which routes can't do";
        return lose(line, reason, alternatives, rules);
    }
    let selections = match matches(alternatives) {
        Ok(selections) => selections,
        Err(reason) => return lose(line, &reason, alternatives, rules),
    };
    let uses = vec![line.place.clone()];
    let refused = |it: &_| TomlRoute { target: target.clone(), uses: uses.clone(), ..selected(it) };
    add(line, selections.iter().map(refused), line.origin(), rules);
}

/// Adds routes with 501 for all requests for which a rule that is not converted may restrict access.
fn lose(line: &SectionLine, reason: &str, alternatives: &[Conjunction], rules: &mut SectionRules) {
    let selections = widest(alternatives);
    let note = line.finding(format!("{reason}: {CONSEQUENCE}"));
    // No request by HTTPS is redirected to HTTPS.
    let scheme = is_to_https(line).then_some("http");
    let missing = |it: &_| TomlRoute { scheme, target: TomlTarget::missing(), ..selected(it) };
    add(line, selections.iter().map(missing), note, rules);
}

/// Adds the routes of a line, of which the first one gets the note.
fn add(line: &SectionLine, routes: impl Iterator<Item = TomlRoute>, note: Note, rules: &mut SectionRules) {
    let start = rules.refused.len();
    rules.refused.extend(routes);
    match rules.refused.get_mut(start) {
        Some(first) => first.notes.push(note),
        None => rules.notes.push(line.finding("no request meets its condition")),
    }
}

/// The status of a response, unless the rule has another one.
const DEFAULT_RESPONSE: u16 = 200;
/// Actions that are not converted although they decide about access, or about the path that servers get.
const LOST: [(&str, &str); 9] = [
    ("auth", "tidegate does not ask for passwords"),
    ("use-service", "tidegate runs no services"),
    ("set-path", OTHER_PATHS),
    ("set-pathq", OTHER_PATHS),
    ("set-uri", OTHER_PATHS),
    ("replace-path", OTHER_PATHS),
    ("replace-pathq", OTHER_PATHS),
    ("replace-uri", OTHER_PATHS),
    ("set-method", "tidegate does not change methods"),
];
const OTHER_PATHS: &str = "a rewrite of tidegate has no regular expressions: see `rewrite` of a route";
const OTHER_REDIRECTS: &str =
    "only redirects of all requests by plain HTTP to HTTPS are converted (see `redirect` of `respond`)";

/// The action of a rule.
pub(super) enum Action {
    /// It admits requests to which the rules that follow do not apply.
    Allow,
    /// It responds itself.
    Refuse {
        /// The status of the denial, if the rule has one.
        status: Option<DenyStatus>,
        target: TomlTarget,
        /// How the converted rule differs.
        note: Option<Note>,
    },
    /// It restricts access, or changes the path, in a way that tidegate can't.
    Lost(&'static str),
    /// It changes a header.
    Header,
}

/// The action of a rule; `None` for other lines, and for actions that do not matter for access.
pub(super) fn action(line: &SectionLine) -> Option<Action> {
    match (line.word(0), line.word(1)) {
        ("bind", _) => {
            let is_required = line.after("verify") == Some("required");
            let reason = "client certificates are not required yet: set `client_ca` of the listener's `tls`";
            is_required.then_some(Action::Lost(reason))
        }
        ("http-request", "allow") => Some(Action::Allow),
        ("http-request", "deny" | "tarpit" | "reject" | "silent-drop") => Some(refusal(line)),
        ("http-request", "return") => Some(response(line)),
        ("http-request" | "http-response", "set-header" | "del-header") => Some(Action::Header),
        ("http-request", "redirect") | ("redirect", _) => {
            redirects_to_https(line).is_none().then_some(Action::Lost(OTHER_REDIRECTS))
        }
        ("http-request", name) if name.starts_with("lua.") => {
            Some(Action::Lost("it may restrict access, and tidegate does not run Lua"))
        }
        ("http-request", name) => {
            let lost = LOST.iter().find(|(lost, _)| *lost == name.split('(').next().unwrap_or(""));
            lost.map(|(_, reason)| Action::Lost(reason))
        }
        ("http-response", "deny") => Some(Action::Lost("tidegate does not deny responses")),
        ("tcp-request", _)
            if line.words.iter().take(3).any(|word| matches!(&**word, "reject" | "silent-drop")) =>
        {
            Some(refusal(line))
        }
        _ => None,
    }
}

/// A refusal without a response of its own.
fn refusal(line: &SectionLine) -> Action {
    let has = |word: &str| line.words.iter().take(3).any(|other| other == word);
    if has("reject") || has("silent-drop") {
        let reason = "the client sees that its connection is closed";
        let note = has("silent-drop").then(|| line.finding(reason));
        return Action::Refuse { status: Some(DenyStatus::Close), target: TomlTarget::Close, note };
    }
    let status = line.after("deny_status").or(line.after("status")).and_then(|status| status.parse().ok());
    let target = match status {
        Some(status @ 200..=599) if status != 403 => TomlTarget::Respond { status, body: String::new() },
        _ => TomlTarget::Block,
    };
    let reason = "tidegate denies at once, and does not hold the request";
    let note = has("tarpit").then(|| line.finding(reason));
    Action::Refuse { status: status.map(DenyStatus::Status), target, note }
}

/// The response of `http-request return`.
fn response(line: &SectionLine) -> Action {
    let status = line.after("status").and_then(|status| status.parse().ok()).unwrap_or(DEFAULT_RESPONSE);
    let has = |words: &[&str]| line.words.iter().any(|word| words.contains(&&**word));
    let body = line.after("string").unwrap_or("").to_owned();
    let target = match status {
        200..=599 => TomlTarget::Respond { status, body },
        _ => TomlTarget::missing(),
    };
    let is_different = has(&["file", "lf-file", "lf-string", "errorfile", "errorfiles", "hdr"]);
    let reason = "a response of tidegate has a constant text as its body, and no headers of its own";
    let status = Some(DenyStatus::Status(status));
    Action::Refuse { status, target, note: is_different.then(|| line.finding(reason)) }
}

/// The status with which a backend denies all requests, if it does.
pub(super) fn denial(section: &Section) -> Option<DenyStatus> {
    let is_for_all = |line: &&SectionLine| !line.words.iter().any(|word| word == "if" || word == "unless");
    let refusals = section.lines.iter().filter(is_for_all).filter_map(|line| match action(line) {
        Some(Action::Refuse { status, .. }) => Some(status.unwrap_or(DEFAULT_STATUS)),
        _ => None,
    });
    let has_servers = section.find(&["server"]).next().is_some();
    let status = { refusals }.next().or((!has_servers).then_some(NO_SERVER))?;
    (!matches!(status, DenyStatus::Status(..400))).then_some(status)
}

/// Notes on the lines by which a section refuses requests, where a limit does it in their place.
pub(super) fn refusals(section: &Section) -> impl Iterator<Item = Note> {
    let refuses = |line: &&SectionLine| matches!(action(line), Some(Action::Refuse { .. }));
    section.lines.iter().filter(refuses).map(SectionLine::origin)
}

/// Whether a section has rules that refuse requests or redirect them to HTTPS, other than limits, or whether it has no servers to
/// forward them to.
pub(super) fn restricts(section: &Section) -> bool {
    let acls = Acls::of(section);
    let is_limit = |line: &SectionLine| {
        let mut alternatives = acls.alternatives(line).into_iter();
        alternatives.all(|conjunction| conjunction.iter().any(|term| term.criterion.is_counter()))
    };
    let refuses = |line: &SectionLine| match action(line) {
        Some(Action::Refuse { .. }) => !is_limit(line),
        Some(Action::Lost(_)) => true,
        Some(Action::Allow | Action::Header) | None => false,
    };
    let mut lines = section.lines.iter();
    section.find(&["server"]).next().is_none()
        || lines.any(|line| refuses(line) || redirects_to_https(line).is_some())
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use crate::{SourceFile, SourceFormat, convert, toml};

    /// The output for rules of a frontend.
    pub fn converted(rules: &str) -> String {
        let text = format!(
            "defaults\n mode http\nfrontend f\n bind :80\n{rules} default_backend a\nbackend a\n server a 10.0.0.1:80\n"
        );
        let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
        toml(&convert(SourceFormat::Haproxy, &[file]).unwrap(), "")
    }

    #[test]
    fn requests_of_other_redirects_get_501() {
        let missing = |start: &str| {
            format!("{start}\nrespond = {{ status = 501, body = \"This route was not converted.\\n\" }}")
        };
        for (rule, start) in [
            (
                "redirect location /login if !{ req.cook(s) -m found }",
                "path = \"/*\"\ncookies = { s = false }",
            ),
            ("http-request redirect code 302 prefix https://x if { path_beg /adm }", "path = \"/adm*\""),
            ("redirect scheme https if { path_beg /adm } !{ ssl_fc }", "scheme = \"http\"\npath = \"/adm*\""),
            ("redirect location /login if !ok", "path = \"/*\""),
        ] {
            let toml = converted(&format!(" {rule}\n"));
            assert!(toml.contains(&missing(start)) && toml.contains("NOT CONVERTED"), "{rule}: {toml}");
        }
    }
}
