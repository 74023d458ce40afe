//! Converts configurations of `HAProxy`.

mod backends;
mod conditions;
mod criteria;
mod limits;
mod matches;
mod remarks;
mod rules;
mod sections;

use std::fs::File;
use std::path::Path;

use self::backends::Backends;
use self::conditions::Acls;
use self::limits::HaproxyLimits;
use self::matches::{
    Restricted, Selected, limited, matches, narrowed, selected, widest, without_repetitions,
};
use self::remarks::remark;
use self::rules::{RuleMaker, SectionRules, restricts};
use self::sections::{Section, SectionLine, inherit, is_inherited, sections};
use super::model::{Converted, TomlDenied, TomlListener, TomlRoute, TomlTarget};
use super::note::{Note, SyntaxError};

/// The consequence of a second section with listeners, which applies to all of them.
const ALL_LISTENERS: &str = "ACCESS IS OPEN on all listeners: they all serve the routes of all sections, those of earlier sections first. \
                             Serve sections that only some clients may reach by another process";

/// The state of the conversion of sections.
struct HaproxyConverter<'s> {
    sections: &'s [Section],
    rules: RuleMaker<'s>,
    backends: Backends,
}

/// Requests that the servers of a section get.
struct BackendUse<'a> {
    section: &'a Section,
    /// The line that says so.
    line: &'a SectionLine,
    /// The conditions of that line.
    selection: &'a Selected,
}

/// Converts a file with this name and text. Files that it names are relative to `directory`.
pub(super) fn convert(file: &str, text: &str, directory: &Path) -> Result<Converted, SyntaxError> {
    let mut sections = sections(file, text)?;
    inherit(&mut sections);
    let mut converted = Converted::default();
    let rules = RuleMaker { limits: HaproxyLimits::new(&sections), statuses: Vec::new() };
    let mut maker = HaproxyConverter { sections: &sections, rules, backends: Backends::default() };
    let mut frontends = 0;
    for section in &sections {
        match section.kind() {
            "global" => {}
            "defaults" => {
                let lines = section.lines.iter().filter(|line| !is_inherited(line));
                converted.notes.extend(lines.filter_map(remark));
            }
            _ if section.find(&["mode"]).last().is_some_and(|line| line.word(1) == "tcp") => {
                converted.notes.push(section.header.finding("tidegate forwards HTTP only"));
            }
            "frontend" | "listen" => {
                let (routes, notes) = maker.frontend(section);
                converted.notes.extend(notes);
                frontends += usize::from(!routes.is_empty());
                if frontends > 1 && !routes.is_empty() {
                    converted.notes.push(section.header.finding(ALL_LISTENERS));
                }
                listen(section, directory, &mut converted);
                converted.routes.extend(routes);
            }
            "backend" => {}
            _ => converted.notes.push(section.header.finding("tidegate has no counterpart")),
        }
    }
    let (routes, notes) = without_repetitions(std::mem::take(&mut converted.routes));
    converted.routes = routes;
    converted.notes.extend(notes);
    converted.denied = TomlDenied::new("HAProxy", &maker.rules.statuses, &mut converted.notes);
    converted.limits = maker.rules.limits.all;
    converted.upstreams = maker.backends.upstreams;
    converted.count_each_ipv6_address("HAProxy counts each IPv6 address by itself");
    Ok(converted)
}

impl<'s> HaproxyConverter<'s> {
    /// The routes of a section with listeners; its notes, if it has no routes.
    fn frontend(&mut self, section: &'s Section) -> (Vec<TomlRoute>, Vec<Note>) {
        let own = self.rules.rules(section);
        let acls = Acls::of(section);
        let mut routes = own.refused.clone();
        let mut notes: Vec<Note> =
            section.lines.iter().filter_map(remark).chain(own.notes.iter().cloned()).collect();
        for line in section.find(&["use_backend"]) {
            match acls.condition(line).and_then(|alternatives| matches(&alternatives)) {
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
                    add_routes(&mut routes, widest(&acls.alternatives(line)).iter().map(refused).collect());
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
        route.notes.push(Note::text(format!("{}: {}", line.place, line.words.join(" "))));
        if let Some(rules) = rules {
            route.notes.extend(section.lines.iter().filter_map(remark).chain(rules.notes.iter().cloned()));
        }
        route.target = if let Some(name) = self.backends.name(section) {
            TomlTarget::Upstream(name)
        } else {
            let reason = "none of its servers can be converted: requests get 501";
            route.notes.push(section.header.finding(reason));
            TomlTarget::missing()
        };
        for of in [Some(own), rules].into_iter().flatten() {
            route.set_headers.extend(of.set_headers.iter().cloned());
            route.remove_headers.extend(of.remove_headers.iter().cloned());
            route.set_response_headers.extend(of.set_response_headers.iter().cloned());
            route.remove_response_headers.extend(of.remove_response_headers.iter().cloned());
        }
        let refused = rules.map_or(&[][..], |rules| &rules.refused).iter().filter_map(|refused| {
            narrowed(refused, selection).unwrap_or_else(|reason| {
                let reason = format!(
                    "{reason}: it can't be combined with a rule of backend {} that refuses requests: requests get 501",
                    section.name()
                );
                let notes = vec![line.finding(reason)];
                Some(TomlRoute { notes, target: TomlTarget::missing(), ..selected(selection) })
            })
        });
        let refused: Vec<TomlRoute> = refused.collect();
        let limits: Vec<&Restricted> =
            own.limits.iter().chain(rules.map_or(&[][..], |rules| &rules.limits)).collect();
        refused.into_iter().chain(limited(route, &limits)).collect()
    }
}

/// Adds routes, without the notes that earlier routes have already.
fn add_routes(routes: &mut Vec<TomlRoute>, added: Vec<TomlRoute>) {
    for mut route in added {
        route.notes.retain(|note| !routes.iter().any(|earlier| earlier.notes.contains(note)));
        routes.push(route);
    }
}

/// Adds the listeners of a section.
fn listen(section: &Section, directory: &Path, converted: &mut Converted) {
    for line in section.find(&["bind"]) {
        for address in line.word(1).split(',') {
            let address = match address.rsplit_once(':') {
                Some(("" | "*", port)) => format!("0.0.0.0:{port}"),
                Some(("::", port)) => format!("[::]:{port}"),
                _ => address.to_owned(),
            };
            if address.parse::<std::net::SocketAddr>().is_err() {
                converted.notes.push(line.finding("tidegate listens on IP addresses with a port"));
                continue;
            }
            let mut listener = TomlListener { address, ..TomlListener::default() };
            listener.proxy_protocol = line.words.iter().any(|word| word == "accept-proxy");
            if line.words.iter().any(|word| word == "ssl") {
                tls(line, directory, &mut listener);
            }
            if converted.listeners.iter().all(|known| known.address != listener.address) {
                converted.listeners.push(listener);
            }
        }
    }
}

/// Adds the certificates of a `bind` line, each of which is one file with its key.
fn tls(line: &SectionLine, directory: &Path, listener: &mut TomlListener) {
    let files = line.words.windows(2).filter(|pair| pair[0] == "crt").map(|pair| directory.join(&pair[1]));
    if line.after("crt-list").is_some() {
        let reason =
            "tidegate reads no list of certificates: add `tls` to the listener, which has no TLS yet";
        listener.notes.push(line.finding(reason));
    }
    if line.after("verify") == Some("optional") {
        let reason = "client certificates are not checked yet: set `client_ca` of the listener's `tls`";
        listener.notes.push(line.finding(reason));
    }
    for file in files {
        let name = file.display().to_string();
        match File::open(&file) {
            Ok(_) if file.is_file() => listener.certificates.push((name.clone(), name)),
            _ => {
                let reason = format!("{name} is no file that can be read here: add `tls` to the listener");
                listener.notes.push(line.finding(reason));
            }
        }
    }
}
