//! Scans the body of a request: one pass, no tree.

use super::media::{Media, is_base64, is_data_url, is_media_type};
use super::names::Name;
use super::number::{WholeNumber, is_json};
use super::stream_options::StreamOptions;
use super::{RequestFacts, text};

/// Objects and arrays in each other, of which facts are read; what is deeper is text.
const MAX_DEPTH: u8 = 64;

/// The longest name of a model, in bytes.
const MAX_MODEL: usize = 128;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A pass over a body.
pub(super) struct Scan<'a> {
    body: &'a [u8],
    at: usize,
    pub(super) facts: RequestFacts,
    pub(super) stream_options: StreamOptions,
    has_several_models: bool,
    /// Prompts in an array of them.
    prompts: u64,
}

/// Where a value is.
#[derive(Clone, Copy)]
struct Context {
    place: Place,
    /// Whether servers look for media here; in definitions of tools and their arguments, strings that look like media are text.
    may_have_media: bool,
    depth: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    GenerationConfig,
    Options,
    InferenceConfig,
    StreamOptions,
    /// In a medium, such as `source` or `image_url`.
    Medium,
    /// The value of `prompt` or `input`, which may consist of token numbers.
    Prompt,
    Input,
    Other,
}

/// What the other members say of a medium in an object.
#[derive(Default)]
struct ObjectMedia {
    media: Media,
    is_text: bool,
}

impl<'a> Scan<'a> {
    /// Scans a body; none if it does not begin with a JSON object.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let at = if body.starts_with(BOM) { BOM.len() } else { 0 };
        let facts = RequestFacts { choices: 1, ..RequestFacts::default() };
        let stream_options = StreamOptions::default();
        let mut scan = Self { body, at, facts, stream_options, has_several_models: false, prompts: 1 };
        scan.skip_whitespace();
        scan.take(b'{')?;
        scan.object(Context { place: Place::Root, may_have_media: true, depth: 0 })?;
        scan.skip_whitespace();
        // Go reads the first value, and does not look at what follows.
        scan.facts.text_bytes += (body.len() - scan.at) as u64;
        scan.stream_options.is_unsure |= scan.at < body.len();
        if std::str::from_utf8(body).is_err() {
            // A server that accepts invalid bytes replaces each by U+FFFD, which has three.
            let invalid: usize = body.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
            scan.facts.text_bytes += 2 * invalid as u64;
            scan.stream_options.is_unsure = true;
        }
        let facts = &mut scan.facts;
        facts.choices = facts.choices.saturating_mul(scan.prompts);
        facts.max_output = facts.max_output.map(|maximum| maximum.saturating_mul(facts.choices));
        Some(scan)
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    /// Consumes a byte of punctuation, which is text: definitions of tools are.
    fn take(&mut self, expected: u8) -> Option<()> {
        if self.peek() != Some(expected) {
            return None;
        }
        self.at += 1;
        self.facts.text_bytes += 1;
        Some(())
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.body[self.at..];
        self.at +=
            rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).unwrap_or(rest.len());
    }

    /// The inside of a string, after its opening quote has been taken.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        loop {
            let rest = &self.body[self.at..];
            let next = memchr::memchr2(b'"', b'\\', rest)?;
            if rest[next] == b'"' {
                self.at += next + 1;
                self.facts.text_bytes += 1;
                return Some(&self.body[start..self.at - 1]);
            }
            self.at = (self.at + next + 2).min(self.body.len());
        }
    }

    fn object(&mut self, context: Context) -> Option<()> {
        let is_root = context.place == Place::Root;
        self.skip_whitespace();
        if is_root {
            self.stream_options.open_root(self.at, self.peek() == Some(b'}'));
        }
        let mut inner = ObjectMedia::default();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            self.skip_whitespace();
            self.take(b'"')?;
            let raw = self.string()?;
            self.facts.text_bytes += text::decoded_len(raw);
            let name = Name::read(raw);
            self.skip_whitespace();
            self.take(b':')?;
            self.skip_whitespace();
            self.note_stream_options(context.place, name, raw);
            self.member(context, name, &mut inner)?;
            self.skip_whitespace();
            if self.take(b',').is_some() {
                continue;
            }
            self.take(b'}')?;
            break;
        }
        if inner.is_text {
            self.facts.text_bytes += inner.media.bytes;
        } else {
            self.facts.media.add_all(&inner.media);
        }
        Some(())
    }

    fn note_stream_options(&mut self, place: Place, name: Name, raw: &[u8]) {
        match (place, name) {
            (Place::Root, Name::StreamOptions) => {
                let is_object = self.peek() == Some(b'{');
                self.stream_options.found(raw == b"stream_options" && is_object);
            }
            (Place::StreamOptions, Name::IncludeUsage) => {
                self.stream_options.is_explicit = true;
                let includes = self.body[self.at..].starts_with(b"true");
                self.facts.include_usage = Some(includes && self.facts.include_usage.unwrap_or(true));
            }
            (Place::Root, Name::Stream) => {
                let rest = &self.body[self.at..];
                self.facts.is_stream |= !rest.starts_with(b"false") && !rest.starts_with(b"null");
            }
            _ => {}
        }
    }

    fn member(&mut self, context: Context, name: Name, inner: &mut ObjectMedia) -> Option<()> {
        match self.peek()? {
            b'"' => {
                self.take(b'"')?;
                let raw = self.string()?;
                self.text_member(context, name, inner, raw);
                Some(())
            }
            b'{' | b'[' => self.container(context.member(name)),
            _ => {
                let token = self.scalar()?;
                self.facts.text_bytes += token.len() as u64;
                if let Some(number) = WholeNumber::read(token) {
                    self.number(context.place, name, number);
                }
                Some(())
            }
        }
    }

    fn text_member(&mut self, context: Context, name: Name, inner: &mut ObjectMedia, raw: &[u8]) {
        let is_medium = match name {
            _ if !context.may_have_media => false,
            Name::Base64 | Name::ImageUrl => is_data_url(raw) || is_base64(raw),
            Name::FileData => is_data_url(raw),
            Name::Url => context.place == Place::Medium && is_data_url(raw),
            _ => false,
        };
        if is_medium {
            inner.media.add(raw.len());
            return;
        }
        self.facts.text_bytes += text::decoded_len(raw);
        match name {
            Name::ImageUrl | Name::Url | Name::FileReference if context.may_have_media => {
                // The server fetches the medium. A `url` elsewhere, such as that of a search result, is text alone.
                if name != Name::Url || context.place == Place::Medium {
                    inner.media.add(0);
                }
            }
            Name::Type => inner.is_text |= raw == b"text",
            Name::MediaType => {
                inner.is_text |= !text::decode(raw, MAX_MODEL).is_some_and(|it| is_media_type(&it));
            }
            Name::Model if context.place == Place::Root => self.model(raw),
            _ => {
                let digits = raw.trim_ascii();
                if let Some(number) = WholeNumber::read(digits) {
                    self.number(context.place, name, number.uncertain());
                }
            }
        }
    }

    fn model(&mut self, raw: &[u8]) {
        let model = text::decode(raw, MAX_MODEL).map(String::into_boxed_str);
        self.has_several_models |= self.facts.model.is_some() && self.facts.model != model || model.is_none();
        self.facts.model = if self.has_several_models { None } else { model };
    }

    fn number(&mut self, place: Place, name: Name, number: WholeNumber) {
        let facts = &mut self.facts;
        match (place, name) {
            (
                Place::Root,
                Name::MaxCompletionTokens | Name::MaxOutputTokens | Name::MaxTokens | Name::NPredict,
            )
            | (Place::GenerationConfig, Name::MaxOutputTokens)
            | (Place::Options, Name::NumPredict)
            | (Place::InferenceConfig, Name::MaxTokens) => match number {
                WholeNumber::Plain(0) | WholeNumber::Uncertain(0) => {}
                WholeNumber::Plain(maximum) => facts.max_output = facts.max_output.max(Some(maximum)),
                WholeNumber::Uncertain(maximum) => {
                    facts.uncertain.greatest = facts.uncertain.greatest.max(maximum);
                }
                WholeNumber::Negative => facts.uncertain.has_unbounded = true,
            },
            (Place::Root, Name::N | Name::BestOf | Name::CandidateCount)
            | (Place::GenerationConfig, Name::CandidateCount) => {
                if let WholeNumber::Plain(count) | WholeNumber::Uncertain(count) = number {
                    facts.choices = facts.choices.max(count);
                }
            }
            _ => {}
        }
    }

    fn container(&mut self, context: Context) -> Option<()> {
        let opening = self.peek()?;
        self.take(opening)?;
        if context.depth == MAX_DEPTH {
            return self.skip_nested();
        }
        if opening == b'[' {
            return self.array(context);
        }
        if context.place == Place::StreamOptions {
            self.stream_options.open(self.at, self.body[self.at..].trim_ascii_start().first() == Some(&b'}'));
        }
        self.object(context)
    }

    fn array(&mut self, context: Context) -> Option<()> {
        let mut prompts = 0;
        self.skip_whitespace();
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.skip_whitespace();
            match self.peek()? {
                b'"' => {
                    self.take(b'"')?;
                    let raw = self.string()?;
                    self.facts.text_bytes += text::decoded_len(raw);
                    prompts += 1;
                }
                b'{' | b'[' => {
                    prompts += 1;
                    self.container(context.element())?;
                }
                _ => {
                    let token = self.scalar()?;
                    if matches!(context.place, Place::Prompt | Place::Input) {
                        self.facts.token_ids += 1;
                    } else {
                        self.facts.text_bytes += token.len() as u64;
                    }
                }
            }
            self.skip_whitespace();
            if self.take(b',').is_some() {
                continue;
            }
            self.take(b']')?;
            break;
        }
        // A completion is made for each prompt.
        if context.place == Place::Prompt && context.depth == 1 {
            self.prompts = self.prompts.max(prompts);
        }
        Some(())
    }

    /// A number or a literal. Python accepts `NaN` and `Infinity`, too.
    fn scalar(&mut self) -> Option<&'a [u8]> {
        let rest = &self.body[self.at..];
        let is_in_scalar = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let length = rest.iter().position(|byte| !is_in_scalar(byte)).unwrap_or(rest.len());
        let token = &rest[..length];
        self.at += length;
        let is_literal = matches!(token, b"true" | b"false" | b"null" | b"NaN" | b"Infinity" | b"-Infinity");
        let is_number = token.strip_prefix(b"-").unwrap_or(token).first().is_some_and(u8::is_ascii_digit);
        self.stream_options.is_unsure |= !is_json(token);
        (is_literal || is_number).then_some(token)
    }

    /// Skips the rest of an object or array that is too deep for facts.
    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 1;
        while depth > 0 {
            self.skip_whitespace();
            let byte = self.peek()?;
            self.take(byte)?;
            match byte {
                b'"' => {
                    let raw = self.string()?;
                    self.facts.text_bytes += text::decoded_len(raw);
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
        }
        Some(())
    }
}

impl Context {
    /// The context of an object or array that is a member of this object.
    fn member(self, name: Name) -> Self {
        let place = match (self.place, name) {
            (Place::Root, Name::GenerationConfig) => Place::GenerationConfig,
            (Place::Root, Name::Options) => Place::Options,
            (Place::Root, Name::InferenceConfig) => Place::InferenceConfig,
            (Place::Root, Name::StreamOptions) => Place::StreamOptions,
            (Place::Root, Name::Prompt) => Place::Prompt,
            (Place::Root, Name::Input) => Place::Input,
            (_, Name::Medium | Name::ImageUrl | Name::FileData) => Place::Medium,
            _ => Place::Other,
        };
        let is_content =
            matches!(name, Name::Content) || matches!(place, Place::Medium | Place::Input | Place::Prompt);
        Self { place, may_have_media: self.may_have_media && is_content, depth: self.depth + 1 }
    }

    /// The context of an object or array in this array.
    fn element(self) -> Self {
        let place =
            if matches!(self.place, Place::Prompt | Place::Input) { self.place } else { Place::Other };
        Self { place, depth: self.depth + 1, ..self }
    }
}
