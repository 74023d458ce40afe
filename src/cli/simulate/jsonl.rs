//! One JSON object an arrival, with every number exact.

use std::io::{self, Write};

use super::arrivals::Arrival;
use super::decimal;
use super::player::Player;
use super::{Problem, Script};
use crate::limit::{Charge, Decision};
use crate::time::Micros;

/// Plays all arrivals, and writes what becomes of each: one object, or one for each limit that is alone.
pub(super) async fn write(
    script: &Script<'_>,
    players: &mut [Player<'_>],
    out: &mut impl Write,
) -> Result<(), Problem> {
    for arrival in script.arrivals {
        for player in &mut *players {
            let played = player.arrive(arrival).await?;
            let (charge, decision) = played.binding();
            let limit = &script.policies[charge.policy].stored;
            object(out, arrival, limit, charge, decision)?;
        }
    }
    Ok(())
}

fn object(
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
        decimal::text(Micros(arrival.at.0)),
        quoted(&arrival.key),
        charge.cost,
        decision.allowed,
        quoted(limit),
        decision.limit,
        decision.remaining,
        decimal::text(decision.reset_after),
        decision.retry_after.map_or_else(|| "null".to_owned(), decimal::text),
        decimal::text(decision.delay),
    )
}
