//! Credentials, which are kept as hashes only.

use aws_lc_rs::digest::{SHA256, digest};

/// The SHA-256 hash of a credential. The table of consumers has hashes only, so a lookup reveals by its timing nothing about
/// the credentials in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialHash([u8; Self::LEN]);

/// A text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 hash has 64 hexadecimal digits")]
pub struct HashError;

impl CredentialHash {
    const LEN: usize = 32;

    /// The hash of a credential.
    #[must_use]
    pub fn of(credential: &[u8]) -> Self {
        let hash = digest(&SHA256, credential);
        // A SHA-256 hash has 32 bytes.
        Self(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// Parses a hash in hexadecimal digits.
    ///
    /// # Errors
    /// The text is something else.
    pub fn parse(digits: &str) -> Result<Self, HashError> {
        if digits.len() != 2 * Self::LEN {
            return Err(HashError);
        }
        let mut hash = [0; Self::LEN];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0]).ok_or(HashError)? << 4 | digit(pair[1]).ok_or(HashError)?;
        }
        Ok(Self(hash))
    }
}

impl std::fmt::Display for CredentialHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CredentialHash({self})")
    }
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_sha256sum() {
        let hash = CredentialHash::of(b"k-4711");
        let digits = "23acf55272b297aad718dd6b606d6495f539f1df33a0cc34ca103c807f33fe44";
        assert_eq!(CredentialHash::parse(digits), Ok(hash));
        assert_eq!(hash.to_string(), digits);
        assert_eq!(CredentialHash::parse(&hash.to_string().to_uppercase()), Ok(hash));
        assert_eq!(
            CredentialHash::of(b"").to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for wrong in ["", "ab", &digits[1..], &format!("{}g", &digits[1..]), &"é".repeat(32)] {
            assert_eq!(CredentialHash::parse(wrong), Err(HashError), "{wrong}");
        }
    }
}
