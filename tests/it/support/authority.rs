//! A certificate authority.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

/// An authority of the test's own, whose certificates are files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    /// A new one; its own certificate is `ca.pem`.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        // Where a certificate has the name of its authority, OpenSSL takes it to be its own.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// Signs a certificate for `name`: `NAME.pem` and `NAME.key`.
    pub fn sign(&self, name: &str) {
        self.sign_names(name, &[name]);
    }

    /// Signs a certificate for these names: `FILE.pem` and `FILE.key`.
    pub fn sign_names(&self, file: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.write(file, &KeyPair::generate().unwrap(), &CertificateParams::new(names).unwrap());
    }

    /// Signs a client's certificate with this common name, of an organization: `NAME.pem` and `NAME.key`.
    pub fn sign_client(&self, name: &str) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, name);
        self.write(name, &KeyPair::generate().unwrap(), &params);
    }

    /// Signs a client's certificate with these subject alternative names and no subject: `FILE.pem` and `FILE.key`.
    pub fn sign_client_names(&self, file: &str, names: Vec<SanType>) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = names;
        self.write(file, &KeyPair::generate().unwrap(), &params);
    }

    /// Signs a certificate: `FILE.pem` and `FILE.key`.
    pub fn write(&self, file: &str, key: &KeyPair, params: &CertificateParams) {
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        std::fs::write(self.file(&format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One of its certificates.
    pub fn certificate(&self, file: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.file(&format!("{file}.pem"))).unwrap()
    }

    /// The name of a certificate and of its key, as a configuration has them.
    pub fn pair(&self, file: &str) -> String {
        let name = |end: &str| self.file(&format!("{file}.{end}"));
        format!("cert = \"{}\", key = \"{}\"", name("pem").display(), name("key").display())
    }

    /// The `tls` of a listener with this certificate.
    pub fn listener(&self, file: &str) -> String {
        format!("tls = {{ certificates = [{{ {} }}] }}", self.pair(file))
    }

    /// The roots of a client that trusts it.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }

    /// What a client needs that trusts it, and that shows this certificate if any is named.
    pub fn client(
        &self,
        file: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_protocol_versions(versions);
        let config = config.with_root_certificates(self.roots());
        let Some(file) = file else { return Arc::new(config.with_no_client_auth()) };
        let chain = self.certificate(file);
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{file}.key"))).unwrap();
        Arc::new(config.with_client_auth_cert(vec![chain], key).unwrap())
    }
}
