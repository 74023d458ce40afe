//! Consumers: the named clients of an API, and the credentials that identify them.
//!
//! A [`Directory`] finds the [`Consumer`] of a credential. It is made from a file, and immutable: a reload makes another
//! one. [`StoredConsumers`] finds those that are in Redis.

mod consumer;
mod credential;
mod directory;
mod record;
mod stored;

pub use consumer::{Consumer, ConsumerError, UnknownConsumer, is_consumer_name, is_tier_name};
pub use credential::{CredentialHash, HashError};
pub use directory::{Directory, DuplicateCredential};
pub use record::{RecordError, parse_record};
pub use stored::StoredConsumers;
