//! Which limits a descriptor has, and what its keys are.

use serde_json::{Value, json};

use super::setup::{Service, json_descriptor};

/// A limit of so many in an hour by these parts.
fn limit(name: &str, most: u32, key: &[&str]) -> String {
    format!("[limits.{name}]\nalgorithm = \"fixed_window\"\nrate = \"{most}/hour\"\nkey = {key:?}\n")
}

fn rule(entries: &[&str], limits: &[&str]) -> String {
    format!("[[descriptors]]\ndomain = \"d\"\nmatch = {entries:?}\nlimits = {limits:?}\n")
}

#[test]
fn the_most_specific_rule_decides() {
    let service = Service::start(
        &[
            limit("any", 1, &["descriptor:key"]),
            limit("begin", 2, &["descriptor:key"]),
            limit("exact", 3, &["descriptor:key"]),
            limit("inner", 4, &["descriptor:key", "descriptor:sub"]),
            rule(&["key"], &["any"]),
            rule(&["key=foo*"], &["begin"]),
            rule(&["key=foobar"], &["exact"]),
            rule(&["key", "sub"], &["inner"]),
        ]
        .concat(),
    );
    for (descriptor, most) in [
        ("key=other", 1),
        ("key=third", 1),
        ("key=foo", 2),
        ("key=foobars", 2),
        ("key=foobar", 3),
        ("key=other,sub=1", 4),
        ("key=other,sub=2", 4),
        ("sub=2,key=other", 6),
        ("key=foobar,sub=1", 6),
    ] {
        assert_eq!(service.allowed(6, "d", &[descriptor]), most, "{descriptor}");
    }
}

#[test]
fn an_address_is_counted_as_that_of_a_client_of_the_proxy() {
    let service = Service::start(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\nipv6_prefix = 64\n\
         [limits.per-client]\nalgorithm = \"fixed_window\"\nrate = \"3/hour\"\nkey = \"client_ip\"\n\
         allow = [\"192.0.2.0/24\"]\nblock = [\"198.51.100.7\"]\n\
         [[descriptors]]\ndomain = \"d\"\nmatch = [\"remote_address\"]\nlimits = [\"per-client\"]\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"per-client\"]\nrespond = { status = 200 }\n",
    );
    let allows = |address: &str| service.allows("d", &[&format!("remote_address={address}")]);
    assert!(allows("203.0.113.9"));
    let get = || {
        let headers = ["X-Forwarded-For: 203.0.113.9"];
        crate::support::get(service.proxy.addr(), "/", &headers).status()
    };
    // The same client has one count, whichever way it comes.
    assert_eq!((get(), allows("203.0.113.9"), get(), allows("203.0.113.9")), (200, true, 429, false));
    assert!((0..5).all(|_| allows("192.0.2.1")));
    assert!(!allows("198.51.100.7"));
    assert!(
        allows("2001:db8::1") && allows("2001:db8::2") && allows("2001:db8::3") && !allows("2001:db8::4")
    );
    let (status, _) =
        service.json(&json!({ "domain": "d", "descriptors": [json_descriptor("remote_address=unknown")] }));
    assert_eq!(status, 400);
}

#[test]
fn overrides_tiers_and_modes_are_those_of_limits() {
    let service = Service::start(
        "[limits.tiered]\nalgorithm = \"fixed_window\"\nrate = \"1/hour\"\nkey = \"descriptor:user\"\n\
         tiers = { by = \"descriptor:plan\", pro = { rate = \"3/hour\" } }\noverrides = { vip = { rate = \"5/hour\" } }\n\
         block = [\"key:bad\"]\nallow = [\"key:good\"]\n\
         [limits.shadow]\nalgorithm = \"fixed_window\"\nrate = \"1/hour\"\nkey = \"global\"\nmode = \"shadow\"\n\
         [[descriptors]]\ndomain = \"d\"\nmatch = [\"plan\", \"user\"]\nlimits = [\"tiered\", \"shadow\"]\n",
    );
    for (descriptor, most) in [
        ("plan=free,user=a", 1),
        ("plan=pro,user=a", 3),
        ("plan=pro,user=vip", 5),
        ("plan=pro,user=bad", 0),
        ("plan=pro,user=good", 7),
    ] {
        assert_eq!(service.allowed(7, "d", &[descriptor]), most, "{descriptor}");
    }
    // An empty value is a key as well.
    assert_eq!(service.allowed(3, "d", &["plan=free,user="]), 1);
}

#[test]
fn a_rule_replaces_others_in_the_same_request() {
    let service = Service::start(&format!(
        "{}{}[[descriptors]]\ndomain = \"d\"\nmatch = [\"read\", \"user\"]\nlimits = [\"general\"]\nname = \"general\"\n\
         [[descriptors]]\ndomain = \"d\"\nmatch = [\"endpoint\", \"user\"]\nlimits = [\"special\"]\nreplaces = [\"general\"]\n",
        limit("general", 2, &["descriptor:user"]),
        limit("special", 4, &["descriptor:user"]),
    ));
    let both = ["read=1,user=a", "endpoint=x,user=a"];
    assert_eq!(service.allowed(6, "d", &both), 4);
    assert_eq!(service.allowed(6, "d", &both[..1]), 2);
}

/// The body of a response, for one descriptor.
fn status(service: &Service, descriptor: &str) -> Value {
    let (_, response) = service.json(&json!({ "domain": "d", "descriptors": [json_descriptor(descriptor)] }));
    response["statuses"][0].clone()
}

#[test]
fn limits_without_a_unit_of_envoy_have_none() {
    let service = Service::start(&format!(
        "[limits.bucket]\nrate = \"100/minute\"\nburst = 500\nkey = \"global\"\n{}",
        rule(&["key"], &["bucket"]),
    ));
    let current = &status(&service, "key=1")["currentLimit"];
    assert_eq!(*current, json!({ "name": "bucket", "requestsPerUnit": 500 }));
}
