//! The objects for Kubernetes: those of the plain manifests, and those that the chart renders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{command, output_with_input};

/// The objects that are installed together.
#[derive(Debug)]
pub struct Installation {
    /// What a failed test calls it.
    pub name: &'static str,
    pub objects: Vec<Value>,
}

impl Installation {
    /// The objects of a kind.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.objects.iter().filter(|object| object["kind"] == kind).collect()
    }

    /// The only object of a kind.
    #[track_caller]
    pub fn one(&self, kind: &str) -> &Value {
        match self.all(kind)[..] {
            [object] => object,
            _ => panic!("{} has {} objects of the kind {kind}", self.name, self.all(kind).len()),
        }
    }

    /// The object of this kind and name.
    pub fn find(&self, kind: &str, name: &Value) -> Option<&Value> {
        self.all(kind).into_iter().find(|object| object["metadata"]["name"] == *name)
    }

    /// The Deployment's pods.
    #[track_caller]
    pub fn pods(&self) -> &Value {
        &self.one("Deployment")["spec"]["template"]
    }

    /// The container of tidegate.
    #[track_caller]
    pub fn proxy(&self) -> &Value {
        let containers = list(&self.pods()["spec"]["containers"]);
        containers.iter().find(|container| container["name"] == "tidegate").unwrap()
    }

    /// The configuration that this container reads: the file of its first argument `-c`, from a `ConfigMap`.
    #[track_caller]
    pub fn configuration(&self) -> &str {
        let (spec, container) = (&self.pods()["spec"], self.proxy());
        assert_eq!(container["args"], json!(["run", "-c", "/etc/tidegate/tidegate.toml"]));
        let mount = by(&container["volumeMounts"], "mountPath", "/etc/tidegate");
        let volume = by(&spec["volumes"], "name", text(&mount["name"]));
        let map = self.find("ConfigMap", &volume["configMap"]["name"]).unwrap();
        text(&map["data"]["tidegate.toml"])
    }
}

/// Both shapes as plain manifests, and the chart with its defaults and with the values of `charts/tidegate/ci`. They are
/// rendered once.
pub fn installations() -> &'static [Installation] {
    static RENDERED: OnceLock<Vec<Installation>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let monitors = plain("monitoring.yaml");
        let own = |name: &str| {
            let is_own = |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/name"] == name;
            monitors.iter().filter(is_own).cloned().collect::<Vec<Value>>()
        };
        let mut found = vec![
            Installation { name: "gateway", objects: [plain("gateway.yaml"), own("tidegate")].concat() },
            Installation { name: "sidecar", objects: [plain("sidecar.yaml"), own("shop")].concat() },
        ];
        found.extend(CHARTS.map(|name| Installation { name, objects: chart(&values(name)) }));
        found
    })
}

/// Values with which the chart is rendered: the defaults, and the files in `charts/tidegate/ci`.
pub const CHARTS: [&str; 3] = ["defaults", "redis", "everything"];

/// The values of one of [`CHARTS`].
#[track_caller]
pub fn values(name: &str) -> String {
    if name == "defaults" {
        return String::new();
    }
    read(&format!("charts/tidegate/ci/{name}-values.yaml"))
}

/// A file of this project.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The text of a file of this project.
#[track_caller]
pub fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// The objects of a plain manifest.
#[track_caller]
pub fn plain(name: &str) -> Vec<Value> {
    yaml(&format!("config/kubernetes/{name}"))
}

/// The documents of a YAML file.
#[track_caller]
pub fn yaml(file: &str) -> Vec<Value> {
    rendered(&json!({ "Files": [path(file)] })).unwrap()
}

/// The objects of the chart with these values, as YAML. The release `demo` is installed into the namespace `shop`.
#[track_caller]
pub fn chart(values: &str) -> Vec<Value> {
    render(values, "demo", &json!({})).unwrap()
}

/// Renders the chart for a release of this name. `secret` is the Secret that the cluster has already.
///
/// # Errors
///
/// What the templates say.
pub fn render(values: &str, release: &str, secret: &Value) -> Result<Vec<Value>, String> {
    let release = json!({ "Name": release, "Namespace": "shop", "Service": "Helm", "IsInstall": true });
    let asked =
        json!({ "Chart": path("charts/tidegate"), "Values": values, "Release": release, "Secret": secret });
    let objects = rendered(&asked)?;
    Ok(objects.into_iter().filter(|object| object["kind"] != "Notes").collect())
}

/// What `helm install` prints.
#[track_caller]
pub fn notes(values: &str) -> String {
    let release = json!({ "Name": "demo", "Namespace": "shop", "Service": "Helm" });
    let asked = json!({ "Chart": path("charts/tidegate"), "Values": values, "Release": release });
    let objects = rendered(&asked).unwrap();
    text(&objects.iter().find(|object| object["kind"] == "Notes").unwrap()["text"]).to_owned()
}

/// Runs the renderer: render.go describes the request.
fn rendered(asked: &Value) -> Result<Vec<Value>, String> {
    let output = output_with_input(&mut command(renderer()), asked.to_string().as_bytes());
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Builds the renderer, once.
fn renderer() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = directory.join("render-chart");
        let mut command = command("go");
        // Debian's packages have the libraries in a GOPATH.
        command.envs([("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode"), ("GOFLAGS", "")]);
        command.env("GOCACHE", directory.join("go")).arg("build").arg("-o").arg(&program);
        let output = command.arg(path("tests/it/kubernetes/render.go")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

/// The elements of an array; none of anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The element of an array with this value.
#[track_caller]
pub fn by<'a>(values: &'a Value, key: &str, value: &str) -> &'a Value {
    let found = list(values).iter().find(|element| element[key] == value);
    found.unwrap_or_else(|| panic!("no {key} {value} in {values}"))
}

/// A string.
#[track_caller]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string"))
}
