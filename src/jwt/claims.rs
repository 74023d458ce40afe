//! The claims of a token.

use std::time::Duration;

use serde_json::{Map, Value};

use super::error::TokenError;
use crate::time::{Micros, Timestamp};

/// How far the clocks of the issuer and of this machine may be apart.
const LEEWAY: Micros = Micros(60 * Micros::SECOND.0);

/// The claims of a token with a valid signature. Only values that a key or a condition can have are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    values: Map<String, Value>,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
}

impl Claims {
    pub(super) fn new(mut values: Map<String, Value>) -> Result<Self, TokenError> {
        let not_before = values.get("nbf").map(timestamp).transpose()?;
        let expires = values.get("exp").map(timestamp).transpose()?;
        retain_scalars(&mut values);
        Ok(Self { values, not_before, expires })
    }

    /// The text of a claim that is a string, a number or a boolean. A dot in the name selects a member of an object,
    /// unless a claim has the whole name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        match find(&self.values, name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether a claim has a value that passes a test: its text or an element, if it is a list.
    pub fn has(&self, name: &str, test: &dyn Fn(&str) -> bool) -> bool {
        if let Some(Value::Array(values)) = find(&self.values, name) {
            return values.iter().filter_map(Value::as_str).any(test);
        }
        self.text(name).is_some_and(|text| Self::text_passes(name, &text, test))
    }

    /// Whether the text of a claim passes a test; of `scope`, which is a list in a text (RFC 8693 §4.2), one of its words.
    pub fn text_passes(name: &str, text: &str, passes: &dyn Fn(&str) -> bool) -> bool {
        if name == "scope" { text.split(' ').any(passes) } else { passes(text) }
    }

    /// Rejects a token before its `nbf` and after its `exp`, with a minute of leeway; both may be absent (RFC 7519
    /// §4.1).
    pub(super) fn check_times(&self, now: Timestamp) -> Result<(), TokenError> {
        if self.expires.is_some_and(|end| end.after(LEEWAY) <= now) {
            return Err(TokenError::Expired);
        }
        if self.not_before.is_some_and(|start| start > now.after(LEEWAY)) {
            return Err(TokenError::NotYet);
        }
        Ok(())
    }
}

/// A `NumericDate`: seconds since the epoch, fractions allowed (RFC 7519 §2).
fn timestamp(value: &Value) -> Result<Timestamp, TokenError> {
    let seconds = value.as_f64().ok_or(TokenError::Malformed)?;
    Ok(match Duration::try_from_secs_f64(seconds) {
        Ok(since) => Timestamp(Micros::from(since).0),
        Err(_) if seconds < 0.0 => Timestamp(0),
        Err(_) => Timestamp(u64::MAX),
    })
}

/// Drops values that neither a key nor a condition can have. The recursion is bounded: the JSON parser limits the depth.
fn retain_scalars(values: &mut Map<String, Value>) {
    values.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(values) => {
            values.retain(Value::is_string);
            !values.is_empty()
        }
        Value::Object(inner) => {
            retain_scalars(inner);
            true
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) => true,
    });
}

fn find<'v>(values: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    if let Some(value) = values.get(name) {
        return Some(value);
    }
    let inner = |at: usize| Some((values.get(&name[..at])?.as_object()?, &name[at + 1..]));
    let (inner, rest) = name.match_indices('.').find_map(|(at, _)| inner(at))?;
    find(inner, rest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(json: &Value) -> Result<Claims, TokenError> {
        Claims::new(json.as_object().unwrap().clone())
    }

    #[test]
    fn scalar_claims_have_a_text() {
        let claims = claims(&json!({
            "sub": "7", "n": 7, "f": 1.5, "t": true, "empty": "", "none": null, "list": ["a"],
            "o": { "in": "deep", "list": [1], "a.b": "dotted", "o": { "x": -1 } },
            "https://id.example.com/tenant": { "id": "t" }, "o.in": "whole",
        }))
        .unwrap();
        for (name, text) in [
            ("sub", Some("7")),
            ("n", Some("7")),
            ("f", Some("1.5")),
            ("t", Some("true")),
            ("empty", Some("")),
            ("none", None),
            ("list", None),
            ("list.0", None),
            ("o", None),
            ("o.in", Some("whole")),
            ("o.a.b", Some("dotted")),
            ("o.o.x", Some("-1")),
            ("o.list", None),
            ("o.", None),
            (".", None),
            ("sub.x", None),
            ("https://id.example.com/tenant.id", Some("t")),
            ("https://id.example.com/tenant", None),
        ] {
            assert_eq!(claims.text(name).as_deref(), text, "{name}");
        }
    }

    #[test]
    fn times_may_have_fractions_and_have_a_minute_of_leeway() {
        let at = |seconds: u64| Timestamp(seconds * 1_000_000);
        let times = claims(&json!({ "nbf": 1_000, "exp": 2_000.5 })).unwrap();
        assert_eq!(times.check_times(at(939)), Err(TokenError::NotYet));
        assert_eq!(times.check_times(at(940)), Ok(()));
        assert_eq!(times.check_times(at(2_060)), Ok(()));
        assert_eq!(times.check_times(at(2_061)), Err(TokenError::Expired));
        let open = claims(&json!({ "exp": 1e300, "nbf": -5 })).unwrap();
        assert_eq!(open.check_times(at(4_000_000_000)), Ok(()));
        let past = claims(&json!({ "exp": -1e300 })).unwrap();
        assert_eq!(past.check_times(at(61)), Err(TokenError::Expired));
        assert_eq!(claims(&json!({ "exp": "2000" })), Err(TokenError::Malformed));
        assert_eq!(claims(&json!({ "nbf": null })), Err(TokenError::Malformed));
    }
}
