//! What limits requests or restricts access in the origin.

use super::note::FileLine;

/// A line of the origin that limits or restricts access. These lines are listed in a pass of their own, which does not depend on
/// what was converted.
#[derive(Debug)]
pub(super) struct Restriction {
    pub place: FileLine,
    pub text: String,
    /// Whether it limits the number of requests or connections; others restrict access in another way.
    pub is_limit: bool,
    /// The blocks around it: one that is not converted accounts for all in it.
    pub within: Vec<FileLine>,
}

/// How many restrictions of a kind the origin has, and how many of them are in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// In the output.
    pub converted: usize,
    /// In the origin.
    pub all: usize,
}

/// The account of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Limits of requests and connections.
    pub limits: Tally,
    /// Other restrictions of access.
    pub access: Tally,
    /// Those that are neither in the output nor in a remark of the conversion: a mistake of the converter.
    pub lost: usize,
}

impl Restriction {
    /// A limit of requests or connections.
    pub fn limit(place: FileLine, text: String, within: Vec<FileLine>) -> Self {
        Self { place, text, is_limit: true, within }
    }

    /// A restriction of another kind.
    pub fn access(place: FileLine, text: String, within: Vec<FileLine>) -> Self {
        Self { place, text, is_limit: false, within }
    }
}
