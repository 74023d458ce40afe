//! Certificates of listeners: selection, checks, reload.

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use rustls::version::TLS13;

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
