//! Requests by which an ACME server validates names (HTTP-01, RFC 8555 §8.3), as the workers answer them.

use std::collections::HashMap;
use std::path::PathBuf;

use parking_lot::RwLock;
use tokio::sync::Semaphore;

use super::files::read;

/// Where an ACME server asks, before the token.
const PREFIX: &str = "/.well-known/acme-challenge/";
/// The lengths of tokens: they have at least 128 bits (RFC 8555 §8.3).
const TOKEN: std::ops::RangeInclusive<usize> = 22..=128;
/// The longest key authorization: a token, a dot, and a hash.
const MAX_AUTHORIZATION: usize = 256;
/// The number of files that are looked up at a time; further requests wait. ACME servers send several at once.
const MAX_LOOKUPS: usize = 4;

/// The expected requests of the ACME server: those of this process, and those of others that share its storage.
#[derive(Debug)]
pub struct HttpChallenges {
    /// The key authorizations of this process by their tokens.
    own: RwLock<HashMap<String, String>>,
    /// Has a file for each token of all processes.
    directory: PathBuf,
    lookups: Semaphore,
}

impl HttpChallenges {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { own: RwLock::default(), directory, lookups: Semaphore::new(MAX_LOOKUPS) }
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

    /// The key authorization that answers for a [token](Self::token); none if none is expected.
    pub async fn find(&self, token: &str) -> Option<String> {
        if let Some(found) = self.own.read().get(token) {
            return Some(found.clone());
        }
        let _permit = self.lookups.acquire().await.ok()?;
        let path = self.directory.join(token);
        // Storage that several proxies share may be on a slow file system.
        let found = tokio::task::spawn_blocking(move || read(&path)).await.ok()?.ok()??;
        String::from_utf8(found)
            .ok()
            .filter(|text| text.len() <= MAX_AUTHORIZATION && text.starts_with(token))
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

    #[tokio::test]
    async fn expected_tokens_are_answered() {
        let directory = tempfile::tempdir().unwrap();
        let challenges = HttpChallenges::new(directory.path().to_owned());
        assert_eq!(challenges.find(TOKEN).await, None);
        challenges.insert(TOKEN, "own");
        assert_eq!(challenges.find(TOKEN).await.as_deref(), Some("own"));
        challenges.remove(TOKEN);
        assert_eq!(challenges.find(TOKEN).await, None);
        // Another process expects it.
        let authorization = format!("{TOKEN}.hash");
        std::fs::write(directory.path().join(TOKEN), &authorization).unwrap();
        assert_eq!(challenges.find(TOKEN).await, Some(authorization));
        std::fs::write(directory.path().join(TOKEN), "something else").unwrap();
        assert_eq!(challenges.find(TOKEN).await, None);
    }
}
