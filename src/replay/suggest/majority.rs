//! What most requests of a key have in common, such as the user agent, in a few bytes for each key.

use std::collections::HashMap;
use std::sync::Arc;

/// The most different texts that are kept.
const MOST_TEXTS: usize = 2_000;
/// The most bytes of a text that are kept.
const LONGEST: usize = 200;
/// The number of all texts beyond [`MOST_TEXTS`].
const OTHER: u32 = u32::MAX;

/// The text of most requests of each key, by a majority vote: equal texts support a candidate, and others outweigh them (Boyer,
/// Moore: MJRTY, a fast majority vote algorithm, 1981). Keys have positions.
#[derive(Debug, Default)]
pub(super) struct Majority {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    votes: Vec<Vote>,
    text_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Vote {
    text: u32,
    count: u32,
}

impl Majority {
    /// Counts a request of the key at this position.
    pub fn add(&mut self, position: usize, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
        let number = self.numbers.get(&*text).copied().unwrap_or_else(|| self.insert(&text));
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
    pub fn text(&self, position: usize, requests: u64) -> Option<&str> {
        let vote = self.votes.get(position).filter(|vote| u64::from(vote.count) * 3 >= requests.max(1))?;
        self.texts.get(usize::try_from(vote.text).ok()?).map(|text| &**text)
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

    /// The memory that it uses, in bytes.
    pub fn bytes(&self) -> usize {
        self.votes.capacity() * size_of::<Vote>() + self.text_bytes
    }

    fn insert(&mut self, text: &str) -> u32 {
        if self.texts.len() == MOST_TEXTS {
            return OTHER;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(OTHER);
        let text: Arc<str> = text.into();
        self.text_bytes += text.len() + 4 * size_of::<Arc<str>>();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
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
        let text = |agents: &Majority, position| agents.text(position, 90).map(str::to_owned);
        assert_eq!(
            [0, 1, 2, 3].map(|position| text(&agents, position)),
            [None, Some("Firefox".to_owned()), None, None]
        );
        agents.retain(|position| position == 1);
        assert_eq!([0, 1].map(|position| text(&agents, position)), [Some("Firefox".to_owned()), None]);
    }

    #[test]
    fn texts_are_bounded() {
        let mut agents = Majority::default();
        for number in 0..3 * MOST_TEXTS {
            agents.add(0, format!("{number} {}", "é".repeat(LONGEST)).as_bytes());
        }
        assert!(agents.bytes() < MOST_TEXTS * (LONGEST + 80), "{}", agents.bytes());
        agents.add(1, b"one more");
        assert_eq!(agents.text(1, 1), None);
    }
}
