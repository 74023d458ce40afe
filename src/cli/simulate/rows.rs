//! The decisions on arrivals, one row for each: as a table, or as JSON lines with exact numbers.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::arrivals::SimulatedArrival;
use super::played::{DecisionOrigin, PlayedArrival};
use super::player::{self, ArrivalPlayer, SimulateError};
use super::scenario::Scenario;
use super::summary::DecisionSummary;
use crate::limit::{DecidedCharge, Decision, DenyReason};
use crate::text::plural;
use crate::time::{Micros, format_seconds};

/// The maximum width of the key column; a wider key shifts the rest of its line.
const MAX_KEY_WIDTH: usize = 32;
/// The width of a limit's column with --compare: fits `denied, retry in 999.999999 s`.
const COMPARED: usize = 29;

/// The width of the column with the number of a proxy.
const PROXY: usize = 5;

const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const RED: u8 = 31;

/// A cell of a line.
struct Cell {
    text: String,
    /// The width of its column, if it is left-aligned.
    left: usize,
    /// The width of its column, if it is right-aligned.
    right: usize,
    colour: Option<u8>,
}

/// The widths of columns that depend on what is played.
struct Widths {
    time: usize,
    key: usize,
    cost: usize,
    limit: usize,
}

/// The texts of a limit's cells.
struct DecisionTexts<'t> {
    verdict: Cell,
    limit: &'t str,
    remaining: &'t str,
    reset: &'t str,
    retry: &'t str,
}

/// Plays all arrivals, and writes a line for each and a summary.
pub(super) async fn write(
    scenario: &Scenario<'_>,
    players: &mut [ArrivalPlayer<'_>],
    colours: bool,
    out: &mut impl Write,
) -> Result<(), SimulateError> {
    let widths = Widths::new(scenario.arrivals, players);
    let mut summaries: Vec<DecisionSummary> = players.iter().map(DecisionSummary::new).collect();
    write_line(out, &widths.header(players, scenario.compare), colours)?;
    player::play(scenario.arrivals, players, |arrival, results| {
        let mut cells = widths.arrival(arrival, results);
        for (played, summary) in results.iter().zip(&mut summaries) {
            summary.count(arrival, played);
            if scenario.compare {
                cells.push(compared(played));
            } else {
                let name = &scenario.policies[played.binding().charge.policy].stored;
                cells.extend(widths.decision(name, played));
                cells.extend(played.origin.iter().flat_map(origin));
            }
        }
        write_line(out, &cells, colours)
    })
    .await?;
    write_summary(out, &summaries, scenario.compare, widths.limit)?;
    for proxies in players.iter().filter_map(ArrivalPlayer::proxies) {
        write!(out, "\n{}", proxies.summary().paragraph(widths.limit))?;
    }
    Ok(())
}

fn write_line(out: &mut impl Write, cells: &[Cell], colours: bool) -> io::Result<()> {
    let mut line = String::new();
    // Blanks are written only before a text, so that lines have none at their end.
    let mut blanks = 0;
    for Cell { text, left, right, colour } in cells {
        let width = text.chars().count();
        blanks += right.saturating_sub(width);
        if !text.is_empty() {
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
    fn new(arrivals: &[SimulatedArrival], players: &[ArrivalPlayer<'_>]) -> Self {
        let widest = |width: &dyn Fn(&SimulatedArrival) -> usize, least: usize| {
            arrivals.iter().map(width).max().unwrap_or(0).max(least)
        };
        let names = players.iter().flat_map(ArrivalPlayer::limits).map(|policy| policy.stored.len());
        Self {
            time: widest(&|arrival| seconds(Micros(arrival.at.0)).len(), 4),
            key: widest(&|arrival| arrival.key.chars().count(), 3).min(MAX_KEY_WIDTH),
            cost: widest(&|arrival| arrival.cost.map_or(0, |cost| cost.to_string().len()), 4),
            limit: names.max().unwrap_or(0).max(5),
        }
    }

    fn header(&self, players: &[ArrivalPlayer<'_>], compare: bool) -> Vec<Cell> {
        let mut cells = self.arrival_cells("time", "key", "cost");
        if compare {
            let policies = players.iter().flat_map(ArrivalPlayer::limits);
            cells.extend(policies.map(|policy| Cell::left(&*policy.stored, COMPARED)));
        } else {
            cells.extend(self.decision_cells(DecisionTexts {
                verdict: Cell::left("verdict", 0),
                limit: "limit",
                remaining: "remaining",
                reset: "reset in",
                retry: "retry in",
            }));
            if players.iter().any(|player| player.proxies().is_some()) {
                cells.extend([Cell::right("proxy", PROXY), Cell::left("source", 0)]);
            }
        }
        cells
    }

    /// The cells that every table has.
    fn arrival(&self, arrival: &SimulatedArrival, results: &[PlayedArrival]) -> Vec<Cell> {
        let mut costs: Vec<u64> = results.iter().map(|played| played.binding().charge.cost).collect();
        costs.dedup();
        let cost = match costs[..] {
            [cost] => cost.to_string(),
            // The limits have different costs.
            _ => "own".to_owned(),
        };
        self.arrival_cells(&seconds(Micros(arrival.at.0)), &arrival.printable_key(), &cost)
    }

    fn decision(&self, name: &str, played: &PlayedArrival) -> [Cell; 5] {
        let decision = &played.binding().decision;
        let remaining = format!("{}/{}", decision.remaining, decision.limit);
        let retry = match decision.retry_after {
            _ if decision.allowed => String::new(),
            Some(wait) => seconds(wait),
            None => "never".to_owned(),
        };
        self.decision_cells(DecisionTexts {
            verdict: verdict(decision, played),
            limit: name,
            remaining: &remaining,
            reset: &seconds(decision.reset_after),
            retry: &retry,
        })
    }

    fn arrival_cells(&self, time: &str, key: &str, cost: &str) -> Vec<Cell> {
        vec![Cell::right(time, self.time), Cell::left(key, self.key), Cell::right(cost, self.cost)]
    }

    fn decision_cells(&self, texts: DecisionTexts<'_>) -> [Cell; 5] {
        [
            Cell { left: 16, ..texts.verdict },
            Cell::left(texts.limit, self.limit),
            Cell::right(texts.remaining, 9),
            Cell::right(texts.reset, 12),
            Cell::right(texts.retry, 12),
        ]
    }
}

/// The cells of the proxy that has decided an arrival.
fn origin(origin: &DecisionOrigin) -> [Cell; 2] {
    [Cell::right(origin.proxy.to_string(), PROXY), Cell::left(origin.source.label(), 0)]
}

/// The one cell of a limit with --compare.
fn compared(played: &PlayedArrival) -> Cell {
    let decision = &played.binding().decision;
    let mut cell = verdict(decision, played);
    let _ = match decision.retry_after {
        _ if decision.allowed => write!(cell.text, " {}/{}", decision.remaining, decision.limit),
        Some(wait) => write!(cell.text, ", retry in {}", seconds(wait)),
        None => write!(cell.text, ", never allowed"),
    };
    Cell { left: COMPARED, ..cell }
}

fn verdict(decision: &Decision, played: &PlayedArrival) -> Cell {
    let (text, colour) = match decision.reason {
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

fn write_summary(
    out: &mut impl Write,
    summaries: &[DecisionSummary],
    compare: bool,
    width: usize,
) -> io::Result<()> {
    let Some(first) = summaries.first() else { return Ok(()) };
    let count = first.arrivals();
    let verdicts = if compare { String::new() } else { format!(": {}", first.verdicts()) };
    writeln!(out, "\n{count} arrival{} in {}{verdicts}", plural(count), seconds(first.span()))?;
    for summary in summaries {
        for (name, denials) in summary.by_limit() {
            let text = if compare { summary.verdicts() } else { denials };
            writeln!(out, "  {name:width$}  {text}")?;
        }
    }
    Ok(())
}

fn seconds(span: Micros) -> String {
    format!("{} s", format_seconds(span))
}

/// Plays all arrivals, and writes an object for each arrival and player.
pub(super) async fn write_json(
    scenario: &Scenario<'_>,
    players: &mut [ArrivalPlayer<'_>],
    out: &mut impl Write,
) -> Result<(), SimulateError> {
    player::play(scenario.arrivals, players, |arrival, results| {
        for played in results {
            let limit = &scenario.policies[played.binding().charge.policy].stored;
            write_object(out, arrival, limit, played)?;
        }
        Ok(())
    })
    .await
}

fn write_object(
    out: &mut impl Write,
    arrival: &SimulatedArrival,
    limit: &str,
    played: &PlayedArrival,
) -> io::Result<()> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let DecidedCharge { charge, decision } = played.binding();
    write!(
        out,
        "{{\"at\":{},\"key\":{},\"cost\":{},\"allowed\":{},\"limit\":{},\"of\":{},\"remaining\":{},\
         \"reset_after\":{},\"retry_after\":{},\"delay\":{}",
        format_seconds(Micros(arrival.at.0)),
        quoted(&arrival.key),
        charge.cost,
        decision.allowed,
        quoted(limit),
        decision.limit,
        decision.remaining,
        format_seconds(decision.reset_after),
        decision.retry_after.map_or_else(|| "null".to_owned(), format_seconds),
        format_seconds(decision.delay),
    )?;
    if let Some(DecisionOrigin { proxy, source, calls }) = played.origin {
        write!(out, ",\"proxy\":{proxy},\"source\":\"{}\",\"calls\":{calls}", source.label())?;
    }
    out.write_all(b"}\n")
}
