//! What most requests of a key have in common, such as the user agent, in a few bytes for each key.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most different texts that are kept.
const MOST_TEXTS: usize = 2_000;
/// The most bytes of a text that are kept.
const LONGEST: usize = 200;
/// The number of all texts beyond [`MOST_TEXTS`].
const OTHER: u32 = u32::MAX;

/// Different texts with their numbers, which several majorities share. They are at most [`MOST_TEXTS`] of [`LONGEST`] bytes, in
/// addition to any budget of memory.
#[derive(Debug, Default)]
pub(super) struct Texts {
    numbers: HashMap<Arc<str>, u32>,
    all: Vec<Arc<str>>,
}

/// The text of most requests of each key, by a majority vote: equal texts support a candidate, and others outweigh them (Boyer,
/// Moore: MJRTY, a fast majority vote algorithm, 1981). Keys have positions.
#[derive(Debug, Default)]
pub(super) struct Majority {
    texts: Arc<Mutex<Texts>>,
    votes: Vec<Vote>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Vote {
    text: u32,
    count: u32,
}

impl Texts {
    /// The number of a text, which is added if there is room.
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.all.len() == MOST_TEXTS {
            return OTHER;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(OTHER);
        let text: Arc<str> = text.into();
        self.all.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }
}

impl Majority {
    /// A majority of texts that others share.
    pub fn sharing(texts: &Arc<Mutex<Texts>>) -> Self {
        Self { texts: Arc::clone(texts), votes: Vec::new() }
    }

    /// Counts a request of the key at this position.
    pub fn add(&mut self, position: usize, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
        let number = self.texts.lock().number(&text);
        if self.votes.len() <= position {
            self.votes.resize(position + 1, Vote::default());
        }
        let vote = &mut self.votes[position];
        if vote.count == 0 {
            *vote = Vote { text: number, count: 1 };
        } else if vote.text == number {
            vote.count = vote.count.saturating_add(1);
        } else {
            vote.count -= 1;
        }
    }

    /// The text of the key at this position, which made so many requests; none if it is not certain that a third of them have
    /// the same one.
    pub fn text(&self, position: usize, requests: u64) -> Option<Arc<str>> {
        let vote = self.votes.get(position).filter(|vote| u64::from(vote.count) * 3 >= requests.max(1))?;
        self.texts.lock().all.get(usize::try_from(vote.text).ok()?).cloned()
    }

    /// Keeps the keys at these positions, which move up.
    pub fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let mut position = 0;
        self.votes.retain(|_| {
            position += 1;
            is_kept(position - 1)
        });
        self.votes.shrink_to_fit();
    }

    /// The memory that it uses, in bytes, without the texts.
    pub fn bytes(&self) -> usize {
        self.votes.capacity() * size_of::<Vote>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_most_requests_is_found() {
        let mut agents = Majority::default();
        for request in 0..90 {
            agents.add(1, if request % 3 == 0 { b"curl/8" } else { b"Firefox" });
            agents.add(2, format!("agent {request}").as_bytes());
        }
        let text = |agents: &Majority, position| agents.text(position, 90).map(|text| text.to_string());
        assert_eq!(
            [0, 1, 2, 3].map(|position| text(&agents, position)),
            [None, Some("Firefox".to_owned()), None, None]
        );
        agents.retain(|position| position == 1);
        assert_eq!([0, 1].map(|position| text(&agents, position)), [Some("Firefox".to_owned()), None]);
    }

    #[test]
    fn texts_are_bounded() {
        let texts = Arc::default();
        let mut agents = [Majority::sharing(&texts), Majority::sharing(&texts)];
        for number in 0..3 * MOST_TEXTS {
            agents[number % 2].add(0, format!("{number} {}", "é".repeat(LONGEST)).as_bytes());
        }
        let bytes: usize = texts.lock().all.iter().map(|text| text.len()).sum();
        assert!(bytes <= MOST_TEXTS * LONGEST * 3 / 2 && texts.lock().all.len() == MOST_TEXTS, "{bytes}");
        agents[0].add(1, b"one more");
        assert_eq!(agents[0].text(1, 1), None);
    }
}
