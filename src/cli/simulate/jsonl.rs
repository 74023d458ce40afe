//! Output as JSON lines, with exact numbers.

use std::io::{self, Write};

use super::arrivals::SimulatedArrival;
use super::played::{DecisionOrigin, PlayedArrival};
use super::player::{self, ArrivalPlayer, SimulateError};
use super::scenario::Scenario;
use crate::limit::DecidedCharge;
use crate::time::{Micros, format_seconds};

/// Plays all arrivals, and writes an object for each arrival and player.
pub(super) async fn write(
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
