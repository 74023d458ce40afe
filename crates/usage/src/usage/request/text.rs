//! Strings of JSON: their length as text, and their text.

/// Bytes of the text of the inside of a JSON string, in UTF-8. Escapes that are invalid count as written.
pub(super) fn decoded_len(raw: &[u8]) -> u64 {
    let mut len = raw.len();
    let mut at = 0;
    let mut last_was_high = false;
    while let Some(next) = memchr::memchr(b'\\', &raw[at..]) {
        last_was_high &= next == 0;
        at += next;
        if let Some(unit) = unicode_escape(&raw[at..]) {
            let is_pair = last_was_high && (0xDC00..0xE000).contains(&unit);
            last_was_high = (0xD800..0xDC00).contains(&unit);
            len -= match unit {
                0..0x80 => 5,
                0x80..0x800 => 4,
                // A pair has four bytes; half of a pair becomes U+FFFD, which has three.
                _ if is_pair => 5,
                _ => 3,
            };
            at += 6;
        } else {
            last_was_high = false;
            len -= 1;
            at = (at + 2).min(raw.len());
        }
    }
    len as u64
}

/// The unit of UTF-16 that `\uXXXX` at the beginning of this text stands for.
fn unicode_escape(raw: &[u8]) -> Option<u16> {
    let digits = raw.strip_prefix(b"\\u")?.get(..4)?;
    digits
        .iter()
        .try_fold(0, |unit, digit| Some(unit << 4 | u16::try_from(char::from(*digit).to_digit(16)?).ok()?))
}

/// The text of the inside of a JSON string; none if it is longer than `max` bytes as written, or malformed.
pub(super) fn decode(raw: &[u8], max: usize) -> Option<String> {
    if raw.len() > max {
        return None;
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, tail) = rest.split_first()?;
        rest = match escape {
            b'u' => {
                let (unit, length) = scalar(raw, raw.len() - rest.len() - 1)?;
                bytes.extend_from_slice(unit.encode_utf8(&mut [0; 4]).as_bytes());
                &rest[length - 1..]
            }
            escape => {
                bytes.push(match escape {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'b' => 8,
                    b'f' => 12,
                    escape => *escape,
                });
                tail
            }
        };
    }
    String::from_utf8(bytes).ok()
}

/// The character of one escape or a pair of escapes at this place, and its length as written.
fn scalar(raw: &[u8], at: usize) -> Option<(char, usize)> {
    let first = unicode_escape(&raw[at..])?;
    if let Some(only) = char::from_u32(u32::from(first)) {
        return Some((only, 6));
    }
    let second = unicode_escape(&raw[at + 6..])?;
    let pair = char::decode_utf16([first, second]).next()?.ok()?;
    Some((pair, 12))
}
