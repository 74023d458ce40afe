//! Settings of the admin interface: the `[admin]` table of the configuration.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of the admin interface.
#[derive(Clone, Debug)]
pub struct AdminSpec {
    /// Where it listens.
    pub address: AdminAddress,
    /// The token that clients must send; without one, none is required.
    pub token: Option<Token>,
}

/// The address of the interface. It is displayed as in the configuration: `127.0.0.1:9900` or `unix:/run/admin.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// Address and port; port 0 selects a free one.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// The path of its file.
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
}

/// The token that clients must send. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

/// Why a text is not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminTokenError {
    /// It can't be sent in a header.
    #[error("a token has visible ASCII characters only, and no blanks")]
    Characters,
    /// It is short enough to be guessed.
    #[error("a token has at least {} characters", Token::MIN_LEN)]
    Short,
}

impl AdminAddress {
    /// The TCP address; none for a Unix socket.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix { .. } => None,
        }
    }

    /// Its URL: `http://127.0.0.1:9900` or `unix:/run/admin.sock`.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Token {
    /// The minimum length of a token. 16 random hexadecimal digits are 64 bits.
    pub const MIN_LEN: usize = 16;

    /// Checks a token.
    ///
    /// # Errors
    /// If it is too short, or can't be sent in a header.
    pub fn new(text: &str) -> Result<Self, AdminTokenError> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AdminTokenError::Characters);
        }
        if text.len() < Self::MIN_LEN {
            return Err(AdminTokenError::Short);
        }
        Ok(Self(text.into()))
    }

    /// The token itself, for a client that sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares hashes in constant time, so that the time reveals nothing about the token.
    pub(super) fn is(&self, sent: &[u8]) -> bool {
        blake3::hash(self.0.as_bytes()) == blake3::hash(sent)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tokens_are_rejected_and_tokens_are_never_printed() {
        assert_eq!(format!("{:?}", Token::new("s3cret-admin-t0ken").unwrap()), "Token(…)");
        assert!(Token::new(&"a".repeat(16)).is_ok());
        for (text, error) in [
            ("", AdminTokenError::Short),
            ("a-15-char-token", AdminTokenError::Short),
            ("a token with blanks", AdminTokenError::Characters),
            ("ééééééééééééééééé", AdminTokenError::Characters),
        ] {
            assert_eq!(Token::new(text), Err(error), "{text}");
        }
    }
}
