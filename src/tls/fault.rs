//! Why TLS handshakes with servers fail, and what to change.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// A common reason why the handshake with a server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The server has answered with something else than TLS.
    NotTls,
    /// The server's certificate is signed by an authority that is not trusted, or by itself.
    UnknownIssuer,
    /// The certificate is for other names.
    WrongName,
    /// The certificate has expired, or is not valid yet.
    WrongTime,
    /// The certificate is that of an authority, which can't be the certificate of a server (RFC 5280 §4.2.1.9).
    AuthorityAsServer,
    /// The server rejects the client certificate, or there is none.
    ClientCertificate,
}

impl HandshakeFault {
    /// The fault, if the error is one of them.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.get_ref()?.downcast_ref::<Error>()? {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Self::NotTls),
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA,
            ) => Some(Self::ClientCertificate),
            _ => None,
        }
    }

    /// The fault that an error in its debug format names: fred keeps only that.
    #[must_use]
    pub fn of_debug(error: &str) -> Option<Self> {
        let words = [
            ("InvalidContentType", Self::NotTls),
            ("UnknownIssuer", Self::UnknownIssuer),
            ("InvalidCertificate(BadSignature)", Self::UnknownIssuer),
            ("NotValidForName", Self::WrongName),
            ("Expired", Self::WrongTime),
            ("NotValidYet", Self::WrongTime),
            ("CaUsedAsEndEntity", Self::AuthorityAsServer),
            ("CertificateRequired", Self::ClientCertificate),
        ];
        words.into_iter().find(|(word, _)| error.contains(word)).map(|(_, fault)| fault)
    }

    fn of_certificate(error: &CertificateError) -> Option<Self> {
        match error {
            // The latter if a trusted authority has the same name and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(Self::UnknownIssuer),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some(Self::WrongName)
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Some(Self::WrongTime),
            // rustls has no variant for this error of webpki.
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                Some(Self::AuthorityAsServer)
            }
            _ => None,
        }
    }

    /// The error of a handshake, followed by what to change; `cure` may be empty.
    #[must_use]
    pub fn add_cure(error: &io::Error, cure: impl FnOnce(Self) -> &'static str) -> io::Error {
        let cure = Self::of(error).map_or("", cure);
        let separator = if cure.is_empty() { "" } else { "; " };
        io::Error::new(error.kind(), format!("{error}{separator}{cure}"))
    }

    /// What to change, where the configuration has a table `tls` for the server.
    #[must_use]
    pub fn cure(self) -> &'static str {
        match self {
            Self::NotTls => "it does not speak TLS, so its URL begins with http:// (Redis: redis://)",
            Self::UnknownIssuer => {
                "name the authority that has signed its certificate, or a self-signed certificate itself: \
                 tls = { ca = \"internal.pem\" }"
            }
            Self::WrongName => {
                "name one of the names of its certificate: tls = { server_name = \"api.internal\" }"
            }
            Self::WrongTime => "renew its certificate, or set the clock of this machine",
            Self::AuthorityAsServer => {
                "a server needs a certificate that is not one of an authority: create it with the extension \
                 basicConstraints=CA:FALSE"
            }
            Self::ClientCertificate => {
                "it wants a client certificate that it trusts: tls = { cert = \"client.pem\", key = \"client.key\" }"
            }
        }
    }
}
