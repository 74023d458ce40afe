//! The certificates of an ACME server for the listeners of a process.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::http_challenges::HttpChallenges;
use super::keeper::Keeper;
use super::shared::InstalledCertificates;
use super::spec::AcmeSpec;
use super::status::CertificateStatus;
use crate::telemetry::AcmeCounts;
use crate::tls::ServerTls;

/// Obtains and renews certificates, until it is dropped.
#[derive(Debug)]
pub struct Acme {
    shared: Arc<InstalledCertificates>,
    task: JoinHandle<()>,
}

/// A handle to the state of the certificates of an ACME server.
#[derive(Clone, Debug)]
pub struct AcmeStatus(Arc<InstalledCertificates>);

impl Acme {
    /// Uses the certificates that are stored already, and starts to obtain the others. `earlier` is the state in which another
    /// configuration for the same ACME server has left certificates.
    async fn start(
        spec: AcmeSpec,
        earlier: &[CertificateStatus],
        listeners: Vec<ServerTls>,
        counts: &Arc<AcmeCounts>,
    ) -> Self {
        let shared = Arc::new(InstalledCertificates::new(spec, Arc::clone(counts)));
        let keeper = Keeper::new(&shared, earlier).await;
        shared.set_listeners(listeners);
        Self { shared, task: tokio::spawn(keeper.run()) }
    }

    /// Starts, or goes on with the settings of another configuration, whose listeners are not served yet: those of clients.
    /// Failed attempts are repeated at once, unless the ACME server has asked to wait.
    pub async fn next(
        earlier: Option<Self>,
        spec: Option<AcmeSpec>,
        listeners: Vec<ServerTls>,
        counts: &Arc<AcmeCounts>,
    ) -> Option<Self> {
        let Some(spec) = spec else {
            counts.set_names(0, 0);
            return None;
        };
        match earlier {
            Some(acme) if acme.shared.spec == spec => {
                acme.shared.prepare(&listeners);
                acme.shared.retry.notify_one();
                Some(acme)
            }
            Some(acme) if acme.shared.spec.directory == spec.directory => {
                let statuses = acme.shared.statuses.load_full();
                // Stops its task, which then releases the lock.
                drop(acme);
                Some(Self::start(spec, &statuses, listeners, counts).await)
            }
            _ => Some(Self::start(spec, &[], listeners, counts).await),
        }
    }

    /// A handle to the state of the certificates.
    #[must_use]
    pub fn status(&self) -> AcmeStatus {
        AcmeStatus(Arc::clone(&self.shared))
    }

    /// Installs certificates in these listeners from now on.
    pub fn set_listeners(&self, listeners: Vec<ServerTls>) {
        self.shared.set_listeners(listeners);
    }

    /// The requests of the ACME server that workers answer.
    #[must_use]
    pub fn http_challenges(&self) -> Arc<HttpChallenges> {
        Arc::clone(&self.shared.http)
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AcmeStatus {
    /// The host of the ACME server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.0.spec.server()
    }

    /// The state of each certificate, in the order in which they are obtained.
    #[must_use]
    pub fn certificates(&self) -> Arc<Vec<CertificateStatus>> {
        self.0.statuses.load_full()
    }
}
