//! URLs of a Redis.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

/// Where a Redis is, and as whom we speak to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// Where.
    pub endpoint: Endpoint,
    /// An ACL user; none means the default user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u8,
}

/// Where a Redis listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// On TCP.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// On a Unix socket.
    Unix(PathBuf),
}

/// Why a text is no URL of a Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It can't be read as a URL at all.
    #[error("not a URL ({0}); write it as redis://host:6379")]
    Malformed(String),
    /// Another scheme.
    #[error("the scheme `{0}` is not one of redis and unix")]
    Scheme(String),
    /// One that will be, but not in this version.
    #[error("the scheme `{0}` is not supported by this version; redis and unix are")]
    NotYet(String),
    /// No host.
    #[error("the host is missing; write it as redis://host:6379")]
    NoHost,
    /// A database that is no number.
    #[error("`{0}` is no database number from 0 to 255")]
    Database(String),
    /// A socket without a path.
    #[error("the path of the socket is missing; write it as unix:///run/redis.sock")]
    NoPath,
    /// Something after `?` or `#`.
    #[error("`{0}` is not understood")]
    Extra(String),
}

impl Target {
    /// Reads `redis://[user[:password]@]host[:port][/database]` or `unix:///path`.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = url::Url::parse(text).map_err(|error| UrlError::Malformed(error.to_string()))?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let username = Some(decoded(url.username())).filter(|name| !name.is_empty());
        let password = url.password().map(decoded).filter(|word| !word.is_empty());
        let (endpoint, database) = match url.scheme() {
            "redis" => {
                let host = url.host_str().filter(|host| !host.is_empty()).ok_or(UrlError::NoHost)?;
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                (Endpoint::Tcp { host, port: url.port().unwrap_or(6379) }, database(url.path())?)
            }
            "unix" => {
                let path = decoded(url.path());
                if !path.starts_with('/') || path.len() < 2 {
                    return Err(UrlError::NoPath);
                }
                (Endpoint::Unix(path.into()), 0)
            }
            known
            @ ("rediss" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster" | "rediss-cluster") => {
                return Err(UrlError::NotYet(known.to_owned()));
            }
            other => return Err(UrlError::Scheme(other.to_owned())),
        };
        match url.query().or(url.fragment()) {
            Some(extra) => Err(UrlError::Extra(extra.to_owned())),
            None => Ok(Self { endpoint, username, password, database }),
        }
    }
}

fn database(path: &str) -> Result<u8, UrlError> {
    match path.trim_start_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| UrlError::Database(number.to_owned())),
    }
}

/// The target without its secrets.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "redis://[{host}]:{port}")?,
            Endpoint::Tcp { host, port } => write!(f, "redis://{host}:{port}")?,
            Endpoint::Unix(path) => write!(f, "unix://{}", path.display())?,
        }
        if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let full = Target::parse("redis://app:s%40cret@db.internal:6390/3").unwrap();
        assert_eq!(full.endpoint, Endpoint::Tcp { host: "db.internal".into(), port: 6390 });
        assert_eq!((full.username.as_deref(), full.password.as_deref()), (Some("app"), Some("s@cret")));
        assert_eq!(full.database, 3);
        assert_eq!(Target::parse("redis://[::1]").unwrap().to_string(), "redis://[::1]:6379");
        let socket = Target::parse("unix:///run/redis/a.sock").unwrap();
        assert_eq!(socket.endpoint, Endpoint::Unix("/run/redis/a.sock".into()));
    }

    #[test]
    fn secrets_are_not_printed() {
        let target = Target::parse("redis://app:hush@h:1/2").unwrap();
        assert_eq!(format!("{target} {target:?}"), "redis://h:1/2 Target(redis://h:1/2)");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, error) in [
            ("127.0.0.1:6379", "not a URL (relative URL without a base); write it as redis://host:6379"),
            ("redis://h:99999", "not a URL (invalid port number); write it as redis://host:6379"),
            ("http://h", "the scheme `http` is not one of redis and unix"),
            (
                "redis-cluster://h",
                "the scheme `redis-cluster` is not supported by this version; redis and unix are",
            ),
            ("redis://h/x", "`x` is no database number from 0 to 255"),
            ("redis://h?a=1", "`a=1` is not understood"),
            ("unix://", "the path of the socket is missing; write it as unix:///run/redis.sock"),
        ] {
            assert_eq!(Target::parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }
}
