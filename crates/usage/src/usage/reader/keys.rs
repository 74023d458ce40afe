//! The names that lead to the usage and to the content of a response.

/// How many levels of a path are known.
pub(super) const LEVELS: usize = 8;

/// The longest name that is read.
pub(super) const MAX_NAME: usize = 40;

/// A step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Other,
    /// An element of an array.
    Element,
    Usage,
    UsageMetadata,
    Response,
    Message,
    InputDetails,
    OutputDetails,
    Field(Field),
    Model,
    ModelVersion,
    Type,
    Object,
    Done,
    SequenceNumber,
    Choices,
    Candidates,
    Delta,
    Content,
    ContentBlock,
    Parts,
    FunctionCall,
    Function,
    ToolCalls,
    /// `name` and `arguments` of a call of a function.
    Call,
    Text,
    /// Names of strings with the text of reasoning or of a refusal.
    Reasoning,
    PartialJson,
}

/// A number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    PromptTokens,
    CompletionTokens,
    InputTokens,
    OutputTokens,
    CachedTokens,
    CacheWriteTokens,
    ReasoningTokens,
    CacheCreation,
    CacheRead,
    PromptTokenCount,
    CandidatesTokenCount,
    ThoughtsTokenCount,
    ToolUsePromptTokenCount,
    CachedContentTokenCount,
    PromptEvalCount,
    EvalCount,
}

impl Field {
    /// How many of them there are.
    pub(super) const ALL: usize = Self::EvalCount as usize + 1;
}

impl Key {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"usage" => Self::Usage,
            b"usageMetadata" => Self::UsageMetadata,
            b"response" => Self::Response,
            b"message" => Self::Message,
            b"prompt_tokens_details" | b"input_tokens_details" => Self::InputDetails,
            b"completion_tokens_details" | b"output_tokens_details" => Self::OutputDetails,
            b"model" => Self::Model,
            b"modelVersion" => Self::ModelVersion,
            b"type" => Self::Type,
            b"object" => Self::Object,
            b"done" => Self::Done,
            b"sequence_number" => Self::SequenceNumber,
            b"choices" => Self::Choices,
            b"candidates" => Self::Candidates,
            b"delta" => Self::Delta,
            b"content" => Self::Content,
            b"content_block" => Self::ContentBlock,
            b"parts" => Self::Parts,
            b"functionCall" => Self::FunctionCall,
            b"function" | b"function_call" => Self::Function,
            b"tool_calls" => Self::ToolCalls,
            b"name" | b"arguments" => Self::Call,
            b"text" => Self::Text,
            b"reasoning" | b"reasoning_content" | b"refusal" | b"thinking" => Self::Reasoning,
            b"partial_json" => Self::PartialJson,
            _ => Self::count(name).map_or(Self::Other, Self::Field),
        }
    }

    fn count(name: &[u8]) -> Option<Field> {
        Some(match name {
            b"prompt_tokens" => Field::PromptTokens,
            b"completion_tokens" => Field::CompletionTokens,
            b"input_tokens" => Field::InputTokens,
            b"output_tokens" => Field::OutputTokens,
            b"cached_tokens" => Field::CachedTokens,
            b"cache_write_tokens" => Field::CacheWriteTokens,
            b"reasoning_tokens" | b"thinking_tokens" => Field::ReasoningTokens,
            b"cache_creation_input_tokens" => Field::CacheCreation,
            b"cache_read_input_tokens" => Field::CacheRead,
            b"promptTokenCount" => Field::PromptTokenCount,
            b"candidatesTokenCount" | b"responseTokenCount" => Field::CandidatesTokenCount,
            b"thoughtsTokenCount" => Field::ThoughtsTokenCount,
            b"toolUsePromptTokenCount" => Field::ToolUsePromptTokenCount,
            b"cachedContentTokenCount" => Field::CachedContentTokenCount,
            b"prompt_eval_count" => Field::PromptEvalCount,
            b"eval_count" => Field::EvalCount,
            _ => return None,
        })
    }
}

/// The number of tokens at a path.
pub(super) fn count_at(path: &[Key]) -> Option<Field> {
    let (Key::Field(count), path) = path.split_last()? else { return None };
    let is_here = match count {
        Field::PromptEvalCount | Field::EvalCount => path.is_empty(),
        Field::PromptTokenCount
        | Field::CandidatesTokenCount
        | Field::ThoughtsTokenCount
        | Field::ToolUsePromptTokenCount
        | Field::CachedContentTokenCount => {
            // Without `alt=sse` the stream of Gemini is one array.
            matches!(path, [Key::UsageMetadata] | [Key::Element, Key::UsageMetadata])
        }
        Field::CachedTokens | Field::CacheWriteTokens => {
            matches!(path, [usage @ .., Key::InputDetails] if is_usage(usage))
        }
        Field::ReasoningTokens => matches!(path, [usage @ .., Key::OutputDetails] if is_usage(usage)),
        _ => is_usage(path),
    };
    is_here.then_some(*count)
}

/// Whether this is the path of an object with the usage.
pub(super) fn is_usage(path: &[Key]) -> bool {
    matches!(path, [Key::Usage] | [Key::Response | Key::Message, Key::Usage])
}

/// Whether this is the path of the name of the model.
pub(super) fn is_model(path: &[Key]) -> bool {
    matches!(
        path,
        [Key::Model | Key::ModelVersion]
            | [Key::Response | Key::Message, Key::Model]
            | [Key::Element, Key::ModelVersion]
    )
}

/// Whether a string at this path is output of the model. Texts that a later event repeats, such as those of `response.completed`,
/// are not.
pub(super) fn is_content(path: &[Key]) -> bool {
    use Key::{
        Call, Candidates, Choices, Content, ContentBlock, Delta, Element, Function, FunctionCall, Message,
        PartialJson, Parts, Reasoning, Response, Text, ToolCalls,
    };
    // Without `alt=sse` the stream of Gemini is one array.
    let path = if let [Element, element @ ..] = path { element } else { path };
    matches!(
        path,
        [Choices, Element, Text]
            | [Choices, Element, Delta | Message, Content | Reasoning]
            | [Choices, Element, Delta | Message, Function, Call]
            | [Choices, Element, Delta | Message, ToolCalls, Element, Function, Call]
            // `delta` of an event of OpenAI responses, and Ollama.
            | [Delta | Response | Reasoning]
            // Anthropic.
            | [Delta | ContentBlock, Text | Reasoning | PartialJson]
            | [Candidates, Element, Content, Parts, Element, Text]
            | [Candidates, Element, Content, Parts, Element, FunctionCall, ..]
            // Ollama.
            | [Message, Content | Reasoning]
            | [Message, ToolCalls, Element, Function, Call, ..]
    )
}
