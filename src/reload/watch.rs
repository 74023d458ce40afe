//! Files that are watched.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(300);

/// Says when something may have changed in some files. It looks at the files that are found under their names, now and
/// then: systems that tell of changes do not tell of links in other directories, of directories that are
/// replaced, nor of what another machine writes.
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    looking: JoinHandle<()>,
    settled: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches these files; within a runtime.
    pub fn start<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Self {
        let paths: Vec<PathBuf> = paths.cloned().collect();
        let (settles, settled) = mpsc::channel(1);
        let looking = tokio::spawn(look(paths.clone().into(), settles));
        Self { paths, looking, settled }
    }

    /// Whether it watches these files, and no others.
    pub fn covers<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> bool {
        paths.eq(&self.paths)
    }

    /// Waits until something may have changed. May be given up and called again without missing anything.
    pub async fn changed(&mut self) {
        if self.settled.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// What changes whenever a file is written or replaced: device, number, size and times.
type Stamp = (u64, u64, u64, [i64; 4]);

/// Says whenever the files are others than before, once they have been so for two looks: a file is seldom written in
/// one go. The first time it says so in any case, for they may have changed since they were read.
async fn look(paths: Arc<[PathBuf]>, settles: mpsc::Sender<()>) {
    let (mut told, mut last) = (None, None);
    loop {
        let paths = Arc::clone(&paths);
        // Some file systems take their time, and others wait for this thread.
        let stamps = tokio::task::spawn_blocking(move || paths.iter().map(|path| stamp(path)).collect());
        let Ok(now): Result<Vec<Option<Stamp>>, _> = stamps.await else { return };
        if last.as_ref() == Some(&now) && told.as_ref() != Some(&now) {
            // One that waits already is enough.
            let _ = settles.try_send(());
            told = Some(now.clone());
        }
        last = Some(now);
        tokio::time::sleep(LOOK).await;
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    Some((file.dev(), file.ino(), file.size(), times))
}
