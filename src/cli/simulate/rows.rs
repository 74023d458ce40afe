//! Plays all arrivals, for output with one row for each.

use std::io;

use super::arrivals::Arrival;
use super::error::SimulateError;
use super::played::Played;
use super::player::Player;

/// Plays all arrivals, and passes each to `write` with the results of all players, in order.
pub(super) async fn play(
    arrivals: &[Arrival],
    players: &mut [Player<'_>],
    mut write: impl FnMut(&Arrival, &[Played]) -> io::Result<()>,
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
    unwritten: &mut impl Iterator<Item = &'a Arrival>,
    players: &mut [Player<'_>],
    write: &mut impl FnMut(&Arrival, &[Played]) -> io::Result<()>,
) -> io::Result<()> {
    while players.iter_mut().all(|player| !player.results().is_empty()) {
        let Some(arrival) = unwritten.next() else { break };
        let results: Vec<Played> =
            players.iter_mut().filter_map(|player| player.results().pop_front()).collect();
        write(arrival, &results)?;
    }
    Ok(())
}
