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
    /// The certificate has version 1 of X.509, which has no extensions, and so no names.
    VersionOne,
    /// The server rejects the client certificate, or there is none.
    ClientCertificate,
}

/// How to create a certificate of version 3 in place of one of version 1, which openssl makes without extensions.
pub(super) const VERSION_3: &str = "create it with an extension, which makes it version 3: openssl x509 -req -in api.csr -CA ca.pem -CAkey \
                                    ca.key -CAcreateserial -days 365 -extfile v3.ext -out api.pem, where the file v3.ext has the line \
                                    subjectAltName=DNS:api.example.com";

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
            ("UnsupportedCertVersion", Self::VersionOne),
            ("CertificateRequired", Self::ClientCertificate),
        ];
        words.into_iter().find(|(word, _)| error.contains(word)).map(|(_, fault)| fault)
    }

    /// The fault of a certificate, if the error is one of them.
    #[must_use]
    pub(super) fn of_certificate(error: &CertificateError) -> Option<Self> {
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
            // rustls has no variants for these errors of webpki.
            CertificateError::Other(other) => match other.to_string() {
                text if text.contains("CaUsedAsEndEntity") => Some(Self::AuthorityAsServer),
                text if text.contains("UnsupportedCertVersion") => Some(Self::VersionOne),
                _ => None,
            },
            _ => None,
        }
    }

    /// The error of a handshake, followed by what to change; `cure` may be empty.
    #[must_use]
    pub fn add_cure(error: &io::Error, cure: impl FnOnce(Self) -> &'static str) -> io::Error {
        let fault = Self::of(error);
        let cure = fault.map_or("", cure);
        let separator = if cure.is_empty() { "" } else { "; " };
        // For the others rustls has a sentence, with details.
        let is_raw =
            |fault: &Self| !matches!(fault, Self::WrongName | Self::WrongTime | Self::ClientCertificate);
        let text = fault.filter(is_raw).map_or_else(|| error.to_string(), |fault| fault.what().to_owned());
        io::Error::new(error.kind(), format!("{text}{separator}{cure}"))
    }

    /// The fault in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::NotTls => "the reply is not TLS",
            Self::UnknownIssuer => "the authority that has signed its certificate is not trusted",
            Self::WrongName => "its certificate is for other names",
            Self::WrongTime => "its certificate is not valid at this time",
            Self::AuthorityAsServer => "its certificate is that of an authority",
            Self::VersionOne => "its certificate has version 1 of X.509, and only version 3 is accepted",
            Self::ClientCertificate => "it does not accept the client certificate, or needs one",
        }
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
            Self::VersionOne => VERSION_3,
            Self::ClientCertificate => {
                "it wants a client certificate that it trusts: tls = { cert = \"client.pem\", key = \"client.key\" }"
            }
        }
    }
}
