//! Certificates of listeners: selection, checks, reload.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use tidegate::tls::{Identity, ServerTls, ServerTlsSpec};

use super::downstream::{RESPOND, config, named, read, serve, strs};
use crate::support::{Authority, Tidegate, TlsClient, curl, eventually};

#[test]
fn the_certificate_is_selected_by_server_name() {
    let authority = Authority::new();
    authority.sign_names("first", &["first.test", "127.0.0.1"]);
    authority.sign_names("wild", &["*.wild.test", "wild.test"]);
    authority.sign_names("exact", &["Exact.wild.test"]);
    let pairs = ["first", "wild", "exact"].map(|file| authority.pair(file));
    let proxy = Tidegate::start(&config(&pairs, " }", RESPOND));
    let client = authority.client(None, &[&TLS13]);
    // For an address the client sends no server name.
    for name in
        ["first.test", "127.0.0.1", "any.wild.test", "wild.test", "exact.wild.test", "EXACT.wild.test"]
    {
        TlsClient::connect(&client, name, proxy.addr()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for (name, shown) in
        [("other.test", "first.test"), ("two.labels.wild.test", "first.test"), ("ild.test", "first.test")]
    {
        let error = TlsClient::connect(&client, name, proxy.addr()).unwrap_err().to_string();
        assert!(error.contains(&format!("DnsName(\"{shown}\")")), "{name}: {error}");
    }
    // An exact name has precedence over a wildcard.
    let shown = TlsClient::connect(&client, "exact.wild.test", proxy.addr()).unwrap().certificate();
    assert_eq!(shown, authority.certificate("exact"));
}

#[test]
fn clients_without_ecdsa_get_the_rsa_certificate() {
    let authority = Authority::new();
    authority.sign("a.test");
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    authority.write("rsa", &key, &CertificateParams::new(vec!["a.test".to_owned()]).unwrap());
    let pairs = ["a.test", "rsa"].map(|file| authority.pair(file));
    let proxy = Tidegate::start(&config(&pairs, " }", RESPOND));
    let to = named(&authority, "a.test", proxy.addr());
    for suite in ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"] {
        let (status, ..) = curl(&[&["--tls-max", "1.2", "--ciphers", suite], &strs(&to)[..]].concat());
        assert_eq!(status, 200, "{suite}");
    }
}

#[test]
fn adopted_certificates_apply_to_new_handshakes_only() {
    let (authority, other) = (Authority::new(), Authority::new());
    for file in ["old", "new"] {
        authority.sign_names(file, &["a.test"]);
    }
    authority.sign_client("worker");
    let tls = read(&authority, "old", &authority);
    let address = serve(tls.clone());
    let client = || authority.client(Some("worker"), &[&TLS13]);
    let (known, connect) = (client(), |client: &_| TlsClient::connect(client, "a.test", address));
    let mut open = connect(&known).unwrap();
    assert_eq!(open.get("/").unwrap().status(), 200);
    assert_eq!(open.certificate(), authority.certificate("old"));

    let newer = read(&authority, "new", &authority);
    assert_ne!(tls, newer);
    tls.adopt(&newer);
    assert_eq!(tls, newer);
    assert_eq!(open.get("/").unwrap().status(), 200);
    assert_eq!(connect(&client()).unwrap().certificate(), authority.certificate("new"));
    let mut resumed = connect(&known).unwrap();
    assert!(resumed.is_resumed());
    assert_eq!(resumed.get("/").unwrap().status(), 200);

    // A session ticket must not outlive the trust in the client's authority.
    tls.adopt(&read(&authority, "new", &other));
    assert_eq!(open.get("/").unwrap().status(), 200);
    assert!(connect(&known).and_then(|mut refused| refused.get("/")).is_err());
    // The ticket is valid again with the authority.
    tls.adopt(&newer);
    assert_eq!(connect(&known).unwrap().get("/").unwrap().status(), 200);
}

/// The certificate of an authority's file, with its key.
fn identity(authority: &Authority, file: &str) -> Identity {
    let key = PrivateKeyDer::from_pem_file(authority.file(&format!("{file}.key"))).unwrap();
    Identity::new(vec![authority.certificate(file)], key).unwrap()
}

#[test]
fn installed_certificates_are_those_of_managed_names() {
    let authority = Authority::new();
    for file in ["own", "managed", "newer"] {
        authority.sign_names(file, &[if file == "own" { "own.test" } else { "managed.test" }]);
    }
    let spec = ServerTlsSpec {
        identities: vec![identity(&authority, "own")],
        client_authorities: None,
        protocols: vec![b"http/1.1".to_vec()],
    };
    let tls = ServerTls::new(spec).unwrap();
    tls.manage(vec!["managed.test".to_owned()]);
    assert!(tls.has_certificate_for("own.test") && !tls.has_certificate_for("managed.test"));
    let address = serve(tls.clone());
    let client = || authority.client(None, &[&TLS13]);
    let shown = |client: &_, name| TlsClient::connect(client, name, address).map(|tls| tls.certificate());
    // Not the certificate of another name.
    let error = shown(&client(), "managed.test").unwrap_err().to_string();
    assert!(error.contains("AccessDenied"), "{error}");
    let known = client();
    for file in ["managed", "newer"] {
        let others = ["own", "managed", "newer"].map(|file| identity(&authority, file));
        let own: Vec<Identity> = others.into_iter().filter(|one| one.names() == ["own.test"]).collect();
        let installed: Vec<Identity> = own.into_iter().chain([identity(&authority, file)]).collect();
        tls.install(&installed, &[]).unwrap();
        assert_eq!(shown(&client(), "managed.test").unwrap(), authority.certificate(file));
        assert_eq!(shown(&client(), "own.test").unwrap(), authority.certificate("own"));
        let mut connection = TlsClient::connect(&known, "managed.test", address).unwrap();
        assert_eq!(connection.is_resumed(), file == "newer", "sessions stay valid");
        assert_eq!(connection.get("/").unwrap().status(), 200);
    }
    let names: Vec<Box<str>> = tls.expiries().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["managed.test".into(), "own.test".into()] as [Box<str>; 2]);
}

#[test]
fn validations_are_answered_while_they_are_expected() {
    let authority = Authority::new();
    authority.sign_names("own", &["a.test"]);
    authority.sign_names("proof", &["a.test"]);
    // Clients need a certificate, and the ACME server has none.
    let tls = read(&authority, "own", &authority);
    tls.manage(vec!["a.test".to_owned()]);
    let address = serve(tls.clone());
    authority.sign_client("worker");
    for version in [&TLS12, &TLS13] {
        let client = |file, protocols: &[&[u8]]| {
            let mut config = ClientConfig::clone(&authority.client(file, &[version]));
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        let validates = |protocols: &[&[u8]]| TlsClient::connect(&client(None, protocols), "a.test", address);
        let serves = || TlsClient::connect(&client(Some("worker"), &[b"http/1.1"]), "a.test", address);
        let own = authority.certificate("own");
        assert!(validates(&[b"acme-tls/1"]).is_err());
        tls.install(&[], &[identity(&authority, "proof")]).unwrap();
        let mut validation = validates(&[b"acme-tls/1"]).unwrap();
        assert_eq!(validation.protocol(), Some(&b"acme-tls/1"[..]));
        assert_eq!(validation.certificate(), authority.certificate("proof"));
        assert!(validation.is_ended().unwrap(), "no request follows");
        // A client that offers other protocols too is no ACME server.
        let connection = serves().unwrap();
        assert_eq!((connection.certificate(), connection.protocol()), (own, Some(&b"http/1.1"[..])));
        tls.install(&[], &[]).unwrap();
        assert!(validates(&[b"acme-tls/1"]).is_err());
        assert_eq!(serves().unwrap().get("/").unwrap().status(), 200);
    }
}

#[test]
fn check_warns_about_unusable_certificates() {
    let authority = Authority::new();
    authority.sign("a.test");
    authority.sign_client("nameless");
    let mut params = CertificateParams::new(vec!["b.test".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2024, 2, 29);
    authority.write("expired", &KeyPair::generate().unwrap(), &params);
    let pairs = ["a.test", "nameless", "expired"].map(|file| authority.pair(file));
    let report = |pairs: &[String]| match tidegate::config::parse(
        &config(pairs, " }", RESPOND),
        "t.toml",
        &|_| None,
    ) {
        Ok(loaded) => loaded.warnings.to_string(),
        Err(report) => report.to_string(),
    };
    let warnings = report(&pairs);
    assert!(warnings.contains("warning: this certificate expired at 2024-02-29T00:00:00Z"), "{warnings}");
    assert!(warnings.contains("warning: this certificate has no names: it is never used"), "{warnings}");
    assert_eq!(warnings.matches("warning").count(), 2, "{warnings}");
    // The key of another certificate.
    let swapped = authority.pair("a.test").replace("a.test.key", "expired.key");
    let error = report(&[swapped]);
    assert!(error.starts_with("error: the certificate and its key can't be used: "), "{error}");
    assert!(
        error.contains("the key belongs to another certificate") && error.contains("t.toml:3:"),
        "{error}"
    );
}

#[test]
fn check_reports_invalid_certificates_and_keys() {
    let authority = Authority::new();
    authority.sign("a.test");
    let mut params = CertificateParams::new(vec!["b.test".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2999, 2, 28);
    params.not_after = rcgen::date_time_ymd(2999, 12, 31);
    authority.write("future", &KeyPair::generate().unwrap(), &params);
    let read = |file: &str| std::fs::read_to_string(authority.file(file)).unwrap();
    let write = |file: &str, text: &str| std::fs::write(authority.file(file), text).unwrap();
    let check = |cert: &str, key: &str| {
        let pair = authority.pair("a.test").replace("a.test.pem", cert).replace("a.test.key", key);
        match tidegate::config::parse(&config(&[pair], " }", RESPOND), "t.toml", &|_| None) {
            Ok(loaded) => loaded.warnings.to_string(),
            Err(report) => report.to_string(),
        }
    };
    let whole = read("a.test.pem");
    write("reversed.pem", &format!("{}{whole}", read("future.pem")));
    write("half.pem", &whole[..200]);
    let key = read("a.test.key");
    write("pkcs8.key", &key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
    let body = key.replace("PRIVATE KEY", "EC PRIVATE KEY");
    let (first, rest) = body.split_once('\n').unwrap();
    write("old.key", &format!("{first}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n{rest}"));
    for (cert, key, expected) in [
        ("future.pem", "future.key", "warning: this certificate is not valid before 2999-02-28T00:00:00Z"),
        (
            "reversed.pem",
            "a.test.key",
            "the key belongs to a later certificate of the file: put that one first",
        ),
        ("half.pem", "a.test.key", "half.pem ends in the middle of a certificate"),
        ("a.test.pem", "pkcs8.key", "pkcs8.key is encrypted, and tidegate can't read encrypted keys"),
        ("a.test.pem", "old.key", "old.key is encrypted, and tidegate can't read encrypted keys"),
    ] {
        let report = check(cert, key);
        assert!(report.contains(expected) && report.contains("t.toml:3:"), "{cert} {key}: {report}");
    }
}

#[test]
fn certificates_are_reloaded_on_sighup() {
    let authority = Authority::new();
    authority.sign_names("ours", &["a.test"]);
    let proxy = Tidegate::start(&config(&[authority.pair("ours")], " }", RESPOND));
    let client = || authority.client(None, &[&TLS13]);
    let shown = || TlsClient::connect(&client(), "a.test", proxy.addr()).unwrap().certificate();
    let known = client();
    let mut open = TlsClient::connect(&known, "a.test", proxy.addr()).unwrap();
    assert_eq!(open.get("/").unwrap().status(), 200);
    let old = authority.certificate("ours");
    assert_eq!(shown(), old);

    authority.sign_names("ours", &["a.test"]);
    proxy.signal("HUP");
    eventually("the new certificate is shown", || shown() != old);
    let new = authority.certificate("ours");
    assert_eq!(shown(), new);
    assert_eq!(open.get("/").unwrap().status(), 200);
    assert!(TlsClient::connect(&known, "a.test", proxy.addr()).unwrap().is_resumed());

    // A certificate without its key, as between two writes.
    authority.sign_names("next", &["a.test"]);
    std::fs::copy(authority.file("next.pem"), authority.file("ours.pem")).unwrap();
    proxy.signal("HUP");
    proxy.wait_log("serving the previous configuration");
    proxy.wait_log("the key belongs to another certificate");
    assert_eq!(shown(), new);
    assert_eq!(open.get("/").unwrap().status(), 200);
}
