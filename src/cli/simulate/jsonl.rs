//! Output as JSON lines, with exact numbers.

use std::io::{self, Write};

use super::arrivals::Arrival;
use super::error::SimulateError;
use super::player::Player;
use super::scenario::Scenario;
use crate::limit::{Charge, Decision};
use crate::time::{Micros, format_seconds};

/// Plays all arrivals, and writes an object for each arrival and player.
pub(super) async fn write(
    scenario: &Scenario<'_>,
    players: &mut [Player<'_>],
    out: &mut impl Write,
) -> Result<(), SimulateError> {
    for arrival in scenario.arrivals {
        for player in &mut *players {
            let played = player.arrive(arrival).await?;
            let (charge, decision) = played.binding();
            let limit = &scenario.policies[charge.policy].stored;
            write_object(out, arrival, limit, charge, decision)?;
        }
    }
    Ok(())
}

fn write_object(
    out: &mut impl Write,
    arrival: &Arrival,
    limit: &str,
    charge: &Charge,
    decision: &Decision,
) -> io::Result<()> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    writeln!(
        out,
        "{{\"at\":{},\"key\":{},\"cost\":{},\"allowed\":{},\"limit\":{},\"of\":{},\"remaining\":{},\
         \"reset_after\":{},\"retry_after\":{},\"delay\":{}}}",
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
    )
}
