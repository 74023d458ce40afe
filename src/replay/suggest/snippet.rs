//! Suggested limits as lines of a configuration.

use std::fmt::Write as _;

use toml_edit::{DocumentMut, Item, Table, Value};

use super::check::Check;
use super::limits::Role;
use super::settings::{SuggestSettings, SuggestionSubject};
use super::suggestion::SuggestedLimit;
use super::warning::percent;
use crate::convert::toml_string;
use crate::limit::Quota;

/// The limits in the text of a configuration.
#[derive(Clone, Debug, Default)]
pub struct WrittenLimits(DocumentMut);

impl WrittenLimits {
    /// The limits of a text; none if it is not TOML.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.parse().unwrap_or_default())
    }

    /// The table of a limit with all of its keys and their comments, as a text of its own.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<String> {
        let mut table = self.0.get("limits")?.get(name)?.clone().into_table().ok()?;
        table.set_implicit(false);
        table.set_dotted(false);
        let mut limits = Table::new();
        limits.set_implicit(true);
        limits.insert(name, Item::Table(table));
        let mut document = DocumentMut::new();
        document.insert("limits", Item::Table(limits));
        let text = document.to_string();
        // Comments before a blank line are not about the table.
        let header = if text.starts_with('[') { 0 } else { text.find("\n[")? };
        let start = text[..header].rfind("\n\n").map_or(0, |blank| blank + 2);
        Some(format!("{}\n", text[start..].trim()))
    }
}

/// The tables of the limits, to paste into the configuration, with comments on their place. `present` is the limit of the
/// configuration, if they replace one.
pub(super) fn toml(
    (subject, settings): (&SuggestionSubject, &SuggestSettings),
    limits: &[SuggestedLimit],
    held_back: Option<&Check>,
    present: Option<&Quota>,
) -> String {
    if limits.is_empty() {
        return String::new();
    }
    let mut text = format!("# {}\n", basis(settings, held_back));
    if let Some(present) = present {
        let _ = writeln!(text, "# In place of [limits.{}]:", subject.name);
        for limit in limits {
            let edited = subject.table.as_deref().and_then(|table| with_numbers(table, limit, present));
            let _ = write!(text, "\n{}", edited.unwrap_or_else(|| table(limit, &subject.key)));
        }
        return text;
    }
    for limit in limits {
        let _ = write!(text, "\n{}", table(limit, &subject.key));
    }
    let names: Vec<String> = limits.iter().map(|limit| toml_string(&limit.name)).collect();
    let place = match &subject.route {
        Some(route) => format!("# In the route {}:", toml_string(route)),
        None => "# In the routes, or in default_limits:".to_owned(),
    };
    // Writing to a String can't fail.
    let _ = write!(text, "\n{place}\n#   limits = [{}]\n", names.join(", "));
    text
}

fn basis(settings: &SuggestSettings, held_back: Option<&Check>) -> String {
    let share = percent(settings.deny_at_most);
    let on = |check: &Check| format!("{} of {} clients were denied", check.denied_clients, check.clients);
    let checked = held_back.map_or_else(
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
        Role::Minute | Role::Present => format!("rate = \"{}\"\n", limit.rate),
        Role::Day => format!("algorithm = \"fixed_window\"\nrate = \"{}\"\n", limit.rate),
    };
    format!("[limits.{}]\n{lines}key = {key}\n", limit.name)
}

/// The table of a limit with other numbers; all else stays as it is.
fn with_numbers(table: &str, limit: &SuggestedLimit, present: &Quota) -> Option<String> {
    let mut document: DocumentMut = table.parse().ok()?;
    let keys = document.get_mut("limits")?.get_mut(&*limit.name)?.as_table_like_mut()?;
    let (new, old) = (limit.numbers.rate.units(), present.rate()?.units());
    let rate = |written: &mut Value| {
        // Only the units change: the unit of the period can be one of the calendar.
        let text = written.as_str().and_then(|text| {
            let (units, period) = text.split_once('/')?;
            let units = u128::from(units.trim().parse::<u64>().ok()?) * u128::from(new);
            Some(format!("{}/{period}", units.div_ceil(u128::from(old))))
        });
        replace(written, text.unwrap_or_else(|| limit.rate.clone()));
    };
    match keys.get_mut("rate")? {
        Item::Value(Value::Array(rates)) => rates.iter_mut().for_each(rate),
        Item::Value(written) => rate(written),
        _ => return None,
    }
    // A gcra and a leaky bucket allow one request in addition to `burst` and `queue`.
    let is_beyond_one = matches!(present, Quota::Gcra(_) | Quota::LeakyBucket(_));
    let burst = i64::try_from(limit.burst - u64::from(is_beyond_one)).ok()?;
    for key in ["burst", "queue"] {
        if let Some(Item::Value(written)) = keys.get_mut(key) {
            replace(written, burst);
        }
    }
    Some(document.to_string())
}

/// Replaces a value, and keeps the comments and spaces around it.
fn replace(value: &mut Value, new: impl Into<Value>) {
    let decor = value.decor().clone();
    *value = new.into();
    *value.decor_mut() = decor;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::replay::suggest::limits::{LimitNumbers, rate_text};

    /// The table of the limit `a` of this text with so many units of its rate.
    fn edited(text: &str, units: u64) -> String {
        let route = "[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = { status = 200 }\n";
        let parse = |text: &str| {
            let text = format!("listen = \"127.0.0.1:0\"\n{text}\n{route}");
            let loaded = config::parse(&text, "t.toml", &|_| Some("7/s".to_owned()));
            loaded.unwrap_or_else(|report| panic!("{report:?}: {text}"))
        };
        let policy = |text: &str| {
            let gate = parse(text).config.snapshot.gate;
            gate.limits.policies[gate.limit_named("a").unwrap()].quota.clone()
        };
        let present = policy(text);
        let numbers = LimitNumbers::present(&present, units, 1).unwrap();
        let limit = SuggestedLimit {
            name: "a".to_owned(),
            role: Role::Present,
            rate: rate_text(numbers.rate),
            burst: numbers.burst,
            least: 1,
            numbers,
        };
        let table = WrittenLimits::parse(text).table("a").unwrap();
        let edited = with_numbers(&table, &limit, &present).unwrap();
        // The configuration has the suggested limit.
        assert_eq!(policy(&edited), limit.numbers.quota, "{edited}");
        edited
    }

    #[test]
    fn a_table_keeps_all_but_its_numbers() {
        let text = "# Another.\n\n# Sign in.\n[limits.a] # by address\nrate = \"10/minute\" # attempts\nburst = 20\ncharge_on = [401]\n\
                    [limits.a.overrides]\n\"192.0.2.7\" = { rate = \"100/minute\", burst = 3 }\n[limits.b]\nrate = \"1/s\"\n";
        let expected = text.replace("\"10/minute\"", "\"4/minute\"").replace("20", "8");
        let expected = expected.split("[limits.b]").next().unwrap().trim_start_matches("# Another.\n\n");
        assert_eq!(edited(text, 4), expected);
    }

    #[test]
    fn numbers_of_all_algorithms_and_forms_are_edited() {
        for (text, expected) in [
            (
                "[limits]\na = { rate = \"10/s\", allow = [\"192.0.2.1\"] }",
                "[limits.a]\nrate = \"5/s\"\nallow = [\"192.0.2.1\"]",
            ),
            (
                "limits.a.rate = \"10/hour\"\nlimits.a.mode = \"shadow\"",
                "rate = \"5/hour\"\nmode = \"shadow\"",
            ),
            ("[limits.a]\nalgorithm = \"gcra\"\nrate = \"10/s\"\nburst = 4", "rate = \"5/s\"\nburst = 2"),
            (
                "[limits.a]\nalgorithm = \"leaky_bucket\"\nrate = \"10/s\"\nqueue = 5",
                "rate = \"5/s\"\nqueue = 3",
            ),
            ("[limits.a]\nrate = \"10/s\"\nrefill = \"interval\"", "rate = \"5/s\"\nrefill"),
            (
                "[limits.a]\nalgorithm = \"fixed_window\"\nrate = \"10/month\"\ntimezone = \"Europe/Berlin\"",
                "rate = \"5/month\"\ntimezone",
            ),
            (
                "[limits.a]\nalgorithm = \"sliding_log\"\nrate = [\"3/s\", \"10/minute\"]",
                "rate = [\"2/s\", \"5/minute\"]",
            ),
            (
                "[limits.a]\nalgorithm = \"sliding_window\"\nrate = \"10/10 minutes\"\nbuckets = 5",
                "rate = \"5/10 minutes\"\nbuckets = 5",
            ),
            ("[limits.a]\nrate = \"${RATE}\"", "rate = \"5/s\""),
        ] {
            let edited = edited(text, 5);
            assert!(edited.contains(expected), "{edited}");
        }
    }
}
