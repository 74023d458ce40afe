//! What is done with requests of unknown consumers.

/// What is done with a request whose credential is missing or belongs to no consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownConsumer {
    /// It is rejected with 401.
    #[default]
    Reject,
    /// It is served without a consumer.
    Anonymous,
}
