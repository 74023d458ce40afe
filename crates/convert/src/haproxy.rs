//! Converts configurations of `HAProxy`.

mod backends;
mod conditions;
mod criteria;
mod headers;
mod limits;
mod listeners;
mod matches;
mod remarks;
mod restrictions;
mod rules;
mod sections;

use std::collections::HashSet;
use std::path::Path;

use self::backends::Backends;
use self::conditions::{Acls, Conjunction, convertible};
use self::limits::HaproxyLimits;
use self::listeners::{Frontend, add_frontends, limit_process, listen};
use self::matches::{
    Restricted, Selected, limited, matches, narrowed, selected, widest, without_repetitions,
};
use self::remarks::{redirects_to_https, remark, remark_in};
use self::restrictions::restrictions;
use self::rules::{CountedRule, RuleMaker, SectionRules, action, denial, refusals, restricts};
use self::sections::{Section, SectionLine, inherit, is_inherited};
use super::model::{Converted, TomlRoute, TomlTarget};
use super::note::{FileLine, Note, SyntaxError};
use super::source::SourceFile;

/// The state of the conversion of sections.
struct HaproxyConverter<'s> {
    sections: &'s [Section],
    rules: RuleMaker<'s>,
    backends: Backends,
    /// The names of backends that get requests.
    used: HashSet<&'s str>,
}

/// Requests that the servers of a section get.
struct BackendUse<'a> {
    section: &'a Section,
    /// The line that says so.
    line: &'a SectionLine,
    /// The conditions of that line.
    selection: &'a Selected,
}

/// Converts files, which are one configuration together. Files that they name are relative to the directory of the first one.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let directory = files.first().map_or(Path::new(""), |file| file.directory);
    let mut sections: Vec<Section> = Vec::new();
    for (order, file) in files.iter().enumerate() {
        sections.extend(self::sections::sections(order, file)?);
    }
    let mut converted = Converted { restrictions: restrictions(&sections), ..Converted::default() };
    inherit(&mut sections);
    let rules = RuleMaker { limits: HaproxyLimits::new(&sections) };
    let backends = Backends::default();
    let mut maker = HaproxyConverter { sections: &sections, rules, backends, used: HashSet::new() };
    let mut frontends: Vec<Frontend<'_>> = Vec::new();
    for section in &sections {
        match section.kind() {
            "global" => converted.notes.extend(section.lines.iter().filter_map(remarks::of_process)),
            "defaults" => converted.notes.extend(of_defaults(section, &sections)),
            _ if section.find(&["mode"]).last().is_some_and(|line| line.word(1) == "tcp") => {
                converted.notes.push(section.header.finding("tidegate forwards HTTP only").of_block());
            }
            "frontend" | "listen" => {
                let (routes, notes) = maker.frontend(section);
                converted.notes.extend(notes);
                let addresses = listen(section, directory, &mut converted);
                frontends.push(Frontend { section, addresses, routes });
            }
            "backend" => {}
            _ => converted.notes.push(section.header.finding("tidegate has no counterpart").of_block()),
        }
    }
    add_frontends(frontends, &mut converted);
    limit_process(&sections, &mut converted);
    converted.notes.extend(maker.unused());
    let (routes, notes) = without_repetitions(std::mem::take(&mut converted.routes));
    converted.routes = routes;
    converted.notes.extend(notes);
    converted.limits = maker.rules.limits.all;
    converted.note_deny_statuses("HAProxy");
    converted.upstreams = maker.backends.upstreams;
    converted.count_each_ipv6_address("HAProxy counts each IPv6 address by itself");
    Ok(converted)
}

/// Notes on the lines of a `defaults` section that no other section has.
fn of_defaults(section: &Section, sections: &[Section]) -> Vec<Note> {
    let heirs = || sections.iter().filter(|other| other.kind() != "defaults");
    let is_lost =
        |line: &SectionLine| !heirs().flat_map(|other| &other.lines).any(|other| other.place == line.place);
    let note = |line: &SectionLine| {
        if is_inherited(line) {
            is_lost(line).then(|| line.finding("no section inherits it"))
        } else {
            remark(line)
        }
    };
    section.lines.iter().filter_map(note).collect()
}

impl<'s> HaproxyConverter<'s> {
    /// Notes on the backends that get no requests.
    fn unused(&self) -> Vec<Note> {
        let backends = self.sections.iter().filter(|section| section.kind() == "backend");
        let unused = backends.filter(|section| !self.used.contains(section.name()));
        // A backend may have nothing but a table.
        let has_more = |section: &&Section| {
            let own = |line: &&SectionLine| line.place > section.header.place;
            let mut lines = section.lines.iter().filter(own);
            lines.any(|line| line.word(0) == "server" || action(line).is_some())
        };
        let reason = "no route that was converted goes to this backend";
        let is_named = |section: &Section| {
            let mut lines = self.sections.iter().flat_map(|other| &other.lines);
            lines.any(|line| {
                matches!(line.word(0), "use_backend" | "default_backend") && line.word(1) == section.name()
            })
        };
        let note = |section: &Section| {
            let note = section.header.finding(reason).of_block();
            if is_named(section) { note } else { note.for_information() }
        };
        unused.filter(has_more).map(note).collect()
    }

    /// The routes of a section with listeners; its notes, if it has no routes.
    fn frontend(&mut self, section: &'s Section) -> (Vec<TomlRoute>, Vec<Note>) {
        let mut own = self.rules.rules(section);
        let mut routes = own.refused.clone();
        routes.extend(https_redirects(section, &Selected::default()));
        // The connections of listeners are limited where these are converted.
        let is_of_listener =
            |line: &SectionLine| line.word(0) == "maxconn" || line.begins(&["timeout", "tunnel"]);
        let lines = section.lines.iter().filter(|line| !is_of_listener(line));
        let mut notes: Vec<Note> =
            lines.filter_map(|line| remark_in(section, line)).chain(own.notes.iter().cloned()).collect();
        for line in section.find(&["use_backend"]) {
            let alternatives = self.counted(section, line, &mut own, &mut notes);
            if alternatives.is_empty() {
                continue;
            }
            match convertible(&alternatives).and_then(|()| matches(&alternatives)) {
                Ok(selections) => {
                    for selection in &selections {
                        let found = self.backend(line, selection, &own);
                        add_routes(&mut routes, found);
                    }
                }
                Err(reason) if self.backend_restricts(line) => {
                    let reason = format!(
                        "{reason}: the backend restricts access, so the requests that it may get are answered with 501 until you replace \
                         this route"
                    );
                    let refused = |it: &Selected| TomlRoute {
                        notes: vec![line.finding(reason.clone())],
                        target: TomlTarget::missing(),
                        ..selected(it)
                    };
                    add_routes(&mut routes, widest(&alternatives).iter().map(refused).collect());
                }
                Err(reason) => notes.push(line.finding(reason)),
            }
        }
        let last = section.find(&["default_backend"]).last();
        if let Some(line) = last {
            let found = self.backend(line, &Selected::default(), &own);
            add_routes(&mut routes, found);
        } else if section.find(&["server"]).next().is_some() {
            let target = BackendUse { section, line: &section.header, selection: &Selected::default() };
            let found = self.forward(&target, &own, None);
            add_routes(&mut routes, found);
        }
        if let Some(first) = routes.first_mut() {
            first.notes.splice(0..0, notes.drain(..));
        }
        (routes, notes)
    }

    /// Adds limits for the alternatives of a `use_backend` that compare counters, if the backend denies all requests. Returns the
    /// other alternatives.
    fn counted(
        &mut self,
        section: &'s Section,
        line: &'s SectionLine,
        own: &mut SectionRules,
        notes: &mut Vec<Note>,
    ) -> Vec<Conjunction> {
        let is_counted =
            |conjunction: &Conjunction| conjunction.iter().any(|term| term.criterion.is_counter());
        let all = Acls::of(section).alternatives(line);
        let (counted, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_counted);
        if counted.is_empty() {
            return others;
        }
        let backend = self.backend_section(line);
        if let Some((backend, status)) = backend.and_then(|it| Some((it, denial(it)?))) {
            self.used.insert(backend.name());
            let before = own.limits.len();
            self.rules.add_limits(section, &CountedRule { line, status, alternatives: &counted }, own);
            notes.extend(own.notes.iter().filter(|note| !notes.contains(note)).cloned().collect::<Vec<_>>());
            let is_converted = own.limits.len() > before;
            notes.extend(refusals(backend).filter(|_| is_converted));
        } else {
            let reason = "a limit denies requests, and sends them to no other servers: they get those of the rules that follow";
            notes.push(line.finding(reason));
        }
        others
    }

    /// The section of the backend that a line names.
    fn backend_section(&self, line: &SectionLine) -> Option<&'s Section> {
        let is_backend = |section: &&Section| matches!(section.kind(), "backend" | "listen");
        self.sections.iter().filter(is_backend).find(|section| section.name() == line.word(1))
    }

    /// Whether the backend that a line names may refuse requests.
    fn backend_restricts(&self, line: &SectionLine) -> bool {
        self.backend_section(line).is_none_or(restricts)
    }

    /// The routes to the backend that a line names.
    fn backend(&mut self, line: &'s SectionLine, selection: &Selected, own: &SectionRules) -> Vec<TomlRoute> {
        let Some(section) = self.backend_section(line) else {
            let notes = vec![line.finding("there is no section for this backend: requests get 501")];
            return vec![TomlRoute { notes, target: TomlTarget::missing(), ..selected(selection) }];
        };
        self.used.insert(section.name());
        let rules = self.rules.rules(section);
        self.forward(&BackendUse { section, line, selection }, own, Some(&rules))
    }

    /// The routes of requests that a section's servers get. The rules of the frontend are `own`, those
    /// of another section `rules`.
    fn forward(
        &mut self,
        target: &BackendUse<'_>,
        own: &SectionRules,
        rules: Option<&SectionRules>,
    ) -> Vec<TomlRoute> {
        let BackendUse { section, line, selection } = *target;
        let mut route = selected(selection);
        route.notes.push(line.origin());
        if let Some(rules) = rules {
            route.notes.extend(section.lines.iter().filter_map(|line| remark_in(section, line)));
            route.notes.extend(rules.notes.iter().cloned());
        }
        route.target = if let Some(name) = self.backends.name(section) {
            TomlTarget::Upstream(name)
        } else {
            let reason = "none of its servers can be converted: requests get 501";
            route.notes.push(section.header.finding(reason).of_block());
            TomlTarget::missing()
        };
        for of in [Some(own), rules].into_iter().flatten() {
            route.set_headers.extend(of.set_headers.iter().cloned());
            route.remove_headers.extend(of.remove_headers.iter().cloned());
            route.set_response_headers.extend(of.set_response_headers.iter().cloned());
            route.remove_response_headers.extend(of.remove_response_headers.iter().cloned());
        }
        let mut refused = rules.map_or(Vec::new(), |rules| narrow_refusals(rules, target));
        route.notes.extend(rules.map_or(Vec::new(), |rules| without_requests(rules, &refused)));
        refused.extend(rules.into_iter().flat_map(|_| https_redirects(section, selection)));
        let limits: Vec<&Restricted> =
            own.limits.iter().chain(rules.map_or(&[][..], |rules| &rules.limits)).collect();
        refused.into_iter().chain(limited(route, &limits)).collect()
    }
}

/// The routes that send the plain HTTP requests of a selection to HTTPS, as lines of a section do.
fn https_redirects(section: &Section, selection: &Selected) -> Vec<TomlRoute> {
    let route = |line: &SectionLine| {
        let location = "https://{host}{path_and_query}".to_owned();
        Some(TomlRoute {
            notes: vec![line.origin()],
            scheme: Some("http"),
            target: TomlTarget::Redirect { status: redirects_to_https(line)?, location },
            ..selected(selection)
        })
    };
    section.lines.iter().filter_map(route).collect()
}

/// The routes of the requests that a backend gets and refuses.
fn narrow_refusals(rules: &SectionRules, target: &BackendUse<'_>) -> Vec<TomlRoute> {
    let BackendUse { section, line, selection } = *target;
    let narrow = |refused: &TomlRoute| {
        narrowed(refused, selection).unwrap_or_else(|reason| {
            let reason = format!(
                "{reason}: it can't be combined with a rule of backend {} that refuses requests: requests get 501",
                section.name()
            );
            let refusals = refused.notes.iter().filter_map(|note| match note {
                Note::Origin(place, text) => Some(Note::finding(place, text, reason.clone())),
                _ => None,
            });
            let notes = [line.finding(reason.clone())].into_iter().chain(refusals).collect();
            Some(TomlRoute { notes, target: TomlTarget::missing(), ..selected(selection) })
        })
    };
    rules.refused.iter().filter_map(narrow).collect()
}

/// Notes on the rules that refuse none of the requests that a backend gets.
fn without_requests(rules: &SectionRules, refused: &[TomlRoute]) -> Vec<Note> {
    let is_known = |place: &FileLine| {
        let has = |note: &Note| matches!(note, Note::Finding(finding) if finding.place == *place);
        refused.iter().any(|route| route.uses.contains(place) || route.notes.iter().any(has))
    };
    let reason = "no request that its backend gets here meets its condition";
    let notes = rules.refused.iter().flat_map(|route| &route.notes).filter_map(|note| match note {
        Note::Origin(place, text) if !is_known(place) => Some(Note::finding(place, text, reason)),
        Note::Finding(finding) if !is_known(&finding.place) => Some(note.clone()),
        _ => None,
    });
    notes.collect()
}

/// Adds routes, without the notes that earlier routes have already.
fn add_routes(routes: &mut Vec<TomlRoute>, added: Vec<TomlRoute>) {
    for mut route in added {
        route.notes.retain(|note| !routes.iter().any(|earlier| earlier.notes.contains(note)));
        routes.push(route);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{SourceFile, SourceFormat, convert};

    /// The scheme, the path and the target of each route.
    fn routes(text: &str) -> Vec<String> {
        let text = format!("defaults\n mode http\n{text}");
        let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
        let converted = convert(SourceFormat::Haproxy, &[file]).unwrap();
        let shown = converted.routes.iter().map(|it| {
            let target = format!("{:?}", it.target);
            let target = target.split(['"', ',', '}']).next().unwrap_or("").trim_end_matches('(').to_owned();
            format!("{} {} {target}", it.scheme.unwrap_or("any"), it.path)
        });
        shown.collect()
    }

    #[test]
    fn backends_send_their_own_requests_to_https() {
        let text = "frontend f\n bind :80\n use_backend a if { path_beg /a }\n default_backend b\n\
                    backend a\n http-request redirect scheme https unless { ssl_fc }\n server a 10.0.0.1:80\n\
                    backend b\n redirect scheme https code 301 if !{ ssl_fc }\n server b 10.0.0.2:80\n";
        assert_eq!(
            routes(text),
            [
                "http /a* Redirect { status: 302",
                "any /a* Upstream",
                "http /* Redirect { status: 301",
                "any /* Upstream"
            ]
        );
    }
}
