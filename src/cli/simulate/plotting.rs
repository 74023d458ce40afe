//! Plays the arrivals for a plot, and samples the remaining units between them.

use super::arrivals::SimulatedArrival;
use super::played::PlayedArrival;
use super::player::{ArrivalPlayer, SimulateError};
use super::scenario::Scenario;
use crate::cli::describe;
use crate::limit::{DecidedCharge, Decision, DenyReason, Policy};
use crate::plot::{Level, Mark, MarkKind, Panel, Plot};
use crate::text::plural;
use crate::time::{Micros, Timestamp, format_seconds};

/// Samples of each level, from one end of the plot to the other.
const SAMPLES: u64 = 720;
/// The most keys whose levels are drawn: more lines would be hard to distinguish.
const MAX_KEYS: usize = 4;

/// Records the decisions of one player's limits.
struct Recorder<'p, 'a> {
    player: &'p mut ArrivalPlayer<'a>,
    panels: Vec<Panel>,
    /// The first arrival of each key whose level is drawn.
    sampled: &'p [&'p SimulatedArrival],
    now: Timestamp,
    /// The longest `reset_after` at the last sample.
    reset: Micros,
    admitted: usize,
}

/// Plays all arrivals.
pub(super) async fn play(
    scenario: &Scenario<'_>,
    players: &mut [ArrivalPlayer<'_>],
) -> Result<Plot, SimulateError> {
    let mut keys: Vec<&SimulatedArrival> = scenario.arrivals.iter().collect();
    keys.sort_by(|a, b| a.key.cmp(&b.key)); // Stable: the first of each key stays first.
    keys.dedup_by(|a, b| a.key == b.key);
    let other_keys = keys.len().saturating_sub(MAX_KEYS);
    let is_first = |arrival: &&SimulatedArrival| keys.iter().any(|first| std::ptr::eq(*first, *arrival));
    let sampled: Vec<&SimulatedArrival> = scenario.arrivals.iter().filter(is_first).take(MAX_KEYS).collect();
    let times = || scenario.arrivals.iter().map(|arrival| arrival.at);
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    // Arrivals soon after the epoch are shown from the epoch, so that the axis starts at 0.
    let start = if first.0 <= last.0 / 5 { Timestamp::default() } else { first };
    let mut recorders: Vec<Recorder<'_, '_>> = Vec::new();
    for player in players {
        let mut recorder = Recorder::new(scenario, player, &sampled, start);
        recorder.play(scenario.arrivals, (last.0 - start.0) / SAMPLES).await?;
        recorders.push(recorder);
    }
    let end = end(&recorders, start, last);
    for recorder in &mut recorders {
        recorder.sample_until(end, (end.0 - start.0) / SAMPLES).await?;
    }
    let panels = recorders.into_iter().flat_map(|recorder| recorder.finish(scenario)).collect();
    let keys = sampled.iter().map(|arrival| arrival.printable_key()).collect();
    let title = title(scenario, other_keys + sampled.len(), Micros(last.0 - first.0));
    Ok(Plot { title, span: (start, end), keys, other_keys, panels })
}

/// The right end of the plot: after the last request is forwarded, and late enough to show some recovery.
fn end(recorders: &[Recorder<'_, '_>], start: Timestamp, last: Timestamp) -> Timestamp {
    let span = last.0 - start.0;
    let most = |times: &mut dyn Iterator<Item = u64>| times.max().unwrap_or(0);
    let reset = most(&mut recorders.iter().map(|recorder| recorder.reset.0));
    let busy = most(&mut recorders.iter().filter_map(|recorder| recorder.player.busy_until()).map(|at| at.0));
    let marks = recorders.iter().flat_map(|recorder| &recorder.panels).flat_map(|panel| &panel.marks);
    let released = most(&mut marks.map(|mark| mark.released.0));
    let wanted = reset.max(busy.saturating_sub(last.0));
    let tail = if span == 0 { wanted.max(1) } else { wanted.clamp(span / 20 + 1, span / 5 * 2 + 1) };
    Timestamp((last.0 + tail).max(released + (released - start.0.min(released)) / 20))
}

fn title(scenario: &Scenario<'_>, keys: usize, span: Micros) -> String {
    let count = scenario.arrivals.len();
    let plural = plural(count);
    let of_keys = if keys > 1 { format!(" of {keys} keys") } else { String::new() };
    let against = match scenario.players.iter().map(Vec::len).sum() {
        0 | 1 => "",
        _ if scenario.compare => ", against each limit alone",
        2 => ", against both limits together",
        _ => ", against all limits together",
    };
    format!("{count} request{plural}{of_keys} in {} s{against}", format_seconds(span))
}

impl<'p, 'a> Recorder<'p, 'a> {
    fn new(
        scenario: &Scenario<'_>,
        player: &'p mut ArrivalPlayer<'a>,
        sampled: &'p [&'p SimulatedArrival],
        now: Timestamp,
    ) -> Self {
        let panels = player.limits().map(|policy| panel(policy, scenario, sampled.len())).collect();
        Self { player, panels, sampled, now, reset: Micros::ZERO, admitted: 0 }
    }

    /// Plays all arrivals, and samples the levels at each `step` between them.
    async fn play(&mut self, arrivals: &[SimulatedArrival], step: u64) -> Result<(), SimulateError> {
        let mut unmarked = arrivals.iter();
        for arrival in arrivals {
            if arrival.at < self.now {
                self.start_lines();
                self.now = arrival.at;
                self.sample_all().await?;
            } else {
                self.sample_until(arrival.at, step).await?;
            }
            self.player.arrive(arrival).await?;
            self.mark_known(&mut unmarked);
            if let Some(index) = self.sampled.iter().position(|first| first.key == arrival.key) {
                self.sample(index).await?;
            }
        }
        self.player.finish().await?;
        self.mark_known(&mut unmarked);
        Ok(())
    }

    /// Adds the marks of the next arrivals whose results are known.
    fn mark_known<'r>(&mut self, unmarked: &mut impl Iterator<Item = &'r SimulatedArrival>) {
        while !self.player.results().is_empty()
            && let Some(arrival) = unmarked.next()
            && let Some(played) = self.player.results().pop_front()
        {
            self.mark(arrival, &played);
        }
    }

    /// Samples all levels now, at each `step` from now on, and at `to`.
    async fn sample_until(&mut self, to: Timestamp, step: u64) -> Result<(), SimulateError> {
        loop {
            self.sample_all().await?;
            if self.now >= to {
                return Ok(());
            }
            self.now = self.now.after(Micros(step.max(1))).min(to);
        }
    }

    async fn sample_all(&mut self) -> Result<(), SimulateError> {
        self.reset = Micros::ZERO;
        for index in 0..self.sampled.len() {
            self.sample(index).await?;
        }
        Ok(())
    }

    async fn sample(&mut self, index: usize) -> Result<(), SimulateError> {
        let peeked = self.player.peek(self.now, self.sampled[index]).await?;
        for (panel, DecidedCharge { decision, .. }) in self.panels.iter_mut().zip(peeked) {
            self.reset = self.reset.max(decision.reset_after);
            let lines = &mut panel.levels[index];
            if lines.is_empty() {
                lines.push(Vec::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push((self.now, decision.remaining));
            }
        }
        Ok(())
    }

    fn start_lines(&mut self) {
        self.panels.iter_mut().flat_map(|panel| &mut panel.levels).for_each(|lines| lines.push(Vec::new()));
    }

    fn mark(&mut self, arrival: &SimulatedArrival, played: &PlayedArrival) {
        self.admitted += usize::from(played.allowed);
        let released = arrival.at.after(played.delay);
        for (panel, DecidedCharge { charge, decision }) in self.panels.iter_mut().zip(&played.decided) {
            let kind = match (decision.allowed, played.allowed) {
                (false, _) => MarkKind::Denied,
                (true, false) => MarkKind::DeniedElsewhere,
                (true, true) if played.delay > Micros::ZERO => MarkKind::Delayed,
                (true, true) => MarkKind::Admitted,
            };
            let (at, key) = (format_seconds(Micros(arrival.at.0)), arrival.printable_key());
            let tip = format!("{at} s, key {key}, cost {}: {}", charge.cost, verdict(kind, decision, played));
            panel.marks.push(Mark { kind, arrived: arrival.at, released, tip });
        }
    }

    fn finish(self, scenario: &Scenario<'_>) -> Vec<Panel> {
        let is_together = self.panels.len() > 1;
        let (admitted, all) = (self.admitted, scenario.arrivals.len());
        let calls = self.player.proxies().map(|proxies| format!("; {}", proxies.summary().calls()));
        let calls = calls.unwrap_or_default();
        let mut panels = self.panels;
        for panel in &mut panels {
            let denied = panel.marks.iter().filter(|mark| mark.kind == MarkKind::Denied).count();
            let delayed = panel.marks.iter().filter(|mark| mark.kind == MarkKind::Delayed).count();
            panel.counts = match (is_together, delayed) {
                (true, _) => format!("admitted {admitted} of {all}; {denied} denied by this limit{calls}"),
                (false, 0) => format!("admitted {admitted} of {all}{calls}"),
                (false, _) => format!("admitted {admitted} of {all}, {delayed} after a delay{calls}"),
            };
        }
        panels
    }
}

fn panel(policy: &Policy, scenario: &Scenario<'_>, keys: usize) -> Panel {
    let mode =
        if policy.shadow { format!(" ({} mode: denies no request)", policy.mode()) } else { String::new() };
    Panel {
        name: format!("{}{mode}", policy.stored),
        algorithm: policy.quota.algorithm().name(),
        description: describe::quota(&policy.quota),
        counts: String::new(),
        limit: policy.quota.limit(),
        marks: Vec::with_capacity(scenario.arrivals.len()),
        levels: vec![Level::new(); keys],
    }
}

/// The tip of a mark.
fn verdict(kind: MarkKind, decision: &Decision, played: &PlayedArrival) -> String {
    let left = format!("{} of {} remaining", decision.remaining, decision.limit);
    match (kind, decision.reason, decision.retry_after) {
        (MarkKind::Admitted, ..) => format!("admitted, {left}"),
        (MarkKind::Delayed, ..) => format!("admitted after {} s, {left}", format_seconds(played.delay)),
        (MarkKind::DeniedElsewhere, ..) => format!("denied by another limit, {left}"),
        (MarkKind::Denied, DenyReason::Ban, _) => "denied: the key is banned".to_owned(),
        (MarkKind::Denied, DenyReason::Block, _) => "denied: the key is blocked".to_owned(),
        (MarkKind::Denied, _, None) => "denied: its cost exceeds the limit".to_owned(),
        (MarkKind::Denied, _, Some(wait)) => {
            format!("denied, {left}; retry after {} s", format_seconds(wait))
        }
    }
}
