//! A table for people.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::arrivals::Arrival;
use super::decimal;
use super::player::{Played, Player};
use super::tally::Tally;
use super::{Problem, Script, shown_key};
use crate::limit::{Decision, DenyReason};
use crate::time::Micros;

/// No key is given more room than this; whatever is wider than its column pushes its line to the right.
const WIDEST_KEY: usize = 32;
/// Fits `denied, retry in 999.999999 s`.
const COMPARED: usize = 29;

const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const RED: u8 = 31;

/// One field of a line.
struct Cell {
    text: String,
    /// Its width, if it is aligned to the left.
    left: usize,
    /// Its width, if it is aligned to the right.
    right: usize,
    colour: Option<u8>,
}

/// How wide the columns are whose width depends on what is played.
struct Widths {
    time: usize,
    key: usize,
    cost: usize,
    limit: usize,
}

/// Plays all arrivals, and writes a line for each and a summary.
pub(super) async fn write(
    script: &Script<'_>,
    players: &mut [Player<'_>],
    colours: bool,
    out: &mut impl Write,
) -> Result<(), Problem> {
    let widths = Widths::new(script.arrivals, players);
    let mut tallies: Vec<Tally> = players.iter().map(Tally::new).collect();
    line(out, &widths.header(players, script.compare), colours)?;
    for arrival in script.arrivals {
        let mut results = Vec::with_capacity(players.len());
        for (player, tally) in players.iter_mut().zip(&mut tallies) {
            let played = player.arrive(arrival).await?;
            tally.count(arrival, &played);
            results.push(played);
        }
        let mut cells = widths.begin(arrival, &results);
        for played in &results {
            if script.compare {
                cells.push(compared(played));
            } else {
                let name = &script.policies[played.binding().0.policy].stored;
                cells.extend(widths.played(name, played));
            }
        }
        line(out, &cells, colours)?;
    }
    summary(out, &tallies, script.compare, widths.limit)?;
    Ok(())
}

fn line(out: &mut impl Write, cells: &[Cell], colours: bool) -> io::Result<()> {
    let mut line = String::new();
    // Blanks are written only if something follows them.
    let mut blanks = 0;
    for Cell { text, left, right, colour } in cells {
        let width = text.chars().count();
        blanks += right.saturating_sub(width);
        if !text.is_empty() {
            // Writing to a string can't fail.
            let _ = match colour.filter(|_| colours) {
                Some(colour) => write!(line, "{:blanks$}\x1b[{colour}m{text}\x1b[0m", ""),
                None => write!(line, "{:blanks$}{text}", ""),
            };
            blanks = 0;
        }
        blanks += left.saturating_sub(width) + 2;
    }
    writeln!(out, "{line}")
}

impl Cell {
    fn left(text: impl Into<String>, width: usize) -> Self {
        Self { text: text.into(), left: width, right: 0, colour: None }
    }

    fn right(text: impl Into<String>, width: usize) -> Self {
        Self { text: text.into(), left: 0, right: width, colour: None }
    }
}

impl Widths {
    fn new(arrivals: &[Arrival], players: &[Player<'_>]) -> Self {
        let widest = |width: &dyn Fn(&Arrival) -> usize, least: usize| {
            arrivals.iter().map(width).max().unwrap_or(0).max(least)
        };
        let names = players.iter().flat_map(Player::limits).map(|policy| policy.stored.len());
        Self {
            time: widest(&|arrival| seconds(Micros(arrival.at.0)).len(), 4),
            key: widest(&|arrival| arrival.key.chars().count(), 3).min(WIDEST_KEY),
            cost: widest(&|arrival| arrival.cost.map_or(0, |cost| cost.to_string().len()), 4),
            limit: names.max().unwrap_or(0).max(5),
        }
    }

    fn header(&self, players: &[Player<'_>], compare: bool) -> Vec<Cell> {
        let mut cells = self.three("time", "key", "cost");
        if compare {
            let policies = players.iter().flat_map(Player::limits);
            cells.extend(policies.map(|policy| Cell::left(&*policy.stored, COMPARED)));
        } else {
            cells.extend(self.five(Cell::left("verdict", 0), "limit", "left", "all back in", "retry in"));
        }
        cells
    }

    /// What all tables have in common.
    fn begin(&self, arrival: &Arrival, results: &[Played]) -> Vec<Cell> {
        let mut costs: Vec<u64> = results.iter().map(|played| played.binding().0.cost).collect();
        costs.dedup();
        let cost = match costs[..] {
            [cost] => cost.to_string(),
            // Each limit's own.
            _ => "own".to_owned(),
        };
        self.three(&seconds(Micros(arrival.at.0)), &shown_key(&arrival.key), &cost)
    }

    fn played(&self, name: &str, played: &Played) -> [Cell; 5] {
        let (_, decision) = played.binding();
        let left = format!("{}/{}", decision.remaining, decision.limit);
        let retry = match decision.retry_after {
            _ if decision.allowed => String::new(),
            Some(wait) => seconds(wait),
            None => "never".to_owned(),
        };
        self.five(verdict(decision, played), name, &left, &seconds(decision.reset_after), &retry)
    }

    fn three(&self, time: &str, key: &str, cost: &str) -> Vec<Cell> {
        vec![Cell::right(time, self.time), Cell::left(key, self.key), Cell::right(cost, self.cost)]
    }

    fn five(&self, verdict: Cell, limit: &str, left: &str, reset: &str, retry: &str) -> [Cell; 5] {
        [
            Cell { left: 16, ..verdict },
            Cell::left(limit, self.limit),
            Cell::right(left, 9),
            Cell::right(reset, 12),
            Cell::right(retry, 12),
        ]
    }
}

fn compared(played: &Played) -> Cell {
    let (_, decision) = played.binding();
    let mut cell = verdict(decision, played);
    // Writing to a string can't fail.
    let _ = match decision.retry_after {
        _ if decision.allowed => write!(cell.text, " {}/{}", decision.remaining, decision.limit),
        Some(wait) => write!(cell.text, ", retry in {}", seconds(wait)),
        None => write!(cell.text, " for good"),
    };
    Cell { left: COMPARED, ..cell }
}

fn verdict(decision: &Decision, played: &Played) -> Cell {
    let (text, colour) = match decision.cause {
        _ if decision.allowed && played.delay > Micros::ZERO => {
            (format!("delayed {}", seconds(played.delay)), YELLOW)
        }
        _ if decision.allowed => ("allowed".to_owned(), GREEN),
        DenyReason::Quota => ("denied".to_owned(), RED),
        DenyReason::Ban => ("banned".to_owned(), RED),
        DenyReason::Block => ("blocked".to_owned(), RED),
    };
    Cell { text, left: 0, right: 0, colour: Some(colour) }
}

fn summary(out: &mut impl Write, tallies: &[Tally], compare: bool, width: usize) -> io::Result<()> {
    let Some(first) = tallies.first() else { return Ok(()) };
    let (count, plural) = (first.arrivals(), if first.arrivals() == 1 { "" } else { "s" });
    let verdicts = if compare { String::new() } else { format!(": {}", first.verdicts()) };
    writeln!(out, "\n{count} arrival{plural} in {}{verdicts}", seconds(first.span()))?;
    for tally in tallies {
        for (name, refused) in tally.by_limit() {
            let text = if compare { tally.verdicts() } else { refused };
            writeln!(out, "  {name:width$}  {text}")?;
        }
    }
    Ok(())
}

fn seconds(span: Micros) -> String {
    format!("{} s", decimal::text(span))
}
