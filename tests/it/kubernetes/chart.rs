//! What values change in the objects of the chart.

use serde_json::{Value, json};

use super::setup::{Installation, by, chart, list, notes, plain, read, render, text, yaml};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A configuration with the ports of the chart.
const PORTS: &str = "listen = '0.0.0.0:8080'\nadmin = { listen = '0.0.0.0:9900' }";

/// The objects of the chart with these values.
fn installed(values: &str) -> Installation {
    Installation { name: "chart", objects: chart(values) }
}

#[test]
fn versions_are_those_of_the_package() {
    let metadata = yaml("charts/tidegate/Chart.yaml").remove(0);
    assert_eq!([&metadata["version"], &metadata["appVersion"]], [VERSION, VERSION]);
    assert_eq!(installed("").proxy()["image"], format!("registry.example.com/tidegate:{VERSION}"));
    for file in ["gateway", "sidecar"] {
        let objects = plain(&format!("{file}.yaml"));
        let image = &Installation { name: file, objects }.proxy()["image"].clone();
        assert_eq!(*image, format!("registry.example.com/tidegate:{VERSION}"));
    }
}

#[test]
fn a_digest_replaces_the_tag() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let chart = installed(&format!("image: {{ tag: v9, digest: '{digest}' }}"));
    let job = &chart.one("Job")["spec"]["template"]["spec"];
    for image in [&chart.proxy()["image"], &job["containers"][0]["image"]] {
        assert_eq!(*image, format!("registry.example.com/tidegate@{digest}"));
    }
}

#[test]
fn the_url_of_redis_is_in_a_secret_only() {
    let chart = installed("redis: { url: 'redis://:s3cret@redis:6379/0' }");
    for object in chart.objects.iter().filter(|object| object["kind"] != "Secret") {
        assert!(!object.to_string().contains("s3cret"), "{object}");
    }
    let variable = by(&chart.proxy()["env"], "name", "REDIS_URL");
    let reference = &variable["valueFrom"]["secretKeyRef"];
    let secret = chart.find("Secret", &reference["name"]).unwrap();
    let encoded = text(&secret["data"][text(&reference["key"])]);
    assert_eq!(encoded, "cmVkaXM6Ly86czNjcmV0QHJlZGlzOjYzNzkvMA==");
    assert!(chart.configuration().contains("url = \"${REDIS_URL}\""));
    // Another URL restarts the pods: a process does not see a new value of a variable.
    let other = installed("redis: { url: 'redis://:other@redis:6379/0' }");
    assert_ne!(chart.pods(), other.pods());
    // Without Redis there is none of it.
    let without = installed("");
    assert!(list(&without.proxy()["env"]).iter().all(|variable| variable["name"] != "REDIS_URL"));
    assert!(!without.configuration().contains("[store]"));
}

#[test]
fn tokens_are_random_and_kept_in_an_upgrade() {
    let data = |secret: &Value| {
        let objects = render("", "demo", secret).unwrap();
        Installation { name: "chart", objects }.one("Secret")["data"].clone()
    };
    let (one, two) = (data(&json!({})), data(&json!({})));
    assert_ne!(one, two);
    assert_ne!(one["token"], one["read-token"]);
    assert_eq!(data(&json!({ "data": one })), one);
    // The file needs at least 16 characters; these are in base64.
    assert!(text(&one["token"]).len() > 40 && text(&one["read-token"]).len() > 40);
}

#[test]
fn a_changed_file_restarts_the_pods_only_if_asked() {
    let pods = |restart: bool, workers: u8| {
        let text = format!("workers = {workers}\n{PORTS}");
        let chart = installed(&json!({ "restartOnConfigChange": restart, "config": text }).to_string());
        assert_eq!(chart.configuration().trim_end(), text);
        chart.pods().clone()
    };
    assert_eq!(pods(false, 1), pods(false, 2));
    assert_ne!(pods(true, 1), pods(true, 2));
    assert_eq!(pods(true, 1), pods(true, 1));
}

#[test]
fn a_configuration_without_the_ports_of_the_chart_is_rejected() {
    for (removed, message) in [
        (
            "8080",
            "no listener has the port 8080 of service.ports: add [[listeners]] address = \"0.0.0.0:8080\"",
        ),
        ("9900", "[admin] does not listen on admin.port: add [admin] listen = \"0.0.0.0:9900\", token = "),
    ] {
        let values = json!({ "config": PORTS.replace(removed, "80") }).to_string();
        let error = render(&values, "demo", &json!({})).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// The hook sees the same files as the pods.
#[test]
fn the_hook_checks_the_files_that_will_be_served() {
    let chart = installed(&read("charts/tidegate/ci/everything-values.yaml"));
    let [one, two] = chart.all("ConfigMap")[..] else { panic!("two ConfigMaps") };
    assert_eq!(one["data"], two["data"]);
    let job = chart.one("Job");
    let pod = &job["spec"]["template"]["spec"];
    let volume = by(&pod["volumes"], "name", "config");
    let map = chart.find("ConfigMap", &volume["configMap"]["name"]).unwrap();
    for (object, weight) in [(map, "-1"), (job, "0")] {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "pre-install,pre-upgrade");
        assert_eq!(annotations["helm.sh/hook-weight"], weight);
    }
    assert_eq!(pod["containers"][0]["args"], json!(["check", "-c", "/etc/tidegate/tidegate.toml"]));
    assert_eq!(pod["containers"][0]["volumeMounts"], chart.proxy()["volumeMounts"]);
    // Objects of the release do not exist yet when it runs.
    assert!(pod["serviceAccountName"].is_null());
    assert!(list(&pod["containers"][0]["env"]).iter().all(|variable| variable["value"].is_string()));
    let names = |container: &Value| -> Vec<Value> {
        list(&container["env"]).iter().map(|variable| variable["name"].clone()).collect()
    };
    assert_eq!(names(&pod["containers"][0]), names(chart.proxy()));
}

#[test]
fn parts_can_be_switched_off() {
    for (values, kind) in [
        ("configCheck: { enabled: false }", "Job"),
        ("networkPolicy: { enabled: false }", "NetworkPolicy"),
        ("podDisruptionBudget: { enabled: false }", "PodDisruptionBudget"),
        // It would keep a node from being drained.
        ("replicaCount: 1", "PodDisruptionBudget"),
        ("admin: { existingSecret: tokens }", "Secret"),
        ("serviceAccount: { create: false }", "ServiceAccount"),
    ] {
        assert!(!installed("").all(kind).is_empty(), "{kind}");
        assert!(installed(values).all(kind).is_empty(), "{values}");
    }
    for kind in ["HorizontalPodAutoscaler", "Ingress", "PrometheusRule", "ServiceMonitor"] {
        assert!(installed("").all(kind).is_empty(), "{kind}");
    }
}

#[test]
fn the_notes_warn_of_pods_that_count_apart() {
    let warning = "each of up to 2 pods counts by itself";
    assert!(notes("").contains(warning), "{}", notes(""));
    for values in ["replicaCount: 1", "redis: { existingSecret: redis }"] {
        assert!(!notes(values).contains("WARNING"), "{values}");
    }
    let unused = json!({ "redis": { "existingSecret": "redis" }, "config": PORTS });
    let unused = notes(&unused.to_string());
    assert!(unused.contains("the file does not contain ${REDIS_URL}"), "{unused}");
    assert!(notes("").contains(r#"--template '{{index .data "token" | base64decode}}'"#), "{}", notes(""));
}

/// The plain gateway and the chart are two ways to the same pods.
#[test]
fn the_plain_gateway_is_that_of_the_chart() {
    let plain = Installation { name: "gateway", objects: plain("gateway.yaml") };
    let chart = installed("");
    for key in ["args", "image", "ports", "resources", "securityContext", "volumeMounts"] {
        assert_eq!(plain.proxy()[key], chart.proxy()[key], "{key}");
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(plain.proxy()[probe]["httpGet"]["path"], chart.proxy()[probe]["httpGet"]["path"]);
    }
    for key in ["automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds"] {
        assert_eq!(plain.pods()["spec"][key], chart.pods()["spec"][key], "{key}");
    }
    let strategy = |installation: &Installation| installation.one("Deployment")["spec"]["strategy"].clone();
    assert_eq!(strategy(&plain), strategy(&chart));
}
