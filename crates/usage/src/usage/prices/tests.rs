//! Weights of tokens, and the prices of models.

use proptest::prelude::*;

use super::*;

fn weight(text: &str) -> Weight {
    Weight::parse(text, 9).unwrap()
}

fn weights(input: &str, output: &str) -> Weights {
    let input = weight(input);
    let output = weight(output);
    Weights { input, cached_input: input, cache_write: input, output, reasoning: Weight::default() }
}

fn pattern(text: &str) -> ModelPattern {
    ModelPattern::parse(text).unwrap()
}

#[test]
fn weights_are_read_exactly() {
    assert_eq!(Weight::parse("0", 3), Ok(Weight(0)));
    assert_eq!(Weight::parse("1", 0), Ok(Weight::ONE));
    assert_eq!(Weight::parse("0.15", 3), Ok(Weight(150_000_000)));
    assert_eq!(Weight::parse("0.000000001", 9), Ok(Weight(1)));
    assert_eq!(Weight::parse("1000000", 3), Ok(Weight(1_000_000_000_000_000)));
    assert_eq!(Weight::parse("007.50", 3), Ok(Weight(7_500_000_000)));
}

#[test]
fn other_texts_are_no_weights() {
    for text in [
        "", ".", "1.", ".5", "-1", "+1", "1e3", "1_000", " 1", "1 ", "0x1", "NaN", "inf", "1.2.3", "0,5", "٣",
    ] {
        assert!(Weight::parse(text, 9).is_err(), "{text}");
    }
    assert!(Weight::parse("1000000.000000001", 9).is_err());
    assert!(Weight::parse("99999999999999999999999", 9).is_err());
    assert!(Weight::parse("0.1234", 3).is_err(), "too many decimals");
    assert!(Weight::parse("0.1234567890", 20).is_err(), "never more than nine");
    assert_eq!(
        Weight::parse("x", 3).unwrap_err().to_string(),
        "a weight is a number from 0 to 1000000 with at most 3 decimals"
    );
}

#[test]
fn the_sum_is_rounded_up_once() {
    let weights = weights("0.4", "0.4");
    let tokens = Tokens { input: 1, output: 1, ..Tokens::default() };
    assert_eq!(weights.units(&tokens), 1, "0.8 is 1, not 1 + 1");
    assert_eq!(weights.units(&Tokens::default()), 0);
    assert_eq!(weights.units(&Tokens { input: 5, ..Tokens::default() }), 2, "exactly 2.0");
}

#[test]
fn parts_have_the_weight_of_their_kind() {
    let weights = Weights {
        input: weight("1"),
        cached_input: weight("0.1"),
        cache_write: weight("1.25"),
        output: weight("5"),
        reasoning: weight("2"),
    };
    let tokens = Tokens { input: 100, cached_input: 50, cache_write: 20, output: 10, reasoning: 4 };
    assert_eq!(weights.units(&tokens), 30 + 5 + 25 + 50 + 8);
    let more_parts_than_input =
        Tokens { input: 10, cached_input: 50, cache_write: 20, output: 1, reasoning: 4 };
    assert_eq!(weights.units(&more_parts_than_input), 1 + 5 + 2);
}

#[test]
fn units_saturate() {
    let most = weights("1000000", "1000000");
    let tokens =
        Tokens { input: u64::MAX, cached_input: 0, cache_write: 0, output: u64::MAX, reasoning: u64::MAX };
    assert_eq!(most.units(&tokens), u64::MAX);
    let one = weights("1", "0");
    assert_eq!(one.units(&tokens), u64::MAX, "exactly");
}

#[test]
fn patterns_match_with_wildcards_anywhere() {
    for (text, name, is_match) in [
        ("gpt-4o", "gpt-4o", true),
        ("gpt-4o", "gpt-4o-mini", false),
        ("gpt-4o*", "gpt-4o-mini", true),
        ("gpt-4o*", "gpt-4o", true),
        ("*", "", true),
        ("*", "anything", true),
        ("*-mini", "gpt-4o-mini", true),
        ("*-mini", "gpt-4o-mini-2024", false),
        ("gpt*mini", "gptmini", true),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("*a*b*", "xxaxxbxx", true),
        ("*a*b*", "ba", false),
        ("a**b", "ab", true),
        ("ab*ab*ab", "abab", false),
        ("ab*ab*ab", "ababab", true),
        ("GPT-4o", "gpt-4o", false),
        ("models/*é", "models/é", true),
    ] {
        assert_eq!(pattern(text).matches(name), is_match, "{text} {name}");
    }
}

#[test]
fn invalid_patterns_are_errors() {
    for text in ["", "  ", "a\nb", "a\0", &"a".repeat(129)] {
        assert!(ModelPattern::parse(text).is_err(), "{text:?}");
    }
    assert!(ModelPattern::parse(&"é".repeat(128)).is_ok());
    assert!(pattern("a").is_exact() && !pattern("a*").is_exact());
}

#[test]
fn the_first_pattern_that_matches_counts() {
    let table = vec![
        (pattern("gpt-4o-mini*"), weights("0.15", "0.6")),
        (pattern("gpt-4o"), weights("2.5", "10")),
        (pattern("gpt-4o*"), weights("5", "15")),
        (pattern("gpt-4o"), weights("7", "7")),
    ];
    let prices = Prices::new(table, weights("1", "1"));
    assert!(prices.depend_on_model());
    assert_eq!(prices.of(Some("gpt-4o-mini-2024-07-18")), (weights("0.15", "0.6"), true));
    assert_eq!(prices.of(Some("gpt-4o")), (weights("2.5", "10"), true));
    assert_eq!(prices.of(Some("gpt-4o-2024-08-06")), (weights("5", "15"), true));
    assert_eq!(prices.of(Some("mistral-large")), (weights("1", "1"), false));
    assert_eq!(prices.of(None), (weights("1", "1"), false));
    let uniform = Prices::uniform(Weights { input: Weight::ONE, ..weights("1", "1") });
    assert!(!uniform.depend_on_model());
    assert_eq!(uniform.of(None), (weights("1", "1"), true));
    assert_eq!(uniform.greatest(Some("x")), weights("1", "1"));
}

#[test]
fn a_wildcard_before_an_exact_name_counts() {
    let prices = Prices::new(
        vec![(pattern("*"), weights("3", "3")), (pattern("a"), weights("1", "1"))],
        weights("9", "9"),
    );
    assert_eq!(prices.of(Some("a")), (weights("3", "3"), true));
}

#[test]
fn the_greatest_price_is_that_of_the_model_and_its_versions() {
    let table = vec![
        (pattern("gpt-4o-mini"), weights("0.15", "0.6")),
        (pattern("gpt-4o"), weights("2.5", "10")),
        (pattern("gpt-4o-2024-05-13"), weights("5", "15")),
        (pattern("gpt-5-pro"), weights("15", "120")),
        (pattern("gpt-5"), weights("1", "20")),
    ];
    let prices = Prices::new(table, weights("2", "2"));
    assert_eq!(prices.greatest(Some("gpt-4o")), weights("5", "15"), "the server may choose the version");
    assert_eq!(prices.greatest(Some("gpt-4o-mini")), weights("0.15", "0.6"));
    assert_eq!(prices.greatest(Some("gpt-5")), weights("1", "20"), "gpt-5-pro is another model");
    assert_eq!(prices.greatest(Some("unknown")), weights("15", "120"));
    assert_eq!(prices.greatest(None), weights("15", "120"));
}

#[test]
fn weights_for_an_estimate_are_upper_bounds() {
    let weights = Weights {
        input: weight("1"),
        cached_input: weight("0.1"),
        cache_write: weight("1.25"),
        output: weight("5"),
        reasoning: weight("2"),
    };
    let estimate = weights.for_estimate();
    let tokens = Tokens { input: 100, cached_input: 0, cache_write: 100, output: 10, reasoning: 10 };
    assert_eq!(
        weights.units(&tokens),
        estimate.units(&Tokens { input: 100, output: 10, ..Tokens::default() })
    );
}

/// Whether a pattern matches, by recursion.
fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, first) => first.is_none(),
        (Some((b'*', rest)), None) => matches_slowly(rest, name),
        (Some((b'*', rest)), Some((_, tail))) => matches_slowly(rest, name) || matches_slowly(pattern, tail),
        (Some((byte, rest)), Some((first, tail))) => byte == first && matches_slowly(rest, tail),
        (Some(_), None) => false,
    }
}

proptest! {
    #[test]
    fn patterns_match_as_defined(text in "[ab*]{1,8}", name in "[ab]{0,10}") {
        prop_assert_eq!(pattern(&text).matches(&name), matches_slowly(text.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn weights_are_read_as_written(billionths in 0..=MAX_WEIGHT * UNIT) {
        let text = format!("{}.{:09}", billionths / UNIT, billionths % UNIT);
        prop_assert_eq!(Weight::parse(&text, 9), Ok(Weight(billionths)));
    }

    #[test]
    fn any_text_is_read_without_panic(text in ".*", decimals in 0..20usize) {
        let _ = Weight::parse(&text, decimals);
        let _ = ModelPattern::parse(&text).map(|pattern| pattern.matches(&text));
    }
}
