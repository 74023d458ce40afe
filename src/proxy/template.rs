//! Bodies of responses with placeholders.

use http::HeaderValue;

/// Text in which `{status}`, `{detail}`, `{limit}`, `{remaining}`, `{reset}`, `{retry_after}` and `{request_id}` are filled
/// in; all other braces stay as they are.
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
    Field(TemplateField),
}

/// A value that a template can fill in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateField {
    Status,
    Detail,
    Limit,
    Remaining,
    Reset,
    RetryAfter,
    RequestId,
}

const FIELDS: [(&str, TemplateField); 7] = [
    ("{status}", TemplateField::Status),
    ("{detail}", TemplateField::Detail),
    ("{limit}", TemplateField::Limit),
    ("{remaining}", TemplateField::Remaining),
    ("{reset}", TemplateField::Reset),
    ("{retry_after}", TemplateField::RetryAfter),
    ("{request_id}", TemplateField::RequestId),
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
    pub(super) fn fill(&self, mut value: impl FnMut(TemplateField) -> String) -> String {
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

fn next_field(text: &str) -> Option<(usize, &'static str, TemplateField)> {
    let found = FIELDS.iter().filter_map(|(name, field)| Some((text.find(name)?, *name, *field)));
    found.min_by_key(|(at, _, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

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
