//! Small text helpers that several modules need.

use std::borrow::Borrow;

/// The ending of a regular English noun after this count: `s` unless the count is 1.
#[must_use]
pub fn plural(count: impl Copy + PartialEq + From<u8>) -> &'static str {
    if count == 1.into() { "" } else { "s" }
}

/// A count with its noun: `1 route`, `2 routes`.
#[must_use]
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", plural(count))
}

/// The words as an English list: `a, b and c`.
#[must_use]
pub fn join_and<S: Borrow<str>>(words: &[S]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {}", others.join(", "), last.borrow()),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0_u64, 1, 2, 257].map(plural), ["s", "", "s", "s"]);
        assert_eq!(plural(1_usize), "");
        assert_eq!((counted(1, "route"), counted(0, "route")), ("1 route".to_owned(), "0 routes".to_owned()));
    }

    #[test]
    fn words_are_joined_with_commas_and_one_and() {
        assert_eq!(join_and::<&str>(&[]), "");
        assert_eq!(join_and(&["a"]), "a");
        assert_eq!(join_and(&["a", "b"]), "a and b");
        assert_eq!(join_and(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
    }
}
