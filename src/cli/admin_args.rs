//! Arguments that name the admin interface of a running proxy.

use std::path::PathBuf;

use clap::Args;

use super::admin_client::Client;
use super::admin_tls::TlsFiles;
use super::file::FileArgs;
use super::outcome::Failure;
use super::output::complain;

const ADMIN: &str = "The admin interface, such as http://10.0.1.5:9900, https://gate.internal:9900 or \
                     unix:/run/tidegate/admin.sock. The configuration is \
                     not read then. The token is that of the environment variable TIDEGATE_ADMIN_TOKEN, which also \
                     overrides that of the configuration";

/// The admin interface of a running proxy.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// The configuration file, which names the admin interface and its token.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", global = true)]
    config: PathBuf,
    #[arg(long, value_name = "URL", global = true, help = ADMIN)]
    admin: Option<String>,
    #[command(flatten)]
    tls: TlsFiles,
}

impl AdminArgs {
    /// A client of the interface.
    ///
    /// # Errors
    /// If the arguments or the configuration name none; the message has been printed.
    pub fn client(&self) -> Result<Client, Failure> {
        let usage = |error: String| {
            complain(format!("error: {error}"));
            Failure::Usage
        };
        let token = std::env::var("TIDEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
        if let Some(url) = &self.admin {
            return Client::at_url(url, token, &self.tls).map_err(usage);
        }
        let loaded = FileArgs { config: self.config.clone() }.load()?;
        let Some(spec) = loaded.config.admin else {
            let file = self.config.display();
            return Err(usage(format!(
                "{file} has no admin interface\nhelp: add [admin] with listen = \"127.0.0.1:9900\", or name an interface with \
                 --admin URL"
            )));
        };
        if spec.address.tcp().is_some_and(|address| address.port() == 0) {
            return Err(usage(
                "the configuration has port 0, which the system chooses\nhelp: name the interface with --admin URL".to_owned(),
            ));
        }
        Client::from_spec(&spec, token, &self.tls).map_err(usage)
    }
}
