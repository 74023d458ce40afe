//! The certificates with which the command line reaches an admin interface over TLS.

use std::path::{Path, PathBuf};

use clap::Args;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::tls::{ClientTls, ClientTlsSpec};

/// Files for TLS.
#[derive(Debug, Default, Args)]
pub(super) struct TlsFiles {
    /// A PEM file with the authorities that may have signed the certificate of an https interface; without it, those
    /// that this system trusts.
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// A PEM file with the client certificate for an interface with `client_ca`.
    #[arg(long, value_name = "FILE", global = true, requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// A PEM file with the key of the client certificate.
    #[arg(long, value_name = "FILE", global = true, requires = "client_cert")]
    client_key: Option<PathBuf>,
}

impl TlsFiles {
    /// The TLS of a client with these files.
    pub fn read(&self) -> Result<ClientTls, String> {
        let authorities = self.ca.as_deref().map(certificates).transpose()?;
        let identity = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("can't read the key {}: {error}", key.display()))?;
                Some((certificates(cert)?, key))
            }
            _ => None,
        };
        let spec =
            ClientTlsSpec { authorities, identity, protocols: vec![b"http/1.1".to_vec()], server_name: None };
        ClientTls::new(spec).map_err(|error| error.to_string())
    }
}

/// The certificates of a file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("can't read certificates from {}: {error}", file.display());
    let read = CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
    if certificates.is_empty() { Err(failed(&"it has none")) } else { Ok(certificates) }
}
