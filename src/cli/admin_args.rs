//! Arguments that name the admin interface of a running proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::admin_client::AdminClient;
use super::file::{self, FileArgs, HELP};
use super::output::Failure;
use crate::tls::{ClientTls, ClientTlsSpec};

const ADMIN: &str = "The admin interface, such as http://10.0.1.5:9900, https://gate.internal:9900 or \
                     unix:/run/tidegate/admin.sock. The configuration is \
                     not read then. The token is that of the environment variable TIDEGATE_ADMIN_TOKEN, which also \
                     overrides that of the configuration";

/// The admin interface of a running proxy.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    #[arg(short, long, value_name = "FILE", help = HELP, global = true)]
    config: Option<PathBuf>,
    #[arg(long, value_name = "URL", global = true, help = ADMIN)]
    admin: Option<String>,
    #[command(flatten)]
    tls: TlsFiles,
}

/// Where the process of a configuration is reached.
pub(super) enum Reached {
    /// Its admin interface.
    Admin(AdminClient),
    /// It has none, but these listeners.
    Listeners { file: PathBuf, addresses: Vec<SocketAddr> },
}

impl AdminArgs {
    /// A client of the interface. Fails if the arguments or the configuration name none; the message has been printed.
    pub fn client(&self) -> Result<AdminClient, Failure> {
        match self.reached()? {
            Reached::Admin(client) => Ok(client),
            Reached::Listeners { file, .. } => Err(usage(&format!(
                "{} has no admin interface\nhelp: add [admin] with listen = \"127.0.0.1:9900\", or name an interface with \
                 --admin URL",
                file.display()
            ))),
        }
    }

    /// The path of the configuration file. Fails if there is none; the message has been printed.
    pub fn file(&self) -> Result<PathBuf, Failure> {
        FileArgs { config: self.config.clone() }.path()
    }

    /// A client of the interface, or the listeners if the configuration has none. Of the configuration only these sections are
    /// read, so that the others may be invalid, or need variables that are not set here. Fails if they are invalid; the message
    /// has been printed.
    pub fn reached(&self) -> Result<Reached, Failure> {
        let token = std::env::var("TIDEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
        if let Some(url) = &self.admin {
            return AdminClient::at_url(url, token, &self.tls)
                .map(Reached::Admin)
                .map_err(|error| usage(&error));
        }
        let file = self.file()?;
        let interfaces = file::interfaces(&file)?;
        let Some(spec) = interfaces.admin else {
            return Ok(Reached::Listeners { file, addresses: interfaces.listeners });
        };
        if spec.address.tcp().is_some_and(|address| address.port() == 0) {
            return Err(usage(
                "the configuration has port 0, which the system chooses\nhelp: name the interface with --admin URL",
            ));
        }
        AdminClient::from_spec(&spec, token, &self.tls).map(Reached::Admin).map_err(|error| usage(&error))
    }
}

/// Complains about an argument or the configuration.
fn usage(error: &str) -> Failure {
    Failure::Usage.error(error)
}

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
