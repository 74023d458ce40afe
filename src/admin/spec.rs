//! Settings of the admin interface: the `[admin]` table of the configuration.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::tls::ServerTls;

/// Settings of the admin interface.
#[derive(Clone, Debug)]
pub struct AdminSpec {
    /// Where it listens.
    pub address: AdminAddress,
    /// TLS; none on a Unix socket, and for plain connections.
    pub tls: Option<ServerTls>,
    /// The token that clients must send; without one, none is required.
    pub token: Option<AdminToken>,
    /// The token of clients that may only read. Only with `token`.
    pub read_token: Option<AdminToken>,
}

/// The operations that a client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AdminAccess {
    /// Operations that only read.
    Read,
    /// All operations.
    Change,
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
pub struct AdminToken(Box<str>);

/// Why a text is not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminTokenError {
    /// It can't be sent in a header.
    #[error("a token has visible ASCII characters only, and no blanks")]
    Characters,
    /// It is short enough to be guessed.
    #[error("a token has at least {} characters", AdminToken::MIN_LEN)]
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
}

impl AdminSpec {
    /// The URL of the interface at this address: `http://127.0.0.1:9900` or `unix:/run/admin.sock`.
    #[must_use]
    pub fn url(&self, address: &AdminAddress) -> String {
        match (address, &self.tls) {
            (AdminAddress::Tcp(address), None) => format!("http://{address}"),
            (AdminAddress::Tcp(address), Some(_)) => format!("https://{address}"),
            (AdminAddress::Unix { .. }, _) => address.to_string(),
        }
    }

    /// The credentials that a client needs, in words.
    #[must_use]
    pub fn credentials(&self) -> &'static str {
        let needs_certificate = self.tls.as_ref().is_some_and(ServerTls::requires_client_certificate);
        match (needs_certificate, &self.token, &self.read_token) {
            (false, None, _) => "no token",
            (false, Some(_), None) => "a token",
            (false, Some(_), Some(_)) => "a token, for changes or for reading",
            (true, None, _) => "a client certificate",
            (true, Some(_), None) => "a client certificate and a token",
            (true, Some(_), Some(_)) => "a client certificate and a token, for changes or for reading",
        }
    }

    /// Whether it has the same tokens as another.
    pub(super) fn has_tokens_of(&self, other: &Self) -> bool {
        (&self.token, &self.read_token) == (&other.token, &other.read_token)
    }

    /// The access of a client that has sent this token; none if it is no token of this interface.
    pub(super) fn access(&self, sent: &[u8]) -> Option<AdminAccess> {
        let is = |token: &Option<AdminToken>| token.as_ref().is_some_and(|token| token.is(sent));
        match (is(&self.token), is(&self.read_token)) {
            (true, _) => Some(AdminAccess::Change),
            (false, true) => Some(AdminAccess::Read),
            (false, false) => None,
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

impl AdminToken {
    /// The minimum length of a token. 16 random hexadecimal digits are 64 bits.
    pub const MIN_LEN: usize = 16;

    /// Checks a token. Fails if it is too short, or can't be sent in a header.
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
    fn is(&self, sent: &[u8]) -> bool {
        blake3::hash(self.0.as_bytes()) == blake3::hash(sent)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tokens_are_rejected_and_tokens_are_never_printed() {
        assert_eq!(format!("{:?}", AdminToken::new("s3cret-admin-t0ken").unwrap()), "Token(…)");
        assert!(AdminToken::new(&"a".repeat(16)).is_ok());
        for (text, error) in [
            ("", AdminTokenError::Short),
            ("a-15-char-token", AdminTokenError::Short),
            ("a token with blanks", AdminTokenError::Characters),
            ("ééééééééééééééééé", AdminTokenError::Characters),
        ] {
            assert_eq!(AdminToken::new(text), Err(error), "{text}");
        }
    }
}
