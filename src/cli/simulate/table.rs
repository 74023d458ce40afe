//! A table for people.

use std::io::{self, Write};

use super::arrivals::Arrival;
use super::decimal;
use super::player::{Played, Player};
use super::tally::Tally;
use super::{Problem, Script, shown_key};
use crate::limit::{Cause, Decision};
use crate::time::Micros;

/// No key is given more room than this; a longer one pushes its line to the right.
const WIDEST_KEY: usize = 32;
/// Fits `denied, retry in 999.999999 s`; a longer one pushes its line to the right.
const COMPARED: usize = 29;
const VERDICT: usize = 20;
const LEFT: usize = 12;
const SPAN: usize = 14;

/// How what is written is coloured: the escape sequence's number, or none.
type Colour = Option<u8>;

/// A table as it is written.
struct Table<'a, W> {
    out: &'a mut W,
    colours: bool,
    at: usize,
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
    let names = players.iter().flat_map(Player::limits).map(|policy| policy.name.len());
    let mut table = Table::new(script.arrivals, names.max().unwrap_or(0), colours, out);
    let mut tallies: Vec<Tally> = players.iter().map(Tally::new).collect();
    if script.compare {
        table.compare_header(players)?;
    } else {
        table.header()?;
    }
    for arrival in script.arrivals {
        table.begin(arrival, players)?;
        for (player, tally) in players.iter_mut().zip(&mut tallies) {
            let played = player.arrive(arrival).await?;
            tally.count(arrival, &played);
            if script.compare {
                table.compared(&played)?;
            } else {
                let name = &script.policies[played.binding().0.policy.0 as usize].name;
                table.played(name, &played)?;
            }
        }
        writeln!(table.out)?;
    }
    table.summary(&tallies, script.compare)?;
    Ok(())
}

impl<'a, W: Write> Table<'a, W> {
    fn new(arrivals: &[Arrival], limit: usize, colours: bool, out: &'a mut W) -> Self {
        let widest = |width: &dyn Fn(&Arrival) -> usize, least: usize| {
            arrivals.iter().map(width).max().unwrap_or(0).max(least)
        };
        Self {
            at: widest(&|arrival| decimal::text(Micros(arrival.at.0)).len() + 2, 4),
            key: widest(&|arrival| arrival.key.chars().count(), 3).min(WIDEST_KEY),
            cost: widest(&|arrival| arrival.cost.map_or(0, |cost| cost.to_string().len()), 4),
            limit: limit.max(5),
            colours,
            out,
        }
    }

    fn header(&mut self) -> io::Result<()> {
        let (at, key, cost, limit) = (self.at, self.key, self.cost, self.limit);
        writeln!(
            self.out,
            "{:>at$}  {:key$}  {:>cost$}  {:VERDICT$}  {:limit$}  {:>LEFT$}  {:>SPAN$}  {:>SPAN$}",
            "time", "key", "cost", "verdict", "limit", "left", "all back in", "retry in"
        )
    }

    fn compare_header(&mut self, players: &[Player<'_>]) -> io::Result<()> {
        let (at, key, cost) = (self.at, self.key, self.cost);
        write!(self.out, "{:>at$}  {:key$}  {:>cost$}", "time", "key", "cost")?;
        for policy in players.iter().flat_map(Player::limits) {
            write!(self.out, "  {:COMPARED$}", policy.name)?;
        }
        writeln!(self.out)
    }

    /// What all columns have in common.
    fn begin(&mut self, arrival: &Arrival, players: &[Player<'_>]) -> io::Result<()> {
        let (at, key, cost) = (self.at, self.key, self.cost);
        let costs: Vec<u64> =
            players.iter().flat_map(|player| player.charges(arrival)).map(|charge| charge.cost).collect();
        // Limits may have constant costs of their own.
        let one = costs.iter().min() == costs.iter().max();
        let spent = costs.first().filter(|_| one).map_or_else(|| "*".to_owned(), u64::to_string);
        let time = format!("{} s", decimal::text(Micros(arrival.at.0)));
        write!(self.out, "{time:>at$}  {:key$}  {spent:>cost$}", shown_key(&arrival.key))
    }

    fn played(&mut self, name: &str, played: &Played) -> io::Result<()> {
        let (_, decision) = played.binding();
        let (verdict, colour) = verdict(decision, played);
        write!(self.out, "  ")?;
        self.cell(&verdict, VERDICT, colour)?;
        let left = format!("{}/{}", decision.remaining, decision.limit);
        let retry = match decision.retry_after {
            _ if decision.allowed => String::new(),
            Some(wait) => seconds(wait),
            None => "never".to_owned(),
        };
        let (reset, limit) = (seconds(decision.reset_after), self.limit);
        write!(self.out, "  {name:limit$}  {left:>LEFT$}  {reset:>SPAN$}  {retry:>SPAN$}")
    }

    fn compared(&mut self, played: &Played) -> io::Result<()> {
        let (_, decision) = played.binding();
        let (verdict, colour) = verdict(decision, played);
        let text = match decision.retry_after {
            _ if decision.allowed => format!("{verdict} {}/{}", decision.remaining, decision.limit),
            Some(wait) => format!("{verdict}, retry in {}", seconds(wait)),
            None => format!("{verdict}, for good"),
        };
        write!(self.out, "  ")?;
        self.cell(&text, COMPARED, colour)
    }

    fn cell(&mut self, text: &str, width: usize, colour: Colour) -> io::Result<()> {
        match colour.filter(|_| self.colours) {
            Some(number) => write!(self.out, "\x1b[{number}m{text:width$}\x1b[0m"),
            None => write!(self.out, "{text:width$}"),
        }
    }

    fn summary(&mut self, tallies: &[Tally], compare: bool) -> io::Result<()> {
        let Some(first) = tallies.first() else { return Ok(()) };
        let (count, plural) = (first.arrivals(), if first.arrivals() == 1 { "" } else { "s" });
        write!(self.out, "\n{count} arrival{plural} in {}", seconds(first.span()))?;
        if !compare {
            write!(self.out, ": {}", first.verdicts())?;
        }
        writeln!(self.out)?;
        for tally in tallies {
            for (name, refused) in tally.by_limit() {
                let limit = self.limit;
                let text = if compare { tally.verdicts() } else { refused };
                writeln!(self.out, "  {name:limit$}  {text}")?;
            }
        }
        Ok(())
    }
}

fn verdict(decision: &Decision, played: &Played) -> (String, Colour) {
    match decision.cause {
        _ if decision.allowed && played.delay > Micros::ZERO => {
            (format!("delayed {}", seconds(played.delay)), Some(33))
        }
        _ if decision.allowed => ("allowed".to_owned(), Some(32)),
        Cause::Quota => ("denied".to_owned(), Some(31)),
        Cause::Ban => ("denied, banned".to_owned(), Some(31)),
        Cause::Block => ("denied, blocked".to_owned(), Some(31)),
    }
}

fn seconds(span: Micros) -> String {
    format!("{} s", decimal::text(span))
}
