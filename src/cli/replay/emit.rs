//! Writes the arrivals of the requests that a limit decides, as `tidegate simulate` reads them.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::gate::Gate;
use crate::limit::{Charge, Key, PolicyId};
use crate::replay::{Entry, PlannedEntry, Played};
use crate::suggest::nearest;
use crate::telemetry::escaped;

/// Writes arrivals.
pub(super) struct Emitter<W> {
    limit: PolicyId,
    out: W,
}

impl<W: Write> Emitter<W> {
    /// An emitter of the arrivals of this limit. Fails if there is no such limit.
    pub fn new(gate: &Gate, name: &str, out: W) -> Result<Self, String> {
        let limit = gate.limit_named(name).ok_or_else(|| {
            match nearest(name, gate.limits().map(|(_, policy)| &*policy.name)) {
                Some(near) => format!("unknown limit `{name}`; did you mean `{near}`?"),
                None => format!("unknown limit `{name}`"),
            }
        })?;
        Ok(Self { limit, out })
    }

    /// Writes the line of a request, if the limit decides it.
    pub fn write(
        &mut self,
        entry: &Entry<'_>,
        played: &Played,
        planned: Option<&PlannedEntry<'_>>,
    ) -> io::Result<()> {
        let decision = played.decisions.iter().find(|(limit, ..)| *limit == self.limit);
        let (Some((_, charge, _)), Some(planned)) = (decision, planned) else { return Ok(()) };
        let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let (at, flight) = (seconds(entry.arrival.0), seconds(entry.duration.unwrap_or_default().0));
        writeln!(self.out, "{at} {} {} {flight}", key_word(planned, charge), charge.cost)
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The key as one word. Blanks, percent signs, and what would start a comment, are percent-encoded.
fn key_word(planned: &PlannedEntry<'_>, charge: &Charge) -> String {
    let name = planned.key_name(charge).unwrap_or_else(|| format!("{}{}", Key::TAG, charge.key));
    let mut word = String::new();
    for (index, c) in escaped(&name).chars().enumerate() {
        if c.is_whitespace() || c == '%' || index == 0 && c == '#' {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string can't fail.
                let _ = write!(word, "%{byte:02X}");
            }
        } else {
            word.push(c);
        }
    }
    if word.is_empty() { "-".to_owned() } else { word }
}
