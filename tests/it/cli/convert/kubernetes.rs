//! nginx with the configuration that ingress-nginx makes of Ingresses, and tidegate with the converted ones, get the same requests.

use std::fs;
use std::net::Ipv4Addr;

use super::access::{closed_requests_are_refused, status};
use super::origin::{HOLD, MARGIN, nginx, slow_upstream};
use super::traffic::{Burst, Compared, Scenario, bursts, compare, table};
use super::{Finished, repository, tidegate};
use crate::support::{Tidegate, Upstream};

/// tidegate with the configuration for `ingress.yaml`, whose service is this server.
fn converted(upstream: &Upstream) -> Tidegate {
    let folder = repository().join("tests/it/cli/convert");
    let Finished { status, stdout, stderr } = tidegate(&folder, &["convert", "kubernetes", "ingress.yaml"]);
    assert_eq!(status, 0, "{stderr}");
    let server = upstream.addr().to_string();
    let service = "api.default.svc.cluster.local:80";
    assert!(stdout.contains(service) && stdout.contains("listen = \"127.0.0.1:8080\""), "{stdout}");
    Tidegate::start(&stdout.replace(service, &server).replace("127.0.0.1:8080", "127.0.0.1:0"))
}

fn scenario(name: &'static str, bursts: Vec<Burst>) -> Scenario {
    Scenario { name, bursts, margin: MARGIN, longest: None }
}

#[test]
fn tidegate_decides_as_ingress_nginx_does() {
    let upstream = slow_upstream();
    let server = nginx("ingress.conf", &upstream);
    let tidegate = converted(&upstream);
    let exempt = Burst { client: "127.200.0.1", ..bursts("GET /rpm", &[(0, 33)])[0] };
    let scenarios = vec![
        scenario("limit-rps: 1", bursts("GET /rps/x", &[(0, 8), (1_500, 3), (4_500, 4)])),
        scenario("limit-rpm: 30", [vec![exempt], bursts("GET /rpm", &[(0, 33), (3_000, 3)])].concat()),
        scenario("limit-rps and limit-rpm", bursts("GET /both", &[(0, 8), (1_000, 2)])),
        scenario("limit-connections: 2", bursts("GET /slow", &[(0, 5), (250, 1), (1_200, 2)])),
    ];
    assert!(HOLD > MARGIN);
    let compared = compare(server.addr(Ipv4Addr::LOCALHOST.into()), tidegate.addr(), scenarios);
    let table = table("ingress-nginx", &compared);
    println!("{table}");
    let mut denied = Vec::new();
    for Compared { name, bursts } in &compared {
        for (burst, origin, tidegate) in bursts {
            assert_eq!(origin.statuses, tidegate.statuses, "{name}: {burst:?}\n{table}");
        }
        let statuses = bursts.iter().flat_map(|(_, origin, _)| &origin.statuses);
        denied.push(statuses.filter(|status| **status == 503).count());
    }
    // The expected numbers, so that the comparison is not one of servers that allow everything.
    assert_eq!(denied, [5, 4, 6, 4], "{table}");
}

#[test]
fn what_ingress_nginx_refuses_is_refused() {
    let upstream = slow_upstream();
    let server = nginx("ingress.conf", &upstream);
    let tidegate = converted(&upstream);
    let paths = [
        "/",
        "/x",
        "/inside",
        "/inside/x",
        "/insidex",
        "/inside/barred",
        "/inside/barred/x",
        "/inside/barredx",
        "/outside",
        "/outside/x",
        "/outsidex",
        "/exact",
        "/exact/x",
        "/text",
        "/textual",
        "/text/x",
        "/closed",
        "/closed/x",
        "/CLOSED/x",
        "/v1",
        "/v1/x",
        "/V12/x",
        "/open",
        "/open/x",
        "/openx",
        "/rps/1/x",
    ];
    let hosts = ["a.test", "b.test", "c.test", "unknown.test"];
    let origin = server.addr(Ipv4Addr::LOCALHOST.into());
    let counts =
        closed_requests_are_refused(origin, tidegate.addr(), (&hosts, &paths, &["", "X-Bad: 1\r\n"]));
    assert!(counts[1] > 5 && counts[2] > 5, "{counts:?}");
    for (host, path) in
        [("a.test", "/insidex"), ("a.test", "/inside/x"), ("a.test", "/exact/x"), ("b.test", "/open/x")]
    {
        assert_eq!(status(tidegate.addr(), host, path, ""), 200, "{host} {path}");
    }
}

#[test]
fn lists_in_json_of_a_directory_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let object = |kind: &str, api: &str, rest: &str| {
        format!(
            "{{ \"apiVersion\": \"{api}\", \"kind\": \"{kind}\", \"metadata\": {{ \"name\": \"a\" }}, {rest} }}"
        )
    };
    let backend = "\"backend\": { \"service\": { \"name\": \"a\", \"port\": { \"name\": \"http\" } } }";
    let rules = format!(
        "\"spec\": {{ \"rules\": [{{ \"http\": {{ \"paths\": [{{ \"path\": \"/a\", {backend} }}] }} }}] }}"
    );
    let ingress = object("Ingress", "networking.k8s.io/v1", &rules);
    let service =
        object("Service", "v1", "\"spec\": { \"ports\": [{ \"name\": \"http\", \"port\": 8080 }] }");
    for (name, text) in [("a.json", ingress), ("b.json", service)] {
        fs::write(directory.path().join(name), format!("{{ \"kind\": \"List\", \"items\": [{text}] }}"))
            .unwrap();
    }
    let found = tidegate(directory.path(), &["convert", "kubernetes", "."]);
    assert_eq!(found.status, 0, "{}", found.stderr);
    assert!(found.stdout.contains("http://a.default.svc.cluster.local:8080"), "{}", found.stdout);
    assert!(found.stderr.ends_with("0 of 0 limits converted\n"), "{}", found.stderr);
}

#[test]
fn converted_objects_pass_the_check() {
    let folder = repository().join("tests/it/cli/convert/golden/kubernetes");
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "toml") {
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::copy(&path, directory.path().join(name)).unwrap();
            let found = tidegate(directory.path(), &["check", "-c", name]);
            assert_eq!(found.status, 0, "{name}: {}{}", found.stdout, found.stderr);
        }
    }
}
