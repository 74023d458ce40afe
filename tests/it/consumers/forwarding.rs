//! What upstreams learn about consumers, and what clients can't tell them.

use super::setup::{CONSUMERS, ConsumersFile};
use crate::support::{Tidegate, Upstream, get};

fn forwarding(keys: &str, server: &Upstream) -> (ConsumersFile, Tidegate) {
    let file = ConsumersFile::new(CONSUMERS);
    let route = format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let proxy = Tidegate::start(&(file.table(keys) + &route));
    (file, proxy)
}

#[test]
fn upstreams_get_the_name_and_the_tier() {
    let server = Upstream::echo();
    let (_file, proxy) = forwarding("unknown = \"anonymous\"", &server);
    let forged = ["X-Consumer-Name: forged", "X_Consumer_Tier: forged", "X-Consumer-Tier: forged"];
    let sent = |key: &[&str]| get(proxy.addr(), "/", &[&forged[..], key].concat()).text().to_lowercase();
    let acme = sent(&["X-Api-Key: k-2"]);
    assert!(acme.contains("x-consumer-name: acme") && acme.contains("x-consumer-tier: pro"), "{acme}");
    assert!(acme.contains("x-api-key: k-2"), "{acme}");
    let small = sent(&["X-Api-Key: s-1"]);
    assert!(small.contains("x-consumer-name: small") && !small.contains("consumer-tier"), "{small}");
    let anonymous = sent(&[]);
    assert!(!anonymous.contains("consumer"), "{anonymous}");
    for text in [acme, small, anonymous] {
        assert!(!text.contains("forged"), "{text}");
    }
}

#[test]
fn the_headers_of_a_trusted_proxy_are_replaced() {
    let server = Upstream::echo();
    let trusted = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let file = ConsumersFile::new(CONSUMERS);
    let route = format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let proxy = Tidegate::start(&(file.table("unknown = \"anonymous\"") + trusted + &route));
    let of_proxy = ["X-Consumer-Name: earlier", "X-Consumer-Tier: earlier"];
    let sent = |key: &[&str]| get(proxy.addr(), "/", &[&of_proxy[..], key].concat()).text().to_lowercase();
    let small = sent(&["X-Api-Key: s-1"]);
    assert!(small.contains("x-consumer-name: small") && !small.contains("earlier"), "{small}");
    let anonymous = sent(&[]);
    assert!(!anonymous.contains("consumer"), "{anonymous}");
}

#[test]
fn the_names_of_the_headers_can_be_chosen() {
    let server = Upstream::echo();
    let (_file, proxy) = forwarding("name_header = \"x-user\"\ntier_header = \"x-plan\"", &server);
    let text = get(proxy.addr(), "/", &["X-Api-Key: k-2", "X-User: forged"]).text().to_lowercase();
    assert!(
        text.contains("x-user: acme") && text.contains("x-plan: pro") && !text.contains("forged"),
        "{text}"
    );
}

#[test]
fn the_credential_can_be_kept_from_upstreams() {
    let server = Upstream::echo();
    for (source, path, header) in [
        ("header:x-api-key", "/?a=1", "X-Api-Key: k-2"),
        ("bearer", "/?a=1", "Authorization: Bearer k-2"),
        ("cookie:key", "/?a=1", "Cookie: key=k-2; other=1"),
        ("query:key", "/?a=1&key=k-2", "X: y"),
    ] {
        let keys = format!("credential = \"{source}\"\nforward_credential = false");
        let (_file, proxy) = forwarding(&keys, &server);
        let text = get(proxy.addr(), path, &[header]).text().to_owned();
        assert!(text.contains("/?a=1") && text.contains("acme"), "{source}: {text}");
        assert!(!text.contains("k-2"), "{source}: {text}");
    }
}
