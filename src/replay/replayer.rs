//! Plays a log against one configuration, and collects what is reported about it.

use super::entry::Entry;
use super::history_recorder::HistoryRecorder;
use super::part_sources::PartSources;
use super::player::Player;
use super::results::Results;
use super::suggest::{SlotsSuggestion, SuggestSettings, Suggestion};
use crate::gate::Gate;
use crate::proxy::ConfigSnapshot;

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

/// What a replay has found.
#[derive(Debug)]
pub struct Findings {
    /// What the configuration would have done.
    pub results: Results,
    /// How many keys were evicted before they had expired.
    pub evictions: u64,
    /// What keeps arrivals, if limits are to be suggested.
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
    pub fn play(&mut self, entry: &Entry<'_>) {
        let Self { player, results, recorder } = self;
        player.play(entry, |played, planned| {
            results.record(entry, played, planned);
            if let (Some(recorder), Some(planned)) = (recorder, planned) {
                recorder.record(entry, played, planned);
            }
        });
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> Findings {
        Findings { results: self.results, evictions: self.player.evictions(), recorder: self.recorder }
    }
}

impl Findings {
    /// Suggested limits, and the number of requests of further limits and routes for which there is no suggestion.
    #[must_use]
    pub fn suggestions(&self, settings: &SuggestSettings) -> (Vec<Suggestion>, u64) {
        self.recorder.as_ref().map_or_else(Default::default, |recorder| recorder.suggestions(settings))
    }

    /// Suggested numbers of limits on concurrency.
    #[must_use]
    pub fn slots(&self, gate: &Gate, settings: &SuggestSettings) -> Vec<SlotsSuggestion> {
        self.recorder.as_ref().map_or_else(Vec::new, |recorder| recorder.slots(gate, settings))
    }
}
