//! What `auth_request` of nginx and `forwardAuth` of Traefik decide, and what tidegate decides with their converted files.

use std::net::{Ipv4Addr, SocketAddr};

use super::origin::{nginx, traefik};
use super::traffic::converted;
use crate::support::{Message, Tidegate, Upstream, WebServer, get};

/// An authorization server at `/verify`: its response has the status and the user of the `Authorization` header. For the user
/// `described` the response has the `X-Forwarded` headers of the request instead. At other paths the server responds with the
/// `X-User` of the request.
fn server() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let word = request.header("authorization").unwrap_or("401");
            let told = if word.ends_with(" described") { described(&request) } else { String::new() };
            let (status, user) = match word.split_once(' ') {
                _ if !request.start.starts_with("GET /verify ") => {
                    ("200", request.header("x-user").unwrap_or(""))
                }
                Some((status, "described")) => (status, &*told),
                Some((status, user)) => (status, user),
                None => (word, ""),
            };
            let response = format!(
                "HTTP/1.1 {status} X\r\nX-User: {user}\r\nContent-Length: {}\r\n\r\n{user}",
                user.len()
            );
            if caller.try_send(response).is_err() {
                return;
            }
        }
    })
}

/// The headers that describe a request to its authorization server.
fn described(request: &Message) -> String {
    let names = ["method", "proto", "host", "uri", "for"];
    let values = names.map(|name| request.header(&format!("x-forwarded-{name}")).unwrap_or("none"));
    values.join(" ")
}

/// The status and the body of the response to a request that claims to be of another user.
fn answer(address: SocketAddr, target: &str, word: &str) -> (u16, String) {
    let response = get(address, target, &[&format!("Authorization: {word}"), "X-User: forged"]);
    (response.status(), response.text().to_owned())
}

/// Compares an origin with tidegate. Returns the statuses of both to requests under the limit.
#[track_caller]
fn compare(origin: &WebServer, tidegate: &Tidegate, limited: &[&str]) -> [Vec<u16>; 2] {
    let addresses = [origin.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr()];
    for word in ["200 ann", "204 bob", "401", "403"] {
        let [a, b] = addresses.map(|address| answer(address, "/a/../b?c", word));
        assert_eq!(a.0, b.0, "{word}: {a:?} {b:?}");
        assert!(a.1 != "forged" && b.1 != "forged", "{word}: {a:?} {b:?}");
        if a.0 == 200 {
            assert_eq!(a, b, "{word}");
        }
    }
    for word in ["404", "500"] {
        let [a, b] = addresses.map(|address| answer(address, "/", word).0);
        assert!(a >= 400 && b >= 400, "{word}: {a} {b}");
    }
    assert_eq!(answer(tidegate.addr(), "/told/", "200 ann").0, 501);
    addresses.map(|address| limited.iter().map(|word| answer(address, "/few/", word).0).collect())
}

#[test]
fn auth_request_of_nginx() {
    let upstream = server();
    let nginx = nginx("authorization.conf", &upstream);
    let tidegate = converted("nginx", &nginx, "nginx.conf");
    let [a, b] = compare(&nginx, &tidegate, &["401", "200 ann", "403", "200 ann", "200 ann"]);
    assert_eq!((&a, a.last()), (&b, Some(&429)), "limits count what is refused");
    let addresses = [nginx.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr()];
    assert_eq!(addresses.map(|address| answer(address, "/off/", "403").0), [200; 2]);
    assert_eq!(addresses.map(|address| answer(address, "/auth", "200").0), [404; 2]);
}

#[test]
fn forward_auth_of_traefik() {
    let upstream = server();
    let traefik = traefik("authorization.yaml", &upstream);
    let tidegate = converted("traefik", &traefik, "dynamic.yaml");
    let [a, b] = compare(&traefik, &tidegate, &["401", "200 ann", "403", "200 ann", "200 ann"]);
    assert_eq!((&a, a.last()), (&b, Some(&429)), "limits do not count what is refused");
    // Neither proxy trusts the X-Forwarded headers of clients that are not trusted proxies.
    let forged = [
        "Host: a.test",
        "Authorization: 200 described",
        "X-Forwarded-Method: POST",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: forged.test",
        "X-Forwarded-Uri: /forged",
        "X-Forwarded-For: 192.0.2.1",
    ];
    for address in [traefik.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr()] {
        let response = get(address, "/trusting/a?b", &forged);
        assert_eq!(response.text(), "GET http a.test /trusting/a?b 127.0.0.1");
    }
}
