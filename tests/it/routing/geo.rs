//! Countries and autonomous systems as conditions of routes and as parts of keys.

use std::fs;
use std::path::Path;

use super::matching::matched;
use crate::support::{Client, Tidegate, eventually, mmdb};

const COUNTRIES: [(&str, u8, &str); 4] = [
    ("192.0.2.0", 24, "DE"),
    ("198.51.100.0", 25, "FR"),
    ("203.0.113.7", 32, "US"),
    ("2001:db8:1::", 48, "JP"),
];

/// The databases in a directory, and `[geo]` with them.
fn geo(directory: &Path) -> String {
    let [country, asn] = ["country.mmdb", "asn.mmdb"].map(|name| directory.join(name));
    fs::write(&country, mmdb::countries(&COUNTRIES)).unwrap();
    fs::write(&asn, mmdb::systems(&[("192.0.2.0", 25, 64496), ("203.0.113.0", 24, 64_511)])).unwrap();
    format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n[geo]\ncountry = \"{}\"\nasn = \"{}\"\n",
        country.display(),
        asn.display()
    )
}

fn from(client: &mut Client, address: &str) -> String {
    matched(&client.get("/", &[&format!("X-Forwarded-For: {address}")]))
}

#[test]
fn routes_match_the_country_and_the_autonomous_system_of_the_client() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Tidegate::start(&format!(
        "{}
[[routes]]
path = \"/*\"
asn = [64511, 1]
respond = {{ body = \"system\" }}
[[routes]]
path = \"/*\"
country = [\"FR\", \"DE\"]
asn = {{ not = [64496] }}
respond = {{ body = \"near\" }}
[[routes]]
path = \"/*\"
country = {{ not = [\"DE\", \"JP\"] }}
respond = {{ body = \"other\" }}
[[routes]]
path = \"/*\"
respond = {{ body = \"rest\" }}
",
        geo(directory.path())
    ));
    let mut client = Client::connect(proxy.addr());
    for (address, name) in [
        ("203.0.113.7", "system"),
        ("203.0.113.8", "system"),
        ("192.0.2.200", "near"),
        ("192.0.2.1", "rest"),
        ("198.51.100.127", "near"),
        ("198.51.100.128", "other"),
        ("2001:db8:1::7", "rest"),
        ("2001:db8:2::7", "other"),
    ] {
        assert_eq!(from(&mut client, address), name, "{address}");
    }
}

#[test]
fn routes_match_the_address_of_the_client() {
    let proxy = Tidegate::start(
        "[client_ip]
trusted_proxies = [\"127.0.0.1\"]
[[routes]]
path = \"/*\"
client_ip = [\"203.0.113.7\", \"2001:db8:1::/48\"]
respond = { body = \"listed\" }
[[routes]]
path = \"/*\"
client_ip = { not = [\"10.0.0.0/8\", \"192.0.2.0/25\", \"192.0.2.128/25\"] }
block = true
[[routes]]
path = \"/*\"
respond = { body = \"inside\" }
",
    );
    let mut client = Client::connect(proxy.addr());
    for (address, name) in [
        ("203.0.113.7", "listed"),
        ("203.0.113.8", "403"),
        ("2001:db8:1::9", "listed"),
        ("::ffff:10.1.2.3", "inside"),
        ("192.0.2.200", "inside"),
        ("192.0.3.0", "403"),
    ] {
        assert_eq!(from(&mut client, address), name, "{address}");
    }
    // Without a trusted proxy the address is that of the peer, whatever it claims.
    let direct = Tidegate::start(
        "[[routes]]\npath = \"/*\"\nclient_ip = [\"127.0.0.0/8\"]\nrespond = { body = \"peer\" }\n",
    );
    assert_eq!(from(&mut Client::connect(direct.addr()), "192.0.2.1"), "peer");
}

#[test]
fn limits_count_by_country_and_autonomous_system() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Tidegate::start(&format!(
        "{}
[limits.country]
rate = \"2/hour\"
key = \"country\"
overrides = {{ FR = {{ rate = \"1/hour\" }} }}
[limits.system]
rate = \"1/hour\"
key = \"asn\"
on_missing = \"skip\"
block = [\"key:64511\"]
[[routes]]
path = \"/*\"
limits = [\"country\", \"system\"]
respond = {{ body = \"ok\" }}
",
        geo(directory.path())
    ));
    let mut client = Client::connect(proxy.addr());
    for (address, result) in [
        ("192.0.2.1", "ok"),
        ("192.0.2.2", "429"),
        ("192.0.2.200", "ok"),
        ("192.0.2.201", "429"),
        ("198.51.100.1", "ok"),
        ("198.51.100.2", "429"),
        ("203.0.113.9", "403"),
        // Without a country these count by their addresses.
        ("8.8.8.8", "ok"),
        ("8.8.8.8", "ok"),
        ("8.8.8.8", "429"),
        ("8.8.4.4", "ok"),
    ] {
        assert_eq!(from(&mut client, address), result, "{address}");
    }
}

#[test]
fn a_changed_database_is_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Tidegate::start(&format!(
        "watch = true\n{}[[routes]]\npath = \"/*\"\ncountry = [\"CH\"]\nrespond = {{ body = \"moved\" }}\n",
        geo(directory.path())
    ));
    let mut client = Client::connect(proxy.addr());
    assert_eq!(from(&mut client, "192.0.2.1"), "404");
    let changed = directory.path().join("changed");
    fs::write(&changed, mmdb::countries(&[("192.0.2.0", 24, "CH")])).unwrap();
    fs::rename(changed, directory.path().join("country.mmdb")).unwrap();
    eventually("the database is read again", || {
        from(&mut Client::connect(proxy.addr()), "192.0.2.1") == "moved"
    });
    // A broken database is reported, and the one before it stays.
    fs::write(directory.path().join("country.mmdb"), "broken").unwrap();
    proxy.wait_log("is not a database in the format MMDB");
    assert_eq!(from(&mut Client::connect(proxy.addr()), "192.0.2.1"), "moved");
}
