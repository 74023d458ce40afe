//! Client certificates.

use rcgen::SanType;
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

#[test]
fn clients_are_counted_by_a_subject_alternative_name() {
    let authority = Authority::new();
    authority.sign("a.test");
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let dns = |text: &str| SanType::DnsName(text.try_into().unwrap());
    let email = |text: &str| SanType::Rfc822Name(text.try_into().unwrap());
    let spiffe = "spiffe://example.org/worker";
    authority.sign_client_names("uri", vec![dns("z.test"), uri(spiffe), uri("spiffe://example.org/other")]);
    authority.sign_client_names("renewed", vec![uri(spiffe), dns("y.test")]);
    authority.sign_client_names("dns", vec![email("a@b.test"), dns("Host.test"), dns("x.test")]);
    authority.sign_client_names("email", vec![SanType::IpAddress([192, 0, 2, 1].into()), email("a@b.test")]);
    authority.sign_client_names("ip", vec![SanType::IpAddress("2001:db8::1".parse().unwrap())]);
    authority.sign_client("none");
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificates = [{{ {} }}], client_ca = \"{}\" }}\n\
         [limits.one]\nrate = \"2/day\"\nkey = \"tls:san\"\non_missing = \"deny\"\n\
         overrides = {{ '{spiffe}' = {{ rate = \"5/day\" }}, 'host.test' = {{ rate = \"6/day\" }}, \
         'a@b.test' = {{ rate = \"7/day\" }}, '2001:db8::1' = {{ rate = \"8/day\" }} }}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n",
        authority.pair("a.test"),
        authority.file("ca.pem").display()
    );
    let proxy = Tidegate::start(&config);
    let ask = |name: &str| {
        let client = authority.client(Some(name), &[&TLS13]);
        TlsClient::connect(&client, "a.test", proxy.addr()).unwrap().get("/").unwrap()
    };
    for (name, limit, remaining) in
        [("uri", "5", "4"), ("renewed", "5", "3"), ("dns", "6", "5"), ("email", "7", "6"), ("ip", "8", "7")]
    {
        let response = ask(name);
        let header = |name| response.header(name).map(str::to_owned);
        assert_eq!(
            (header("x-ratelimit-limit"), header("x-ratelimit-remaining")),
            (Some(limit.to_owned()), Some(remaining.to_owned())),
            "{name}"
        );
    }
    let missing = ask("none");
    assert_eq!(missing.status(), 403);
    assert!(missing.text().contains("with a subject alternative name"), "{}", missing.text());
}
