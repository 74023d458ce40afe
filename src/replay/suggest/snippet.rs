//! Suggested limits as lines of a configuration.

use std::fmt::Write as _;

use super::check::Check;
use super::limits::Role;
use super::suggestion::{SuggestedLimit, Suggestion};
use super::warning::percent;
use crate::convert::toml_string;

/// The tables of the limits, to paste into the configuration, with a comment on how the route names them.
#[must_use]
pub fn toml(suggestion: &Suggestion) -> String {
    let mut text = format!("# {}\n", basis(suggestion));
    for limit in &suggestion.limits {
        text.push('\n');
        text.push_str(&table(limit, &suggestion.subject.key));
    }
    let names: Vec<String> = suggestion.limits.iter().map(|limit| toml_string(&limit.name)).collect();
    let names = names.join(", ");
    let subject = &suggestion.subject;
    let place = match (&subject.route, subject.is_configured) {
        (_, true) => format!("# Where the configuration has {}:", toml_string(&subject.name)),
        (Some(route), false) => format!("# In the route {}:", toml_string(route)),
        (None, false) => "# In the routes, or in default_limits:".to_owned(),
    };
    // Writing to a String can't fail.
    let _ = write!(text, "\n{place}\n#   limits = [{names}]\n");
    text
}

fn basis(suggestion: &Suggestion) -> String {
    let settings = &suggestion.settings;
    let share = percent(settings.refuse_at_most);
    let on = |check: &Check| format!("{} of {} clients were denied", check.denied_clients, check.clients);
    let checked = suggestion.held_back.as_ref().map_or_else(
        || "; not checked on other traffic".to_owned(),
        |check| format!("; on traffic that was held back {}", on(check)),
    );
    format!("Chosen to deny at most {share} of {}{checked}.", settings.of.name())
}

fn table(limit: &SuggestedLimit, key: &[String]) -> String {
    let key = match key {
        [single] => toml_string(single),
        parts => format!("[{}]", parts.iter().map(|part| toml_string(part)).collect::<Vec<_>>().join(", ")),
    };
    let lines = match limit.role {
        Role::Burst => format!("rate = \"{}\"\nburst = {}\n", limit.rate, limit.burst),
        Role::Minute => format!("rate = \"{}\"\n", limit.rate),
        Role::Day => format!("algorithm = \"fixed_window\"\nrate = \"{}\"\n", limit.rate),
    };
    format!("[limits.{}]\n{lines}key = {key}\n", limit.name)
}
