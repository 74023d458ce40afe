//! Arrivals, one per line: `SECONDS [KEY [COST [FLIGHT]]]`, and `cost=`, `flight=` and `settle=` after the key.

use std::io::{self, Read};
use std::path::Path;

use crate::cli::decimal;
use crate::http1::is_digits;
use crate::limit::{Charge, Decision};
use crate::time::{Micros, Timestamp};

/// The most arrivals of one run.
const MAX_ARRIVALS: usize = 1_000_000;
/// The most bytes that are read.
const MAX_BYTES: u64 = 256 << 20;
/// The largest cost: larger numbers are not exact in Lua's doubles.
const MAX_COST: u64 = 1 << 53;
/// The most invalid lines that are shown: the others usually have the same problem.
const MAX_SHOWN: usize = 5;
/// The form of a line.
const HELP: &str = "a line is SECONDS [KEY [COST [FLIGHT]]], where cost=, flight= and settle= may follow KEY; keys have no blanks, and # \
                    starts a comment";
/// The key of a line without one.
pub(super) const DEFAULT_KEY: &str = "-";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SimulatedArrival {
    /// When it arrives.
    pub at: Timestamp,
    /// Its whole key, whatever parts the limit's key has; of a descriptor the values that it leaves open.
    pub key: Box<str>,
    /// Its cost, if the line has one; of a descriptor its hits.
    pub cost: Option<u64>,
    /// How long it is in flight after it is forwarded.
    pub in_flight: Micros,
    /// What its response costs each limit that settles, if that is known.
    pub settle: Option<u64>,
    /// The charges of its descriptor; none without a descriptor.
    pub planned: Option<Box<[ArrivalCharge]>>,
}

/// A problem of a line, and how to correct it.
type LineProblem = (String, String);

impl SimulatedArrival {
    /// The key for output: control characters, which could act on a terminal, are replaced.
    pub fn printable_key(&self) -> String {
        self.key.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }
}

/// Reads the arrivals from a file, or from standard input.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<SimulatedArrival>, String> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let text = match file {
        Some(file) => std::fs::File::open(file).and_then(read_bounded),
        None => read_bounded(io::stdin().lock()),
    };
    let text = text.map_err(|error| {
        format!(
            "error: can't read arrivals from {name}: {error}\nhelp: name another file with --arrivals FILE"
        )
    })?;
    parse(&text, &name)
}

fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 256 MiB"));
    }
    Ok(text)
}

/// Parses all lines; `name` is that of the file, for messages.
fn parse(text: &[u8], name: &str) -> Result<Vec<SimulatedArrival>, String> {
    let (mut arrivals, mut problems) = (Vec::new(), Vec::new());
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1_usize..) {
        match parse_line(line) {
            Ok(arrival) => arrivals.extend(arrival),
            Err((what, help)) => problems.push(format!("error: {name}, line {number}: {what}\nhelp: {help}")),
        }
        if arrivals.len() > MAX_ARRIVALS {
            let what = format!("there are more than {MAX_ARRIVALS} arrivals");
            return Err(format!("error: {name}, line {number}: {what}\nhelp: play them in parts"));
        }
    }
    if problems.is_empty() {
        return Ok(arrivals);
    }
    if let Some(more) = problems.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        problems.truncate(MAX_SHOWN);
        let plural = if more == 1 { " is" } else { "s are" };
        problems.push(format!("{more} more line{plural} invalid"));
    }
    Err(problems.join("\n\n"))
}

/// Parses a line; `None` if it is empty or a comment.
fn parse_line(line: &[u8]) -> Result<Option<SimulatedArrival>, LineProblem> {
    let text = std::str::from_utf8(line).map_err(|_| {
        ("this is not UTF-8".to_owned(), "save the file as UTF-8, or choose other keys".to_owned())
    })?;
    // A key may contain a #, so only a # at the start of a word starts a comment.
    let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
    let Some(word) = words.next() else { return Ok(None) };
    let at = Timestamp(seconds(word)?.0);
    let key = words.next().unwrap_or(DEFAULT_KEY).into();
    let mut arrival =
        SimulatedArrival { at, key, cost: None, in_flight: Micros::ZERO, settle: None, planned: None };
    let mut place = 0;
    for word in words {
        match word.split_once('=') {
            Some(("cost", units)) => arrival.cost = Some(cost(units)?),
            Some(("flight", time)) => arrival.in_flight = seconds(time)?,
            Some(("settle", units)) => arrival.settle = Some(cost(units)?),
            Some((name, _)) => return Err((format!("`{name}=` is not known here"), HELP.to_owned())),
            None => {
                match place {
                    0 => arrival.cost = Some(cost(word)?),
                    1 => arrival.in_flight = seconds(word)?,
                    _ => return Err((format!("`{word}` is one word too many"), HELP.to_owned())),
                }
                place += 1;
            }
        }
    }
    Ok(Some(arrival))
}

fn seconds(word: &str) -> Result<Micros, LineProblem> {
    decimal::parse(word).map_err(|error| (format!("`{word}` {error}"), error.help().to_owned()))
}

fn cost(word: &str) -> Result<u64, LineProblem> {
    let is_whole = is_digits(word.as_bytes());
    word.parse().ok().filter(|cost| is_whole && *cost <= MAX_COST).ok_or_else(|| {
        (format!("`{word}` is not a cost"), format!("a cost is a whole number from 0 to {MAX_COST}"))
    })
}

/// The charge of a limit for an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrivalCharge {
    pub charge: Charge,
    /// The decision on a key that the file allows or blocks, which needs no count.
    pub preset: Option<Decision>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at: u64, key: &str, cost: Option<u64>, in_flight: u64) -> SimulatedArrival {
        SimulatedArrival {
            at: Timestamp(at),
            key: key.into(),
            cost,
            in_flight: Micros(in_flight),
            settle: None,
            planned: None,
        }
    }

    #[test]
    fn a_line_has_one_to_four_words_and_a_comment() {
        let text = b"# key time\n\n0.25\n 1\tuser#42 2 # and so on\r\n0.5 k 0 1.5#no\n";
        assert!(parse(text, "x").is_err());
        let text = b"# key time\n\n0.25\n 1\tuser#42 2 # and so on\r\n0.5 k 0 1.5 #yes";
        let read = parse(text, "x").unwrap();
        assert_eq!(
            read,
            [
                arrival(250_000, "-", None, 0),
                arrival(1_000_000, "user#42", Some(2), 0),
                arrival(500_000, "k", Some(0), 1_500_000)
            ]
        );
    }

    #[test]
    fn words_after_the_key_may_have_names() {
        let read = parse(b"0 k settle=1200 cost=500\n1 k 2 flight=1.5\n2 cost=3\n", "x").unwrap();
        let settled = SimulatedArrival { settle: Some(1_200), ..arrival(0, "k", Some(500), 0) };
        let expected =
            [settled, arrival(1_000_000, "k", Some(2), 1_500_000), arrival(2_000_000, "cost=3", None, 0)];
        assert_eq!(read, expected);
        for (line, what) in [
            ("0 k settle=-1", "`-1` is not a cost"),
            ("0 k flight=x", "`x` is not a number of seconds"),
            ("0 k units=1", "`units=` is not known here"),
            ("0 k 1 flight=1 2 3", "`3` is one word too many"),
        ] {
            let message = parse(line.as_bytes(), "x").unwrap_err();
            assert!(message.starts_with(&format!("error: x, line 1: {what}\nhelp: ")), "{message}");
        }
    }

    #[test]
    fn a_problem_is_reported_with_its_line_and_its_cure() {
        let message = parse(b"0\nx k\n0 k -1\n0 k 1 2 3\n0 \xff\n", "a.txt").unwrap_err();
        let wrong: Vec<&str> = message.split("\n\n").collect();
        assert_eq!(wrong.len(), 4, "{message}");
        assert!(wrong[0].starts_with("error: a.txt, line 2: `x` is not a number of seconds\nhelp: "));
        assert_eq!(
            wrong[1],
            "error: a.txt, line 3: `-1` is not a cost\nhelp: a cost is a whole number from 0 to 9007199254740992"
        );
        assert!(wrong[2].starts_with("error: a.txt, line 4: `3` is one word too many\nhelp: "));
        assert!(wrong[3].starts_with("error: a.txt, line 5: this is not UTF-8\nhelp: "));
    }

    #[test]
    fn further_invalid_lines_are_counted() {
        let message = parse("x\n".repeat(7).as_bytes(), "a.txt").unwrap_err();
        assert!(message.ends_with("\n\n2 more lines are invalid"), "{message}");
        let too_many = parse("0\n".repeat(MAX_ARRIVALS + 1).as_bytes(), "a.txt").unwrap_err();
        assert!(too_many.starts_with("error: a.txt, line 1000001: there are more than"), "{too_many}");
    }
}
