//! What a picture shows: plays the arrivals, and looks between them at what is left.

use super::arrivals::Arrival;
use super::decimal;
use super::player::{Played, Player};
use super::{Problem, Script, shown_key, words};
use crate::limit::{Decision, DenyReason, Policy};
use crate::time::{Micros, Timestamp};

/// Looks at what is left, from one side of the picture to the other.
const LOOKS: u64 = 720;
/// Keys whose level is drawn; more lines say less.
const DRAWN_KEYS: usize = 4;

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Picture {
    pub title: String,
    /// The times at its left and right side.
    pub span: (Timestamp, Timestamp),
    /// Keys whose levels are drawn.
    pub keys: Vec<String>,
    /// How many other keys there are.
    pub other_keys: usize,
    pub panels: Vec<Panel>,
}

/// What one limit does.
#[derive(Debug)]
pub(super) struct Panel {
    pub name: String,
    pub algorithm: &'static str,
    pub sentence: String,
    pub counts: String,
    /// The most that is ever left.
    pub limit: u64,
    pub marks: Vec<Mark>,
    /// What is left over time, for each key that is drawn.
    pub levels: Vec<Level>,
}

/// One arrival, as this limit sees it.
#[derive(Debug)]
pub(super) struct Mark {
    pub kind: Kind,
    pub arrived: Timestamp,
    /// When it is forwarded.
    pub released: Timestamp,
    /// What is said of it when one points at it.
    pub tip: String,
}

/// What becomes of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Admitted,
    Delayed,
    Refused,
    /// Refused, but not by this limit.
    RefusedElsewhere,
}

/// Lines of time and what is left; a new one begins where the clock was set back.
pub(super) type Level = Vec<Vec<(Timestamp, u64)>>;

/// What one player's limits do, while it is found out.
struct Sketch<'p, 'a> {
    player: &'p mut Player<'a>,
    panels: Vec<Panel>,
    /// The first arrival of each key whose level is drawn.
    probes: &'p [&'p Arrival],
    now: Timestamp,
    /// The longest that anything takes to be back after the last arrival.
    reset: Micros,
    admitted: usize,
}

/// Plays all arrivals.
pub(super) async fn take(script: &Script<'_>, players: &mut [Player<'_>]) -> Result<Picture, Problem> {
    let mut keys: Vec<&Arrival> = script.arrivals.iter().collect();
    keys.sort_by(|a, b| a.key.cmp(&b.key)); // Stable: the first of each key stays first.
    keys.dedup_by(|a, b| a.key == b.key);
    let other_keys = keys.len().saturating_sub(DRAWN_KEYS);
    let is_first = |arrival: &&Arrival| keys.iter().any(|first| std::ptr::eq(*first, *arrival));
    let probes: Vec<&Arrival> = script.arrivals.iter().filter(is_first).take(DRAWN_KEYS).collect();
    let times = || script.arrivals.iter().map(|arrival| arrival.at);
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    // What happens soon after the epoch is shown from the epoch.
    let start = if first.0 <= last.0 / 5 { Timestamp::default() } else { first };
    let mut sketches: Vec<Sketch<'_, '_>> = Vec::new();
    for player in players {
        let mut sketch = Sketch::new(script, player, &probes, start);
        sketch.play(script.arrivals, (last.0 - start.0) / LOOKS).await?;
        sketches.push(sketch);
    }
    let end = end(&sketches, start, last);
    for sketch in &mut sketches {
        sketch.watch(end, (end.0 - start.0) / LOOKS).await?;
    }
    let panels = sketches.into_iter().flat_map(|sketch| sketch.finish(script)).collect();
    let keys = probes.iter().map(|arrival| shown_key(&arrival.key)).collect();
    let title = title(script, other_keys + probes.len(), Micros(last.0 - first.0));
    Ok(Picture { title, span: (start, end), keys, other_keys, panels })
}

/// Where the picture ends: when the last request is forwarded, and late enough to see something come back.
fn end(sketches: &[Sketch<'_, '_>], start: Timestamp, last: Timestamp) -> Timestamp {
    let span = last.0 - start.0;
    let most = |times: &mut dyn Iterator<Item = u64>| times.max().unwrap_or(0);
    let reset = most(&mut sketches.iter().map(|sketch| sketch.reset.0));
    let busy = most(&mut sketches.iter().filter_map(|it| it.player.busy_until()).map(|at| at.0));
    let marks = sketches.iter().flat_map(|sketch| &sketch.panels).flat_map(|panel| &panel.marks);
    let released = most(&mut marks.map(|mark| mark.released.0));
    let wanted = reset.max(busy.saturating_sub(last.0));
    let tail = if span == 0 { wanted.max(1) } else { wanted.clamp(span / 20 + 1, span / 5 * 2 + 1) };
    Timestamp((last.0 + tail).max(released + (released - start.0.min(released)) / 20))
}

fn title(script: &Script<'_>, keys: usize, span: Micros) -> String {
    let count = script.arrivals.len();
    let plural = if count == 1 { "" } else { "s" };
    let whose = if keys > 1 { format!(" of {keys} keys") } else { String::new() };
    let how = match script.casts.iter().map(Vec::len).sum() {
        0 | 1 => "",
        _ if script.compare => ", against each limit alone",
        2 => ", against both limits together",
        _ => ", against all limits together",
    };
    format!("{count} request{plural}{whose} in {} s{how}", decimal::text(span))
}

impl<'p, 'a> Sketch<'p, 'a> {
    fn new(
        script: &Script<'_>,
        player: &'p mut Player<'a>,
        probes: &'p [&'p Arrival],
        now: Timestamp,
    ) -> Self {
        let panels = player.limits().map(|policy| Panel::new(policy, script, probes.len())).collect();
        Self { player, panels, probes, now, reset: Micros::ZERO, admitted: 0 }
    }

    /// Plays all arrivals, with a look at each `step` between them.
    async fn play(&mut self, arrivals: &[Arrival], step: u64) -> Result<(), Problem> {
        for arrival in arrivals {
            if arrival.at < self.now {
                self.begin_lines();
                self.now = arrival.at;
                self.look_at_all().await?;
            } else {
                self.watch(arrival.at, step).await?;
            }
            let played = self.player.arrive(arrival).await?;
            self.mark(arrival, &played);
            if let Some(place) = self.probes.iter().position(|probe| probe.key == arrival.key) {
                self.look(place).await?;
            }
        }
        Ok(())
    }

    /// Looks now, at each `step` from now on, and at last at `to`.
    async fn watch(&mut self, to: Timestamp, step: u64) -> Result<(), Problem> {
        loop {
            self.look_at_all().await?;
            if self.now >= to {
                return Ok(());
            }
            self.now = self.now.after(Micros(step.max(1))).min(to);
        }
    }

    async fn look_at_all(&mut self) -> Result<(), Problem> {
        self.reset = Micros::ZERO;
        for place in 0..self.probes.len() {
            self.look(place).await?;
        }
        Ok(())
    }

    async fn look(&mut self, place: usize) -> Result<(), Problem> {
        let decisions = self.player.look(self.now, self.probes[place]).await?;
        for (panel, decision) in self.panels.iter_mut().zip(decisions) {
            self.reset = self.reset.max(decision.reset_after);
            let lines = &mut panel.levels[place];
            if lines.is_empty() {
                lines.push(Vec::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push((self.now, decision.remaining));
            }
        }
        Ok(())
    }

    fn begin_lines(&mut self) {
        self.panels.iter_mut().flat_map(|panel| &mut panel.levels).for_each(|lines| lines.push(Vec::new()));
    }

    fn mark(&mut self, arrival: &Arrival, played: &Played) {
        self.admitted += usize::from(played.allowed);
        let released = arrival.at.after(played.delay);
        for ((panel, decision), charge) in self.panels.iter_mut().zip(&played.decisions).zip(&played.charges)
        {
            let kind = match (decision.allowed, played.allowed) {
                (false, _) => Kind::Refused,
                (true, false) => Kind::RefusedElsewhere,
                (true, true) if played.delay > Micros::ZERO => Kind::Delayed,
                (true, true) => Kind::Admitted,
            };
            let (at, key) = (decimal::text(Micros(arrival.at.0)), shown_key(&arrival.key));
            let tip = format!("{at} s, key {key}, cost {}: {}", charge.cost, told(kind, decision, played));
            panel.marks.push(Mark { kind, arrived: arrival.at, released, tip });
        }
    }

    fn finish(self, script: &Script<'_>) -> Vec<Panel> {
        let stacked = self.panels.len() > 1;
        let (admitted, all) = (self.admitted, script.arrivals.len());
        let mut panels = self.panels;
        for panel in &mut panels {
            let refused = panel.marks.iter().filter(|mark| mark.kind == Kind::Refused).count();
            let delayed = panel.marks.iter().filter(|mark| mark.kind == Kind::Delayed).count();
            panel.counts = match (stacked, delayed) {
                (true, _) => format!("admitted {admitted} of {all}; {refused} refused here"),
                (false, 0) => format!("admitted {admitted} of {all}"),
                (false, _) => format!("admitted {admitted} of {all}, {delayed} after a wait"),
            };
        }
        panels
    }
}

impl Panel {
    fn new(policy: &Policy, script: &Script<'_>, keys: usize) -> Self {
        let watches = if policy.shadow { " (shadow mode: refuses nobody)" } else { "" };
        Self {
            name: format!("{}{watches}", policy.stored),
            algorithm: policy.quota.algorithm().name(),
            sentence: words::sentence(&policy.quota),
            counts: String::new(),
            limit: policy.quota.limit(),
            marks: Vec::with_capacity(script.arrivals.len()),
            levels: vec![Level::new(); keys],
        }
    }
}

/// What becomes of an arrival, in words.
fn told(kind: Kind, decision: &Decision, played: &Played) -> String {
    let left = format!("{} of {} left", decision.remaining, decision.limit);
    match (kind, decision.cause, decision.retry_after) {
        (Kind::Admitted, ..) => format!("admitted, {left}"),
        (Kind::Delayed, ..) => format!("admitted after {} s, {left}", decimal::text(played.delay)),
        (Kind::RefusedElsewhere, ..) => format!("refused by another limit, {left}"),
        (Kind::Refused, DenyReason::Ban, _) => "refused: the key is banned".to_owned(),
        (Kind::Refused, DenyReason::Block, _) => "refused: the key is blocked".to_owned(),
        (Kind::Refused, _, None) => "refused: it costs more than there ever is".to_owned(),
        (Kind::Refused, _, Some(wait)) => format!("refused, {left}; may pass in {} s", decimal::text(wait)),
    }
}
