//! Reloading the configuration: detects changes of its files, and describes them.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use crate::config::{self, ConfigChange, ConfigPart, FilePattern, Fingerprint, Loaded, NamedFiles, Report};
use crate::text::join_and;

/// The configuration file, with the files that it names.
#[derive(Debug)]
pub struct ConfigSource {
    path: PathBuf,
    /// The files that it names.
    files: NamedFiles,
    /// The configuration that is served.
    fingerprint: Fingerprint,
    /// The contents of all files when they were last read, whether that configuration was applied or not.
    last_read: blake3::Hash,
}

impl ConfigSource {
    /// The source of a configuration that was just loaded.
    #[must_use]
    pub fn new(path: PathBuf, loaded: &Loaded) -> Self {
        let (files, fingerprint) = (loaded.files.clone(), loaded.fingerprint.clone());
        let last_read = hash_files(&path, &files);
        Self { path, files, fingerprint, last_read }
    }

    /// The path of the configuration file, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Its absolute path, for programs in other directories.
    #[must_use]
    pub fn absolute_name(&self) -> String {
        std::path::absolute(&self.path).map_or_else(|_| self.name(), |path| path.display().to_string())
    }

    /// All files, and the places where others may appear that the configuration includes.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.path).chain(&self.files.files).chain(&self.files.places)
    }

    /// Whether the contents of a file have changed since they were last read, or other files match the patterns.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        hash_files(&self.path, &self.files) != self.last_read
    }

    /// Loads the configuration again; returns a report if it is invalid. The files that it names become part of [`Self::paths`]
    /// in either case: a missing certificate may be added later. Fails if the thread that reads the files panics.
    pub async fn read(&mut self) -> Result<Result<Loaded, Report>, JoinError> {
        let (path, files) = (self.path.clone(), self.files.clone());
        // Reading may take long, and other tasks share this thread.
        let read = tokio::task::spawn_blocking(move || load(&path, files));
        let (last_read, files, loaded) = read.await?;
        (self.last_read, self.files) = (last_read, files);
        Ok(loaded)
    }

    /// The differences between the configuration that is served and one that was loaded.
    #[must_use]
    pub fn changes(&self, loaded: &Loaded) -> Vec<(ConfigPart, ConfigChange)> {
        loaded.fingerprint.changes_since(&self.fingerprint)
    }

    /// Why the file of consumers seems to be incomplete, if it does and has changed.
    #[must_use]
    pub fn incomplete(&self, loaded: &Loaded) -> Option<String> {
        let is_consumers = |part: &ConfigPart| matches!(part, ConfigPart::Table(name) if name == "consumers");
        let has_changed = self.changes(loaded).iter().any(|(part, _)| is_consumers(part));
        loaded.incomplete.clone().filter(|_| has_changed)
    }

    /// Records the configuration that is served from now on.
    pub fn accept(&mut self, fingerprint: Fingerprint) {
        self.fingerprint = fingerprint;
    }
}

/// How often a file is read at most if it names other files each time.
const MAX_READS: usize = 3;

/// Loads the file at `path`, which named `files` when it was last read; returns the hash of the files, their paths and the
/// configuration. The hash is computed first, so that a write in between counts as a change.
fn load(path: &Path, mut files: NamedFiles) -> (blake3::Hash, NamedFiles, Result<Loaded, Report>) {
    let mut reads = 0;
    loop {
        let hash = hash_files(path, &files);
        let loaded = config::load(path);
        let named = loaded.as_ref().map_or_else(Report::files, |loaded| &loaded.files);
        reads += 1;
        if *named == files || reads == MAX_READS {
            return (hash, files, loaded);
        }
        files.clone_from(named);
    }
}

/// Hashes the contents of all files, and the names of those that match patterns.
fn hash_files(path: &Path, files: &NamedFiles) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for path in std::iter::once(path).chain(files.files.iter().map(PathBuf::as_path)) {
        // A file that can't be read counts as empty, so that its appearance is a change.
        let bytes = std::fs::read(path).unwrap_or_default();
        hasher.update(blake3::hash(&bytes).as_bytes());
    }
    for path in files.patterns.iter().flat_map(FilePattern::files) {
        hasher.update(blake3::hash(path.as_os_str().as_bytes()).as_bytes());
    }
    hasher.finalize()
}

/// Describes changes in text, with a line for each kind of part.
#[must_use]
pub fn describe(changes: &[(ConfigPart, ConfigChange)]) -> Vec<String> {
    let kind = |part: &ConfigPart| match part {
        ConfigPart::Route(_) => "routes",
        ConfigPart::Limit(_) => "limits",
        ConfigPart::Upstream(_) => "upstreams",
        ConfigPart::Listener(_) => "listeners",
        ConfigPart::Table(_) => "tables",
        ConfigPart::Key(_) => "keys",
    };
    let lines = changes.chunk_by(|(one, _), (other, _)| kind(one) == kind(other));
    lines.map(|same| line(same.first().map_or("", |(part, _)| kind(part)), same)).collect()
}

fn line(kind: &str, changes: &[(ConfigPart, ConfigChange)]) -> String {
    let named = |wanted: ConfigChange, done: &str| {
        let parts = changes.iter().filter(|(_, change)| *change == wanted);
        let names: Vec<String> = parts.map(|(part, _)| part.to_string()).collect();
        (!names.is_empty()).then(|| format!("{} {done}", listed(&names)))
    };
    let groups = [
        named(ConfigChange::Added, "added"),
        named(ConfigChange::Changed, "changed"),
        named(ConfigChange::Removed, "removed"),
    ];
    format!("{kind}: {}", groups.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// The most names of one line.
const MAX_NAMES: usize = 20;

fn listed(names: &[String]) -> String {
    if names.len() > MAX_NAMES {
        return format!("{} and {} others", names[..MAX_NAMES].join(", "), names.len() - MAX_NAMES);
    }
    join_and(names)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_described_by_kind_and_name() {
        let route = |name: &str, change| (ConfigPart::Route(name.to_owned()), change);
        let limit = |number: usize| (ConfigPart::Limit(format!("l{number:02}")), ConfigChange::Removed);
        let mut changes = vec![
            route("a", ConfigChange::Added),
            route("b", ConfigChange::Removed),
            route("c", ConfigChange::Added),
            route("d", ConfigChange::Added),
        ];
        changes.extend((0..22).map(limit));
        changes.push((ConfigPart::Table("answers".to_owned()), ConfigChange::Changed));
        let lines = describe(&changes);
        assert_eq!(lines[0], "routes: `a`, `c` and `d` added; `b` removed");
        assert!(
            lines[1].starts_with("limits: `l00`, `l01`, ")
                && lines[1].ends_with("`l19` and 2 others removed")
        );
        assert_eq!(lines[2..], ["tables: [answers] changed"]);
    }
}
