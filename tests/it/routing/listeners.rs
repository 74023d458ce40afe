//! Routes of one listener or one scheme.

use std::fs;

use super::matching::matched;
use crate::support::{Authority, Client, TIDEGATE, Tidegate, TlsClient, command, get};

const ROUTES: &str = "[client_ip]
trusted_proxies = [\"127.0.0.9\"]
[[routes]]
path = \"/*\"
listener = \"internal\"
scheme = \"http\"
respond = { body = \"internal\" }
[[routes]]
path = \"/*\"
scheme = \"https\"
respond = { body = \"https\" }
[[routes]]
path = \"/*\"
respond = { body = \"http\" }
";

#[test]
fn routes_select_their_listener_and_the_scheme() {
    let authority = Authority::new();
    authority.sign("api.test");
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"internal\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"secure\"\n{}\n{ROUTES}",
        authority.listener("api.test")
    ));
    let [plain, internal, secure] = proxy.addresses(3)[..] else { panic!("three listeners") };
    let name = |address| matched(&get(address, "/", &[]));
    assert_eq!([name(plain), name(internal)], ["http", "internal"]);
    let config = authority.client(None, rustls::ALL_VERSIONS);
    let mut tls = TlsClient::connect(&config, "api.test", secure).unwrap();
    assert_eq!(matched(&tls.get("/").unwrap()), "https");
    // A client that is no trusted proxy names no scheme.
    let forged = matched(&get(plain, "/", &["X-Forwarded-Proto: https"]));
    assert_eq!(forged, "http");
}

#[test]
fn a_trusted_proxy_names_the_scheme_of_its_client() {
    for (header, forwarded) in [
        ("", "X-Forwarded-Proto: HTTPS"),
        ("", "X-Forwarded-Proto: wss"),
        ("header = \"forwarded\"\n", "Forwarded: for=192.0.2.1;proto=https"),
    ] {
        let routes = ROUTES.replace("listener = \"internal\"\n", "host = \"internal.test\"\n");
        let routes = routes.replace("[\"127.0.0.9\"]\n", &format!("[\"127.0.0.1\"]\n{header}"));
        let proxy = Tidegate::start(&routes);
        let mut client = Client::connect(proxy.addr());
        assert_eq!(matched(&client.get("/", &[forwarded])), "https", "{forwarded}");
        assert_eq!(matched(&client.get("/", &[])), "http");
    }
}

#[test]
fn explain_knows_the_listener_and_the_scheme() {
    let explain = |arguments: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tidegate.toml");
        let listeners = "[[listeners]]\naddress = \"127.0.0.1:1\"\n[[listeners]]\naddress = \"127.0.0.1:2\"\nname = \"internal\"\n";
        fs::write(&file, format!("{listeners}{ROUTES}")).unwrap();
        let mut command = command(TIDEGATE);
        let output = command.args(["explain", "-c"]).arg(&file).args(arguments).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert!(explain(&["GET", "/"]).contains("3: path /*"));
    assert!(explain(&["GET", "https://a.test/"]).contains("2: scheme https; path /*"));
    assert!(
        explain(&["--listener", "internal", "GET", "/"])
            .contains("1: listener internal; scheme http; path /*")
    );
    assert!(
        explain(&["--listener", "inner", "GET", "/"])
            .contains("no listener of the file has the name `inner`")
    );
}
