//! Priority classes.

use std::fmt;

/// How much a request matters. A class is served before those after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Refused last.
    Critical,
    /// Above the default.
    High,
    /// The default.
    #[default]
    Normal,
    /// Refused first.
    Low,
}

impl Class {
    /// All classes, the most important one first.
    pub const ALL: [Self; Self::COUNT] = [Self::Critical, Self::High, Self::Normal, Self::Low];
    /// The number of classes.
    pub const COUNT: usize = 4;

    /// The position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in the configuration, the log and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// The class with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The more important of two classes.
    #[must_use]
    pub fn higher(self, other: Self) -> Self {
        self.min(other)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A request that asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its class.
    pub class: Class,
    /// The hash of its fair key, keyed so that clients cannot choose it.
    pub key: u64,
}
