//! The demo: its files are valid, and its clients show what the dashboard is for.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::setup::{path, text};
use crate::support::{
    Browser, Process, Prometheus, RedisServer, TIDEGATE, Tidegate, Upstream, command, eventually, free_ports,
    get, keep_picture, signal,
};

/// A YAML file of this project as a JSON value.
#[track_caller]
fn yaml(name: &str) -> Value {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let mut command = command("/usr/bin/python3");
    let output = command.args(["-c", script]).stdin(File::open(path(name)).unwrap()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_compose_files_are_valid() {
    for file in ["compose.yaml", "compose.production.yaml"] {
        let mut command = command("docker-compose");
        let output = command.args(["-f", file, "config", "-q"]).current_dir(path("")).output();
        let output = output.expect("docker-compose, from Debian's package of that name");
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn images_are_pinned_and_ports_are_local() {
    let compose = yaml("compose.yaml");
    for (name, service) in compose["services"].as_object().unwrap() {
        // The image of tidegate is that of a release, or is built.
        if let Some(image) = service["image"].as_str().filter(|image| !image.starts_with("${")) {
            let (_, tag) = image.split_once(':').unwrap();
            assert!(tag.contains(|character: char| character.is_ascii_digit()), "{name}: {image}");
        }
        for port in service["ports"].as_array().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
}

/// Where a file of this project is in the container of a service.
#[track_caller]
fn mounted(compose: &Value, service: &str, file: &str) -> String {
    let volumes = compose["services"][service]["volumes"].as_array().unwrap();
    let volumes =
        volumes.iter().filter_map(|volume| volume.as_str().unwrap().strip_prefix("./")?.strip_suffix(":ro"));
    let targets: Vec<String> = volumes
        .filter_map(|volume| {
            let (source, target) = volume.split_once(':').unwrap();
            assert!(path(source).exists(), "{source}");
            Some(format!("{target}{}", file.strip_prefix(source)?))
        })
        .collect();
    targets.into_iter().next().unwrap_or_else(|| panic!("{service} has no {file}"))
}

#[test]
fn the_files_of_the_demo_refer_to_each_other() {
    let (compose, prometheus) = (yaml("compose.yaml"), yaml("config/prometheus/prometheus.yml"));
    let source = yaml("config/grafana/provisioning/datasources/prometheus.yaml")["datasources"][0].take();
    let provider = yaml("config/grafana/provisioning/dashboards/tidegate.yaml")["providers"][0].take();
    let demo = text("config/demo/tidegate.toml");
    let scrape = &prometheus["scrape_configs"][0];
    // Scrapes: the token, the name of the service and the port.
    let token = scrape["authorization"]["credentials"].as_str().unwrap();
    assert!(demo.contains(&format!("read_token = \"{token}\"")), "{token}");
    assert_eq!(scrape["static_configs"][0]["targets"][0], "tidegate:9900");
    assert!(demo.contains("listen = \"0.0.0.0:9900\"") && compose["services"]["tidegate"].is_object());
    assert_eq!(source["jsonData"]["timeInterval"], prometheus["global"]["scrape_interval"]);
    assert!(source["url"] == "http://prometheus:9090" && compose["services"]["prometheus"].is_object());
    // The files are where the programs look for them.
    let at = |service, file| mounted(&compose, service, file);
    assert_eq!(at("tidegate", "config/demo/tidegate.toml"), "/etc/tidegate/tidegate.toml");
    assert!(text("Dockerfile").contains("CMD [\"run\", \"-c\", \"/etc/tidegate/tidegate.toml\"]"));
    let entrypoint = &compose["services"]["load"]["entrypoint"];
    assert_eq!(entrypoint[1], *at("load", "config/demo/load.sh"));
    let command = compose["services"]["prometheus"]["command"].to_string();
    assert!(
        command.contains(&format!("--config.file={}", at("prometheus", "config/prometheus/prometheus.yml")))
    );
    let board = at("grafana", "config/grafana/dashboards/tidegate.json");
    let home = &compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"];
    assert_eq!(*home, *board);
    assert!(board.starts_with(provider["options"]["path"].as_str().unwrap()), "{provider}");
    for file in ["datasources/prometheus.yaml", "dashboards/tidegate.yaml"] {
        let target = mounted(&compose, "grafana", &format!("config/grafana/provisioning/{file}"));
        assert_eq!(target, format!("/etc/grafana/provisioning/{file}"));
    }
}

#[test]
fn the_configuration_of_the_demo_is_valid_without_a_warning() {
    let mut command = command(TIDEGATE);
    let output = command.args(["check", "-c"]).arg(path("config/demo/tidegate.toml")).output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts the load generator.
fn load(url: &str) -> Process {
    let mut command = command("sh");
    command.arg(path("config/demo/load.sh")).envs([("URL", url), ("CRAWL_PAUSE", "0")]);
    Process::start_silent(&mut command)
}

#[test]
fn the_demo_without_containers_shows_denials_and_ends_with_all_its_programs() {
    let (api, ports) = (free_ports(2), [free_ports(1), free_ports(1)]);
    // Background jobs of a shell without job control ignore SIGINT, and a script can't handle an ignored signal.
    let mut demo = command("env");
    demo.arg("--default-signal=INT").arg(path("config/demo/run"));
    demo.arg(TIDEGATE).env("API_PORT", api.to_string()).env("CRAWL_PAUSE", "0");
    demo.envs([("PORT", ports[0].to_string()), ("ADMIN_PORT", ports[1].to_string())]);
    let mut demo = Process::start_silent(&mut demo);
    let admin = SocketAddr::from(([127, 0, 0, 1], ports[1]));
    let top = || get(admin, "/v1/top?by=denials&limit=per-consumer", &[]).text().to_owned();
    eventually("the page is served", || TcpStream::connect(admin).is_ok());
    eventually("hooli is denied", || top().contains("\"consumer\": \"hooli\""));
    show_page(admin);
    signal(demo.id(), "INT");
    demo.wait();
    for port in [ports[0], ports[1], api, api + 1] {
        eventually("the programs have ended", || TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

/// Opens the page as the text of the demonstration says. `make pictures` takes the picture of the README there, after two minutes.
fn show_page(admin: SocketAddr) {
    let mut browser = Browser::start();
    let size = (1280, 900);
    browser.show_as(size, "light");
    browser.open(&format!("http://{admin}/#limit=per-consumer&consumer=hooli"));
    browser.wait_text("#denied-rows", "hooli");
    browser.wait_text("#findings", "per-consumer");
    browser.wait_text(".identity", "hooli");
    if std::env::var_os("UPDATE").is_some() {
        std::thread::sleep(Duration::from_mins(2));
        browser.evaluate("scrollTo(0, 0); document.querySelector('#host').textContent = '127.0.0.1:9900'");
        keep_picture("demo.png", size, &browser.picture());
    }
}

#[test]
fn the_load_of_the_demo_reaches_its_limits() {
    let (redis, servers) = (RedisServer::start(), [Upstream::echo(), Upstream::echo()]);
    let mut config = text("config/demo/tidegate.toml");
    for (from, to) in [
        ("0.0.0.0:8080", "127.0.0.1:0"),
        ("0.0.0.0:9900", "127.0.0.1:0"),
        ("token = \"demo-only-admin-token\"\nread_token = \"demo-only-read-token\"", ""),
        ("172.16.0.0/12", "127.0.0.0/8"),
        ("consumers.toml", path("config/demo/consumers.toml").to_str().unwrap()),
        ("redis://redis:6379/0", &redis.url()),
        ("http://api-1:8080", &servers[0].url()),
        ("http://api-2:8080", &servers[1].url()),
    ] {
        assert!(config.contains(from), "{from}");
        config = config.replace(from, to);
    }
    let proxy = Tidegate::start(&config);
    let prometheus = Prometheus::start(&[proxy.admin()], &[]);
    let _load = load(&format!("http://{}", proxy.addr()));
    for query in [
        // One consumer loops, a crawler has many addresses, and the others are served.
        "tidegate_denied_keys{limit=\"per-consumer\"} == 1",
        "tidegate_denied_keys{limit=\"per-address\"} >= 5",
        "tidegate_decisions_total{limit=\"orders\", outcome=\"shadow_denied\"} >= 0",
        "tidegate_requests_total{route=\"orders\", status=\"2xx\"} > 2",
        "tidegate_requests_total{route=\"catalogue\", status=\"429\"} > 50",
        "tidegate_upstream_requests_total{outcome=\"ok\"} > 10",
    ] {
        prometheus.wait(query, |found| !found.is_empty());
    }
    let others = "tidegate_requests_total{route=\"orders\", status!=\"2xx\"} > 0";
    assert!(prometheus.query(others).is_empty(), "{:?}", prometheus.query(others));
}
