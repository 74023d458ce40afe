//! The names in the body of a request that say something about its cost.

use super::text;

/// Names as written are at most this long; escapes are longer than what they stand for.
const MAX_NAME: usize = 256;

/// A name of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Model,
    Stream,
    StreamOptions,
    IncludeUsage,
    /// A maximum of output tokens at the top level; `MaxTokens` and `MaxOutputTokens` also in an object of settings.
    MaxCompletionTokens,
    MaxOutputTokens,
    MaxTokens,
    NPredict,
    NumPredict,
    /// The number of responses.
    N,
    BestOf,
    CandidateCount,
    GenerationConfig,
    Options,
    InferenceConfig,
    Prompt,
    Input,
    /// Members whose objects may have media further down.
    Content,
    /// Members whose objects are a medium.
    Medium,
    /// A medium that is a string, or an object with a `url`.
    ImageUrl,
    Url,
    Base64,
    /// A medium that is a string, or an object with a reference.
    FileData,
    /// A reference to a medium that the server has.
    FileReference,
    Type,
    MediaType,
    Other,
}

impl Name {
    /// The name with this text inside the quotes. Go compares names without regard to case (with the Kelvin sign for K and the long
    /// s for S), and protobuf reads `maxOutputTokens` and `max_output_tokens`: case and underscores are ignored.
    pub(super) fn read(raw: &[u8]) -> Self {
        let decoded;
        let text = if raw.contains(&b'\\') {
            let Some(text) = text::decode(raw, MAX_NAME) else { return Self::Other };
            decoded = text;
            &*decoded
        } else {
            let Ok(text) = std::str::from_utf8(&raw[..raw.len().min(MAX_NAME)]) else { return Self::Other };
            text
        };
        let mut normal = [0; 24];
        let mut length = 0;
        for character in text.chars().filter(|it| *it != '_') {
            let folded = match character {
                '\u{17f}' => b's',
                '\u{212a}' => b'k',
                it if it.is_ascii() => it.to_ascii_lowercase() as u8,
                _ => return Self::Other,
            };
            let Some(place) = normal.get_mut(length) else { return Self::Other };
            *place = folded;
            length += 1;
        }
        Self::of_normal(&normal[..length])
    }

    fn of_normal(name: &[u8]) -> Self {
        match name {
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"streamoptions" => Self::StreamOptions,
            b"includeusage" => Self::IncludeUsage,
            b"maxcompletiontokens" => Self::MaxCompletionTokens,
            b"maxoutputtokens" => Self::MaxOutputTokens,
            b"maxtokens" => Self::MaxTokens,
            b"npredict" => Self::NPredict,
            b"numpredict" => Self::NumPredict,
            b"n" => Self::N,
            b"bestof" => Self::BestOf,
            b"candidatecount" => Self::CandidateCount,
            b"generationconfig" => Self::GenerationConfig,
            b"options" => Self::Options,
            b"inferenceconfig" => Self::InferenceConfig,
            b"prompt" => Self::Prompt,
            b"input" => Self::Input,
            b"messages" | b"message" | b"contents" | b"content" | b"parts" | b"output" | b"requests"
            | b"images" | b"image" | b"systeminstruction" => Self::Content,
            b"source" | b"inputaudio" | b"inlinedata" | b"file" | b"videourl" | b"audiourl" => Self::Medium,
            b"imageurl" => Self::ImageUrl,
            b"url" => Self::Url,
            b"data" | b"b64json" => Self::Base64,
            b"filedata" => Self::FileData,
            b"fileid" | b"fileuri" => Self::FileReference,
            b"type" => Self::Type,
            b"mediatype" | b"mimetype" => Self::MediaType,
            _ => Self::Other,
        }
    }
}
