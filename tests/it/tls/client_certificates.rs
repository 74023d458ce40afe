//! Client certificates.

use rustls::version::{TLS12, TLS13};

use crate::support::{Authority, Tidegate, TlsClient};

#[test]
fn client_certificates_are_required_with_client_ca() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("a.test");
    for (signs, name) in [(&authority, "worker"), (&authority, "mate"), (&other, "stranger")] {
        signs.sign_client(name);
    }
    let ca = authority.file("ca.pem");
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificates = [{{ {} }}], client_ca = \"{}\" }}\n\
         [limits.one]\nrate = \"2/hour\"\nkey = \"tls:subject\"\non_missing = \"deny\"\n\
         overrides = {{ 'CN=mate,O=Example\\, Inc.' = {{ rate = \"7/hour\" }} }}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n",
        authority.pair("a.test"),
        ca.display()
    );
    let proxy = Tidegate::start(&config);
    for version in [&TLS13, &TLS12] {
        let asked = |client| TlsClient::connect(&client, "a.test", proxy.addr())?.get("/");
        assert!(asked(authority.client(None, &[version])).is_err(), "{version:?}");
        let mut stranger = (*other.client(Some("stranger"), &[version])).clone();
        // The client trusts the proxy, which does not trust the client.
        stranger.dangerous().set_certificate_verifier(trusting(&authority));
        assert!(asked(stranger.into()).is_err(), "{version:?}");
    }
    let ask = |name: &str| {
        let response = TlsClient::connect(&authority.client(Some(name), &[&TLS13]), "a.test", proxy.addr());
        let response = response.unwrap().get("/").unwrap();
        (response.status(), response.header("x-ratelimit-limit").unwrap().to_owned())
    };
    // Connections with the same subject share a count.
    assert_eq!([ask("worker"), ask("worker"), ask("worker")].map(|(status, _)| status), [200, 200, 429]);
    assert_eq!(ask("mate"), (200, "7".to_owned()));
}

/// A verifier that trusts the authority.
fn trusting(authority: &Authority) -> std::sync::Arc<dyn rustls::client::danger::ServerCertVerifier> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file("ca.pem")).unwrap()).unwrap();
    rustls::client::WebPkiServerVerifier::builder(roots.into()).build().unwrap()
}

#[test]
fn tls_subject_is_missing_without_a_client_certificate() {
    let authority = Authority::new();
    authority.sign("a.test");
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{{ {0} }}] }}\n\
         [[listeners]]\naddress = \"127.0.0.2:0\"\ntls = {{ certificates = [{{ {0} }}], client_ca = \"{1}\" }}\n\
         [limits.one]\nrate = \"1/hour\"\nkey = \"tls:subject\"\non_missing = \"deny\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n",
        authority.pair("a.test"),
        authority.file("ca.pem").display()
    );
    let proxy = Tidegate::start(&config);
    let mut client = TlsClient::connect(&authority.client(None, &[&TLS13]), "a.test", proxy.addr()).unwrap();
    let response = client.get("/").unwrap();
    assert_eq!(response.status(), 403);
    assert!(response.text().contains("must have a client certificate"), "{}", response.text());
}
