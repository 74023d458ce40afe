//! Arrivals: one a line, `SECONDS [KEY [COST [FLIGHT]]]`.

use std::io::{self, Read};
use std::path::Path;

use super::decimal;
use crate::time::{Micros, Timestamp};

/// The most that one run plays.
const MAX_ARRIVALS: usize = 1_000_000;
/// The most text that is read for them.
const MAX_BYTES: u64 = 256 << 20;
/// No request costs more: nothing above can be counted exactly.
const MAX_COST: u64 = 1 << 53;
/// So many wrong lines are shown; the rest are mostly wrong in the same way.
const SHOWN: usize = 5;
/// The key of a line that names none.
const NO_KEY: &str = "-";

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When it comes.
    pub at: Timestamp,
    /// Whose it is, whatever parts the limit's key has.
    pub key: Box<str>,
    /// What it costs, if the line says so.
    pub cost: Option<u64>,
    /// How long it is in flight once it is forwarded.
    pub in_flight: Micros,
}

/// What is wrong with a line, and the cure.
type Wrong = (String, String);

/// Reads the arrivals in a file, or from standard input where there is none.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<Arrival>, String> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let text = match file {
        Some(file) => std::fs::File::open(file).and_then(text_of),
        None => text_of(io::stdin().lock()),
    };
    let text = text.map_err(|error| {
        format!(
            "error: can't read arrivals from {name}: {error}\nhelp: name another file with --arrivals FILE"
        )
    })?;
    parse(&text, &name)
}

fn text_of(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 256 MiB"));
    }
    Ok(text)
}

/// Reads all lines; `name` stands in messages.
fn parse(text: &[u8], name: &str) -> Result<Vec<Arrival>, String> {
    let (mut arrivals, mut wrong) = (Vec::new(), Vec::new());
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1_usize..) {
        match parse_line(line) {
            Ok(arrival) => arrivals.extend(arrival),
            Err((what, cure)) => wrong.push(format!("error: {name}, line {number}: {what}\nhelp: {cure}")),
        }
        if arrivals.len() > MAX_ARRIVALS {
            let what = format!("there are more than {MAX_ARRIVALS} arrivals");
            return Err(format!("error: {name}, line {number}: {what}\nhelp: play them in parts"));
        }
    }
    if wrong.is_empty() {
        return Ok(arrivals);
    }
    if let Some(more) = wrong.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        wrong.truncate(SHOWN);
        let plural = if more == 1 { " is" } else { "s are" };
        wrong.push(format!("{more} more line{plural} wrong"));
    }
    Err(wrong.join("\n\n"))
}

/// Reads a line; `None` if it is empty or a comment.
fn parse_line(line: &[u8]) -> Result<Option<Arrival>, Wrong> {
    let text = std::str::from_utf8(line).map_err(|_| {
        ("this is not UTF-8".to_owned(), "save the file as UTF-8, or spell keys otherwise".to_owned())
    })?;
    // A key may hold a #, so a comment starts only where a word does.
    let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
    let Some(seconds) = words.next() else { return Ok(None) };
    let at = Timestamp(span(seconds)?.0);
    let key = words.next().unwrap_or(NO_KEY).into();
    let cost = words.next().map(cost).transpose()?;
    let in_flight = words.next().map_or(Ok(Micros::ZERO), span)?;
    if let Some(word) = words.next() {
        let cure = "a line is SECONDS [KEY [COST [FLIGHT]]]; keys have no blanks, and # starts a comment";
        return Err((format!("`{word}` is one word too many"), cure.to_owned()));
    }
    Ok(Some(Arrival { at, key, cost, in_flight }))
}

fn span(word: &str) -> Result<Micros, Wrong> {
    decimal::parse(word).map_err(|error| (format!("`{word}` {error}"), error.cure().to_owned()))
}

fn cost(word: &str) -> Result<u64, Wrong> {
    let is_whole = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|cost| is_whole && *cost <= MAX_COST).ok_or_else(|| {
        (format!("`{word}` is not a cost"), format!("a cost is a whole number from 0 to {MAX_COST}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at: u64, key: &str, cost: Option<u64>, in_flight: u64) -> Arrival {
        Arrival { at: Timestamp(at), key: key.into(), cost, in_flight: Micros(in_flight) }
    }

    #[test]
    fn a_line_has_one_to_four_words_and_a_comment() {
        let text = b"# who when\n\n0.25\n 1\tuser#42 2 # and so on\r\n0.5 k 0 1.5#no\n";
        assert!(parse(text, "x").is_err());
        let text = b"# who when\n\n0.25\n 1\tuser#42 2 # and so on\r\n0.5 k 0 1.5 #yes";
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
    fn what_is_wrong_is_said_with_its_line_and_its_cure() {
        let said = parse(b"0\nx k\n0 k -1\n0 k 1 2 3\n0 \xff\n", "a.txt").unwrap_err();
        let wrong: Vec<&str> = said.split("\n\n").collect();
        assert_eq!(wrong.len(), 4, "{said}");
        assert!(wrong[0].starts_with("error: a.txt, line 2: `x` is not a number of seconds\nhelp: "));
        assert_eq!(
            wrong[1],
            "error: a.txt, line 3: `-1` is not a cost\nhelp: a cost is a whole number from 0 to 9007199254740992"
        );
        assert!(wrong[2].starts_with("error: a.txt, line 4: `3` is one word too many\nhelp: "));
        assert!(wrong[3].starts_with("error: a.txt, line 5: this is not UTF-8\nhelp: "));
    }

    #[test]
    fn many_wrong_lines_are_counted() {
        let said = parse("x\n".repeat(7).as_bytes(), "a.txt").unwrap_err();
        assert!(said.ends_with("\n\n2 more lines are wrong"), "{said}");
        let too_many = parse("0\n".repeat(MAX_ARRIVALS + 1).as_bytes(), "a.txt").unwrap_err();
        assert!(too_many.starts_with("error: a.txt, line 1000001: there are more than"), "{too_many}");
    }
}
