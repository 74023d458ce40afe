//! The numbers of a limit in words.

/// The numbers of a limit as the file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenLimit {
    /// In words, such as `100/minute, burst 500`.
    pub numbers: Box<str>,
}
