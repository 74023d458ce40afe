//! `tidegate explain` of what a route has in place of its upstream and its limits: times, and the status of denials.

use super::tidegate;
use crate::support::mmdb;

const FILE: &str = "listen = \"127.0.0.1:0\"\n\
    [upstreams.api]\nservers = [\"http://10.0.0.1:9000\"]\ntotal_timeout = \"30s\"\n\
    [limits.one]\nrate = \"1/s\"\ndeny_status = 503\n\
    [[routes]]\npath = \"/own\"\nupstream = \"api\"\nlimits = [\"one\"]\ndeny_status = \"close\"\n\
    response_timeout = \"10m\"\nstall_timeout = \"60s\"\ntotal_timeout = \"off\"\nretries = 0\n\
    [[routes]]\npath = \"/gone\"\nblock = true\ndeny_status = 410\n\
    [[routes]]\npath = \"/silent\"\nblock = true\ndeny_status = \"close\"\n\
    [[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"one\"]\n";

const OVERLOAD: &str = "listen = \"127.0.0.1:0\"\n\
    [client_ip]\ntrusted_proxies = [\"10.0.0.0/8\"]\n\
    [upstreams.api]\nservers = [\"http://10.0.0.1:9000\"]\noverload = true\n\
    [upstreams.fixed]\nservers = [\"http://10.0.0.1:9000\"]\noverload = { limit = 64, mode = \"shadow\", fair_by = \"asn\" }\nmax_tunnels_per_client = 5\n\
    [geo]\nasn = \"asn.mmdb\"\n\
    [[routes]]\npath = \"/fixed\"\nupstream = \"fixed\"\n\
    [[routes]]\npath = \"/*\"\nupstream = \"api\"\npriority = \"low\"\npriority_from = \"header:x-priority\"\n";

const RESERVED: &str = "listen = \"127.0.0.1:0\"\n\
    [limits.fleet]\nalgorithm = \"concurrency\"\nmax_in_flight = 10\nkey = \"global\"\n\
    reserved_share = { critical = 0.2, high = 0.1 }\n\
    [[routes]]\npath = \"/vital\"\nlimits = [\"fleet\"]\nrespond = {}\npriority = \"critical\"\n\
    [[routes]]\npath = \"/*\"\nlimits = [\"fleet\"]\nrespond = {}\n";

/// The explanation of a request.
fn explain(path: &str) -> String {
    explain_with(FILE, &[&format!("http://a.test{path}")])
}

/// The explanation of a request by this file; the arguments follow its method.
fn explain_with(file: &str, args: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), file).unwrap();
    std::fs::write(directory.path().join("asn.mmdb"), mmdb::systems(&[("192.0.2.0", 24, 64496)])).unwrap();
    tidegate(directory.path(), &[&["explain", "GET"], args].concat()).stdout
}

#[test]
fn explain_shows_the_times_and_the_status_of_a_route() {
    let text = explain("/own");
    let rest = text.split_once("as host   a.test\n").unwrap().1;
    assert_eq!(
        rest,
        "times     response_timeout 10m, by the route; 1m by the upstream\n\
         times     total_timeout off, by the route; 30s by the upstream\n\
         times     retries 0, by the route; 1 by the upstream\n\
         denials   without a response: the connection is closed, or over HTTP/2 the stream is reset, whatever the limits \
         say (`deny_status`)\n"
    );
    assert!(text.contains("\n          denied    with 503 Service Unavailable (`deny_status`)\n"), "{text}");
    for (path, response) in [("/gone", "410 Gone"), ("/silent", "none")] {
        let line = format!("response  {response}: the route blocks its requests (`block`)\n");
        assert!(explain(path).contains(&line), "{}", explain(path));
    }
}

#[test]
fn explain_shows_the_class_and_the_turn_of_a_request() {
    let after_host = |args: &[&str]| {
        let text = explain_with(OVERLOAD, args);
        text.split_once("as host   a.test\n").unwrap().1.to_owned()
    };
    let learned = "overload  a learned limit of requests in flight, from 8 to 1000\n";
    let named = "X-Priority: critical";
    assert_eq!(
        after_host(&["http://a.test/", "--from", "10.0.0.7", "-H", named]),
        format!(
            "{learned}class     critical, by the header x-priority of a trusted proxy\nturns     by client_ip = 10.0.0.7\n"
        )
    );
    assert_eq!(
        after_host(&["http://a.test/", "--from", "192.0.2.7", "-H", named]),
        format!("{learned}class     low, by the route\nturns     by client_ip = 192.0.2.7\n")
    );
    assert_eq!(
        after_host(&["http://a.test/fixed", "--from", "192.0.2.7"]),
        "overload  a limit of 64 requests in flight, which refuses none (`mode = \"shadow\"`)\n\
         class     normal, by the route\nturns     by asn = 64496\n"
    );
    let of_tunnel = |path| after_host(&[path, "--from", "192.0.2.7", "-H", "Upgrade: websocket"]);
    assert!(of_tunnel("http://a.test/").ends_with(
        "\ntunnels   at most 64 of this client at once, by client_ip = 192.0.2.7 (`max_tunnels_per_client`)\n"
    ));
    assert!(of_tunnel("http://a.test/fixed").ends_with(
        "\ntunnels   at most 5 of this client at once, by asn = 64496 (`max_tunnels_per_client`)\n"
    ));
}

#[test]
fn explain_shows_the_slots_of_the_class() {
    for (path, line) in [
        ("/vital", "class     critical, by the route: all slots\n"),
        ("/", "class     normal, by the route: at most 7 slots, since 3 are reserved for higher classes\n"),
    ] {
        let text = explain_with(RESERVED, &[&format!("http://a.test{path}")]);
        assert!(text.contains(line) && text.contains("at most 10 at once"), "{text}");
        let json = explain_with(RESERVED, &[&format!("http://a.test{path}"), "--json"]);
        assert!(
            json.replace(' ', "").contains(&format!("\"class\":\"{}\"", &line[10..line.find(',').unwrap()])),
            "{json}"
        );
    }
}
