//! The state that the task that obtains certificates, the listeners and the workers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::http_challenges::HttpChallenges;
use super::spec::AcmeSpec;
use super::status::CertificateStatus;
use super::storage::Storage;
use crate::telemetry::AcmeCounts;
use crate::tls::{Identity, ServerTls};

/// The certificates in use, the expected validations, and where both are installed.
#[derive(Debug)]
pub(super) struct InstalledCertificates {
    pub spec: AcmeSpec,
    pub storage: Storage,
    pub http: Arc<HttpChallenges>,
    /// Wakes the task, which then repeats failed attempts at once, unless the ACME server has asked to wait.
    pub retry: Notify,
    pub counts: Arc<AcmeCounts>,
    /// The state of each certificate, which the task updates.
    pub statuses: ArcSwap<Vec<CertificateStatus>>,
    installed: Mutex<Installed>,
}

#[derive(Debug, Default)]
struct Installed {
    /// The TLS settings of the listeners.
    listeners: Vec<ServerTls>,
    /// By their names.
    certificates: BTreeMap<String, Identity>,
    /// The certificates that prove the control of names (TLS-ALPN-01), by these names.
    validations: BTreeMap<String, Identity>,
}

impl InstalledCertificates {
    pub fn new(spec: AcmeSpec, counts: Arc<AcmeCounts>) -> Self {
        let storage = Storage::new(&spec.storage, &spec.directory);
        let http = Arc::new(HttpChallenges::new(storage.challenges()));
        let (retry, statuses) = (Notify::new(), ArcSwap::default());
        Self { spec, storage, http, retry, counts, statuses, installed: Mutex::default() }
    }

    /// Installs the certificates in these listeners, and from now on every new one.
    pub fn set_listeners(&self, listeners: Vec<ServerTls>) {
        self.change(|installed| installed.listeners = listeners);
    }

    /// Installs the certificates in listeners that are not served yet.
    pub fn prepare(&self, listeners: &[ServerTls]) {
        self.installed.lock().install_in(listeners);
    }

    pub fn set_certificate(&self, name: &str, certificate: Identity) {
        self.change(|installed| drop(installed.certificates.insert(name.to_owned(), certificate)));
    }

    #[cfg(feature = "acme")]
    pub fn set_validation(&self, name: &str, certificate: Identity) {
        self.change(|installed| drop(installed.validations.insert(name.to_owned(), certificate)));
    }

    #[cfg(feature = "acme")]
    pub fn remove_validation(&self, name: &str) {
        self.change(|installed| drop(installed.validations.remove(name)));
    }

    fn change(&self, change: impl FnOnce(&mut Installed)) {
        let mut installed = self.installed.lock();
        change(&mut installed);
        installed.install_in(&installed.listeners);
    }
}

impl Installed {
    fn install_in(&self, listeners: &[ServerTls]) {
        let certificates: Vec<Identity> = self.certificates.values().cloned().collect();
        let validations: Vec<Identity> = self.validations.values().cloned().collect();
        for listener in listeners {
            if let Err(error) = listener.install(&certificates, &validations) {
                tracing::error!("can't install certificates: {error}");
            }
        }
    }
}
