//! The task that obtains and renews certificates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::client::AcmeClient;
use super::files::{blocking, read};
use super::managed::{self, Managed};
use super::schedule::{asked_wait, until};
use super::shared::InstalledCertificates;
use super::status::{CertificateStatus, ErrorKind, ObtainError};
use super::storage::Lock;
use super::suggestion::ask;
use crate::text::counted;
use crate::time::{Clock, format_duration, monotonic};

/// How often files are read again, since another process may have renewed them.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// How long to wait while another process obtains certificates.
const LOCKED: Duration = Duration::from_secs(2);
/// The most names in the log at a time.
const MAX_NAMES: usize = 20;

/// The task.
pub(super) struct Keeper {
    shared: Arc<InstalledCertificates>,
    certificates: Vec<Managed>,
    last_read: Instant,
}

impl Keeper {
    /// A task for these names. Certificates that are stored already are used at once. `earlier` is the state of certificates
    /// of the same ACME server.
    pub async fn new(shared: &Arc<InstalledCertificates>, earlier: &[CertificateStatus]) -> Self {
        let certificates = shared.spec.names.iter().map(|name| {
            let mut one = Managed::new(name.clone());
            if let Some(earlier) = earlier.iter().find(|earlier| earlier.name == *name) {
                one.inherit(earlier);
            }
            one
        });
        let certificates = certificates.collect();
        let mut keeper = Self { shared: Arc::clone(shared), certificates, last_read: monotonic() };
        let storage = shared.storage.clone();
        if let Err(error) = blocking(move || storage.create()).await {
            tracing::error!("{}", unwritable(&shared.spec.storage, &error).message);
        }
        keeper.read_files().await;
        keeper.log_start();
        keeper.log_waits();
        keeper.publish();
        keeper
    }

    /// Obtains and renews certificates for ever.
    pub async fn run(mut self) {
        loop {
            self.publish();
            let (now, wall) = (monotonic(), Clock::System.now());
            let waits = self.certificates.iter().map(|one| {
                let ask = one.ask_at.map_or(READ_AGAIN, |time| time.saturating_duration_since(now));
                one.wait(now, wall).min(ask)
            });
            let wait = waits.min().unwrap_or(READ_AGAIN).min(READ_AGAIN);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.shared.retry.notified() => {
                    self.certificates.iter_mut().for_each(Managed::forget_backoff);
                    self.log_waits();
                }
            }
            if self.last_read.elapsed() >= READ_AGAIN {
                self.read_files().await;
            }
            let (now, wall) = (monotonic(), Clock::System.now());
            match self.certificates.iter().position(|one| one.wait(now, wall).is_zero()) {
                Some(index) => self.obtain(index).await,
                None => ask(&mut self.certificates, &self.shared).await,
            }
        }
    }

    /// The file of each certificate.
    fn paths(&self) -> Vec<PathBuf> {
        self.certificates.iter().map(|one| self.shared.storage.certificate(&one.name)).collect()
    }

    /// Reads all files.
    async fn read_files(&mut self) {
        self.last_read = monotonic();
        let paths = self.paths();
        let read = move || paths.iter().map(|path| read_logged(path)).collect();
        if let Ok(files) = tokio::task::spawn_blocking(read).await {
            self.use_files(files);
        }
    }

    fn use_files(&mut self, files: Vec<Option<Vec<u8>>>) {
        for (index, file) in files.into_iter().enumerate() {
            if let Some(file) = file
                && let Err(error) = self.use_file(index, &file)
            {
                let path = self.shared.storage.certificate(&self.certificates[index].name);
                tracing::warn!("{} is not used: {error}", path.display());
            }
        }
    }

    /// Uses the certificate of a file, unless it is in use already.
    fn use_file(&mut self, index: usize, file: &[u8]) -> Result<(), String> {
        let one = &mut self.certificates[index];
        let hash = blake3::hash(file);
        if !one.is_from(hash) {
            let identity = managed::parse_certificate(file, &one.name)?;
            one.replace(identity.clone(), hash, (monotonic(), Clock::System.now()));
            self.shared.set_certificate(&one.name, identity);
        }
        Ok(())
    }

    /// Publishes the state of all certificates.
    fn publish(&self) {
        let (now, wall) = (monotonic(), Clock::System.now());
        let statuses: Vec<_> = self.certificates.iter().map(|one| one.status(now, wall)).collect();
        let valid = statuses.iter().filter(|one| one.not_after.is_some_and(|end| wall < end)).count();
        let failing = statuses.iter().filter(|one| one.failure.is_some()).count();
        self.shared.counts.set_names(statuses.len() - valid, failing);
        self.shared.statuses.store(Arc::new(statuses));
    }

    fn log_start(&self) {
        let spec = &self.shared.spec;
        let missing = self.certificates.iter().filter(|one| one.identity().is_none());
        let missing: Vec<&str> = missing.map(|one| &*one.name).collect();
        let stored = counted(self.certificates.len() - missing.len(), "certificate");
        tracing::info!("ACME: {stored} in {}", spec.storage.display());
        if !missing.is_empty() {
            let (server, kind, names) = (spec.server(), spec.challenge.name(), listed(&missing));
            tracing::warn!(
                "ACME: TLS handshakes fail until certificates are obtained from {server} by {kind}: {names}"
            );
        }
    }

    /// Logs which attempts a reload does not repeat.
    fn log_waits(&self) {
        let (now, wall) = (monotonic(), Clock::System.now());
        let held = self.certificates.iter().filter_map(|one| Some((one, one.held_by_server(now, wall)?)));
        for (one, wait) in held.take(MAX_NAMES) {
            let (name, wait) = (&one.name, format_duration(Duration::from_secs(wait.as_secs())));
            tracing::info!(
                "the ACME server has asked to wait: the next attempt to obtain a certificate for {name} is in {wait}"
            );
        }
    }

    /// Obtains a certificate, unless another process does so.
    async fn obtain(&mut self, index: usize) {
        let result = match self.shared.storage.lock().await {
            Ok(Some(lock)) => {
                let result = self.obtain_locked(index, &lock).await;
                if result.as_ref().is_err_and(|error| error.kind == ErrorKind::UnknownAccount) {
                    self.remove_account(&lock).await;
                }
                lock.release().await;
                result
            }
            Ok(None) => {
                tracing::debug!("another process obtains certificates");
                self.certificates[index].postpone(monotonic() + LOCKED);
                self.read_file(index).await
            }
            Err(error) => Err(unwritable(&self.shared.spec.storage, &error)),
        };
        if let Err(error) = result {
            self.fail(index, &error);
        }
    }

    /// Records that an attempt has failed.
    fn fail(&mut self, index: usize, error: &ObtainError) {
        let (now, wall) = (monotonic(), Clock::System.now());
        self.shared.counts.record_failed(wall);
        if error.kind == ErrorKind::Unavailable
            && let Some(wait) = asked_wait(error)
        {
            // It asks for no request at all.
            self.certificates.iter_mut().for_each(|one| one.wait_for_server(now + wait));
        }
        let message = self.certificates[index].fail(error, now, wall);
        tracing::warn!("{message}");
    }

    /// Removes the stored account, so that the next attempt registers another one.
    async fn remove_account(&self, lock: &Lock) {
        let path = self.shared.storage.account();
        if let Err(error) = lock.remove(path.clone()).await {
            tracing::warn!("can't remove {}: {error}", path.display());
        }
    }

    async fn obtain_locked(&mut self, index: usize, lock: &Lock) -> Result<(), ObtainError> {
        // Another process may have obtained it since the file was read.
        self.read_file(index).await?;
        let one = &self.certificates[index];
        if !one.wait(monotonic(), Clock::System.now()).is_zero() {
            return Ok(());
        }
        let (name, spec) = (one.name.clone(), &self.shared.spec);
        tracing::info!(
            "obtaining a certificate for {name} from {} by {}",
            spec.server(),
            spec.challenge.name()
        );
        let client = AcmeClient::open(&self.shared, lock).await?;
        let pem = client.obtain(&name, one.identity()).await?;
        let path = self.shared.storage.certificate(&name);
        let written = lock.write(path.clone(), pem.clone().into_bytes()).await;
        // Each further order counts towards the limits of the ACME server.
        written.map_err(|error| ObtainError { kind: ErrorKind::Rejected, ..unwritable(&path, &error) })?;
        self.use_file(index, pem.as_bytes())
            .map_err(|error| ObtainError::rejected(format!("the new certificate can't be used: {error}")))?;
        self.shared.counts.record_obtained();
        self.check_obtained(index)
    }

    /// Logs a certificate that was just obtained, and rejects one that has to be renewed at once.
    fn check_obtained(&self, index: usize) -> Result<(), ObtainError> {
        let one = &self.certificates[index];
        let (Some(identity), Some(renew_at)) = (one.identity(), one.renew_at()) else { return Ok(()) };
        let expiry = identity.not_after().rfc3339();
        if until(renew_at, Clock::System.now()).is_zero() {
            return Err(ObtainError::rejected(format!(
                "the new one expires at {expiry}, so that it has to be renewed at once: is the clock of this machine right?"
            )));
        }
        let (name, renewal) = (&one.name, renew_at.rfc3339());
        tracing::info!(
            "the certificate for {name} is obtained: it expires at {expiry}, and is renewed at {renewal}"
        );
        Ok(())
    }

    async fn read_file(&mut self, index: usize) -> Result<(), ObtainError> {
        let path = self.shared.storage.certificate(&self.certificates[index].name);
        let file = path.clone();
        let unreadable = |error| ObtainError::unavailable(format!("can't read {}: {error}", path.display()));
        let file = blocking(move || read(&file)).await.map_err(unreadable)?;
        if let Some(file) = file
            && let Err(error) = self.use_file(index, &file)
        {
            // It is replaced by the next one.
            tracing::warn!("{} is not used: {error}", path.display());
        }
        Ok(())
    }
}

/// Reads a file; none if there is none, or if it can't be read, which is logged.
fn read_logged(path: &Path) -> Option<Vec<u8>> {
    read(path).unwrap_or_else(|error| {
        tracing::warn!("can't read {}: {error}", path.display());
        None
    })
}

fn unwritable(path: &Path, error: &io::Error) -> ObtainError {
    ObtainError::unavailable(format!("can't write to {}: {error}", path.display()))
}

/// The first names, and the number of the others.
fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
