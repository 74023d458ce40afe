//! How a command ends, as an exit status.

/// Why a command fails. The value is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It failed while it ran.
    Running = 1,
    /// The configuration or the arguments are invalid.
    Usage = 2,
}

/// The result of a command. Its messages have been printed already.
pub(super) type Outcome = Result<(), Failure>;
