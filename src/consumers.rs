//! Consumers: the named clients of an API, and the credentials that identify them.
//!
//! A [`Directory`] finds the [`Consumer`] of a credential. It is made from a file, and immutable: a reload makes another
//! one.

mod cache;
mod consumer;
mod credential;
mod directory;
mod error;
mod unknown;

pub use consumer::Consumer;
pub use credential::{CredentialHash, HashError};
pub use directory::{Directory, DuplicateCredential};
pub use error::ConsumerError;
pub use unknown::UnknownConsumer;
