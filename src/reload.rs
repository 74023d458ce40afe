//! When the configuration is read again, and what has changed by that, in words.

mod watch;

use std::path::{Path, PathBuf};

use tokio::task::JoinError;

use crate::config::{self, Change, Fingerprint, Loaded, Part, Report};

pub use watch::Watch;

/// The file that is served, with the files that it names.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    /// The other files.
    files: Vec<PathBuf>,
    outline: Fingerprint,
    /// What stood in all of them when they were last read, whether it was taken up or not.
    seen: blake3::Hash,
}

impl Source {
    /// A file that was just read.
    #[must_use]
    pub fn new(path: PathBuf, loaded: &Loaded) -> Self {
        let (files, outline) = (loaded.files.clone(), loaded.outline.clone());
        let seen = fingerprint(&path, &files);
        Self { path, files, outline, seen }
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Everything that has to be watched to see when it changes.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.path).chain(&self.files)
    }

    /// Whether it says something else than when it was last read.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        fingerprint(&self.path, &self.files) != self.seen
    }

    /// Reads it again, with all that it names, or says everything that is wrong with it. What it names is watched
    /// from now on, also if it is wrong: a missing certificate may come later.
    ///
    /// # Errors
    /// When the reader itself fails.
    pub async fn read(&mut self) -> Result<Result<Loaded, Report>, JoinError> {
        let (path, files) = (self.path.clone(), self.files.clone());
        // A large file takes its time, and others wait for this thread.
        let read = tokio::task::spawn_blocking(move || read(&path, files));
        let (seen, files, loaded) = read.await?;
        (self.seen, self.files) = (seen, files);
        Ok(loaded)
    }

    /// What has changed in a file that was read again since the one that is served.
    #[must_use]
    pub fn changes(&self, loaded: &Loaded) -> Vec<(Part, Change)> {
        loaded.outline.changes_since(&self.outline)
    }

    /// From now on this is what is served.
    pub fn accept(&mut self, outline: Fingerprint) {
        self.outline = outline;
    }
}

/// How often a file is read at most because it names others than a moment ago.
const READINGS: usize = 3;

/// Reads the file at `path`, which named `files` when it was last read. What is written meanwhile has changed since: the
/// fingerprint is older than the reading.
fn read(path: &Path, mut files: Vec<PathBuf>) -> (blake3::Hash, Vec<PathBuf>, Result<Loaded, Report>) {
    let mut readings = 0;
    loop {
        let seen = fingerprint(path, &files);
        let loaded = config::load(path);
        let named = loaded.as_ref().map_or_else(Report::files, |loaded| &loaded.files);
        readings += 1;
        if *named == files || readings == READINGS {
            return (seen, files, loaded);
        }
        files.clone_from(named);
    }
}

fn fingerprint(path: &Path, files: &[PathBuf]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for path in std::iter::once(path).chain(files.iter().map(PathBuf::as_path)) {
        // One that can't be read is as good as empty until it can.
        let bytes = std::fs::read(path).unwrap_or_default();
        hasher.update(blake3::hash(&bytes).as_bytes());
    }
    hasher.finalize()
}

/// What has changed, in words, a line for each kind of thing.
#[must_use]
pub fn words(changes: &[(Part, Change)]) -> Vec<String> {
    let kind = |part: &Part| match part {
        Part::Route(_) => "routes",
        Part::Limit(_) => "limits",
        Part::Upstream(_) => "upstreams",
        Part::Listener(_) => "listeners",
        Part::Table(_) => "tables",
        Part::Key(_) => "keys",
    };
    let lines = changes.chunk_by(|(one, _), (other, _)| kind(one) == kind(other));
    lines.map(|same| line(same.first().map_or("", |(part, _)| kind(part)), same)).collect()
}

fn line(kind: &str, changes: &[(Part, Change)]) -> String {
    let named = |wanted: Change, done: &str| {
        let parts = changes.iter().filter(|(_, change)| *change == wanted);
        let names: Vec<String> = parts.map(|(part, _)| part.to_string()).collect();
        (!names.is_empty()).then(|| format!("{} {done}", listed(&names)))
    };
    let groups =
        [named(Change::Added, "added"), named(Change::Changed, "changed"), named(Change::Removed, "removed")];
    format!("{kind}: {}", groups.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// How many names one line has at most.
const MOST_NAMED: usize = 20;

fn listed(names: &[String]) -> String {
    if names.len() > MOST_NAMED {
        return format!("{} and {} others", names[..MOST_NAMED].join(", "), names.len() - MOST_NAMED);
    }
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_by_kind_and_name() {
        let route = |name: &str, change| (Part::Route(name.to_owned()), change);
        let limit = |number: usize| (Part::Limit(format!("l{number:02}")), Change::Removed);
        let mut changes = vec![
            route("a", Change::Added),
            route("b", Change::Removed),
            route("c", Change::Added),
            route("d", Change::Added),
        ];
        changes.extend((0..22).map(limit));
        changes.push((Part::Table("answers".to_owned()), Change::Changed));
        let said = words(&changes);
        assert_eq!(said[0], "routes: `a`, `c` and `d` added; `b` removed");
        assert!(
            said[1].starts_with("limits: `l00`, `l01`, ") && said[1].ends_with("`l19` and 2 others removed")
        );
        assert_eq!(said[2..], ["tables: [answers] changed"]);
    }
}
