//! The event that ends a stream at its budget.

use std::fmt::Write as _;

use bytes::Bytes;

use super::tokens::Dialect;

/// An error in the form of the stream, after which it may end. `sequence` is the number of the next event of `OpenAI` responses
/// ([`super::Observed::next_sequence`]).
#[must_use]
pub fn stop_event(dialect: Dialect, message: &str, sequence: u64) -> Bytes {
    let message = quoted(message);
    let event = match dialect {
        // With the name of an event, the client package would ignore it.
        Dialect::OpenAiChat => format!(
            "data: {{\"error\": {{\"message\": {message}, \"type\": \"tokens\", \"param\": null, \"code\": \"rate_limit_exceeded\"}}}}\n\n\
             data: [DONE]\n\n"
        ),
        Dialect::OpenAiResponses => format!(
            "event: error\ndata: {{\"type\": \"error\", \"sequence_number\": {sequence}, \"code\": \"rate_limit_exceeded\", \
             \"message\": {message}, \"param\": null, \"error\": {{\"message\": {message}, \"type\": \"tokens\", \
             \"code\": \"rate_limit_exceeded\"}}}}\n\n"
        ),
        // Without the name of an event, the client package would ignore it.
        Dialect::Anthropic => format!(
            "event: error\ndata: {{\"type\": \"error\", \"error\": {{\"type\": \"rate_limit_error\", \"message\": {message}}}}}\n\n"
        ),
        Dialect::Gemini => format!(
            "data: {{\"error\": {{\"code\": 429, \"message\": {message}, \"status\": \"RESOURCE_EXHAUSTED\"}}}}\n\n"
        ),
        Dialect::Ollama => format!("{{\"error\": {message}}}\n"),
    };
    Bytes::from(event)
}

/// A text as a string of JSON (RFC 8259 §7).
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // Some readers of lines end a line at U+0085, U+2028 and U+2029, too.
            it if it.is_control() || matches!(it, '\u{2028}' | '\u{2029}') => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(it));
            }
            it => quoted.push(it),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_form_of_the_stream() {
        for (dialect, expected) in [
            (
                Dialect::OpenAiChat,
                "data: {\"error\": {\"message\": \"used up\", \"type\": \"tokens\", \"param\": null, \"code\": \"rate_limit_exceeded\"}}\n\ndata: [DONE]\n\n",
            ),
            (
                Dialect::OpenAiResponses,
                "event: error\ndata: {\"type\": \"error\", \"sequence_number\": 7, \"code\": \"rate_limit_exceeded\", \"message\": \"used up\", \"param\": null, \"error\": {\"message\": \"used up\", \"type\": \"tokens\", \"code\": \"rate_limit_exceeded\"}}\n\n",
            ),
            (
                Dialect::Anthropic,
                "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"rate_limit_error\", \"message\": \"used up\"}}\n\n",
            ),
            (
                Dialect::Gemini,
                "data: {\"error\": {\"code\": 429, \"message\": \"used up\", \"status\": \"RESOURCE_EXHAUSTED\"}}\n\n",
            ),
            (Dialect::Ollama, "{\"error\": \"used up\"}\n"),
        ] {
            assert_eq!(stop_event(dialect, "used up", 7), expected);
        }
    }

    #[test]
    fn messages_are_escaped() {
        let message = "a \"limit\" \\ of\r\n\ntokens\0 \u{2028}\u{85} für 日本\u{7f}";
        let line = stop_event(Dialect::Ollama, message, 0);
        assert_eq!(line.split(|byte| *byte == b'\n').count(), 2);
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["error"], message);
    }
}
