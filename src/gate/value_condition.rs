//! Conditions of routes on the values of a header, a query parameter or a cookie.

use http::header::{self, HeaderName};

use super::value_pattern::ValuePattern;

/// A condition on all values that a request has under one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueCondition {
    /// There is a value.
    Present,
    /// There is none.
    Absent,
    /// One of the values matches one of these patterns.
    AnyOf(Box<[ValuePattern]>),
    /// No value matches one of these patterns; true also where there is no value.
    NoneOf(Box<[ValuePattern]>),
}

/// Headers whose values do not depend on case by their RFCs, and User-Agent, because crawlers vary it.
const CASE_INSENSITIVE: [HeaderName; 16] = [
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::PRAGMA,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::USER_AGENT,
];

/// Whether conditions on this header ignore the case of its values.
#[must_use]
pub fn header_ignores_case(name: &HeaderName) -> bool {
    CASE_INSENSITIVE.contains(name)
}

impl ValueCondition {
    /// Whether the condition holds for a request with these values.
    #[must_use]
    pub fn holds(&self, mut values: impl Iterator<Item: AsRef<[u8]>>) -> bool {
        match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::AnyOf(patterns) => values.any(|value| any_matches(patterns, value.as_ref())),
            Self::NoneOf(patterns) => !values.any(|value| any_matches(patterns, value.as_ref())),
        }
    }

    /// Whether this condition holds wherever `other` holds. May be false where that is so, but never true where it is
    /// not.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present, Self::AnyOf(_)) | (Self::NoneOf(_), Self::Absent) => true,
            _ => self == other,
        }
    }

    /// The only values that satisfy the condition, in lower case if their case does not matter. None if others can
    /// satisfy it as well.
    pub(super) fn exact_values(&self) -> Option<Vec<&[u8]>> {
        let Self::AnyOf(patterns) = self else { return None };
        patterns.iter().map(ValuePattern::exact).collect()
    }

    /// Whether the case of the values does not matter.
    pub(super) fn ignores_case(&self) -> bool {
        match self {
            Self::Present | Self::Absent => false,
            Self::AnyOf(patterns) | Self::NoneOf(patterns) => patterns.iter().any(ValuePattern::ignores_case),
        }
    }

    /// Why the condition does not hold, to follow the name of the value.
    pub(super) fn failure(&self) -> String {
        match self {
            Self::Present => "is missing".to_owned(),
            Self::Absent => "is present".to_owned(),
            Self::AnyOf(patterns) => format!("does not match {}", listed(patterns)),
            Self::NoneOf(patterns) => format!("matches {}", listed(patterns)),
        }
    }
}

impl std::fmt::Display for ValueCondition {
    /// The condition as it follows the name of the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Present => f.write_str("present"),
            Self::Absent => f.write_str("absent"),
            Self::AnyOf(patterns) => f.write_str(&listed(patterns)),
            Self::NoneOf(patterns) => write!(f, "not {}", listed(patterns)),
        }
    }
}

fn any_matches(patterns: &[ValuePattern], value: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(value))
}

fn listed(patterns: &[ValuePattern]) -> String {
    patterns.iter().map(|pattern| format!("`{pattern}`")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_of(pattern: &str) -> ValueCondition {
        ValueCondition::AnyOf([ValuePattern::parse(pattern)].into())
    }

    fn none_of(pattern: &str) -> ValueCondition {
        ValueCondition::NoneOf([ValuePattern::parse(pattern)].into())
    }

    #[test]
    fn conditions_hold_for_all_values_of_a_name_together() {
        use ValueCondition::{Absent, Present};
        for (condition, values, holds) in [
            (Present, &[""][..], true),
            (Present, &[], false),
            (Absent, &[], true),
            (Absent, &["a"], false),
            (any_of("a*"), &["b", "ab"], true),
            (any_of("a*"), &["b"], false),
            (any_of("*"), &[], false),
            (none_of("a*"), &["b"], true),
            (none_of("a*"), &["b", "ab"], false),
            (none_of("a*"), &[], true),
        ] {
            assert_eq!(condition.holds(values.iter()), holds, "{condition} {values:?}");
        }
    }

    #[test]
    fn a_condition_covers_stricter_ones() {
        use ValueCondition::{Absent, Present};
        for (one, other) in [(Present, any_of("a")), (none_of("a"), Absent), (any_of("a"), any_of("a"))] {
            assert!(one.covers(&other), "{one} {other}");
        }
        for (one, other) in
            [(any_of("a"), Present), (Absent, none_of("a")), (Present, none_of("a")), (Present, Absent)]
        {
            assert!(!one.covers(&other), "{one} {other}");
        }
    }
}
