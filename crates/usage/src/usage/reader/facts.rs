//! What a reader remembers of the texts of a response.

use super::json::{Scalar, Sink};
use super::keys::{Field, Key, LEVELS, count_at, is_content, is_model, is_usage};
use super::pointers::Pointers;
use super::{Observed, Unknown, Value};
use crate::usage::tokens::{Dialect, Tokens};

/// Bytes of text for each token of output, at most.
const BYTES_PER_TOKEN: u64 = 6;

/// What is known of the texts so far.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a text, an event and the response")]
pub(super) struct Facts {
    pub(super) observed: Observed,
    pointers: Pointers,
    path: [Key; LEVELS],
    counts: [Value; Field::ALL],
    /// The counts of Ollama in the present text, which are those of the response if it is the last one.
    ollama: [Value; 2],
    is_last: bool,
    /// Whether Ollama's form is possible: it has no event streams.
    may_be_ollama: bool,
    is_duration: bool,
    is_in_content: bool,
    has_content: bool,
    content_events: u64,
    text_bytes: u64,
    /// Whether `counts` have changed since `observed` was made.
    has_changed: bool,
    pub(super) has_malformed: bool,
}

impl Facts {
    pub(super) fn new(pointers: Pointers, values: usize, may_be_ollama: bool) -> Self {
        Self {
            observed: Observed { values: vec![Value::Absent; values], ..Observed::default() },
            pointers,
            path: [Key::Other; LEVELS],
            counts: [Value::Absent; Field::ALL],
            ollama: [Value::Absent; 2],
            is_last: false,
            may_be_ollama,
            is_duration: false,
            is_in_content: false,
            has_content: false,
            content_events: 0,
            text_bytes: 0,
            has_changed: true,
            has_malformed: false,
        }
    }

    /// The text has ended.
    pub(super) fn end_text(&mut self) {
        if self.is_last {
            for (count, value) in [Field::PromptEvalCount, Field::EvalCount].into_iter().zip(self.ollama) {
                if value != Value::Absent {
                    self.counts[count as usize] = value;
                    self.has_changed = true;
                }
            }
        }
        self.ollama = [Value::Absent; 2];
        self.is_last = false;
        self.end_event();
    }

    fn end_event(&mut self) {
        self.content_events += u64::from(self.has_content);
        self.has_content = false;
    }

    /// Brings `observed` up to date.
    pub(super) fn update(&mut self, is_whole: bool) {
        let events = self.content_events + u64::from(self.has_content);
        self.observed.counted_output = events.max(self.text_bytes.div_ceil(BYTES_PER_TOKEN));
        self.observed.is_whole = is_whole;
        if std::mem::take(&mut self.has_changed) {
            self.observed.tokens = self.tokens();
        }
        self.observed.unknown = match self.observed.tokens {
            Some(_) => None,
            None if self.is_duration => Some(Unknown::Type),
            None if self.has_malformed || self.counts.contains(&Value::Invalid) => Some(Unknown::Malformed),
            None => Some(Unknown::Absent),
        };
    }

    /// The tokens of the family of names that reports the most; servers that have names of two families report the same in both.
    fn tokens(&self) -> Option<Tokens> {
        if self.is_duration || self.counts.contains(&Value::Invalid) {
            return None;
        }
        let count = |count: Field| {
            if let Value::Number(value) = self.counts[count as usize] { Some(value) } else { None }
        };
        let sum = |counts: &[Field]| {
            let known = counts.iter().filter_map(|it| count(*it));
            known.fold(None, |sum: Option<u64>, value| Some(sum.unwrap_or(0).saturating_add(value)))
        };
        let chat = count(Field::PromptTokens);
        // Some servers report these beside `prompt_tokens`, of which they are a part.
        let messages = match count(Field::InputTokens) {
            None if chat.is_some() => None,
            _ => sum(&[Field::InputTokens, Field::CacheCreation, Field::CacheRead]),
        };
        let gemini = sum(&[Field::PromptTokenCount, Field::ToolUsePromptTokenCount]);
        let input = chat.max(messages).max(gemini).max(count(Field::PromptEvalCount));
        let gemini = sum(&[Field::CandidatesTokenCount, Field::ThoughtsTokenCount]);
        let output = count(Field::CompletionTokens)
            .max(count(Field::OutputTokens))
            .max(gemini)
            .max(count(Field::EvalCount));
        if input.is_none() && output.is_none() {
            return None;
        }
        let beside = |part: Field| if messages.is_some() { count(part) } else { None };
        let cached = count(Field::CachedTokens)
            .max(count(Field::CachedContentTokenCount))
            .max(beside(Field::CacheRead));
        let written = count(Field::CacheWriteTokens).max(beside(Field::CacheCreation));
        let reasoning = count(Field::ReasoningTokens).max(count(Field::ThoughtsTokenCount));
        Some(Tokens {
            input: input.unwrap_or(0),
            cached_input: cached.unwrap_or(0),
            cache_write: written.unwrap_or(0),
            output: output.unwrap_or(0),
            reasoning: reasoning.unwrap_or(0),
        })
    }

    /// The path of a value in the container at this depth.
    fn path(&self, depth: usize) -> Option<&[Key]> {
        self.path.get(..depth)
    }

    /// Notes a value for the pointers and counts at its place.
    fn value(&mut self, depth: usize, value: Value) {
        for place in self.pointers.at(depth) {
            self.observed.values[place] = value;
        }
        match self.path(depth).and_then(count_at) {
            Some(Field::PromptEvalCount) => self.ollama[0] = value,
            Some(Field::EvalCount) => self.ollama[1] = value,
            Some(count) => {
                self.counts[count as usize] = value;
                self.has_changed = true;
            }
            None => {}
        }
    }

    fn text_value(&mut self, depth: usize, text: &[u8]) {
        let Some(path) = self.path(depth) else { return };
        match path {
            [usage @ .., Key::Type] if is_usage(usage) => {
                self.is_duration = text == b"duration";
                self.has_changed = true;
            }
            [Key::Type | Key::Object] => self.dialect(dialect_of_type(text)),
            path if is_model(path) => {
                let known = self.observed.model.as_deref().map(str::as_bytes);
                if !text.is_empty() && known != Some(text) {
                    self.observed.model = std::str::from_utf8(text).ok().map(Box::from);
                }
            }
            _ => {}
        }
    }

    fn dialect(&mut self, dialect: Option<Dialect>) {
        self.observed.dialect = self.observed.dialect.or(dialect);
    }
}

/// The form of events or answers of this type.
fn dialect_of_type(text: &[u8]) -> Option<Dialect> {
    match text {
        b"message"
        | b"message_start"
        | b"message_delta"
        | b"message_stop"
        | b"content_block_start"
        | b"content_block_delta"
        | b"content_block_stop" => Some(Dialect::Anthropic),
        b"response" => Some(Dialect::OpenAiResponses),
        text if text.starts_with(b"response.") => Some(Dialect::OpenAiResponses),
        _ => None,
    }
}

impl Sink for Facts {
    fn open(&mut self, depth: usize, is_object: bool) {
        if let Some(key) = self.path.get_mut(depth - 1) {
            *key = if is_object { Key::Other } else { Key::Element };
        }
        if !is_object {
            self.pointers.open_array(depth);
        }
    }

    fn name(&mut self, depth: usize, name: Option<&[u8]>) {
        self.pointers.name(depth, name);
        let Some(place) = self.path.get_mut(depth - 1) else { return };
        *place = name.map_or(Key::Other, Key::of);
        match &self.path[..depth] {
            [Key::Choices] => self.dialect(Some(Dialect::OpenAiChat)),
            [Key::Candidates | Key::UsageMetadata] | [Key::Element, Key::Candidates | Key::UsageMetadata] => {
                self.dialect(Some(Dialect::Gemini));
            }
            _ => {}
        }
    }

    fn element(&mut self, depth: usize) {
        self.pointers.element(depth);
        if depth == 1 {
            self.end_event();
        }
    }

    fn container(&mut self, depth: usize) {
        self.value(depth, Value::Invalid);
    }

    fn begin_string(&mut self, depth: usize) -> bool {
        let Some(path) = self.path.get(..depth.min(LEVELS)) else { return false };
        self.is_in_content = is_content(path);
        depth <= LEVELS
            && (matches!(path, [Key::Type | Key::Object])
                || is_model(path)
                || matches!(path, [usage @ .., Key::Type] if is_usage(usage)))
    }

    fn text(&mut self, bytes: usize) {
        if self.is_in_content && bytes > 0 {
            self.has_content = true;
            self.text_bytes += bytes as u64;
        }
    }

    fn scalar(&mut self, depth: usize, scalar: Scalar<'_>) {
        let value = match scalar {
            Scalar::Null => return,
            Scalar::Number(text) => whole_number(text),
            Scalar::Text(_) | Scalar::True | Scalar::False => Value::Invalid,
        };
        self.value(depth, value);
        match scalar {
            Scalar::Text(Some(text)) => self.text_value(depth, text),
            Scalar::True | Scalar::False if self.may_be_ollama && self.path(depth) == Some(&[Key::Done]) => {
                self.is_last = matches!(scalar, Scalar::True);
                self.dialect(Some(Dialect::Ollama));
            }
            Scalar::Number(_) if self.path(depth) == Some(&[Key::SequenceNumber]) => {
                if let Value::Number(number) = value {
                    self.observed.next_sequence = number.saturating_add(1);
                }
            }
            _ => {}
        }
    }
}

fn whole_number(text: Option<&[u8]>) -> Value {
    let digits = text.filter(|text| text.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    number.map_or(Value::Invalid, Value::Number)
}
