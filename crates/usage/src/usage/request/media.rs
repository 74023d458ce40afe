//! Images and other media in the body of a request.

use super::text;

/// Bytes of base64 for each token of a medium, at most.
const BYTES_PER_TOKEN: u64 = 400;

/// Media are grouped by the logarithm of their size, so that the sum needs no list of them.
const GROUPS: usize = 16;

/// The longest media type of a data URL that is read.
const MAX_HEADER: usize = 128;

/// How many media there are, and how large they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Media {
    groups: [Group; GROUPS],
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    count: u64,
    tokens: u64,
}

impl Media {
    /// How many media there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Tokens of the media, if each has `default` tokens, and a large one at least one for each 400 bytes.
    #[must_use]
    pub fn tokens(&self, default: u64) -> u64 {
        let tokens = self.groups.iter().map(|group| group.tokens.max(group.count.saturating_mul(default)));
        tokens.fold(0, u64::saturating_add)
    }

    pub(super) fn add(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        let tokens = bytes.div_ceil(BYTES_PER_TOKEN).max(1);
        let group = &mut self.groups[(tokens.ilog2() as usize).min(GROUPS - 1)];
        group.count += 1;
        group.tokens += tokens;
        self.bytes += bytes;
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (group, more) in self.groups.iter_mut().zip(other.groups) {
            group.count += more.count;
            group.tokens += more.tokens;
        }
        self.bytes += other.bytes;
    }
}

/// Whether the inside of a JSON string is base64 alone, of either alphabet.
pub(super) fn is_base64(raw: &[u8]) -> bool {
    let end = raw.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let mut bytes = raw[..end].iter();
    while let Some(byte) = bytes.next() {
        let is_valid = match byte {
            // PHP escapes the slash.
            b'\\' => bytes.next() == Some(&b'/'),
            byte => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'),
        };
        if !is_valid {
            return false;
        }
    }
    end > 0 && raw.len() - end <= 2
}

/// Whether the inside of a JSON string is a `data:` URL of a medium with base64 alone.
pub(super) fn is_data_url(raw: &[u8]) -> bool {
    let Some(comma) = raw.iter().take(MAX_HEADER).position(|byte| *byte == b',') else { return false };
    let Some(header) = text::decode(&raw[..comma], MAX_HEADER) else { return false };
    let header = header.to_ascii_lowercase();
    let media_type = header.strip_prefix("data:").and_then(|header| header.strip_suffix(";base64"));
    media_type.is_some_and(is_media_type) && is_base64(&raw[comma + 1..])
}

/// Whether a server takes content of this type for a medium, and not for text. (A PDF has text, which is in proportion to the size
/// as that of a medium.)
pub(super) fn is_media_type(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or("").trim();
    let is_medium = ["image/", "audio/", "video/"]
        .iter()
        .any(|kind| essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)));
    is_medium || essence.eq_ignore_ascii_case("application/pdf")
}
