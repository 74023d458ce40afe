//! Certificates from an ACME server (RFC 8555): obtained in the background, kept in a directory, and renewed in time.
//!
//! [`Acme`] is a task of the main thread. Workers take part in two places: [`HttpChallenges`] are answered before a request
//! is routed, and `tls` does the handshakes of TLS-ALPN-01. The protocol itself is in `acme::client`, which the feature
//! `acme` includes.
//!
//! With `[acme]` a task of the main thread (`acme::keeper`) obtains and renews certificates. `acme::InstalledCertificates`
//! installs them in the `ServerTls` of each listener: a copy of its rustls configuration with another resolver replaces it for
//! new handshakes, and keeps sessions and tickets. After a reload the new settings have the same certificates before a listener
//! adopts them. A worker takes part twice: a request for `/.well-known/acme-challenge/TOKEN` is looked up in `HttpChallenges`,
//! which remembers the tokens of other processes for a second, and while a validation by TLS is expected, and only then, the
//! handshake waits for the ClientHello to see whether it is one (`tls::resolver`). All changes of files go through
//! `acme::storage::Lock`, which is held until they are made; the questions when to renew (`acme::suggestion`) need no lock,
//! since they change nothing. `AcmeStatus` has the state of each certificate, for the admin interface and for the next
//! configuration: an ACME server that has asked to wait is not asked earlier because of a reload.

#[cfg(feature = "acme")]
mod client;
#[cfg(not(feature = "acme"))]
#[path = "acme/without_client.rs"]
mod client;
mod files;
#[cfg(feature = "acme")]
mod http;
mod http_challenges;
mod keeper;
mod managed;
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
