//! Keys as operators write them: the values of their parts, or a tag.

use crate::gate::{Gate, NamedKey};
use crate::limit::{Key, PolicyId};

/// The tag of a key, as lists show it.
pub(super) fn tag(key: Key) -> String {
    format!("{}{key}", Key::TAG)
}

/// Parses a key of a limit.
///
/// # Errors
/// A message if `text` is neither a tag nor the values of all parts.
pub(super) fn key<'g>(gate: &'g Gate, limit: PolicyId, text: &str) -> Result<NamedKey<'g>, String> {
    if let Some(tag) = text.strip_prefix(Key::TAG).filter(|tag| tag.len() == Key::TEXT_LEN) {
        let key = Key::parse(tag.as_bytes()).ok_or_else(|| format!("`{text}` is not a tag"))?;
        return Ok(gate.keys(limit).known(key));
    }
    gate.keys(limit).named(text).map_err(|error| format!("`{text}` is not a key of this limit: {error}"))
}
