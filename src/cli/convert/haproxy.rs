//! Converts configurations of `HAProxy`.

mod backends;
mod conditions;
mod limits;
mod matches;
mod remarks;
mod sections;

use std::fs::File;
use std::path::Path;

use self::backends::Backends;
use self::conditions::{Acls, Criterion};
use self::limits::Limits;
use self::matches::{Match, Restricted, limited, matches, narrowed, without_repetitions};
use self::remarks::remark;
use self::sections::{Line, Section, sections};
use super::model::{Converted, Denied, Limit, Listener, Route, Target};
use super::note::{Note, SyntaxError};

/// The status of a denial, unless the rule has another one.
const DEFAULT_STATUS: u16 = 403;

/// What is made while the sections are converted.
struct Maker<'s> {
    sections: &'s [Section],
    limits: Limits<'s>,
    backends: Backends,
    /// The statuses of denials by limits, each with the first rule that has it.
    statuses: Vec<(u16, &'s Line)>,
}

/// The rules of a section for requests.
#[derive(Default)]
struct Rules {
    notes: Vec<Note>,
    limits: Vec<Restricted>,
    /// Routes for requests that are refused.
    refused: Vec<Route>,
    set_headers: Vec<(String, String)>,
    remove_headers: Vec<String>,
    set_response_headers: Vec<(String, String)>,
}

/// Converts a file with this name and text. Files that it names are relative to `directory`.
///
/// # Errors
/// The place of an error of syntax.
pub(super) fn convert(file: &str, text: &str, directory: &Path) -> Result<Converted, SyntaxError> {
    let sections = sections(file, text)?;
    let mut converted = Converted::default();
    let mut maker = Maker {
        sections: &sections,
        limits: Limits::new(&sections),
        backends: Backends::default(),
        statuses: Vec::new(),
    };
    let mut frontends = 0;
    for section in &sections {
        match section.kind() {
            "global" => {}
            "defaults" => converted.notes.extend(section.lines.iter().filter_map(default_remark)),
            _ if section.find(&["mode", "tcp"]).next().is_some() => {
                converted.notes.push(section.header.finding("tidegate forwards HTTP only"));
            }
            "frontend" | "listen" => {
                let routes = maker.frontend(section);
                frontends += usize::from(!routes.is_empty());
                if frontends > 1 && !routes.is_empty() {
                    let reason = "routes of tidegate are the same for all listeners: those of earlier sections come first";
                    converted.notes.push(section.header.finding(reason));
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
    converted.denied = denied(&maker.statuses, &mut converted.notes);
    converted.limits = maker.limits.all;
    converted.upstreams = maker.backends.upstreams;
    if converted.limits.iter().any(|limit: &Limit| limit.key == ["client_ip"]) {
        converted.client_ip.ipv6_prefix = Some(128);
        let text = "HAProxy counts each IPv6 address by itself. A client has at least 2^64 of them, so the default of tidegate \
                    is a prefix of 64 bits: consider to remove `ipv6_prefix`.";
        converted.client_ip.notes.push(Note::text(text));
    }
    Ok(converted)
}

impl<'s> Maker<'s> {
    /// The routes of a section with listeners.
    fn frontend(&mut self, section: &'s Section) -> Vec<Route> {
        let own = self.rules(section);
        let acls = Acls::of(section);
        let mut routes = own.refused.clone();
        let mut notes: Vec<Note> =
            section.lines.iter().filter_map(remark).chain(own.notes.iter().cloned()).collect();
        for line in section.find(&["use_backend"]) {
            match acls.condition(line).and_then(|alternatives| matches(&alternatives)) {
                Ok(selections) => {
                    for (number, selection) in selections.iter().enumerate() {
                        routes.extend(self.backend(line, selection, &own, number == 0));
                    }
                }
                Err(reason) => notes.push(line.finding(reason)),
            }
        }
        let last = section.find(&["default_backend"]).last();
        if let Some(line) = last {
            routes.extend(self.backend(line, &Match::default(), &own, true));
        } else if section.find(&["server"]).next().is_some() {
            routes.extend(self.forward(section, &section.header, &Match::default(), &own));
        }
        match routes.first_mut() {
            Some(first) => drop(first.notes.splice(0..0, notes)),
            None if notes.is_empty() => {}
            None => routes.push(Route { notes, path: "/*".to_owned(), ..Route::default() }),
        }
        routes
    }

    /// The routes to the backend that a line names.
    fn backend(&mut self, line: &'s Line, selection: &Match, own: &Rules, is_first: bool) -> Vec<Route> {
        let name = line.word(1);
        let section = self
            .sections
            .iter()
            .find(|section| matches!(section.kind(), "backend" | "listen") && section.name() == name);
        let Some(section) = section else {
            let mut route =
                narrowed(&Route { path: "/*".to_owned(), ..Route::default() }, selection).unwrap_or_default();
            route.notes.push(line.finding("there is no section for this backend: requests get 501"));
            route.target = Target::missing();
            return vec![route];
        };
        let mut routes = self.forward(section, line, selection, own);
        if !is_first {
            for route in &mut routes {
                route.notes.clear();
            }
        }
        routes
    }

    /// The routes of requests that a section's servers get.
    fn forward(&mut self, section: &'s Section, line: &Line, selection: &Match, own: &Rules) -> Vec<Route> {
        let is_backend = section.kind() == "backend";
        let rules = if is_backend { self.rules(section) } else { Rules::default() };
        let all = Route { path: "/*".to_owned(), ..Route::default() };
        let mut route = narrowed(&all, selection).unwrap_or(all);
        route.notes.push(Note::text(format!("{}: {}", line.place, line.words.join(" "))));
        if is_backend {
            route.notes.extend(section.lines.iter().filter_map(remark).chain(rules.notes.iter().cloned()));
        }
        route.target = if let Some(name) = self.backends.name(section) {
            Target::Upstream(name)
        } else {
            let reason = "none of its servers can be converted: requests get 501";
            route.notes.push(section.header.finding(reason));
            Target::missing()
        };
        for of in [own, &rules] {
            route.set_headers.extend(of.set_headers.iter().cloned());
            route.remove_headers.extend(of.remove_headers.iter().cloned());
            route.set_response_headers.extend(of.set_response_headers.iter().cloned());
        }
        let refused = rules.refused.iter().filter_map(|refused| {
            let narrow = narrowed(refused, selection)?;
            Some(Route { host: narrow.host.or(route.host.clone()), ..narrow })
        });
        let refused: Vec<Route> = refused.collect();
        let limits: Vec<&Restricted> = own.limits.iter().chain(&rules.limits).collect();
        refused.into_iter().chain(limited(route, &limits)).collect()
    }

    /// The rules of a section.
    fn rules(&mut self, section: &'s Section) -> Rules {
        let acls = Acls::of(section);
        let mut rules = Rules::default();
        let mut exempt: Vec<String> = Vec::new();
        for line in &section.lines {
            match (line.word(0), line.word(1)) {
                ("http-request", "allow") => match acls.condition(line).as_deref() {
                    Ok([terms]) if matches!(&terms[..], [term] if !term.is_negated) => {
                        match &terms[0].criterion {
                            Criterion::Source(networks) => exempt.extend(networks.iter().cloned()),
                            _ => rules.notes.push(
                                line.finding("only networks can be exempted from the rules that follow"),
                            ),
                        }
                    }
                    _ => rules
                        .notes
                        .push(line.finding("only networks can be exempted from the rules that follow")),
                },
                ("http-request", "deny" | "tarpit") => self.deny(section, line, &exempt, &mut rules),
                ("http-request" | "http-response", "set-header" | "del-header") => header(line, &mut rules),
                _ => {}
            }
        }
        rules
    }

    /// Adds the limits or the routes of a rule that denies.
    fn deny(&mut self, section: &'s Section, line: &'s Line, exempt: &[String], rules: &mut Rules) {
        let status =
            line.after("deny_status").or(line.after("status")).and_then(|status| status.parse().ok());
        let status = status.unwrap_or(DEFAULT_STATUS);
        let limits = match self.limits.of_rule(section, line, exempt) {
            Ok(limits) => limits,
            Err(note) => {
                rules.notes.push(note);
                return;
            }
        };
        if line.word(1) == "tarpit" {
            rules.notes.push(line.finding("tidegate denies at once, and does not hold the request"));
        }
        if !limits.is_empty() {
            rules.limits.extend(limits);
            if self.statuses.iter().all(|(known, _)| *known != status) {
                self.statuses.push((status, line));
            }
            return;
        }
        let found = Acls::of(section).condition(line).and_then(|alternatives| matches(&alternatives));
        match found {
            Ok(selections) => {
                let all = Route { path: "/*".to_owned(), ..Route::default() };
                let mut refused: Vec<Route> = selections.iter().filter_map(|it| narrowed(&all, it)).collect();
                for route in &mut refused {
                    let body = String::new();
                    route.target =
                        if status == 403 { Target::Block } else { Target::Respond { status, body } };
                }
                if let Some(first) = refused.first_mut() {
                    first.notes.push(Note::text(format!("{}: {}", line.place, line.words.join(" "))));
                }
                rules.refused.extend(refused);
            }
            Err(reason) => rules.notes.push(line.finding(reason)),
        }
    }
}

/// Adds the change of a header that a rule makes.
fn header(line: &Line, rules: &mut Rules) {
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
        _ => {}
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
            let mut listener = Listener { address, ..Listener::default() };
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

/// A note on a line of `defaults`, unless it needs no counterpart: its rules and backends are not those of any section here.
fn default_remark(line: &Line) -> Option<Note> {
    let rules = ["acl", "default_backend", "http-request", "http-response", "tcp-request", "use_backend"];
    if rules.contains(&line.word(0)) {
        return Some(line.finding("rules are converted where they are written: repeat it in each section"));
    }
    remark(line)
}

/// Adds the certificates of a `bind` line, each of which is one file with its key.
fn tls(line: &Line, directory: &Path, listener: &mut Listener) {
    let files = line.words.windows(2).filter(|pair| pair[0] == "crt").map(|pair| directory.join(&pair[1]));
    for (word, reason) in [
        (
            "crt-list",
            "tidegate reads no list of certificates: add `tls` to the listener, which has no TLS yet",
        ),
        ("verify", "client certificates are not required yet: set `client_ca` of the listener's `tls`"),
    ] {
        if line.after(word).is_some_and(|value| value != "none") {
            listener.notes.push(line.finding(reason));
        }
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

/// The response to denied requests, if the status is not that of tidegate.
fn denied(statuses: &[(u16, &Line)], notes: &mut Vec<Note>) -> Option<Denied> {
    let first = statuses.iter().map(|(status, _)| *status).min_by_key(|status| *status != 429)?;
    let other = statuses.iter().filter(|(status, _)| *status != first);
    notes.extend(other.map(|(status, line)| {
        line.finding(format!("denials have one status for all limits: {first}, not {status}"))
    }));
    if first == 429 {
        return None;
    }
    let note = Note::text(format!(
        "HAProxy denies with {first}. Without this table tidegate denies with 429, which clients understand better."
    ));
    Some(Denied { notes: vec![note], status: first, body: "{detail}\n".to_owned() })
}
