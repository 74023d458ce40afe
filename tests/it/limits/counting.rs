//! Limits over real sockets: counted in the process and in Redis.

use std::net::SocketAddr;

use super::setup::routes;
use crate::support::{Client, Message, get, over_both_stores};

/// The status of a GET.
pub fn status(address: SocketAddr, target: &str, headers: &[&str]) -> u16 {
    get(address, target, headers).status()
}

/// The same from another address.
pub fn status_from(source: &str, address: SocketAddr, target: &str, headers: &[&str]) -> u16 {
    Client::connect_from(source, address).get(target, headers).status()
}

#[test]
fn exactly_the_limit_is_allowed() {
    let limits = r#"
        [limits.bucket]
        rate = "1/hour"
        burst = 5
        [limits.spaced]
        algorithm = "gcra"
        rate = "1/hour"
        burst = 3
        [limits.dear]
        rate = "10/hour"
        cost = 4
    "#;
    let config = format!(
        "{limits}{}",
        routes(&[("/bucket", &["bucket"]), ("/spaced", &["spaced"]), ("/dear", &["dear"])])
    );
    over_both_stores(&config, |proxy| {
        let mut client = Client::connect(proxy.addr());
        let mut counts = |path: &str| {
            let responses: Vec<Message> = (0..7).map(|_| client.get(path, &[])).collect();
            let passed = responses.iter().take_while(|response| response.status() == 200).count();
            assert!(responses[passed..].iter().all(|response| response.status() == 429), "{path}");
            let left = responses.iter().map(|response| response.header("x-ratelimit-remaining").unwrap());
            (passed, left.map(str::to_owned).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(counts("/bucket"), (5, "4 3 2 1 0 0 0".to_owned()));
        assert_eq!(counts("/spaced"), (4, "3 2 1 0 0 0 0".to_owned()));
        assert_eq!(counts("/dear"), (2, "6 2 2 2 2 2 2".to_owned()));
    });
}

#[test]
fn spent_units_are_refilled() {
    let config = r#"
        [limits.quick]
        rate = "20/s"
        burst = 1
        [[routes]]
        path = "/*"
        limits = ["quick"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let mut client = Client::connect(proxy.addr());
        let mut passed = 0;
        crate::support::eventually("three pass, one at a time", || {
            passed += usize::from(client.get("/", &[]).status() == 200);
            passed == 3
        });
    });
}

#[test]
fn a_denial_by_one_limit_charges_no_other() {
    let limits = r#"
        [limits.wide]
        rate = "9/hour"
        [limits.narrow]
        rate = "1/hour"
    "#;
    let config = format!(
        "{limits}{}",
        routes(&[("/both", &["wide", "narrow"]), ("/reversed", &["narrow", "wide"]), ("/wide", &["wide"])])
    );
    over_both_stores(&config, |proxy| {
        assert_eq!(status(proxy.addr(), "/both", &[]), 200);
        for _ in 0..4 {
            assert_eq!(status(proxy.addr(), "/both", &[]), 429);
            assert_eq!(status(proxy.addr(), "/reversed", &[]), 429);
        }
        let response = get(proxy.addr(), "/wide", &[]);
        assert_eq!(response.header("x-ratelimit-remaining"), Some("7"));
    });
}
