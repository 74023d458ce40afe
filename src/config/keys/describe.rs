//! The documentation of single keys, for `tidegate config KEY`, and of all keys, for the manual page.

use super::key::{ConfigKey, ValueKind};
use super::reference::{ListedKey, Section, without_links};
use crate::suggest::nearest;

/// The documentation of a key, with code between backticks.
#[derive(Debug)]
pub struct KeyText {
    /// Its name, after those of tables between it and the table of the file.
    pub name: String,
    /// The values that it takes.
    pub kind: String,
    /// Its default, if the meaning does not say it.
    pub default: Option<String>,
    /// The bounds of its values.
    pub range: Option<String>,
    /// What it means.
    pub meaning: String,
}

/// The documentation of a table of the file.
#[derive(Debug)]
pub struct TableText {
    /// The table as the file writes it, such as `[[listeners]]`; empty for the top level.
    pub heading: String,
    /// Its keys.
    pub keys: Vec<KeyText>,
}

impl KeyText {
    fn new(ListedKey { path, key }: &ListedKey) -> Self {
        Self {
            name: path.clone(),
            kind: words(&key.kind),
            default: Some(without_links(&key.default_words())).filter(|words| !words.is_empty()),
            range: key.range(),
            meaning: without_links(&key.meaning()),
        }
    }

    fn lines(&self, heading: &str) -> String {
        let place =
            if heading.is_empty() { "above the first table".to_owned() } else { format!("in {heading}") };
        let Self { name, kind, meaning, .. } = self;
        let range = self.range.as_ref().map(|range| format!("\n  range    {range}")).unwrap_or_default();
        let default = self.default.as_ref().map(|words| format!("\n  default  {words}")).unwrap_or_default();
        format!("{name}, {place}\n  values   {kind}{range}{default}\n  {meaning}")
    }
}

/// The documentation of every table.
#[must_use]
pub fn tables(sections: &[Section]) -> Vec<TableText> {
    let table = |section: &Section| TableText {
        heading: section.heading.clone(),
        keys: section.keys.iter().map(KeyText::new).collect(),
    };
    sections.iter().map(table).collect()
}

/// The documentation of every key of this name, such as `rate` or `limits.rate`, and of every table; `file` are the keys of the
/// file itself.
///
/// # Errors
/// No key has this name: the most similar one, if there is one.
pub fn describe(file: &[ConfigKey], sections: &[Section], name: &str) -> Result<Vec<String>, Option<String>> {
    let name = name.replace(['[', ']'], "").replace(".NAME", "");
    let full = |section: &Section, key: &ListedKey| {
        let table = section.name.split('.').next().filter(|_| !section.heading.is_empty());
        table.map_or_else(|| key.path.clone(), |table| format!("{table}.{}", key.path))
    };
    let keys = || sections.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    let of_name = |(section, key): &(&Section, &ListedKey)| {
        key.key.name == name || key.path == name || full(section, key) == name
    };
    let tables = file.iter().filter(|key| key.name == name && !key.kind.tables().is_empty()).map(|key| {
        let inner = key.kind.tables().into_iter().flat_map(|(keys, _)| keys.all).map(|key| key.name);
        let inner: Vec<&str> = inner.collect();
        format!("{}\n  {}\n  Its keys are {}", key.heading(), without_links(&key.meaning()), inner.join(", "))
    });
    let found = keys().filter(of_name).map(|(section, key)| KeyText::new(key).lines(&section.heading));
    let found: Vec<String> = tables.chain(found).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let known: Vec<String> =
        keys().flat_map(|(section, key)| [key.key.name.to_owned(), full(section, key)]).collect();
    let known = known.iter().map(String::as_str).chain(file.iter().map(|key| key.name));
    Err(nearest(&name, known).map(str::to_owned))
}

/// The values of a kind in words.
fn words(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Boolean => "`true` or `false`".to_owned(),
        ValueKind::Integer(..) => "a whole number".to_owned(),
        ValueKind::Decimal(..) => "a number".to_owned(),
        ValueKind::Duration(..) => "a duration, such as `\"30s\"`".to_owned(),
        ValueKind::DurationOrOff(..) => "a duration, such as `\"30s\"`, or `\"off\"`".to_owned(),
        ValueKind::Time => "a date, or a date and time".to_owned(),
        ValueKind::Size(..) => "a number of bytes, or a string such as `\"32KiB\"`".to_owned(),
        ValueKind::Choice(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or ")
        }
        ValueKind::Text => "a string".to_owned(),
        ValueKind::List(element) => format!("an array, each element {}", words(element)),
        ValueKind::Table(_) | ValueKind::Mixed(..) => "a table".to_owned(),
        ValueKind::Named(value) => format!("a table of names, each with {}", words(value)),
        ValueKind::Either(kinds) => kinds.iter().map(words).collect::<Vec<_>>().join(", or "),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::describe;

    #[test]
    fn keys_are_found_by_their_names_and_by_their_tables() {
        let expected = "trusted_proxies, in [client_ip]\n  values   an array, each element a string\n  default  `[]`\n  \
                        Networks or addresses of the proxies whose headers are trusted";
        for name in ["trusted_proxies", "client_ip.trusted_proxies"] {
            assert_eq!(describe(name).unwrap(), [expected], "{name}");
        }
        let [max_headers] = &describe("[[listeners]].max_headers").unwrap()[..] else { panic!("one key") };
        assert!(max_headers.contains("\n  range    1 to 10,000\n"), "{max_headers}");
        assert!(describe("tls").unwrap().len() > 2);
        assert!(describe("limits.NAME.rate").unwrap()[0].starts_with("rate, in [limits.NAME]\n"));
        assert!(describe("listen").unwrap()[0].starts_with("listen, above the first table\n"));
        assert!(
            describe("listeners.tls.certificates").unwrap()[0]
                .starts_with("tls.certificates, in [[listeners]]\n")
        );
        assert!(
            describe("store").unwrap()[0]
                .starts_with("[store]\n  Where limits are counted\n  Its keys are url, ")
        );
    }

    #[test]
    fn an_unknown_key_has_a_similar_one() {
        assert_eq!(describe("trusted_proxys"), Err(Some("trusted_proxies".to_owned())));
        assert_eq!(describe("limits.brust"), Err(Some("limits.burst".to_owned())));
        assert_eq!(describe("colour_of_the_sky"), Err(None));
    }
}
