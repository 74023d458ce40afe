//! The configurations in the manifests, with the real binary: they are valid, probes and metrics respond, and a pod has the time
//! to drain.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use rustls::ALL_VERSIONS;
use serde_json::Value;
use tempfile::TempDir;
use toml::Table;

use super::setup::{Installation, by, installations, list, text};
use crate::support::{Authority, RedisServer, TIDEGATE, Tidegate, TlsClient, command, eventually, get};

const ADMIN_TOKEN: &str = "an-admin-token-of-a-test";
const READ_TOKEN: &str = "a-read-token-of-a-test";

/// The files that a container sees, elsewhere: those of the `ConfigMap`, and certificates.
struct Files {
    directory: TempDir,
    authority: Authority,
}

impl Files {
    /// Writes the files of a `ConfigMap`.
    fn of(map: &Value) -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap(), authority: Authority::new() };
        files.authority.sign("localhost");
        for (name, contents) in map["data"].as_object().unwrap() {
            fs::write(files.path().join(name), files.moved(text(contents))).unwrap();
        }
        files
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The text with the paths at which the files are here.
    fn moved(&self, text: &str) -> String {
        let place = |kind| self.authority.file(&format!("localhost.{kind}")).display().to_string();
        text.replace("/etc/tidegate", &self.path().display().to_string())
            .replace("/run/tls/tls.crt", &place("pem"))
            .replace("/run/tls/tls.key", &place("key"))
    }

    /// Runs the binary with the arguments and variables of a container.
    fn run(&self, container: &Value) -> Output {
        let mut command = command(TIDEGATE);
        command.args(list(&container["args"]).iter().map(|argument| self.moved(text(argument))));
        command.envs(variables(container, "redis://redis.invalid:6379/0")).output().unwrap()
    }
}

/// The variables of a container; those from Secrets get values of the test.
fn variables(container: &Value, redis: &str) -> Vec<(String, String)> {
    let variables = list(&container["env"]).iter().map(|variable| {
        let name = text(&variable["name"]);
        let value = match name {
            "ADMIN_TOKEN" => ADMIN_TOKEN,
            "ADMIN_READ_TOKEN" => READ_TOKEN,
            "REDIS_URL" => redis,
            _ => text(&variable["value"]),
        };
        (name.to_owned(), value.to_owned())
    });
    variables.collect()
}

/// The `ConfigMap` that the pods mount.
fn config_map(installation: &Installation) -> &Value {
    let volume = by(&installation.pods()["spec"]["volumes"], "name", "config");
    installation.find("ConfigMap", &volume["configMap"]["name"]).unwrap()
}

/// The configuration as TOML.
fn table(installation: &Installation) -> Table {
    installation.configuration().parse().unwrap()
}

#[test]
fn configurations_are_valid_without_a_warning() {
    for installation in installations() {
        let files = Files::of(config_map(installation));
        let mut container = installation.proxy().clone();
        container["args"][0] = "check".into();
        let output = files.run(&container);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", installation.name);
    }
}

#[test]
fn the_hook_of_the_chart_rejects_an_invalid_file() {
    for installation in installations() {
        for job in installation.all("Job") {
            let container = &job["spec"]["template"]["spec"]["containers"][0];
            let mut map = config_map(installation).clone();
            let output = Files::of(&map).run(container);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            map["data"]["tidegate.toml"] = installation.configuration().replace("path =", "pathh =").into();
            let output = Files::of(&map).run(container);
            assert!(!output.status.success());
            assert!(String::from_utf8_lossy(&output.stderr).contains("unknown key `pathh`"));
        }
    }
}

#[test]
fn listeners_have_the_ports_of_the_container() {
    for installation in installations() {
        let config = table(installation);
        assert_eq!(config["watch"].as_bool(), Some(true), "{}: the file is reloaded", installation.name);
        let ports = list(&installation.proxy()["ports"]).iter();
        let (admin, others): (Vec<_>, Vec<_>) = ports.partition(|port| port["name"] == "admin");
        let address = |port: &Value| format!("0.0.0.0:{}", port["containerPort"]);
        let mut listening: Vec<&str> = config["listeners"]
            .as_array()
            .unwrap()
            .iter()
            .map(|listener| listener["address"].as_str().unwrap())
            .collect();
        listening.sort_unstable();
        assert_eq!(listening, others.into_iter().map(address).collect::<Vec<_>>(), "{}", installation.name);
        assert_eq!(config["admin"]["listen"].as_str().unwrap(), address(admin[0]), "{}", installation.name);
    }
}

/// The configuration with sockets of a test, and without the names of servers in a cluster.
fn local(installation: &Installation, files: &Files) -> String {
    let config = files.moved(installation.configuration());
    let mut lines = Vec::new();
    for line in config.lines() {
        let (start, rest) = line.split_once("\"0.0.0.0:").unwrap_or((line, ""));
        lines.push(match (rest.is_empty(), line.trim_start().starts_with("servers = ")) {
            (false, _) => format!("{start}\"127.0.0.1:0\""),
            (true, true) => "servers = [\"http://127.0.0.1:9\"]".to_owned(),
            (true, false) => line.to_owned(),
        });
    }
    lines.join("\n")
}

/// Requests a path of the admin interface without a token, as the kubelet does.
fn probed(proxy: &Tidegate, probe: &Value, files: &Files) -> u16 {
    let path = text(&probe["httpGet"]["path"]);
    if probe["httpGet"]["scheme"] == "HTTPS" {
        let config = files.authority.client(None, ALL_VERSIONS);
        return TlsClient::connect(&config, "localhost", proxy.admin()).unwrap().get(path).unwrap().status();
    }
    get(proxy.admin(), path, &[]).status()
}

#[test]
fn probes_and_metrics_respond_and_readiness_ends_with_sigterm() {
    let redis = RedisServer::start();
    for installation in installations() {
        let (files, container) = (Files::of(config_map(installation)), installation.proxy());
        let mut builder = Tidegate::builder(&local(installation, &files));
        for (name, value) in variables(container, &redis.url()) {
            builder = builder.env(&name, value);
        }
        let proxy = builder.start();
        let [startup, live, ready] =
            ["startupProbe", "livenessProbe", "readinessProbe"].map(|key| &container[key]);
        for probe in [startup, live, ready] {
            assert_eq!(probed(&proxy, probe, &files), 200, "{}: {probe}", installation.name);
        }
        if ready["httpGet"]["scheme"] != "HTTPS" {
            let token = format!("Authorization: Bearer {READ_TOKEN}");
            assert_eq!(get(proxy.admin(), "/metrics", &[&token]).status(), 200);
            assert_eq!(get(proxy.admin(), "/metrics", &[]).status(), 401);
        }
        proxy.signal("TERM");
        eventually("it is not ready", || probed(&proxy, ready, &files) == 503);
        assert_eq!(probed(&proxy, live, &files), 200, "it must not be killed while it drains");
        // During shutdown_delay.
        assert!(std::net::TcpStream::connect(proxy.addr()).is_ok(), "{}", installation.name);
    }
}

/// A time of the configuration.
fn time(config: &Table, key: &str) -> Duration {
    humantime::parse_duration(config[key].as_str().unwrap()).unwrap()
}

#[test]
fn pods_have_the_time_to_drain() {
    for installation in installations() {
        let (config, spec) = (table(installation), &installation.pods()["spec"]);
        let delay = time(&config, "shutdown_delay");
        assert!(delay >= Duration::from_secs(5), "{}: other nodes still send requests", installation.name);
        let drain = delay + time(&config, "shutdown_grace");
        let grace = Duration::from_secs(spec["terminationGracePeriodSeconds"].as_u64().unwrap());
        // The last lines of the access log may take a second.
        assert!(grace > drain + Duration::from_secs(1), "{}", installation.name);
        for container in list(&spec["containers"]).iter().filter(|container| container["name"] != "tidegate")
        {
            let hook = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
            let hook = Duration::from_secs(hook);
            assert!(drain < hook && hook < grace, "the application serves until tidegate has drained");
        }
    }
}
