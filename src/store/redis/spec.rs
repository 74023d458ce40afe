//! How Redis is reached and used.

use std::time::Duration;

use super::url::Target;

/// How Redis is reached and used.
#[derive(Clone, Debug)]
pub struct RedisSpec {
    /// The address and the credentials.
    pub target: Target,
    /// The longest that a take may last.
    pub timeout: Duration,
    /// The first part of every stored key.
    pub prefix: Box<str>,
    /// Whether the proxy's clock is sent in place of reading the server's.
    pub client_clock: bool,
}
