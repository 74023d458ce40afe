//! Watches files for changes.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The interval between checks of the files.
const INTERVAL: Duration = Duration::from_millis(300);

/// Watches files by polling their metadata. Notifications of the system, such as inotify, would miss changes of symbolic
/// links in other directories, replaced directories, and changes by other machines.
#[derive(Debug)]
pub struct FileWatcher {
    paths: Vec<PathBuf>,
    task: JoinHandle<()>,
    changes: mpsc::Receiver<()>,
}

impl FileWatcher {
    /// Starts watching these files, on the current runtime.
    pub fn start<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Self {
        let paths: Vec<PathBuf> = paths.cloned().collect();
        let (sender, changes) = mpsc::channel(1);
        let task = tokio::spawn(poll(paths.clone().into(), sender));
        Self { paths, task, changes }
    }

    /// Whether exactly these files are watched.
    pub fn covers<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> bool {
        paths.eq(&self.paths)
    }

    /// Waits until a file may have changed. Cancel safe.
    pub async fn changed(&mut self) {
        if self.changes.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Metadata that changes when a file is written or replaced: device, inode, size, and times of modification and change.
type Stamp = (u64, u64, u64, [i64; 4]);

/// Reports a change after two checks with the same metadata, since a file may be written in several steps. The first
/// checks report a change in any case: the files may have changed after they were read.
async fn poll(paths: Arc<[PathBuf]>, changes: mpsc::Sender<()>) {
    let (mut reported, mut last) = (None, None);
    loop {
        let paths = Arc::clone(&paths);
        // Network file systems may block, and other tasks share this thread.
        let stamps = tokio::task::spawn_blocking(move || paths.iter().map(|path| stamp(path)).collect());
        let Ok(now): Result<Vec<Option<Stamp>>, _> = stamps.await else { return };
        if last.as_ref() == Some(&now) && reported.as_ref() != Some(&now) {
            // If the channel is full, a change is pending already.
            let _ = changes.try_send(());
            reported = Some(now.clone());
        }
        last = Some(now);
        tokio::time::sleep(INTERVAL).await;
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    Some((file.dev(), file.ino(), file.size(), times))
}
