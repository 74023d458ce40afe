//! What the rules of `HAProxy` do with the requests that they select.

use super::conditions::Acls;
use super::sections::{Section, SectionLine};
use crate::model::TomlTarget;
use crate::note::Note;

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
const OTHER_PATHS: &str = "tidegate does not rewrite paths, except for `rewrite = { strip_prefix = … }`";

/// What a rule does.
pub(super) enum Action {
    /// It admits requests to which the rules that follow do not apply.
    Allow,
    /// It responds itself.
    Refuse {
        /// The status of the denial, if the rule has one.
        status: Option<u16>,
        target: TomlTarget,
        /// What is different.
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
    let status = line.after("deny_status").or(line.after("status")).and_then(|status| status.parse().ok());
    let target = match status {
        Some(status @ 200..=599) if status != 403 => TomlTarget::Respond { status, body: String::new() },
        _ => TomlTarget::Block,
    };
    let reason = match line.words.iter().take(3).map(String::as_str).find(|word| is_special(word)) {
        Some("tarpit") => Some("tidegate denies at once, and does not hold the request"),
        Some(_) => Some("tidegate denies with a response, and does not close the connection without one"),
        None => None,
    };
    Action::Refuse { status, target, note: reason.map(|reason| line.finding(reason)) }
}

fn is_special(word: &str) -> bool {
    matches!(word, "tarpit" | "reject" | "silent-drop")
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
    Action::Refuse { status: Some(status), target, note: is_different.then(|| line.finding(reason)) }
}

/// Whether a section has rules that refuse requests, other than limits, or whether it has no servers to forward them to.
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
    section.find(&["server"]).next().is_none() || section.lines.iter().any(refuses)
}
