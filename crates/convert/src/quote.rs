//! Strings of TOML.

use std::fmt::Write as _;

/// A basic string of TOML, in quotes.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            _ if character.is_control() => {
                // Writing to a String can't fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_for_toml() {
        assert_eq!(toml_string("header:x-\"a\\b\"\n\r"), r#""header:x-\"a\\b\"\n\u000d""#);
    }
}
