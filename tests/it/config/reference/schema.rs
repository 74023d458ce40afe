//! Which keys the code knows, found by asking it for some that it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate::limit::Algorithm;
use toml::{Table, Value};

use super::complaints;

/// No key has this name, or one that is like it.
const UNKNOWN: &str = "000";

/// The keys of all tables.
#[derive(Debug, Default)]
pub(super) struct Schema {
    keys: BTreeMap<String, Key>,
    required: BTreeSet<String>,
}

/// What the code says of a key.
#[derive(Debug, Default)]
struct Key {
    /// A way from the top to it.
    way: Vec<Step>,
    /// Of its limit, if it belongs to one.
    algorithm: &'static str,
    range: Option<Range>,
    choices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    /// The name of something, which the user chooses.
    Name,
    Element,
}

/// Which numbers or durations a key takes.
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
    /// Both bounds, and what is next to them outside; each with whether it is in range.
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

    /// Some values in range.
    pub fn inside(&self) -> [Value; 3] {
        [self.low, self.low + 1, self.high].map(|value| self.kind.written(value))
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

impl Schema {
    /// What the code says of itself, for each algorithm of limits.
    pub fn of_the_code() -> Self {
        let mut schema = Self::default();
        for algorithm in Algorithm::ALL {
            schema.explore(&[], algorithm.name());
        }
        let ranges: Vec<_> = schema.keys.values().map(|key| (key.find_range(), key.find_choices())).collect();
        for (key, (range, choices)) in schema.keys.values_mut().zip(ranges) {
            (key.range, key.choices) = (range, choices);
        }
        schema
    }

    /// The paths of all keys, without those of names.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The keys that must be there.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.required.iter().map(String::as_str)
    }

    pub fn range(&self, path: &str) -> Option<&Range> {
        self.keys.get(path)?.range.as_ref()
    }

    pub fn choices(&self, path: &str) -> impl Iterator<Item = &String> {
        self.keys.get(path).into_iter().flat_map(|key| &key.choices)
    }

    /// Whether a value is not refused for its size.
    pub fn is_in_range(&self, path: &str, value: &Value) -> bool {
        self.keys.get(path).is_none_or(|key| key.range_said(value).is_none())
    }

    /// Whether a text of such a length is not refused.
    pub fn takes_text(&self, path: &str, length: i64) -> bool {
        let text = Value::String("x".repeat(usize::try_from(length).unwrap()));
        let said = self.keys.get(path).map(|key| key.said(&text)).unwrap_or_default();
        !said.iter().any(|line| line.contains("` is not "))
    }

    /// Asks for the keys of the table at the end of a way, and goes on to each that is a table.
    fn explore(&mut self, way: &[Step], algorithm: &'static str) {
        let said = complaints(&written(
            way,
            Value::Table([(UNKNOWN.to_owned(), Value::Integer(0))].into_iter().collect()),
            algorithm,
        ));
        let unknown = format!("unknown key `{UNKNOWN}`");
        let Some((table, keys)) = said.iter().find_map(|line| {
            let (before, keys) = line.split_once("; its keys are ")?;
            Some((before.split_once(&unknown)?.1.trim_start_matches(" in "), keys))
        }) else {
            return;
        };
        for key in keys.split(", ") {
            self.add(way, key, algorithm);
            for more in [&[][..], &[Step::Element], &[Step::Name]] {
                self.explore(&[way, &[Step::Key(key.to_owned())], more].concat(), algorithm);
            }
        }
        for (other, key) in said.iter().filter_map(|line| missing(line)) {
            if other == table {
                self.required.insert(path(&dotted(way), key));
            } else if let [outer @ .., Step::Key(name), Step::Name] = way
                && other == format!("`{name}`")
            {
                // A table of which the user names some keys has no unknown ones.
                let outer = [outer, &[Step::Key(name.clone())]].concat();
                self.add(&outer, key, algorithm);
                self.required.insert(path(&dotted(&outer), key));
            }
        }
    }

    fn add(&mut self, way: &[Step], key: &str, algorithm: &'static str) {
        let whole = path(&dotted(way), key);
        let way = [way, &[Step::Key(key.to_owned())]].concat();
        self.keys.entry(whole).or_insert(Key { way, algorithm, ..Key::default() });
    }
}

impl Key {
    fn name(&self) -> &str {
        if let Some(Step::Key(name)) = self.way.last() { name } else { "" }
    }

    fn said(&self, value: &Value) -> Vec<String> {
        complaints(&written(&self.way, value.clone(), self.algorithm))
    }

    /// The range that a value is out of, as the message has it.
    fn range_said(&self, value: &Value) -> Option<(i64, i64)> {
        let start = format!("`{}` must be from ", self.name());
        let line = self.said(value).into_iter().find(|line| line.contains(&start))?;
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
        probes
            .into_iter()
            .find_map(|(kind, probe)| self.range_said(&probe).map(|(low, high)| Range { low, high, kind }))
    }

    fn find_choices(&self) -> Vec<String> {
        let word = Value::String(UNKNOWN.to_owned());
        let of = format!("is not a value of `{}`; the values are ", self.name());
        for probe in [word.clone(), Value::Array(vec![word])] {
            for line in self.said(&probe) {
                if let Some((_, choices)) = line.split_once(&of) {
                    return choices.split('"').skip(1).step_by(2).map(str::to_owned).collect();
                }
            }
        }
        Vec::new()
    }
}

/// A configuration with this value at the end of a way, and nothing else but the algorithm of a limit.
fn written(way: &[Step], value: Value, algorithm: &str) -> String {
    let nested = way.iter().rev().fold(value, |value, step| match step {
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

/// What a message says is missing, and in which table.
fn missing(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" has no `")?;
    let (key, _) = after.split_once("`; add a line such as")?;
    Some((before.rsplit(": ").next()?, key))
}

/// The path of a table, without the numbers of elements.
fn dotted(way: &[Step]) -> String {
    way.iter().fold(String::new(), |table, step| match step {
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
