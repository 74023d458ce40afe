//! The keys that the code knows, found by the errors of unknown ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate::limit::Algorithm;
use toml::{Table, Value};

use super::errors;

/// No key has this name or a similar one.
const UNKNOWN: &str = "000";

/// The keys of all tables.
#[derive(Debug, Default)]
pub(super) struct CodeKeys {
    keys: BTreeMap<String, Key>,
    required: BTreeSet<String>,
}

/// A key.
#[derive(Debug, Default)]
struct Key {
    /// The path from the top level to it.
    steps: Vec<Step>,
    /// The algorithm of the limit that it belongs to, if it does.
    algorithm: &'static str,
    range: Option<Range>,
    choices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    /// A name that the user chooses.
    Name,
    Element,
}

/// The numbers or durations that a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub low: i64,
    pub high: i64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Number,
    Duration,
    Numbers,
}

impl Range {
    /// Both bounds and the values next to them outside, each with whether it is in range.
    pub fn edges(&self) -> Vec<(Value, bool)> {
        let step = if matches!(self.kind, Kind::Duration) { 1_000 } else { 1 };
        let edges =
            [(self.low, true), (self.high, true), (self.high + step, false), (self.low - step, false)];
        let can_be_written = |(value, _): &(i64, bool)| *value >= 0 || !matches!(self.kind, Kind::Duration);
        edges
            .into_iter()
            .filter(can_be_written)
            .map(|(value, inside)| (self.kind.written(value), inside))
            .collect()
    }

    /// Some values in range; of 0 to 1 also one that is not whole.
    pub fn inside(&self) -> Vec<Value> {
        let is_share = matches!(self.kind, Kind::Number) && (self.low, self.high) == (0, 1);
        let whole = [self.low, self.low + 1, self.high].map(|value| self.kind.written(value));
        whole.into_iter().chain(is_share.then_some(Value::Float(0.5))).collect()
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if matches!(self.kind, Kind::Duration) { " us" } else { "" };
        write!(f, "{}{unit} to {}{unit}", self.low, self.high)
    }
}

impl Kind {
    fn written(self, value: i64) -> Value {
        match self {
            Self::Number => Value::Integer(value),
            Self::Duration => Value::String(format!("{value}us")),
            Self::Numbers => Value::Array(vec![Value::Integer(value)]),
        }
    }
}

impl CodeKeys {
    /// The keys for each algorithm of limits.
    pub fn from_errors() -> Self {
        let mut keys = Self::default();
        for algorithm in Algorithm::ALL {
            keys.find_keys(&[], algorithm.name());
        }
        let ranges: Vec<_> = keys.keys.values().map(|key| (key.find_range(), key.find_choices())).collect();
        for (key, (range, choices)) in keys.keys.values_mut().zip(ranges) {
            (key.range, key.choices) = (range, choices);
        }
        keys
    }

    /// The paths of all keys, without those of names.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The required keys.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.required.iter().map(String::as_str)
    }

    pub fn range(&self, path: &str) -> Option<&Range> {
        self.keys.get(path)?.range.as_ref()
    }

    pub fn choices(&self, path: &str) -> impl Iterator<Item = &String> {
        self.keys.get(path).into_iter().flat_map(|key| &key.choices)
    }

    /// Whether a value is not rejected as out of range.
    pub fn is_in_range(&self, path: &str, value: &Value) -> bool {
        self.keys.get(path).is_none_or(|key| key.reported_range(value).is_none())
    }

    /// Whether a text of this length is accepted.
    pub fn takes_text(&self, path: &str, length: i64) -> bool {
        let text = Value::String("x".repeat(usize::try_from(length).unwrap()));
        let errors = self.keys.get(path).map(|key| key.errors(&text)).unwrap_or_default();
        !errors.iter().any(|line| line.contains("` is not "))
    }

    /// Finds the keys of the table at the end of a path, and those of its inner tables.
    fn find_keys(&mut self, steps: &[Step], algorithm: &'static str) {
        let errors = errors(&written(
            steps,
            Value::Table([(UNKNOWN.to_owned(), Value::Integer(0))].into_iter().collect()),
            algorithm,
        ));
        let unknown = format!("unknown key `{UNKNOWN}`");
        let Some((table, keys)) = errors.iter().find_map(|line| {
            let (before, keys) = line.split_once("; its keys are ")?;
            let keys = keys.split("; ").next()?;
            Some((before.split_once(&unknown)?.1.trim_start_matches(" in "), keys))
        }) else {
            return;
        };
        for key in keys.split(", ") {
            self.add(steps, key, algorithm);
            for more in [&[][..], &[Step::Element], &[Step::Name]] {
                self.find_keys(&[steps, &[Step::Key(key.to_owned())], more].concat(), algorithm);
            }
        }
        for (other, key) in errors.iter().filter_map(|line| missing(line)) {
            if other == table {
                self.required.insert(path(&dotted(steps), key));
            } else if let [outer @ .., Step::Key(name), Step::Name] = steps
                && other == format!("`{name}`")
            {
                // A table in which the user chooses names has no unknown keys.
                let outer = [outer, &[Step::Key(name.clone())]].concat();
                self.add(&outer, key, algorithm);
                self.required.insert(path(&dotted(&outer), key));
            }
        }
    }

    fn add(&mut self, steps: &[Step], key: &str, algorithm: &'static str) {
        let whole = path(&dotted(steps), key);
        let steps = [steps, &[Step::Key(key.to_owned())]].concat();
        self.keys.entry(whole).or_insert(Key { steps, algorithm, ..Key::default() });
    }
}

impl Key {
    fn name(&self) -> &str {
        if let Some(Step::Key(name)) = self.steps.last() { name } else { "" }
    }

    fn errors(&self, value: &Value) -> Vec<String> {
        errors(&written(&self.steps, value.clone(), self.algorithm))
    }

    /// The range in the error of a value that is out of range.
    fn reported_range(&self, value: &Value) -> Option<(i64, i64)> {
        let start = format!("`{}` must be from ", self.name());
        let line = self.errors(value).into_iter().find(|line| line.contains(&start))?;
        let (range, _) = line.split_once(&start)?.1.split_once(", not ")?;
        let (low, high) = range.trim_end_matches(" bytes").split_once(" to ")?;
        Some((amount(low)?, amount(high)?))
    }

    fn find_range(&self) -> Option<Range> {
        let number = Value::Integer(-1);
        let probes = [
            (Kind::Number, number.clone()),
            (Kind::Duration, Value::String("999999999h".to_owned())),
            (Kind::Numbers, Value::Array(vec![number])),
        ];
        probes.into_iter().find_map(|(kind, probe)| {
            self.reported_range(&probe).map(|(low, high)| Range { low, high, kind })
        })
    }

    fn find_choices(&self) -> Vec<String> {
        let word = Value::String(UNKNOWN.to_owned());
        let of = format!("is not a value of `{}`; the values are ", self.name());
        for probe in [word.clone(), Value::Array(vec![word])] {
            for line in self.errors(&probe) {
                if let Some((_, choices)) = line.split_once(&of) {
                    let choices = choices.split(", or a table ").next().unwrap_or_default();
                    return choices.split('"').skip(1).step_by(2).map(str::to_owned).collect();
                }
            }
        }
        Vec::new()
    }
}

/// A configuration with this value at the end of a path, and with nothing else but the algorithm of a limit.
fn written(steps: &[Step], value: Value, algorithm: &str) -> String {
    let nested = steps.iter().rev().fold(value, |value, step| match step {
        Step::Element => Value::Array(vec![value]),
        Step::Key(key) => Value::Table([(key.clone(), value)].into_iter().collect()),
        Step::Name => Value::Table([("x".to_owned(), value)].into_iter().collect()),
    });
    let Value::Table(mut root) = nested else { return String::new() };
    let limit = root.get_mut("limits").and_then(|limits| limits.get_mut("x")).and_then(Value::as_table_mut);
    if let Some(limit) = limit {
        limit.entry("algorithm").or_insert_with(|| algorithm.into());
    }
    toml::to_string(&Table::from(root)).unwrap()
}

/// The table and the missing key of an error.
fn missing(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" has no `")?;
    let (key, _) = after.split_once("`; add a line such as")?;
    Some((before.rsplit(": ").next()?, key))
}

/// The path of a table, without the numbers of elements.
fn dotted(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |table, step| match step {
        Step::Element => table,
        Step::Name => path(&table, "*"),
        Step::Key(key) => path(&table, key),
    })
}

/// The path of a key in a table.
pub(super) fn path(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// A whole number, a size in bytes or a duration in microseconds.
pub(super) fn amount(text: &str) -> Option<i64> {
    let text =
        text.trim_end_matches([',', ';', ':', '.', ')']).trim_matches(['`', '"']).replace([',', '_'], "");
    if let Some((base, power)) = text.split_once('^') {
        return base.parse::<i64>().ok()?.checked_pow(power.parse().ok()?);
    }
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "PiB" => 50,
        _ => return humantime::parse_duration(&text).ok()?.as_micros().try_into().ok(),
    };
    Some(digits.parse::<i64>().ok()? << shift)
}
