//! Plays all arrivals, for output with one row for each.

use std::io;

use super::arrivals::SimulatedArrival;
use super::error::SimulateError;
use super::played::PlayedArrival;
use super::player::ArrivalPlayer;

/// Plays all arrivals, and passes each to `write` with the results of all players, in order.
pub(super) async fn play(
    arrivals: &[SimulatedArrival],
    players: &mut [ArrivalPlayer<'_>],
    mut write: impl FnMut(&SimulatedArrival, &[PlayedArrival]) -> io::Result<()>,
) -> Result<(), SimulateError> {
    let mut unwritten = arrivals.iter();
    for arrival in arrivals {
        for player in &mut *players {
            player.arrive(arrival).await?;
        }
        write_known(&mut unwritten, players, &mut write)?;
    }
    for player in &mut *players {
        player.finish().await?;
    }
    write_known(&mut unwritten, players, &mut write)?;
    Ok(())
}

/// Writes the next arrivals whose results are known to all players.
fn write_known<'a>(
    unwritten: &mut impl Iterator<Item = &'a SimulatedArrival>,
    players: &mut [ArrivalPlayer<'_>],
    write: &mut impl FnMut(&SimulatedArrival, &[PlayedArrival]) -> io::Result<()>,
) -> io::Result<()> {
    while players.iter_mut().all(|player| !player.results().is_empty()) {
        let Some(arrival) = unwritten.next() else { break };
        let results: Vec<PlayedArrival> =
            players.iter_mut().filter_map(|player| player.results().pop_front()).collect();
        write(arrival, &results)?;
    }
    Ok(())
}
