//! A file of consumers, and configurations that use it.

use std::path::PathBuf;

use http::StatusCode;
use tempfile::TempDir;

use crate::support::{Message, Tidegate, get};

/// A file of consumers, which is deleted with this value.
pub struct ConsumersFile {
    _directory: TempDir,
    pub path: PathBuf,
}

impl ConsumersFile {
    pub fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("consumers.toml");
        std::fs::write(&path, text).unwrap();
        Self { _directory: directory, path }
    }

    /// `[consumers]` with this file and these keys.
    pub fn table(&self, keys: &str) -> String {
        format!("[consumers]\nfile = \"{}\"\n{keys}\n", self.path.display())
    }

    /// Replaces the text, in one step as an editor does.
    pub fn write(&self, text: &str) {
        let next = self.path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &self.path).unwrap();
    }
}

/// Consumers of three kinds, and one that has none of them.
pub const CONSUMERS: &str = "\
    [acme]\n\
    # The hash of k-4711.\n\
    credentials = [\"sha256:23acf55272b297aad718dd6b606d6495f539f1df33a0cc34ca103c807f33fe44\", \"k-2\"]\n\
    tier = \"pro\"\n\
    [small]\ncredentials = [\"s-1\"]\n\
    [expired]\ncredentials = [\"e-1\"]\nexpires = 2026-01-01T00:00:00Z\n\
    [lasting]\ncredentials = [\"l-1\"]\nexpires = 2999-01-01\n\
    [blocked]\ncredentials = [\"b-1\"]\nblocked = true\n";

/// Sends a request with a header `X-Api-Key`.
pub fn with_key(proxy: &Tidegate, path: &str, key: &str) -> Message {
    get(proxy.addr(), path, &[&format!("X-Api-Key: {key}")])
}

/// The status of the response to a request with this key.
pub fn status_of(proxy: &Tidegate, path: &str, key: &str) -> StatusCode {
    StatusCode::from_u16(with_key(proxy, path, key).status()).unwrap()
}
