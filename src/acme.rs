//! Certificates from an ACME server (RFC 8555): obtained in the background, kept in a directory, and renewed in time.
//!
//! [`Acme`] is a task of the main thread. Workers take part in two places: [`HttpChallenges`] are answered before a request
//! is routed, and `tls` does the handshakes of TLS-ALPN-01. The protocol itself is in `acme::client`, which the feature
//! `acme` includes.

#[cfg(feature = "acme")]
mod account;
#[cfg(feature = "acme")]
mod answer;
mod certificate_file;
#[cfg(feature = "acme")]
mod client;
#[cfg(not(feature = "acme"))]
#[path = "acme/without_client.rs"]
mod client;
mod error;
mod files;
#[cfg(feature = "acme")]
mod http;
mod http_challenges;
mod keeper;
mod managed;
#[cfg(feature = "acme")]
mod problem;
#[cfg(feature = "acme")]
mod renewal_info;
#[cfg(not(feature = "acme"))]
#[path = "acme/without_renewal_info.rs"]
mod renewal_info;
mod schedule;
mod service;
mod shared;
mod spec;
mod status;
mod storage;
mod suggestion;

pub use http_challenges::HttpChallenges;
pub use service::{Acme, AcmeStatus};
pub use spec::{AcmeSpec, ChallengeKind, ExternalAccount};
pub use status::{CertificateStatus, RenewalFailure};
pub use storage::{StorageError, check_storage};
