//! Suggested limits as lines of a configuration.

use std::fmt::Write as _;

use toml_edit::{DocumentMut, Item, Table, Value};

use super::check::Check;
use super::limits::{Role, rate_text};
use super::settings::{SuggestSettings, SuggestionSubject};
use super::suggestion::SuggestedLimit;
use super::warning::percent;
use crate::convert::toml_string;
use crate::limit::{Quota, Rate};
use crate::time::Micros;

/// The limits in the texts of a configuration.
#[derive(Clone, Debug, Default)]
pub struct WrittenLimits(Vec<DocumentMut>);

impl WrittenLimits {
    /// The limits of the texts of all files; none of one that is not TOML.
    #[must_use]
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Self {
        Self(texts.iter().filter_map(|text| text.as_ref().parse().ok()).collect())
    }

    /// The table of a limit with all of its keys and their comments, as a text of its own.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<String> {
        let written = self.0.iter().find_map(|document| document.get("limits")?.get(name))?;
        let mut table = written.clone().into_table().ok()?;
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
            let _ = write!(text, "\n{}", edited.unwrap_or_else(|| by_hand(subject.table.as_deref(), limit)));
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

/// The numbers of a limit as comments, where its table can't be edited: a table with nothing else would lose its other keys.
fn by_hand(table: Option<&str>, limit: &SuggestedLimit) -> String {
    let document: Option<DocumentMut> = table.and_then(|table| table.parse().ok());
    let keys = document.as_ref().and_then(|it| it.get("limits")?.get(&*limit.name)?.as_table_like());
    let others = keys.into_iter().flat_map(|keys| keys.iter().map(|(key, _)| key));
    let others: Vec<&str> = others.filter(|key| !["rate", "burst", "queue"].contains(key)).collect();
    let others = if others.is_empty() {
        "algorithm, key, cost, charge_on, on_missing, allow, block, tiers, overrides, ban and mode".to_owned()
    } else {
        others.join(", ")
    };
    let rates = match &limit.numbers.quota {
        Quota::SlidingLog(log) => {
            log.numbers().chunks_exact(2).map(|rate| Rate::new(rate[0], Micros(rate[1]))).collect()
        }
        _ => vec![Ok(limit.numbers.rate)],
    };
    let rates: Vec<String> =
        rates.into_iter().flatten().map(|rate| format!("\"{}\"", rate_text(rate))).collect();
    let rate = if let [rate] = &rates[..] { rate.clone() } else { format!("[{}]", rates.join(", ")) };
    let burst = match &limit.numbers.quota {
        Quota::TokenBucket(_) | Quota::IntervalBucket(_) => format!("#   burst = {}\n", limit.burst),
        Quota::Gcra(_) => format!("#   burst = {}\n", limit.burst - 1),
        Quota::LeakyBucket(_) => format!("#   queue = {}\n", limit.burst - 1),
        _ => String::new(),
    };
    format!(
        "# Its table can't be edited here. Write these values to it, and keep its other keys ({others}):\n#   rate = {rate}\n{burst}"
    )
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
    use crate::replay::suggest::limits::LimitNumbers;

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
        let limit = suggested(LimitNumbers::present(&present, units, 1).unwrap());
        let table = WrittenLimits::parse(&[text]).table("a").unwrap();
        let edited = with_numbers(&table, &limit, &present).unwrap();
        // The configuration has the suggested limit.
        assert_eq!(policy(&edited), limit.numbers.quota, "{edited}");
        edited
    }

    #[test]
    fn a_table_that_cannot_be_edited_keeps_its_other_keys_by_hand() {
        let rate = |units| Rate::new(units, Micros(1_000_000)).unwrap();
        let leaky = Quota::leaky_bucket(rate(10), 5).unwrap();
        let window = Quota::sliding_log(&[rate(10), Rate::new(100, Micros(60_000_000)).unwrap()]).unwrap();
        let subject = |table: Option<&str>| SuggestionSubject {
            name: "a".to_owned(),
            is_configured: true,
            key: vec!["path".to_owned()],
            table: table.map(str::to_owned),
            ..SuggestionSubject::default()
        };
        for (present, units, table, expected) in [
            (&leaky, 5, None, "rate = \"5/s\"\n#   queue = 3\n"),
            (&window, 50, None, "rate = [\"50/minute\", \"5/s\"]\n"),
            (
                &leaky,
                5,
                Some("[limits.a]\ncharge_on = [401]\nqueue = 4\nmode = \"shadow\"\n"),
                "(charge_on, mode)",
            ),
        ] {
            let numbers = LimitNumbers::present(present, units, 1).unwrap();
            let limit = suggested(numbers);
            let text = toml((&subject(table), &SuggestSettings::default()), &[limit], None, Some(present));
            assert!(text.contains(expected), "{text}");
            assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        }
    }

    fn suggested(numbers: LimitNumbers) -> SuggestedLimit {
        SuggestedLimit {
            name: "a".to_owned(),
            role: Role::Present,
            rate: rate_text(numbers.rate),
            burst: numbers.burst,
            least: 1,
            numbers,
        }
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
