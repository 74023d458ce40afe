//! Lines that limit requests, or that refuse some of them.

use super::backends::max_connections;
use super::conditions::Acls;
use super::remarks::PROCESS_LIMITS;
use super::sections::{Section, SectionLine};
use crate::restrictions::Restriction;

/// Actions that refuse requests.
const REFUSALS: [&str; 5] = ["auth", "deny", "reject", "silent-drop", "tarpit"];
/// Lines of old versions that refuse requests.
const OLD: [&str; 8] =
    ["block", "reqdeny", "reqideny", "reqipass", "reqitarpit", "reqtarpit", "rspdeny", "rspideny"];

/// What a line does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Limit,
    Refusal,
}

/// The restrictions of these sections, before they inherit others.
pub(super) fn restrictions(sections: &[Section]) -> Vec<Restriction> {
    let of_section = |section: &Section| -> Vec<Restriction> {
        let acls = Acls::of(section);
        let found = section.lines.iter().filter_map(|line| {
            let (place, text) = (line.place.clone(), line.words.join(" "));
            let within = vec![section.header.place.clone()];
            Some(match effect(section, line, &acls)? {
                Effect::Limit => Restriction::limit(place, text, within),
                Effect::Refusal => Restriction::access(place, text, within),
            })
        });
        found.collect()
    };
    sections.iter().flat_map(of_section).collect()
}

fn effect(section: &Section, line: &SectionLine, acls: &Acls<'_>) -> Option<Effect> {
    let has_counter = || {
        let mut terms = acls.alternatives(line).into_iter().flatten();
        terms.any(|term| term.criterion.is_counter())
    };
    let action = line.words.iter().take(3).skip(1).find(|word| REFUSALS.contains(&&***word));
    match (line.word(0), line.word(1)) {
        (name, _) if section.kind() == "global" => PROCESS_LIMITS.contains(&name).then_some(Effect::Limit),
        ("rate-limit", _) => Some(Effect::Limit),
        ("maxconn", most) => (most != "0").then_some(Effect::Limit),
        ("server" | "default-server", _) => max_connections(line).map(|_| Effect::Limit),
        ("filter", name) if name.starts_with("bwlim") => Some(Effect::Limit),
        ("use_backend", _) => has_counter().then_some(Effect::Limit),
        ("bind", _) => (line.after("verify") == Some("required")).then_some(Effect::Refusal),
        ("http-request", name) if name.starts_with("lua.") => Some(Effect::Refusal),
        ("http-request" | "http-response" | "tcp-request" | "tcp-response", name) => {
            let status: Option<u16> = line.after("status").and_then(|status| status.parse().ok());
            let is_refusal = name == "return" && status.is_some_and(|status| status >= 400);
            let effect = if has_counter() { Effect::Limit } else { Effect::Refusal };
            (is_refusal || action.is_some()).then_some(effect)
        }
        (name, _) => OLD.contains(&name).then_some(Effect::Refusal),
    }
}
