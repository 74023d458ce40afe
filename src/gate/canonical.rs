//! The canonical form of cookies, credentials and fields of bodies.
//!
//! RFC 6265 defines no encoding of cookie values, so servers read them differently: Django and Werkzeug decode quoted
//! strings with octal escapes, Express and Go remove the quotes, PHP, Express and Rack decode percent-encoding, and Rack
//! reads `+` as a blank. Encodings that any of these reads as the same value have one canonical form, so that no client
//! gets a fresh count by encoding a value differently. Values that differ for all of them may share a form, and then a
//! count.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, GeneralCategoryGroup};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Decodes like lenient servers: with or without padding, with bits set after the last byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Characters that databases take for a text besides: see the file.
static EQUAL_CHARACTERS: LazyLock<HashMap<char, &str>> = LazyLock::new(|| {
    let lines = include_str!("equal_characters.txt").lines().filter_map(|line| line.split_once('\t'));
    let character = |code: &str| u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
    lines.flat_map(|(text, codes)| codes.split(' ').filter_map(character).map(move |it| (it, text))).collect()
});

/// How often the encodings of a cookie's value are decoded: more often than servers do, and a bound on the time it takes.
const MAX_ROUNDS: usize = 16;

/// The value of a Cookie header without the cookie of this name.
pub(super) fn without_cookie(header: &[u8], name: &str) -> Vec<u8> {
    let is_kept = |pair: &&[u8]| {
        let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        trim(&pair[..end]) != name.as_bytes()
    };
    let kept: Vec<&[u8]> = header.split(|&byte| byte == b';').filter(is_kept).collect();
    kept.join(&b';').trim_ascii().to_vec()
}

/// The values of a cookie in the value of a Cookie header, in their canonical form.
pub(super) fn cookies<'h>(header: &'h [u8], name: &str) -> impl Iterator<Item = Cow<'h, [u8]>> {
    header.split(|&byte| byte == b';').filter_map(move |pair| {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let is_named = trim(&pair[..equals]) == name.as_bytes();
        is_named.then(|| cookie_value(&pair[equals + 1..]))
    })
}

/// The canonical form of a cookie's value: trimmed, without quotes, its escapes decoded.
pub(super) fn cookie_value(value: &[u8]) -> Cow<'_, [u8]> {
    let value = trim(value);
    if !value.iter().any(|byte| matches!(byte, b'"' | b'\\' | b'%' | b'+')) {
        return Cow::Borrowed(value);
    }
    // Quotes can be percent-encoded, and percent signs can be written as octal escapes, so that decoding one may complete
    // the other. Each round shortens the text, or leaves it as it is.
    let mut canonical = value.to_vec();
    for _ in 0..MAX_ROUNDS {
        let decoded = unescape(strip_quotes(&percent_decode(&canonical)));
        let is_stable = decoded.len() == canonical.len();
        canonical = decoded;
        if is_stable {
            break;
        }
    }
    canonical.iter_mut().filter(|byte| **byte == b'+').for_each(|byte| *byte = b' ');
    Cow::Owned(canonical)
}

/// The canonical form of an Authorization header (RFC 9110 §11.4): the scheme in lower case, one space, and the
/// credentials. Basic credentials are decoded and encoded again, because decoders skip characters that are not base64.
pub(super) fn authorization(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    let Some(blank) = value.iter().position(u8::is_ascii_whitespace) else { return Cow::Borrowed(value) };
    let (scheme, credentials) = (value[..blank].to_ascii_lowercase(), value[blank..].trim_ascii_start());
    let credentials = if scheme == b"basic" { base64(credentials) } else { credentials.to_vec() };
    Cow::Owned([&scheme[..], b" ", &credentials].concat())
}

/// The canonical form of a field of a body, in which names of users are equal that applications or their databases compare as
/// equal: decomposed (NFKD), without combining marks and invisible characters, in one case, trimmed. `MySQL` gives all characters
/// beyond U+FFFF one weight, so those that remain are U+FFFD.
pub(super) fn field_value(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return fold(text.trim_ascii());
    }
    // Replaced before and after: some of these characters can be decomposed, and others come from a decomposition.
    let replaced = replace_equal(text);
    let decomposed = DecomposingNormalizerBorrowed::new_nfkd().normalize(&replaced);
    let visible: String =
        replace_equal(&decomposed).chars().filter(|character| !is_ignored(*character)).collect();
    let in_plane_0 = |character| if character > '\u{ffff}' { char::REPLACEMENT_CHARACTER } else { character };
    Cow::Owned(fold(visible.trim()).chars().map(in_plane_0).collect())
}

/// The text with the characters of [`EQUAL_CHARACTERS`] replaced.
fn replace_equal(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut replaced, character| {
        match EQUAL_CHARACTERS.get(&character) {
            Some(equal) => replaced.push_str(equal),
            None => replaced.push(character),
        }
        replaced
    })
}

/// Whether a character makes no difference: a combining mark, a control character or an invisible one.
fn is_ignored(character: char) -> bool {
    let ignored =
        GeneralCategoryGroup::Mark.union(GeneralCategoryGroup::Control).union(GeneralCategoryGroup::Format);
    ignored.contains(CodePointMapData::<GeneralCategory>::new().get(character))
        || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character)
}

/// The text with its letters in one case; `\u{17f}`, a long s, becomes `s`.
pub(super) fn fold(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(text);
    }
    if text.is_ascii() {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    Cow::Owned(text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect())
}

fn base64(text: &[u8]) -> Vec<u8> {
    let in_alphabet = |byte: &u8| match *byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(*byte),
        byte => byte.is_ascii_alphanumeric().then_some(byte),
    };
    let digits: Vec<u8> = text.iter().filter_map(in_alphabet).collect();
    LENIENT.decode(&digits).map_or(digits, |bytes| LENIENT.encode(bytes).into_bytes())
}

/// Decodes percent-encoding until none remains, so that the result does not depend on how often a value was encoded.
fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut decoded: Vec<u8> = Vec::with_capacity(text.len());
    for &byte in text {
        decoded.push(byte);
        // Each escape that is decoded may complete another one, and makes the text shorter.
        while let [before @ .., b'%', high, low] = &decoded[..]
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            let length = before.len();
            decoded.truncate(length);
            decoded.push(high << 4 | low);
        }
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Decodes the escapes of quoted cookie values: `\141` and `\"`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                decoded.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                decoded.push(*byte);
                after
            }
            [] => return decoded,
        };
    }
}

fn strip_quotes(mut text: &[u8]) -> &[u8] {
    while let [b'"', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b'"'] = text {
        text = rest;
    }
    text
}

/// Trims whitespace, beyond ASCII too, as Python and JavaScript do.
fn trim(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    if text.first().is_none_or(u8::is_ascii) && text.last().is_none_or(u8::is_ascii) {
        return text;
    }
    if let Ok(text) = std::str::from_utf8(text) {
        return text
            .trim_matches(|character: char| character.is_whitespace() || character == '\u{feff}')
            .as_bytes();
    }
    // Latin-1: NEL and the no-break space.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0x85 | 0xa0);
    let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(header: &str, name: &str) -> Vec<String> {
        cookies(header.as_bytes(), name).map(|value| String::from_utf8_lossy(&value).into_owned()).collect()
    }

    #[test]
    fn cookies_are_found_among_others() {
        let header = "asid=no; sid=yes; sid =yes;sid; SID=no;\tsid\t= \"yes\" ";
        assert_eq!(found(header, "sid"), ["yes", "yes", "yes"]);
        assert_eq!(found(header, "si"), [""; 0]);
        assert_eq!(found("sid=a=b", "sid"), ["a=b"]);
    }

    #[test]
    fn encodings_of_a_cookie_have_one_form() {
        for (encoded, form) in [
            (&b"abc"[..], &b"abc"[..]),
            (b"\"abc\"", b"abc"),
            (br#""\141bc""#, b"abc"),
            (br#""a\"b\\c""#, br#"a"bc"#),
            (b"%5ca", b"a"),
            (br#""\045\065\143\141""#, b"a"),
            (b"%61b%63", b"abc"),
            (b"%22abc%22", b"abc"),
            (br#""\04561bc""#, b"abc"),
            (b"a+b", b"a b"),
            (b"a%2Bb", b"a b"),
            (b"a%2", b"a%2"),
            (b"%2561%%361", b"aa"),
            (br"\4", b"4"),
            (br"a\", br"a\"),
            (b"\xc2\xa0abc\xe2\x80\x89", b"abc"),
            (b"abc\xa0", b"abc"),
            (b"caf\xc3\xa9", b"caf\xc3\xa9"),
            (b"\"\"", b""),
        ] {
            assert_eq!(&*cookie_value(encoded), form, "{:?}", String::from_utf8_lossy(encoded));
        }
    }

    /// RFC 9110 §11.4.
    #[test]
    fn encodings_of_credentials_have_one_form() {
        for (encoded, form) in [
            ("Bearer abc", "bearer abc"),
            ("BEARER \t abc", "bearer abc"),
            ("abc", "abc"),
            ("Digest  a=b, c=d", "digest a=b, c=d"),
            ("Basic YTpi", "basic YTpi"),
            ("basic Y!T.p i", "basic YTpi"),
            ("basic YTpiYw", "basic YTpiYw=="),
            ("basic YTpiYx==", "basic YTpiYw=="),
            ("basic -_-_", "basic +/+/"),
            ("Basic Y", "basic Y"),
        ] {
            assert_eq!(String::from_utf8_lossy(&authorization(encoded.as_bytes())), form, "{encoded}");
        }
    }

    #[test]
    fn names_of_users_that_databases_compare_as_equal_have_one_form() {
        for (sent, form) in [
            ("eve", "eve"),
            (" Eve\u{a0}\0", "eve"),
            ("E\u{301}v\u{200b}\u{7}e\u{34f}\u{ad}", "eve"),
            ("\u{ff25}\u{1d42f}\u{24d4}", "eve"),
            ("\u{212a}\u{17f}\u{c4}", "ksa"),
            ("Stra\u{df}e \u{fb01}", "strasse fi"),
            ("\u{130}\u{131}\u{d8}\u{e6}", "iioae"),
            ("eve\u{661}\u{2780}", "eve11"),
            ("か\u{3099}\u{ff76}", "カカ"),
            ("eve😀𠀀", "eve\u{fffd}\u{fffd}"),
            ("e ve", "e ve"),
            ("\u{200b}", ""),
            (" ", ""),
        ] {
            assert_eq!(field_value(sent), form, "{sent:?}");
        }
        for character in ('\0'..=char::MAX).map(String::from) {
            let form = field_value(&character);
            assert_eq!(field_value(&form), form, "{character:?}");
        }
    }

    proptest! {
        /// A server that decodes one of the encodings reads this value.
        #[test]
        fn a_value_has_the_form_of_each_of_its_encodings(value in "[a-zA-Z0-9 %._~:/=-]{1,24}") {
            let form = cookie_value(value.as_bytes());
            let trimmed = value.trim();
            let encoded = |encode: fn(u8) -> String| trimmed.bytes().map(encode).collect::<Vec<_>>().concat();
            let percent = encoded(|byte| format!("%{byte:02x}"));
            let octal = encoded(|byte| format!("\\{byte:03o}"));
            for encoding in [format!("\"{octal}\""), format!("\"{trimmed}\""), format!("\"{percent}\""), percent] {
                prop_assert_eq!(&cookie_value(encoding.as_bytes()), &form, "{}", encoding);
            }
        }
    }
}
