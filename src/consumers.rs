//! Consumers: the named clients of an API, and the credentials that identify them.
//!
//! A [`Directory`] finds the [`Consumer`] of a credential. It is made from a file, and immutable: a reload makes another
//! one. [`StoredConsumers`] finds those that are in Redis.

mod cache;
mod consumer;
mod credential;
mod directory;
mod error;
mod lookups;
mod names;
mod record;
mod stored;
mod unknown;

pub use consumer::Consumer;
pub use credential::{CredentialHash, HashError};
pub use directory::{Directory, DuplicateCredential};
pub use error::ConsumerError;
pub use names::{is_consumer_name, is_tier_name};
pub use record::{RecordError, parse_record};
pub use stored::StoredConsumers;
pub use unknown::UnknownConsumer;
