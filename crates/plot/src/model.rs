//! The content of a plot: for each limit, its requests and the remaining units over time.

use tidegate_limit::time::Timestamp;

/// Everything that is drawn.
#[derive(Debug)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The times at its left and right end.
    pub span: (Timestamp, Timestamp),
    /// Keys whose levels are drawn: their names in the legend.
    pub keys: Vec<String>,
    /// How many keys are not drawn.
    pub other_keys: usize,
    /// The limits, from top to bottom.
    pub panels: Vec<Panel>,
}

/// One limit.
#[derive(Debug)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// The name of its algorithm.
    pub algorithm: &'static str,
    /// Describes the limit.
    pub description: String,
    /// How many requests were admitted and denied.
    pub counts: String,
    /// The most units that ever remain: the top of the scale.
    pub limit: u64,
    /// The requests.
    pub marks: Vec<Mark>,
    /// For each key in [`Plot::keys`].
    pub levels: Vec<Level>,
}

/// One request, as this limit decides it.
#[derive(Debug)]
pub struct Mark {
    /// The decision.
    pub kind: MarkKind,
    /// When it arrives.
    pub arrived: Timestamp,
    /// When it is forwarded.
    pub released: Timestamp,
    /// Shown when the pointer is over the mark.
    pub tip: String,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// Admitted on arrival.
    Admitted,
    /// Admitted later.
    Delayed,
    /// Denied by this limit.
    Denied,
    /// Denied, but not by this limit.
    DeniedElsewhere,
}

/// The remaining units of a key over time. Each line is one run of the clock: a new one starts where the clock was set
/// back.
pub type Level = Vec<Vec<(Timestamp, u64)>>;
