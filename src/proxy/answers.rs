//! What a client sees of its limits.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

/// How answers speak of limits.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Which rate headers are sent.
    pub rate_headers: RateHeaders,
    /// Whether `X-RateLimit-Reset` is a Unix time instead of a number of seconds.
    pub reset_is_epoch: bool,
    /// The most that `Retry-After` says, where it is bounded.
    pub retry_after_max: Option<Duration>,
    /// Up to this share is added to `Retry-After`, so that clients do not come back all at once.
    pub retry_after_jitter: f64,
    /// The answer to a denied request, where it is not problem+json.
    pub denied: Option<CustomDenied>,
}

/// Which rate headers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateHeaders {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the limit that binds.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit` of every limit (draft-ietf-httpapi-ratelimit-headers-11).
    pub draft_11: bool,
}

/// An answer to denied requests in the operator's own words.
#[derive(Clone, Debug)]
pub struct CustomDenied {
    /// The status.
    pub status: StatusCode,
    /// The type of the body.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Template,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            rate_headers: RateHeaders { x_ratelimit: true, draft_11: false },
            reset_is_epoch: false,
            retry_after_max: None,
            retry_after_jitter: 0.0,
            denied: None,
        }
    }
}

/// Text in which `{limit}`, `{remaining}`, `{reset}`, `{retry_after}` and `{request_id}` are filled in; all
/// other braces stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Field(Field),
}

/// What a template can fill in.
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
    /// Reads a template; every text is one.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((at, name, field)) = next_field(rest) {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].into()));
            }
            pieces.push(Piece::Field(field));
            rest = &rest[at + name.len()..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Self { pieces }
    }

    /// The text with every field filled in.
    pub(super) fn fill(&self, mut value: impl FnMut(Field) -> String) -> String {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Field(field) => filled.push_str(&value(*field)),
            }
        }
        filled
    }
}

fn next_field(text: &str) -> Option<(usize, &'static str, Field)> {
    let places = FIELDS.iter().filter_map(|(name, field)| Some((text.find(name)?, *name, *field)));
    places.min_by_key(|(at, _, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_fields_are_filled() {
        let template = Template::parse(r#"{"wait": {retry_after}, "of": {limit}, "x": {y}}"#);
        let filled = template.fill(|field| format!("{field:?}"));
        assert_eq!(filled, r#"{"wait": RetryAfter, "of": Limit, "x": {y}}"#);
    }
}
