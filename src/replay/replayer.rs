//! Plays a log against one configuration, and collects what is reported about it, with the arrivals from which limits are
//! suggested.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use super::entry::LoggedRequest;
use super::part_sources::PartSources;
use super::planned::PlannedEntry;
use super::player::{PlayedEntry, Player, is_charged};
use super::response_cost::ResponseCost;
use super::results::Results;
use super::suggest::{
    Arrival, Histories, InFlightPeaks, SlotsSuggestion, SuggestSettings, Suggestion, SuggestionSubject,
    WrittenLimits, suggest,
};
use crate::gate::{Gate, KeyPart, KeySpec, OnMissing, RouteId};
use crate::limit::{Key, PolicyId, Quota};
use crate::proxy::ConfigSnapshot;
use crate::time::{Micros, Timestamp};

/// Plays a log against one configuration, and collects what is reported about it.
#[derive(Debug)]
pub struct Replayer<'g> {
    player: Player<'g>,
    results: Results,
    recorder: Option<HistoryRecorder>,
}

/// How much memory a replay may use.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// The most keys that are counted at a time.
    pub max_keys: usize,
    /// The bytes for the arrivals from which limits are suggested; none to suggest nothing.
    pub history_bytes: Option<usize>,
}

/// The findings of a replay.
#[derive(Debug)]
pub struct Findings {
    /// The results of the configuration.
    pub results: Results,
    /// How many keys were evicted before they had expired.
    pub evictions: u64,
    /// How many requests each limit that settles has charged with their estimates, since the log does not tell their cost.
    pub unknown_costs: BTreeMap<PolicyId, u64>,
    /// The recorded arrivals, if limits are to be suggested.
    pub(super) recorder: Option<HistoryRecorder>,
}

impl<'g> Replayer<'g> {
    /// A replay of a log that has parts of requests in the fields that `sources` names.
    #[must_use]
    pub fn new(snapshot: &'g ConfigSnapshot, sources: &'g PartSources, memory: MemoryBudget) -> Self {
        Self {
            player: Player::new(snapshot, sources, memory.max_keys),
            results: Results::new(&snapshot.gate),
            recorder: memory.history_bytes.map(|bytes| HistoryRecorder::new(sources, bytes)),
        }
    }

    /// Plays a request, which must not be earlier than the ones before it.
    pub fn play(&mut self, entry: &LoggedRequest<'_>) {
        let Self { player, results, recorder } = self;
        player.play(entry, |played, planned| {
            results.record(entry, played, planned);
            if let (Some(recorder), Some(planned)) = (recorder, planned) {
                recorder.record(entry, played, planned);
            }
        });
    }

    /// Ends the replay, and returns its findings.
    #[must_use]
    pub fn finish(self) -> Findings {
        let Self { player, results, recorder } = self;
        let (evictions, unknown_costs) = (player.evictions(), player.unknown_costs().clone());
        Findings { results, evictions, unknown_costs, recorder }
    }
}

impl Findings {
    /// Suggested limits, and the number of requests of further limits and routes for which there is no suggestion. `written` are
    /// the limits as the configuration has them.
    #[must_use]
    pub fn suggestions(&self, settings: &SuggestSettings, written: &WrittenLimits) -> (Vec<Suggestion>, u64) {
        self.recorder
            .as_ref()
            .map_or_else(Default::default, |recorder| recorder.suggestions(settings, written))
    }

    /// Suggested numbers of limits on concurrency.
    #[must_use]
    pub fn slots(&self, gate: &Gate, settings: &SuggestSettings) -> Vec<SlotsSuggestion> {
        self.recorder.as_ref().map_or_else(Vec::new, |recorder| recorder.slots(gate, settings))
    }
}

/// The most limits and routes for which limits are suggested.
const MOST_SUBJECTS: usize = 200;

/// Records what limits are suggested from: the arrivals of the keys of each limit, and on routes without a limit those of each
/// client. Limits and routes get a history when their first request arrives.
#[derive(Debug)]
pub(super) struct HistoryRecorder {
    histories: Histories,
    subjects: Vec<Recorded>,
    limits: HashMap<PolicyId, usize>,
    /// The peaks of requests in flight, for limits on concurrency.
    in_flight: BTreeMap<PolicyId, InFlightPeaks>,
    /// For each route without a limit its histories, with the positions of their keys.
    routes: BTreeMap<Option<RouteId>, RouteHistories>,
    /// The keys of routes without a limit.
    route_keys: Vec<KeySpec>,
    /// Requests of limits and routes beyond [`MOST_SUBJECTS`].
    left_out: u64,
}

type RouteHistories = SmallVec<[(usize, usize); 2]>;

#[derive(Debug)]
struct Recorded {
    subject: SuggestionSubject,
    current: Option<Quota>,
}

impl HistoryRecorder {
    /// A recorder that uses about `budget` bytes.
    pub fn new(sources: &PartSources, budget: usize) -> Self {
        let by = |part: &KeyPart| KeySpec { parts: vec![part.clone()], on_missing: OnMissing::Skip };
        Self {
            histories: Histories::new(MOST_SUBJECTS, budget),
            subjects: Vec::new(),
            limits: HashMap::new(),
            in_flight: BTreeMap::new(),
            routes: BTreeMap::new(),
            route_keys: std::iter::once(&KeyPart::ClientIp).chain(sources.parts()).map(by).collect(),
            left_out: 0,
        }
    }

    /// Records a request.
    pub fn record(&mut self, entry: &LoggedRequest<'_>, played: &PlayedEntry, planned: &PlannedEntry<'_>) {
        // Where in its second a request of a log without fractions arrived is not known: it may be together with others.
        let at = match entry.second {
            Some(_) => Timestamp(entry.arrival.0 / Micros::SECOND.0 * Micros::SECOND.0),
            None => entry.arrival,
        };
        for (limit, charge, _) in played.decisions.iter().filter(|(_, charge, _)| charge.cost > 0) {
            if matches!(planned.gate.limits.policies[*limit].quota, Quota::Concurrency(_)) {
                let end = entry.duration.map(|_| entry.end());
                self.in_flight.entry(*limit).or_default().record(charge.key, at, end);
                continue;
            }
            let Some(number) = self.of_limit(planned.gate, *limit) else {
                self.left_out += 1;
                continue;
            };
            let subject = &mut self.subjects[number].subject;
            if charge.policy != *limit {
                subject.with_own_numbers += 1;
                continue;
            }
            if !is_charged(&planned.gate.limits.policies[*limit], entry.status) {
                subject.uncharged += 1;
                continue;
            }
            let cost = ResponseCost::Logged(entry).of(planned.gate, *limit).charged;
            let arrival = Arrival { at, cost: cost.unwrap_or(charge.cost) };
            let name = || planned.key_name(charge).map(Into::into);
            self.histories.record(number, charge.key, arrival, name);
            self.histories.describe(number, charge.key, entry.user_agent.as_deref(), planned.consumer(entry));
        }
        if planned.limits().is_empty() {
            let histories = self.of_route(planned.gate, played.route);
            self.left_out += u64::from(histories.is_empty());
            for (number, key) in histories {
                if let Some(key) = self.record_client(number, key, at, planned) {
                    self.histories.describe(
                        number,
                        key,
                        entry.user_agent.as_deref(),
                        planned.consumer(entry),
                    );
                }
            }
        }
    }

    /// The suggestions, and the number of requests of limits and routes for which there is none.
    pub fn suggestions(&self, settings: &SuggestSettings, written: &WrittenLimits) -> (Vec<Suggestion>, u64) {
        let all = self.subjects.iter().zip(self.histories.all());
        let all = all.filter_map(|(Recorded { subject, current }, history)| {
            let table = written.table(&subject.name).filter(|_| subject.is_configured);
            suggest(history, SuggestionSubject { table, ..subject.clone() }, settings, current.as_slice())
        });
        (all.collect(), self.left_out)
    }

    /// The suggestions for limits on concurrency.
    pub fn slots(&self, gate: &Gate, settings: &SuggestSettings) -> Vec<SlotsSuggestion> {
        let of = |(limit, peaks): (&PolicyId, &InFlightPeaks)| {
            let policy = &gate.limits.policies[*limit];
            peaks.suggest(&policy.name, key_parts(gate, *limit), policy.quota.limit(), settings)
        };
        self.in_flight.iter().filter_map(of).collect()
    }

    /// Records a request of a route without a limit; returns its key, if it has one.
    fn record_client(
        &mut self,
        number: usize,
        key: usize,
        at: Timestamp,
        planned: &PlannedEntry<'_>,
    ) -> Option<Key> {
        let spec = &self.route_keys[key];
        let key = planned.key(spec)?;
        let name = || planned.value_text(&spec.parts[0]).map(Into::into);
        self.histories.record(number, key, Arrival { at, cost: 1 }, name);
        Some(key)
    }

    fn of_limit(&mut self, gate: &Gate, limit: PolicyId) -> Option<usize> {
        if let Some(number) = self.limits.get(&limit) {
            return Some(*number);
        }
        let policy = &gate.limits.policies[limit];
        let subject = SuggestionSubject {
            name: policy.name.to_string(),
            is_configured: true,
            key: key_parts(gate, limit),
            ..SuggestionSubject::default()
        };
        let number = self.add(Recorded { subject, current: Some(policy.quota.clone()) })?;
        self.limits.insert(limit, number);
        Some(number)
    }

    fn of_route(&mut self, gate: &Gate, route: Option<RouteId>) -> RouteHistories {
        if let Some(histories) = self.routes.get(&route) {
            return histories.clone();
        }
        let name = route.map(|id| gate.routes.get(id).name.to_string());
        let parts: Vec<String> = self.route_keys.iter().map(|spec| spec.parts[0].to_string()).collect();
        let mut histories = SmallVec::new();
        for (index, part) in parts.into_iter().enumerate() {
            let base = name.as_deref().map_or_else(|| "unrouted".to_owned(), limit_name);
            let name_of_part = if index == 0 { base } else { format!("{base}-by-{}", limit_name(&part)) };
            let (route, key) = (name.clone(), vec![part]);
            let subject =
                SuggestionSubject { name: name_of_part, route, key, ..SuggestionSubject::default() };
            histories.extend(self.add(Recorded { subject, current: None }).map(|number| (number, index)));
        }
        self.routes.insert(route, histories.clone());
        histories
    }

    fn add(&mut self, recorded: Recorded) -> Option<usize> {
        if self.subjects.len() == MOST_SUBJECTS {
            return None;
        }
        self.subjects.push(recorded);
        Some(self.subjects.len() - 1)
    }
}

fn key_parts(gate: &Gate, limit: PolicyId) -> Vec<String> {
    gate.limit_rules[limit].key.parts.iter().map(ToString::to_string).collect()
}

/// A name that limits can have, from a route's or a part's.
fn limit_name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = name.chars().map(allowed).collect();
    let name = name.trim_matches('-');
    match name.chars().next() {
        None => "route".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("route-{name}"),
        Some(_) => name.to_owned(),
    }
}
