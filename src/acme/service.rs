//! The certificates of an ACME server for the listeners of a process.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::http_challenges::HttpChallenges;
use super::keeper::Keeper;
use super::shared::Shared;
use super::spec::AcmeSpec;
use crate::telemetry::AcmeCounts;
use crate::tls::ServerTls;

/// Obtains and renews certificates, until it is dropped.
#[derive(Debug)]
pub struct Acme {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Acme {
    /// Uses the certificates that are stored already, and starts to obtain the others. `listeners` are those of clients.
    #[must_use]
    pub fn start(spec: AcmeSpec, listeners: Vec<ServerTls>, counts: &Arc<AcmeCounts>) -> Self {
        let shared = Arc::new(Shared::new(spec, Arc::clone(counts)));
        let keeper = Keeper::new(&shared);
        shared.set_listeners(listeners);
        Self { shared, task: tokio::spawn(keeper.run()) }
    }

    /// Goes on with the settings of another configuration, whose listeners are not served yet. With equal settings failed
    /// attempts are repeated at once.
    #[must_use]
    pub fn next(
        earlier: Option<Self>,
        spec: Option<AcmeSpec>,
        listeners: Vec<ServerTls>,
        counts: &Arc<AcmeCounts>,
    ) -> Option<Self> {
        let Some(spec) = spec else {
            counts.set_missing(0);
            return None;
        };
        match earlier {
            Some(acme) if acme.shared.spec == spec => {
                acme.shared.prepare(&listeners);
                acme.shared.retry.notify_one();
                Some(acme)
            }
            _ => Some(Self::start(spec, listeners, counts)),
        }
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
