//! Requests by which an ACME server validates names (HTTP-01, RFC 8555 §8.3), as the workers answer them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::files::read;
use crate::time::monotonic;

/// Where an ACME server asks, before the token.
const PREFIX: &str = "/.well-known/acme-challenge/";
/// The lengths of tokens: they have at least 128 bits (RFC 8555 §8.3).
const TOKEN: std::ops::RangeInclusive<usize> = 22..=128;
/// The longest key authorization: a token, a dot, and a hash.
const MAX_AUTHORIZATION: usize = 256;
/// The most files that are read. There is one for each name of an order, and one order at a time.
const MAX_FILES: usize = 100;
/// How long the files are remembered. The process that writes one waits as long before the ACME server asks for it.
pub(super) const LIFETIME: Duration = Duration::from_secs(1);

/// The expected requests of the ACME server: those of this process, and those of others that share its storage.
#[derive(Debug)]
pub struct HttpChallenges {
    /// The key authorizations of this process by their tokens.
    own: RwLock<HashMap<String, String>>,
    /// Has a file for each token of all processes.
    directory: PathBuf,
    /// Locked while the files are read, so that requests for made-up tokens read them once in [`LIFETIME`].
    stored: Arc<Mutex<Stored>>,
}

/// The key authorizations of all processes by their tokens, and when their files were read.
#[derive(Debug, Default)]
struct Stored {
    authorizations: HashMap<String, String>,
    read: Option<Instant>,
}

impl HttpChallenges {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { own: RwLock::default(), directory, stored: Arc::default() }
    }

    /// The token that a path asks for, if it is that of an ACME server.
    #[must_use]
    pub fn token(path: &str) -> Option<&str> {
        path.strip_prefix(PREFIX).filter(|token| Self::is_token(token))
    }

    /// Whether a text may be a token (RFC 8555 §8.3), so that it is also the name of a file.
    pub(super) fn is_token(text: &str) -> bool {
        let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        TOKEN.contains(&text.len()) && text.bytes().all(is_base64url)
    }

    /// The key authorization for a [token](Self::token) that this process expects.
    #[must_use]
    pub fn own(&self, token: &str) -> Option<String> {
        self.own.read().get(token).cloned()
    }

    /// The key authorization for a token that any process expects.
    pub async fn stored(&self, token: &str) -> Option<String> {
        let mut stored = Arc::clone(&self.stored).lock_owned().await;
        let now = monotonic();
        if stored.read.is_none_or(|read| now - read >= LIFETIME) {
            let directory = self.directory.clone();
            // Storage that several proxies share may be on a slow file system. It stays locked if the client disconnects.
            let read = tokio::task::spawn_blocking(move || {
                *stored =
                    Stored { authorizations: read_all(&directory).unwrap_or_default(), read: Some(now) };
                stored
            });
            stored = read.await.ok()?;
        }
        stored.authorizations.get(token).cloned()
    }

    #[cfg(any(feature = "acme", test))]
    pub(super) fn insert(&self, token: &str, authorization: &str) {
        self.own.write().insert(token.to_owned(), authorization.to_owned());
    }

    #[cfg(any(feature = "acme", test))]
    pub(super) fn remove(&self, token: &str) {
        self.own.write().remove(token);
    }
}

/// The key authorizations in the files of a directory by their tokens.
fn read_all(directory: &Path) -> std::io::Result<HashMap<String, String>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(directory)?.take(MAX_FILES) {
        let Ok(token) = entry?.file_name().into_string() else { continue };
        if !HttpChallenges::is_token(&token) {
            continue;
        }
        // Another process may remove it at any time.
        let bytes = read(&directory.join(&token)).ok().flatten();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let is_valid = |text: &String| text.len() <= MAX_AUTHORIZATION && text.starts_with(&token);
        if let Some(text) = text.filter(is_valid) {
            all.insert(token, text);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";

    #[test]
    fn tokens_are_found_in_paths() {
        let path = format!("/.well-known/acme-challenge/{TOKEN}");
        assert_eq!(HttpChallenges::token(&path), Some(TOKEN));
        for end in ["", "short", "../../../../../../etc/passwd", "LoqXcYV8q5ONbJQxbmR7S/TNo3tiAXD", "."] {
            assert_eq!(HttpChallenges::token(&format!("/.well-known/acme-challenge/{end}")), None, "{end}");
        }
        assert_eq!(HttpChallenges::token(&format!("/{TOKEN}")), None);
        for text in [
            "../account.json",
            "/etc/passwd-of-a-length-that-fits",
            "..",
            "AAAAAAAAAAAAAAAAAAAAAA/../account",
        ] {
            assert!(!HttpChallenges::is_token(text), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expected_tokens_are_answered() {
        let directory = tempfile::tempdir().unwrap();
        let challenges = HttpChallenges::new(directory.path().to_owned());
        challenges.insert(TOKEN, "own");
        assert_eq!(challenges.own(TOKEN).as_deref(), Some("own"));
        challenges.remove(TOKEN);
        assert_eq!(challenges.own(TOKEN), None);
        assert_eq!(challenges.stored(TOKEN).await, None);
        // Another process expects it, which is found when the files are read again.
        let authorization = format!("{TOKEN}.hash");
        fs::write(directory.path().join(TOKEN), &authorization).unwrap();
        assert_eq!(challenges.stored(TOKEN).await, None);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(challenges.stored(TOKEN).await, Some(authorization));
        for text in ["something else".to_owned(), TOKEN.repeat(10)] {
            fs::write(directory.path().join(TOKEN), text).unwrap();
            tokio::time::advance(LIFETIME).await;
            assert_eq!(challenges.stored(TOKEN).await, None);
        }
    }
}
