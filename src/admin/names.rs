//! Keys as an operator spells them: by the values of their parts, or by a tag as lists show it.

use crate::gate::{Gate, NamedKey};
use crate::limit::{Key, PolicyId};

/// How a tag is told from the parts of a key.
const TAG: &str = "tag:";

/// A key as lists show it.
pub(super) fn tag(key: Key) -> String {
    format!("{TAG}{key}")
}

/// The key of a limit that `text` spells, or what is wrong with it.
pub(super) fn key<'g>(gate: &'g Gate, limit: PolicyId, text: &str) -> Result<NamedKey<'g>, String> {
    if let Some(tag) = text.strip_prefix(TAG).filter(|tag| tag.len() == Key::TEXT_LEN) {
        let key = Key::parse(tag.as_bytes()).ok_or_else(|| format!("`{text}` is not a tag"))?;
        return Ok(gate.keys(limit).known(key));
    }
    gate.keys(limit).named(text).map_err(|error| format!("`{text}` stands for no key of this limit: {error}"))
}
