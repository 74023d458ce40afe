//! How responses show limits to clients: rate headers, Retry-After, and custom denials.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::time::Micros;

/// How responses show limits.
#[derive(Clone, Debug)]
pub struct ResponsePolicy {
    /// Which rate headers are sent.
    pub rate_headers: RateHeaders,
    /// Whether `X-RateLimit-Reset` is a Unix time instead of a number of seconds.
    pub reset_is_epoch: bool,
    /// The highest `Retry-After`, if it is bounded.
    pub retry_after_max: Option<Duration>,
    /// Up to this share is added to `Retry-After`, so that clients do not come back all at once.
    pub retry_after_jitter: f64,
    /// The response to a denied request, if it is not problem+json.
    pub denied: Option<CustomDenial>,
}

/// Which rate headers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateHeaders {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the binding limit.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit` of every limit (draft-ietf-httpapi-ratelimit-headers-11).
    pub draft_11: bool,
}

/// The operator's own response to denied requests.
#[derive(Clone, Debug)]
pub struct CustomDenial {
    /// The status code.
    pub status: StatusCode,
    /// The Content-Type of the body.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Template,
}

impl ResponsePolicy {
    /// Whole seconds to wait, rounded up, at least one, with the configured jitter.
    pub(super) fn wait(&self, wait: Micros) -> u64 {
        let wait = wait.ceil_secs().max(1);
        let jitter = if self.retry_after_jitter > 0.0 { self.jitter(wait) } else { 0 };
        wait.saturating_add(jitter)
    }

    /// The value of `Retry-After` for a wait in seconds: at most the configured maximum.
    pub(super) fn retry_after(&self, wait: u64) -> u64 {
        self.retry_after_max.map_or(wait, |max| wait.min(max.as_secs().max(1)))
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn jitter(&self, wait: u64) -> u64 {
        (wait as f64 * self.retry_after_jitter * fastrand::f64()).ceil() as u64
    }
}

/// Text in which `{limit}`, `{remaining}`, `{reset}`, `{retry_after}` and `{request_id}` are filled in; all
/// other braces stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    escaping: Escaping,
}

/// How values are written into a body, so that none of them can end the string or the element that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escaping {
    /// As they are.
    None,
    /// As within a string of JSON or JavaScript.
    Json,
    /// As within text or a quoted attribute of HTML or XML.
    Markup,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Field(Field),
}

/// A value that a template can fill in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Limit,
    Remaining,
    Reset,
    RetryAfter,
    RequestId,
}

const FIELDS: [(&str, Field); 5] = [
    ("{limit}", Field::Limit),
    ("{remaining}", Field::Remaining),
    ("{reset}", Field::Reset),
    ("{retry_after}", Field::RetryAfter),
    ("{request_id}", Field::RequestId),
];

impl Template {
    /// Parses a template; every text is valid. `escaping` applies to what is filled in.
    #[must_use]
    pub fn parse(text: &str, escaping: Escaping) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((at, name, field)) = next_field(rest) {
            if at > 0 {
                parts.push(Part::Text(rest[..at].into()));
            }
            parts.push(Part::Field(field));
            rest = &rest[at + name.len()..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Self { parts, escaping }
    }

    /// The text with every field filled in and escaped.
    pub(super) fn fill(&self, mut value: impl FnMut(Field) -> String) -> String {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(field) => self.escaping.push(&value(*field), &mut filled),
            }
        }
        filled
    }
}

impl Escaping {
    /// The escaping that this content type needs.
    #[must_use]
    pub fn of(content_type: &HeaderValue) -> Self {
        let text = content_type.to_str().unwrap_or_default().to_ascii_lowercase();
        let media_type = text.split(';').next().unwrap_or_default().trim();
        let (_, subtype) = media_type.split_once('/').unwrap_or_default();
        match subtype.rsplit('+').next().unwrap_or_default() {
            "json" | "jsonl" | "x-ndjson" | "javascript" | "x-javascript" => Self::Json,
            "html" | "xml" => Self::Markup,
            _ => Self::None,
        }
    }

    fn push(self, value: &str, text: &mut String) {
        match self {
            Self::None => text.push_str(value),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                text.push_str(
                    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default(),
                );
            }
            Self::Markup => value.chars().for_each(|character| match character {
                '&' => text.push_str("&amp;"),
                '<' => text.push_str("&lt;"),
                '>' => text.push_str("&gt;"),
                '"' => text.push_str("&quot;"),
                '\'' => text.push_str("&#39;"),
                other => text.push(other),
            }),
        }
    }
}

fn next_field(text: &str) -> Option<(usize, &'static str, Field)> {
    let found = FIELDS.iter().filter_map(|(name, field)| Some((text.find(name)?, *name, *field)));
    found.min_by_key(|(at, _, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn retry_after_is_at_least_one_and_at_most_the_maximum() {
        let answers = config::defaults::response_policy();
        assert_eq!(answers.wait(Micros(1)), 1);
        assert_eq!(answers.wait(Micros(1_000_001)), 2);
        assert_eq!(answers.retry_after(86_400), 86_400);
        let short = ResponsePolicy {
            retry_after_max: Some(Duration::from_secs(10)),
            ..config::defaults::response_policy()
        };
        assert_eq!((short.wait(Micros(90_000_000)), short.retry_after(90)), (90, 10));
    }

    #[test]
    fn jitter_only_adds() {
        let answers = ResponsePolicy { retry_after_jitter: 0.5, ..config::defaults::response_policy() };
        let waits: Vec<u64> = (0..200).map(|_| answers.wait(Micros(100_000_000))).collect();
        assert!(waits.iter().all(|wait| (100..=150).contains(wait)));
        assert!(waits.iter().any(|wait| *wait > 100));
    }

    #[test]
    fn only_known_fields_are_filled() {
        let template = Template::parse(r#"{"wait": {retry_after}, "of": {limit}, "x": {y}}"#, Escaping::Json);
        let filled = template.fill(|field| format!("{field:?}"));
        assert_eq!(filled, r#"{"wait": RetryAfter, "of": Limit, "x": {y}}"#);
    }

    #[test]
    fn values_are_escaped_as_the_content_type_needs() {
        let filled = |content_type: &'static str| {
            let escaping = Escaping::of(&HeaderValue::from_static(content_type));
            Template::parse("\"{request_id}\"", escaping).fill(|_| "\"<a href='b'>&\\\n\"".to_owned())
        };
        let json = r#""\"<a href='b'>&\\\n\"""#;
        for kind in ["application/json", "Application/Problem+JSON; charset=utf-8", "text/javascript"] {
            assert_eq!(filled(kind), json, "{kind}");
        }
        let markup = "\"&quot;&lt;a href=&#39;b&#39;&gt;&amp;\\\n&quot;\"";
        for kind in ["text/html; charset=utf-8", "application/xhtml+xml", "application/xml", "TEXT/HTML"] {
            assert_eq!(filled(kind), markup, "{kind}");
        }
        for kind in ["text/plain; charset=utf-8", "application/jsonish", "json", ""] {
            assert_eq!(filled(kind), "\"\"<a href='b'>&\\\n\"\"", "{kind}");
        }
    }
}
