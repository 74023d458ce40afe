//! Keys as operators write them: the values of their parts, or a tag.

use crate::gate::{Gate, NamedKey};
use crate::limit::{Key, PolicyId};

/// The tag of a key, as lists show it.
pub(super) fn tag(key: Key) -> String {
    format!("{}{key}", Key::TAG)
}

/// The key that a request names: by its values, by its tag, or by a consumer and the values of its other parts. Fails if the key
/// is missing, or the limit has no such key, or the file has no such consumer.
pub(super) fn text(
    gate: &Gate,
    limit: PolicyId,
    key: Option<String>,
    consumer: Option<&str>,
) -> Result<String, String> {
    let Some(consumer) = consumer else { return key.ok_or_else(|| "the key is missing".to_owned()) };
    let name = gate.keys(limit).name_of_consumer(consumer, key.as_deref())?;
    // Those in Redis are known only while they send requests.
    if let Some(rules) = gate.consumers.as_ref().filter(|rules| rules.stored.is_none()) {
        rules.named(consumer)?;
    }
    Ok(name)
}

/// Parses a key of a limit. Fails if `text` is neither a tag nor the values of all parts.
pub(super) fn key<'g>(gate: &'g Gate, limit: PolicyId, text: &str) -> Result<NamedKey<'g>, String> {
    if let Some(tag) = text.strip_prefix(Key::TAG).filter(|tag| tag.len() == Key::TEXT_LEN) {
        let key = Key::parse(tag.as_bytes()).ok_or_else(|| format!("`{text}` is not a tag"))?;
        return Ok(gate.keys(limit).known(key));
    }
    gate.keys(limit).named(text).map_err(|error| format!("`{text}` is not a key of this limit: {error}"))
}
