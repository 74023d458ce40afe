//! Authorization servers with `overload`: whose questions come first, and what refused requests get.

use std::collections::BTreeSet;

use crate::support::{Client, Tidegate, Upstream, eventually, get, over_both_stores};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A file with an authorization server that has these lines, and routes that ask it in this order: one for critical requests, and
/// one for others with these lines.
fn file(auth: &Upstream, server: &Upstream, (overload, order): (&str, &str), route: &str) -> String {
    let (auth, server) = (auth.url(), server.url());
    let to = format!(
        "upstream = \"u\"\nauthorize = {{ upstream = \"auth\", path = \"/verify\", order = \"{order}\" }}\n"
    );
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams.u]\nservers = [\"{server}\"]\n\
         [upstreams.auth]\nservers = [\"{auth}\"]\n{overload}\n\
         [[routes]]\npath = \"/vital\"\npriority = \"critical\"\n{to}[[routes]]\npath = \"/*\"\n{route}\n{to}"
    )
}

/// A request about which the authorization server has been asked.
fn asked(proxy: &Tidegate, auth: &Upstream, target: &str) -> Client {
    let before = auth.received();
    let mut client = Client::connect(proxy.addr());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    eventually("the server is asked", || auth.received() == before + 1);
    client
}

#[test]
fn questions_have_the_class_of_their_requests() {
    let server = Upstream::echo();
    for order in ["before_limits", "after_limits"] {
        let (auth, releases) = Upstream::gated(OK);
        let overload = "overload = { limit = 4, reserved_share = { critical = 0.25 } }\nmax_pending = 0";
        let proxy = Tidegate::start(&file(&auth, &server, (overload, order), ""));
        let mut held: Vec<Client> = (0..3).map(|_| asked(&proxy, &auth, "/")).collect();
        let refused: BTreeSet<u32> = (0..30)
            .map(|_| {
                let refused = get(proxy.addr(), "/", &[]);
                assert_eq!((refused.status(), auth.received()), (503, 3), "{order}");
                refused.header("retry-after").unwrap().parse().unwrap()
            })
            .collect();
        // At random, so that clients do not return at once.
        assert!(refused.len() > 1 && refused.iter().all(|wait| (1..=3).contains(wait)), "{refused:?}");
        held.push(asked(&proxy, &auth, "/vital"));
        drop(releases);
        for client in &mut held {
            assert_eq!(client.read().status(), 200, "{order}");
        }
    }
}

#[test]
fn a_request_whose_question_is_refused_after_a_wait_gets_its_charges_back() {
    let (server, (auth, releases)) = (Upstream::echo(), Upstream::gated(OK));
    let limits = "[answers]\nrate_headers = \"draft-11\"\n\
                  [limits.bucket]\nrate = \"1000/day\"\nkey = \"global\"\n\
                  [limits.window]\nalgorithm = \"fixed_window\"\nrate = \"1000/day\"\nkey = \"global\"\n";
    let route = "limits = [\"bucket\", \"window\"]";
    let config =
        limits.to_owned() + &file(&auth, &server, ("overload = { limit = 1 }", "after_limits"), route);
    over_both_stores(&config, |proxy| {
        let mut first = asked(proxy, &auth, "/");
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 503);
        releases.send(()).unwrap();
        assert_eq!(first.read().status(), 200);
        let mut second = asked(proxy, &auth, "/");
        releases.send(()).unwrap();
        let response = second.read();
        let limits = response.header("ratelimit").unwrap();
        assert_eq!(limits.matches("r=998").count(), 2, "{limits}");
    });
}
