//! Variables of the environment, and masking of secrets in messages.

use std::ops::Range;

/// Keys whose values are secrets in any table.
const KEYS: [&str; 9] = [
    "hash_key",
    "hmac_key",
    "sentinel_password",
    "token",
    "read_token",
    "password",
    "authorization",
    "credentials",
    "api-key",
];

/// The keys of `[consumers]`, none of which is a secret. Other values there are credentials that belong into a file of consumers.
pub(super) const CONSUMERS_KEYS: [&str; 8] = [
    "file",
    "redis_cache",
    "credential",
    "unknown",
    "name_header",
    "tier_header",
    "priorities",
    "forward_credential",
];

/// Shorter values of variables are not replaced in messages.
const MIN_SECRET: usize = 4;

/// The variables of the environment that a file names, with their values, which may be secrets.
pub(super) struct Variables(pub Vec<(String, String)>);

impl Variables {
    /// The text with the variables in place of their values, as [`without_values`].
    pub fn hide_in(&self, text: &str) -> String {
        without_values(text, &self.0)
    }
}

/// Why a string's `${…}` can't be filled in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The environment has no such variable.
    Missing(String),
    /// `${` without a name and `}` after it.
    Malformed,
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Variables(…)")
    }
}

/// A string in which `${NAME}` was read from the environment and `$${` is `${`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub text: String,
    /// The variables in it, with their values.
    pub variables: Vec<(String, String)>,
}

/// Replaces every `${NAME}`.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Expanded, ExpandError> {
    let mut expanded = Expanded { text: String::with_capacity(text.len()), variables: Vec::new() };
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            expanded.text.push_str(before);
            expanded.text.push_str("${");
            rest = after;
            continue;
        }
        let end = after.find('}').ok_or(ExpandError::Malformed)?;
        let name = &after[..end];
        if !is_variable(name) {
            return Err(ExpandError::Malformed);
        }
        expanded.text.push_str(before);
        let value = env(name).ok_or_else(|| ExpandError::Missing(name.to_owned()))?;
        expanded.text.push_str(&value);
        expanded.variables.push((name.to_owned(), value));
        rest = &after[end + 1..];
    }
    expanded.text.push_str(rest);
    Ok(expanded)
}

/// The message with the variable in place of its value. Short values are kept: they occur inside other words.
pub(super) fn without_values(message: &str, variables: &[(String, String)]) -> String {
    let mut clean = message.to_owned();
    for (name, value) in variables.iter().filter(|(_, value)| value.len() >= MIN_SECRET) {
        clean = clean.replace(value, &format!("${{{name}}}"));
    }
    clean
}

/// Whether the value of a key is a secret, in any table.
pub(super) fn is_secret(key: &str) -> bool {
    KEYS.iter().any(|secret| key.contains(secret))
}

/// Whether a text can be the name of a variable.
pub(super) fn is_variable(name: &str) -> bool {
    let starts_as_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts_as_name && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The text of a file with an asterisk for each byte of a secret. It works on the bare text, so that it covers files
/// that are not valid TOML as well; names of variables are kept.
pub(super) fn masked(text: &str) -> String {
    let mut masked = text.as_bytes().to_vec();
    for secret in user_infos(text).chain(values(text)).chain(inline_consumers(text)) {
        mask(&mut masked[secret]);
    }
    // A secret starts and ends next to ASCII, so only whole characters were overwritten.
    String::from_utf8(masked).unwrap_or_else(|_| "*".repeat(text.len()))
}

/// The text between `://` and the last `@` of the same string.
fn user_infos(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(|(at, _)| {
        let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let quote = line.chars().rfind(|&character| is_quote(character)).unwrap_or('\n');
        let start = at + 3;
        let rest = &text[start..];
        let end = rest.find([quote, '\n']).unwrap_or(rest.len());
        rest[..end].rfind('@').map(|at| start..start + at)
    })
}

fn is_quote(character: char) -> bool {
    matches!(character, '"' | '\'')
}

/// The values of secret keys, without their quotes. One without quotes extends to the end of the line.
fn values(text: &str) -> impl Iterator<Item = Range<usize>> {
    KEYS.iter().flat_map(move |key| {
        text.match_indices(key).filter_map(|(at, key)| {
            let after = text[at + key.len()..].trim_start_matches(is_quote).trim_start_matches(is_blank);
            let value = after.strip_prefix('=')?.trim_start_matches(is_blank);
            let start = text.len() - value.len();
            if value.starts_with('[') {
                return Some(start..start + array_length(value));
            }
            let quotes = opening(value);
            let value = &value[quotes.len()..];
            let many_lines = quotes.len() == 3;
            let line = if many_lines { value.len() } else { value.find('\n').unwrap_or(value.len()) };
            let length =
                if quotes.is_empty() { line } else { closing(&value[..line], quotes).unwrap_or(line) };
            let start = text.len() - value.len();
            Some(start..start + length)
        })
    })
}

/// What is written below `[consumers]` or in a table within it, except the keys that are known there.
fn inline_consumers(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut is_below = false;
    let lines = text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((*end - line.len(), line))
    });
    lines.filter_map(move |(start, line)| {
        let trimmed = line.trim_start();
        // A line with quotes is the element of an array.
        if trimmed.starts_with('[') && !trimmed.contains(is_quote) {
            let name = trimmed.trim_start_matches(['[', ' ']);
            is_below = name.strip_prefix("consumers").is_some_and(|rest| rest.starts_with(['.', ']', ' ']));
            return None;
        }
        let (key, value) = trimmed.split_once('=').unwrap_or(("", trimmed));
        let key = key.trim_end();
        // `consumers.a = …` and `consumers = { a = … }` are outside of the table; `consumers = [ … ]` of a route
        // has the names of tiers.
        let dotted = key.strip_prefix("consumers.");
        let is_inline = key == "consumers" && has_inline_consumers(value);
        let is_known = CONSUMERS_KEYS.contains(&dotted.unwrap_or(key)) || trimmed.starts_with('#');
        let is_secret = is_inline || (is_below || dotted.is_some()) && !is_known;
        let end = start + line.len();
        is_secret.then(|| end - value.trim_start().len()..end)
    })
}

/// Whether an inline table has keys other than those that are known.
fn has_inline_consumers(value: &str) -> bool {
    let mut names = value.split(',').filter_map(|entry| entry.split_once('='));
    value.contains('{')
        && names.any(|(name, _)| !CONSUMERS_KEYS.contains(&name.trim_matches(['{', '[', ' '])))
}

/// The length of an array to its closing bracket, which is not in quotes; without one, to the end of the text.
fn array_length(text: &str) -> usize {
    let mut quote = None;
    let closing = text.find(|character| match (quote, character) {
        (None, ']') => true,
        (None, '"' | '\'') => {
            quote = Some(character);
            false
        }
        (Some(open), close) if open == close => {
            quote = None;
            false
        }
        _ => false,
    });
    closing.unwrap_or(text.len())
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

/// The quotes that a value starts with, or an empty string.
fn opening(value: &str) -> &'static str {
    ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| value.starts_with(quotes)).unwrap_or("")
}

/// The position of the closing quotes; a backslash escapes the next character.
fn closing(value: &str, quotes: &str) -> Option<usize> {
    let mut escaped = false;
    value.char_indices().find_map(|(at, character)| {
        let closes = !escaped && value[at..].starts_with(quotes);
        escaped = character == '\\' && !escaped && quotes.starts_with('"');
        closes.then_some(at)
    })
}

/// Overwrites everything but `${NAME}`, colons and line ends.
fn mask(secret: &mut [u8]) {
    let mut at = 0;
    while at < secret.len() {
        let name =
            secret[at..].starts_with(b"${").then(|| secret[at..].iter().position(|&byte| byte == b'}'));
        if let Some(Some(end)) = name {
            at += end + 1;
            continue;
        }
        if !matches!(secret[at], b':' | b'\n' | b'\r') {
            secret[at] = b'*';
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::consumers::ConsumersKeys;
    use crate::config::keys::DeclaredKeys as _;

    #[test]
    fn no_known_key_of_consumers_is_masked() {
        let known: Vec<_> = ConsumersKeys::KEYS.all.iter().map(|key| key.name).collect();
        assert_eq!(known, CONSUMERS_KEYS);
    }

    fn filled(text: &str) -> Result<(String, bool), ExpandError> {
        let env = |name: &str| (name == "A_1").then(|| "${B}".to_owned());
        expand(text, &env).map(|expanded| (expanded.text, !expanded.variables.is_empty()))
    }

    #[test]
    fn variables_are_replaced_once() {
        assert_eq!(filled("x${A_1}y${A_1}"), Ok(("x${B}y${B}".into(), true)));
        assert_eq!(filled("no $ variable $1"), Ok(("no $ variable $1".into(), false)));
        assert_eq!(filled("$${A_1} costs $$5"), Ok(("${A_1} costs $$5".into(), false)));
    }

    #[test]
    fn wrong_variables_are_errors() {
        assert_eq!(filled("${NONE}"), Err(ExpandError::Missing("NONE".into())));
        for text in ["${", "${A_1", "${}", "${1A}", "${A-1}", "${A_1 }"] {
            assert_eq!(filled(text), Err(ExpandError::Malformed), "{text}");
        }
    }

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        for (text, shown) in [
            ("url = \"redis://app:hush@h:1/2\"", "url = \"redis://***:****@h:1/2\""),
            ("url = \"redis://app:h/u#s@h@h:1\"", "url = \"redis://***:*******@h:1\""),
            ("url = \"redis://:it's, @h\"", "url = \"redis://:******@h\""),
            ("url = \"redis://app:${PW}@h\"", "url = \"redis://***:${PW}@h\""),
            ("hash_key = \"sécret\" # x", "hash_key = \"*******\" # x"),
            ("s = { hash_key='a\\', b = 'c' }", "s = { hash_key='**', b = 'c' }"),
            ("\"authorization\" = \"Bearer x\"", "\"authorization\" = \"********\""),
            ("token = \"\"\"a\nb\"\"\"", "token = \"\"\"*\n*\"\"\""),
            ("hash_key = \"open", "hash_key = \"****"),
            (
                "[consumers]\nfile = \"f\"\na = \"k-1\"\n[consumers.b]\nkeys = [\n[\"k-2\"]\n]\n[log]\na = \"k\"",
                "[consumers]\nfile = \"f\"\na = *****\n[consumers.b]\nkeys = *\n*******\n*\n[log]\na = \"k\"",
            ),
            ("consumers.a = \"k\"\nconsumers.file = \"f\"", "consumers.a = ***\nconsumers.file = \"f\""),
            ("consumers = { a = \"k\" }", "consumers = ***********"),
            ("consumers = { file = \"f\", a = \"k\" }", "consumers = ***********************"),
            ("consumers = { file = \"f\" }", "consumers = { file = \"f\" }"),
            ("consumers = [\"gold\"]", "consumers = [\"gold\"]"),
            ("hash_key = hush # x", "hash_key = ********"),
            ("url = \"http://h/a\"\nb = \"x@y\"", "url = \"http://h/a\"\nb = \"x@y\""),
        ] {
            assert_eq!(masked(text), shown, "{text}");
        }
    }

    proptest! {
        #[test]
        fn masking_keeps_the_length_of_every_line(text in "(hash_key|token|\n\\[consumers\\]\n| ?= ?|\"|'|://|@|\\$\\{|\\}|é|\\\\|\n|[a-z:/])*") {
            let masked = masked(&text);
            let lengths = |text: &str| text.split('\n').map(str::len).collect::<Vec<_>>();
            prop_assert_eq!(lengths(&masked), lengths(&text));
        }
    }
}
