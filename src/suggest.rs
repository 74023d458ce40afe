//! Suggests the correct name for a misspelled one, in messages.

/// The word most similar to `text`; none if no word is similar enough.
#[must_use]
pub fn nearest<'w>(text: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let text = text.to_lowercase();
    let distance = |word: &str| strsim::damerau_levenshtein(&text, &word.to_lowercase());
    let near = words.into_iter().map(|word| (distance(word), word));
    let allowed = |word: &str| text.chars().count().max(word.chars().count()) / 3;
    near.filter(|(distance, word)| *distance <= allowed(word)).min_by_key(|(d, _)| *d).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let words = ["rate", "burst", "key", "on_missing", "on_store_failure"];
        for (text, near) in [
            ("rat", Some("rate")),
            ("Rate", Some("rate")),
            ("brust", Some("burst")),
            ("on-missing", Some("on_missing")),
            ("on_store_failre", Some("on_store_failure")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, words), near, "{text}");
        }
    }
}
