//! The other files of a configuration, and patterns of their names, such as `routes/*.toml`: `*` and `?` within a name.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A pattern of paths. As in a shell, a wildcard does not match the dot at the start of a hidden name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePattern {
    /// The directory to which the pattern is relative.
    directory: PathBuf,
    names: Vec<String>,
}

/// The other files of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFiles {
    /// Those with content: included files, keys and certificates.
    pub files: Vec<PathBuf>,
    /// The patterns by which files are included.
    pub patterns: Vec<FilePattern>,
    /// Where files could appear that match a pattern.
    pub places: Vec<PathBuf>,
}

/// The files that match a pattern.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The files, in the order of their paths.
    pub files: Vec<PathBuf>,
    /// The directories in which a file could match, and paths without a file that would match: to watch them. Sorted.
    pub places: Vec<PathBuf>,
}

impl FilePattern {
    /// The pattern of this text; `None` for the path of one file.
    pub(super) fn parse(text: &str, directory: &Path) -> Option<Self> {
        if !has_wildcard(text) {
            return None;
        }
        let directory = if text.starts_with('/') { Path::new("/") } else { directory };
        let names = text.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Self { directory: directory.to_owned(), names })
    }

    /// Whether the pattern has a name `**`, which other programs match with any number of directories.
    pub(super) fn is_recursive(&self) -> bool {
        self.names.iter().any(|name| name == "**")
    }

    /// The files that match now. A directory that does not exist has none.
    pub(super) fn matches(&self) -> io::Result<Matches> {
        let mut places = Vec::new();
        let mut paths = vec![self.directory.clone()];
        for name in &self.names {
            if !has_wildcard(name) {
                for path in &mut paths {
                    path.push(name);
                }
                continue;
            }
            let mut next = Vec::new();
            for directory in paths {
                add_entries(&directory, name, &mut next)?;
                places.push(directory);
            }
            paths = next;
        }
        let (mut files, missing): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| path.symlink_metadata().is_ok());
        places.extend(missing);
        // A link without a target is no directory either, and its error is reported when it is read.
        files.retain(|path| !path.metadata().is_ok_and(|metadata| !metadata.is_file()));
        files.sort();
        places.sort();
        Ok(Matches { files, places })
    }

    /// The paths of the files that match now; none if a directory can't be read.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.matches().unwrap_or_default().files
    }
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Adds the entries of a directory that match a name with wildcards.
fn add_entries(directory: &Path, pattern: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = match fs::read_dir(here) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if matches_name(pattern, &name.to_string_lossy()) {
            found.push(directory.join(name));
        }
    }
    Ok(())
}

/// Whether a name matches a pattern. After a mismatch only the last `*` can match more characters, so the time is at most
/// the product of the lengths.
fn matches_name(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut matched) = (0, 0);
    // The place behind the last `*`, and how many characters of the name precede those that it has not matched.
    let mut star = None;
    while matched < name.len() {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                star = Some((at, matched));
            }
            Some(&one) if one == '?' || Some(&one) == name.get(matched) => {
                (at, matched) = (at + 1, matched + 1);
            }
            _ => {
                let Some((behind, before)) = star else { return false };
                (at, matched) = (behind, before + 1);
                star = Some((behind, matched));
            }
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_wildcards() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", false),
            ("*.toml", ".a.toml", false),
            (".*.toml", ".a.toml", true),
            ("*.toml", "a.toml~", false),
            ("*.toml", "a.toml.toml", true),
            ("a?.toml", "aé.toml", true),
            ("a?.toml", "a.toml", false),
            ("*a*b", "xaxbxab", true),
            ("*a*b", "xaxbxa", false),
            ("a*", "a", true),
            ("?", "", false),
        ] {
            assert_eq!(matches_name(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_of_a_pattern_are_sorted_and_watched() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for directory in ["teams/b", "teams/a", "teams/c/routes.toml", "teams/.hidden"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        for file in ["teams/b/routes.toml", "teams/a/routes.toml", "teams/.hidden/routes.toml", "teams/x"] {
            fs::write(path(file), "").unwrap();
        }
        fs::create_dir_all(path("teams/d")).unwrap();
        let pattern = FilePattern::parse("teams/*/routes.toml", root.path()).unwrap();
        let matches = pattern.matches().unwrap();
        assert_eq!(matches.files, [path("teams/a/routes.toml"), path("teams/b/routes.toml")]);
        let places = [path("teams"), path("teams/d/routes.toml"), path("teams/x/routes.toml")];
        assert_eq!(matches.places, places);
        let absent = FilePattern::parse("none/*.toml", root.path()).unwrap().matches().unwrap();
        assert_eq!((absent.files.len(), absent.places), (0, vec![path("none")]));
        assert_eq!(FilePattern::parse("routes.toml", root.path()), None);
    }
}
