//! Keys as an operator spells them: `a|b` for the parts of a key, `\|` for a literal bar, or a tag as lists show
//! it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::gate::{Gate, KeyPart};
use crate::limit::{Key, PartKind, Parts, PolicyId};

/// How a tag is told from the parts of a key.
const TAG: &str = "tag:";

/// A key as lists show it.
pub(super) fn tag(key: Key) -> String {
    format!("{TAG}{key}")
}

/// The key of a limit that `text` spells, or what is wrong with it.
pub(super) fn key(gate: &Gate, policy: PolicyId, text: &str) -> Result<Key, String> {
    if let Some(tag) = text.strip_prefix(TAG).filter(|tag| tag.len() == Key::TEXT_LEN) {
        let bytes = URL_SAFE_NO_PAD.decode(tag).ok().and_then(|bytes| bytes.try_into().ok());
        return bytes.map(Key).ok_or_else(|| format!("`{text}` is not a tag"));
    }
    let parts = gate.terms.get(policy.0 as usize).map_or(&[][..], |terms| &terms.key.parts);
    let values = values(text);
    if values.len() != parts.len() {
        let all: Vec<String> = parts.iter().map(ToString::to_string).collect();
        return Err(format!(
            "`{text}` has {} parts, and the limit's key has {}: {}",
            values.len(),
            parts.len(),
            all.join("|")
        ));
    }
    let mut gathered = Parts::default();
    for (part, value) in parts.iter().zip(values) {
        let kind = match part {
            KeyPart::ClientIp => {
                let address: IpAddr = value.parse().map_err(|_| format!("`{value}` is not an address"))?;
                match gate.client_ip.counted(address) {
                    IpAddr::V4(v4) => gathered.push(PartKind::ClientIp, &v4.octets()),
                    IpAddr::V6(v6) => gathered.push(PartKind::ClientIp, &v6.octets()),
                }
                continue;
            }
            KeyPart::Global => {
                gathered.push(PartKind::Global, b"");
                continue;
            }
            KeyPart::Header(_) => PartKind::Header,
            KeyPart::Cookie(_) => PartKind::Cookie,
            KeyPart::Query(_) => PartKind::Query,
            KeyPart::Path => PartKind::Path,
            KeyPart::PathParam(_) => PartKind::PathParam,
            KeyPart::Host => PartKind::Host,
            KeyPart::Method => PartKind::Method,
            KeyPart::Route => PartKind::Route,
            KeyPart::Jwt(_) => PartKind::Jwt,
        };
        gathered.push(kind, value.as_bytes());
    }
    Ok(gate.hasher.key(&gathered))
}

/// What stands between the bars.
fn values(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some('|')) => values.last_mut().into_iter().for_each(|value| value.push('|')),
            ('|', _) => {
                values.push(String::new());
                continue;
            }
            _ => {
                values.last_mut().into_iter().for_each(|value| value.push(character));
                continue;
            }
        }
        characters.next();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_part_values_unless_they_are_escaped() {
        for (text, parts) in [
            ("a|b", &["a", "b"][..]),
            (r"a\|b|c", &["a|b", "c"]),
            (r"a\b\\|c", &[r"a\b\|c"]),
            ("", &[""]),
            ("a||", &["a", "", ""]),
            (r"\", &[r"\"]),
        ] {
            assert_eq!(values(text), parts, "{text}");
        }
    }
}
