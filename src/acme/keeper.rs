//! The task that obtains and renews certificates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::certificate_file;
use super::client::Client;
use super::error::{ErrorKind, ObtainError};
use super::managed::Managed;
use super::schedule::until;
use super::shared::Shared;
use super::storage::{Lock, read, write};
use super::suggestion::ask;
use crate::text::counted;
use crate::time::{Clock, monotonic};

/// How often files are read again, since another process may have renewed them.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// How long to wait while another process obtains certificates.
const LOCKED: Duration = Duration::from_secs(2);
/// The most names in a line of the log.
const MAX_NAMES: usize = 20;

/// The task.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    certificates: Vec<Managed>,
    last_read: Instant,
}

impl Keeper {
    /// A task for these names. Certificates that are stored already are used at once.
    pub fn new(shared: &Arc<Shared>) -> Self {
        let certificates = shared.spec.names.iter().cloned().map(Managed::new).collect();
        let mut keeper = Self { shared: Arc::clone(shared), certificates, last_read: monotonic() };
        if let Err(error) = shared.storage.create() {
            tracing::error!("{}", unwritable(&shared.spec.storage, &error).message);
        }
        let files = keeper.paths().iter().map(|path| read_logged(path)).collect();
        keeper.use_files(files);
        keeper.log_start();
        keeper
    }

    /// Obtains and renews certificates for ever.
    pub async fn run(mut self) {
        loop {
            self.count_missing();
            let (now, wall) = (monotonic(), Clock::System.now());
            let waits = self.certificates.iter().map(|one| {
                let ask = one.ask_at.map_or(READ_AGAIN, |time| time.saturating_duration_since(now));
                one.wait(now, wall).min(ask)
            });
            let wait = waits.min().unwrap_or(READ_AGAIN).min(READ_AGAIN);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.shared.retry.notified() => {
                    self.certificates.iter_mut().for_each(Managed::forget_failures);
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
            let identity = certificate_file::parse(file, &one.name)?;
            one.replace(identity.clone(), hash, (monotonic(), Clock::System.now()));
            self.shared.set_certificate(&one.name, identity);
        }
        Ok(())
    }

    /// Counts the names that have no valid certificate.
    fn count_missing(&self) {
        let now = Clock::System.now();
        let is_valid = |one: &&Managed| one.identity().is_some_and(|identity| now < identity.not_after());
        let valid = self.certificates.iter().filter(is_valid).count();
        self.shared.counts.set_missing(self.certificates.len() - valid);
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

    /// Obtains a certificate, unless another process does so.
    async fn obtain(&mut self, index: usize) {
        let result = match self.lock().await {
            Ok(Some(lock)) => {
                let result = self.obtain_locked(index).await;
                drop(lock);
                result
            }
            Ok(None) => {
                tracing::debug!("another process obtains certificates");
                self.certificates[index].postpone(monotonic() + LOCKED);
                self.read_file(index).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.shared.counts.record_failed();
            let message = self.certificates[index].fail(&error, monotonic(), Clock::System.now());
            tracing::warn!("{message}");
        }
    }

    async fn obtain_locked(&mut self, index: usize) -> Result<(), ObtainError> {
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
        let client = Client::open(&self.shared).await?;
        let pem = client.obtain(&name, one.identity()).await?;
        let path = self.shared.storage.certificate(&name);
        let (file, bytes) = (path.clone(), pem.clone().into_bytes());
        let written = blocking(move || write(&file, &bytes)).await;
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

    /// The lock of the storage; none if another process has it.
    async fn lock(&self) -> Result<Option<Lock>, ObtainError> {
        let storage = self.shared.storage.clone();
        let lock = blocking(move || {
            storage.create()?;
            storage.lock()
        });
        lock.await.map_err(|error| unwritable(&self.shared.spec.storage, &error))
    }
}

/// Runs code that may block on another thread, since other tasks share this one.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
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
