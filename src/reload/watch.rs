//! Files that are watched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long to wait for more after a change: a file is seldom written in one go.
const SETTLES: Duration = Duration::from_millis(200);

/// Says when something may have changed in the directories of some files. It does not follow the files themselves:
/// editors replace them, and Kubernetes replaces a link in the directory.
#[derive(Debug)]
pub struct Watch {
    directories: BTreeSet<PathBuf>,
    _watcher: RecommendedWatcher,
    settling: JoinHandle<()>,
    settled: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches the directories of these files; within a runtime.
    ///
    /// # Errors
    /// When they can't be watched.
    pub fn start<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> notify::Result<Self> {
        let directories = directories(paths);
        let (event, mut events) = mpsc::channel(1);
        let (settles, settled) = mpsc::channel(1);
        let first = event.clone();
        let mut watcher = notify::recommended_watcher(move |happened: notify::Result<notify::Event>| {
            // To read a file is an event too. One that waits already is enough.
            if happened.is_ok_and(|event| !event.kind.is_access()) {
                let _ = event.try_send(());
            }
        })?;
        // They may have changed since they were read, before they were watched.
        let _ = first.try_send(());
        for directory in &directories {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
        }
        let settling = tokio::spawn(async move {
            while events.recv().await.is_some() {
                tokio::time::sleep(SETTLES).await;
                let _ = events.try_recv();
                let _ = settles.try_send(());
            }
        });
        Ok(Self { directories, _watcher: watcher, settling, settled })
    }

    /// Whether it watches the directories of these files, and no others.
    pub fn covers<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> bool {
        directories(paths) == self.directories
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
        self.settling.abort();
    }
}

fn directories<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let directory = |path: &PathBuf| match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    paths.map(directory).collect()
}
