//! The directory in which the account and the certificates are kept. Several proxies may share it.
//!
//! Below it each ACME server has a directory of its own, so that certificates of a test server are never used for another:
//! `SERVER/account.json`, `SERVER/lock`, `SERVER/certificates/NAME.pem` and `SERVER/challenges/TOKEN`.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, access};
use url::Url;

use super::files::{self, FILE_MODE, blocking};

/// Only the user that runs the proxy may read private keys.
const DIRECTORY_MODE: u32 = 0o700;
/// The permissions of everyone else.
const OTHERS: u32 = 0o077;

/// Why a directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// It is something else.
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    /// Other users could read the private keys.
    #[error("other users have access to {path}: its mode is {mode:04o}, and it has private keys")]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It can't be written to, or not be created.
    #[error("can't write to {path}: {error}")]
    Unwritable {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl StorageError {
    /// The change that corrects the error.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NotADirectory(_) => "name a directory, which only tidegate uses".to_owned(),
            Self::Exposed { path, .. } => format!("chmod 700 {}", path.display()),
            Self::Unwritable { path, .. } => {
                format!(
                    "let the user that runs tidegate own it: install -d -m 700 -o USER {}",
                    path.display()
                )
            }
        }
    }
}

/// Checks a directory. One that does not exist yet is created at the start.
pub fn check_storage(path: &Path) -> Result<(), StorageError> {
    let unwritable = |error| StorageError::Unwritable { path: path.to_owned(), error };
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unwritable(error)),
    };
    if !found.is_dir() {
        return Err(StorageError::NotADirectory(path.to_owned()));
    }
    let mode = found.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(StorageError::Exposed { path: path.to_owned(), mode });
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unwritable(error.into()))
}

/// The files of one ACME server.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    directory: PathBuf,
}

/// Held by the one process that obtains certificates: without it no file is changed. Clones are the same lock; the system
/// releases it with the last one, also when the process ends.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    storage: Storage,
    #[expect(dead_code, reason = "closing the file releases the lock")]
    file: Arc<File>,
}

impl Storage {
    pub fn new(root: &Path, server: &Url) -> Self {
        // As text that every file system takes; the path is part of it, since one host can serve several authorities.
        let text = format!("{}{}", server.authority(), server.path());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        let label: String =
            text.bytes().map(|byte| if is_plain(byte) { char::from(byte) } else { '-' }).collect();
        Self { directory: root.join(label.trim_matches(['-', '.'])) }
    }

    /// Creates what is missing of its directories.
    pub fn create(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE);
        builder.create(self.certificates())?;
        builder.create(self.challenges())
    }

    /// The lock; none if another process has it.
    pub async fn lock(&self) -> io::Result<Option<Lock>> {
        let storage = self.clone();
        blocking(move || storage.try_lock()).await
    }

    fn try_lock(&self) -> io::Result<Option<Lock>> {
        self.create()?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = file.open(self.directory.join("lock"))?;
        match file.try_lock() {
            Ok(()) => {
                let lock = Lock { storage: self.clone(), file: Arc::new(file) };
                self.clear()?;
                Ok(Some(lock))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes the answers to challenges, and what a process has left that was killed while it wrote a file.
    fn clear(&self) -> io::Result<()> {
        files::clear(&self.challenges(), true)?;
        files::clear(&self.certificates(), false)?;
        files::clear(&self.directory, false)
    }

    pub fn account(&self) -> PathBuf {
        self.directory.join("account.json")
    }

    pub fn certificate(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.pem"))
    }

    pub fn challenges(&self) -> PathBuf {
        self.directory.join("challenges")
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certificates")
    }
}

impl Lock {
    /// Writes a file of the storage as a whole: others see the old content or the new one, also after a crash.
    pub async fn write(&self, path: PathBuf, bytes: Vec<u8>) -> io::Result<()> {
        self.change(move |_| files::write(&path, &bytes)).await
    }

    /// Removes a file of the storage, if there is one.
    pub async fn remove(&self, path: PathBuf) -> io::Result<()> {
        self.change(move |_| files::remove(&path)).await
    }

    /// Removes the answers to challenges.
    #[cfg(feature = "acme")]
    pub async fn remove_answers(&self) -> io::Result<()> {
        self.change(Storage::clear).await
    }

    /// Releases the lock, unless there are clones.
    pub async fn release(self) {
        // Nothing can fail.
        let _ = blocking(move || {
            drop(self);
            Ok(())
        })
        .await;
    }

    /// Makes a change. The lock is held until it is made, even if the task that waits for it is aborted.
    async fn change(
        &self,
        change: impl FnOnce(&Storage) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let lock = self.clone();
        blocking(move || {
            // As a whole: a closure captures single fields.
            let held = lock;
            change(&held.storage)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn only_the_own_user_can_read_the_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("acme");
        let storage = Storage::new(&root, &Url::parse("https://ca.test:14000/dir").unwrap());
        storage.create().unwrap();
        assert!(check_storage(&root).is_ok());
        let file = storage.certificate("a.test");
        assert_eq!(file, root.join("ca.test-14000-dir/certificates/a.test.pem"));
        for content in [&b"first"[..], b"second"] {
            files::write(&file, content).unwrap();
            assert_eq!(files::read(&file).unwrap().as_deref(), Some(content));
        }
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        assert_eq!((mode(&root), mode(&file)), (0o700, 0o600));
        assert_eq!(files::read(&root.join("none")).unwrap(), None);
    }

    #[tokio::test]
    async fn one_process_has_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let storage = Storage::new(root.path(), &Url::parse("https://ca.test/").unwrap());
        let lock = storage.lock().await.unwrap().unwrap();
        let clone = lock.clone();
        lock.release().await;
        assert!(storage.lock().await.unwrap().is_none());
        drop(clone);
        assert!(storage.lock().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_lock_is_held_until_the_change_is_made() {
        let root = tempfile::tempdir().unwrap();
        let storage = Storage::new(root.path(), &Url::parse("https://ca.test/").unwrap());
        let lock = storage.lock().await.unwrap().unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let change = tokio::spawn(async move {
            lock.change(move |_| {
                let _ = wait.recv();
                Ok(())
            })
            .await
        });
        tokio::task::yield_now().await;
        change.abort();
        assert!(change.await.unwrap_err().is_cancelled());
        assert!(storage.lock().await.unwrap().is_none());
        drop(go);
        while storage.lock().await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_a_killed_process_has_left_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let storage = Storage::new(root.path(), &Url::parse("https://ca.test/").unwrap());
        storage.create().unwrap();
        let kept = [storage.account(), storage.certificate("a.test")];
        let left = [
            storage.challenges().join("LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0"),
            storage.certificates().join("00ff00ff00ff00ff.new"),
            storage.directory.join("00ff00ff00ff00ff.new"),
        ];
        kept.iter().chain(&left).for_each(|path| fs::write(path, "").unwrap());
        let _lock = storage.lock().await.unwrap().unwrap();
        assert!(kept.iter().all(|path| path.exists()) && !left.iter().any(|path| path.exists()));
    }

    #[test]
    fn unusable_directories_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("acme");
        assert!(check_storage(&path).is_ok(), "it can be created");
        fs::write(&path, "").unwrap();
        assert!(matches!(check_storage(&path), Err(StorageError::NotADirectory(_))));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        let error = check_storage(&path).unwrap_err();
        assert!(error.to_string().ends_with("its mode is 0750, and it has private keys"), "{error}");
        assert_eq!(error.help(), format!("chmod 700 {}", path.display()));
        // A path below a file.
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = check_storage(&file.join("acme")).unwrap_err();
        assert!(matches!(error, StorageError::Unwritable { .. }), "{error}");
    }
}
