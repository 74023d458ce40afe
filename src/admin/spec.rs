//! What `[admin]` says.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The admin interface as the file has it.
#[derive(Clone, Debug)]
pub struct AdminSpec {
    /// Where it listens.
    pub address: AdminAddress,
    /// What a client must show; none is asked for without it.
    pub token: Option<Token>,
}

/// Where the interface listens. It is displayed as the file has it: `127.0.0.1:9900` or `unix:/run/admin.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// Address and port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// Its file.
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
}

/// What a client must show. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

/// Why a text can't be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No header could have it as a token.
    #[error("a token has visible ASCII characters only, and no blanks")]
    Characters,
    /// It could be guessed.
    #[error("a token has at least {} characters", Token::MIN_LEN)]
    Short,
}

impl AdminAddress {
    /// The address, unless it is a Unix socket.
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
    /// The fewest characters that a token has. 16 random hexadecimal digits are 64 bits.
    pub const MIN_LEN: usize = 16;

    /// A token of this text.
    ///
    /// # Errors
    /// When it is too short, or no request could show it.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Characters);
        }
        if text.len() < Self::MIN_LEN {
            return Err(TokenError::Short);
        }
        Ok(Self(text.into()))
    }

    /// The token itself, for who has to show it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares hashes, in constant time: how long it takes says nothing of what would be right.
    pub(super) fn is(&self, shown: &[u8]) -> bool {
        blake3::hash(self.0.as_bytes()) == blake3::hash(shown)
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
    fn tokens_are_long_and_are_not_printed() {
        assert_eq!(format!("{:?}", Token::new("s3cret-admin-t0ken").unwrap()), "Token(…)");
        assert!(Token::new(&"a".repeat(16)).is_ok());
        for (text, error) in [
            ("", TokenError::Short),
            ("a-15-char-token", TokenError::Short),
            ("a token with blanks", TokenError::Characters),
            ("ééééééééééééééééé", TokenError::Characters),
        ] {
            assert_eq!(Token::new(text), Err(error), "{text}");
        }
    }
}
