//! What objects say of each other is so: selectors, ports, Secrets, volumes, accounts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::monitors::selects;
use super::setup::{Installation, by, installations, list, read, text};

/// The numbers of the ports of tidegate's container.
fn ports(installation: &Installation) -> BTreeSet<u64> {
    let ports = list(&installation.proxy()["ports"]).iter();
    ports.map(|port| port["containerPort"].as_u64().unwrap()).collect()
}

/// The selectors of all objects that are about pods.
fn selectors(installation: &Installation) -> Vec<&Value> {
    let services = installation.all("Service").into_iter().map(|object| &object["spec"]["selector"]);
    let budgets = installation.all("PodDisruptionBudget").into_iter();
    let policies = installation.all("NetworkPolicy").into_iter();
    let deployment = &installation.one("Deployment")["spec"]["selector"]["matchLabels"];
    let spreads = list(&installation.pods()["spec"]["topologySpreadConstraints"]).iter();
    services
        .chain(budgets.map(|object| &object["spec"]["selector"]["matchLabels"]))
        .chain(policies.map(|object| &object["spec"]["podSelector"]["matchLabels"]))
        .chain(spreads.map(|spread| &spread["labelSelector"]["matchLabels"]))
        .chain([deployment])
        .collect()
}

#[test]
fn selectors_select_the_pods_of_the_proxy_and_no_jobs() {
    for installation in installations() {
        let selectors = selectors(installation);
        assert!(selectors.len() >= 4, "{}", installation.name);
        for selector in selectors {
            assert!(selects(selector, &installation.pods()["metadata"]["labels"]), "{selector}");
            for job in installation.all("Job") {
                assert!(!selects(selector, &job["spec"]["template"]["metadata"]["labels"]), "{selector}");
            }
        }
    }
}

#[test]
fn ports_are_those_of_the_container() {
    for installation in installations() {
        let container = installation.proxy();
        let probes = ["startupProbe", "livenessProbe", "readinessProbe"];
        for probe in probes.map(|probe| &container[probe]["httpGet"]) {
            assert_eq!(probe["port"], "admin", "{}", installation.name);
        }
        let mut admins = 0;
        for service in installation.all("Service") {
            for port in list(&service["spec"]["ports"]) {
                let of_container = by(&container["ports"], "name", text(&port["targetPort"]));
                if of_container["name"] == "admin" {
                    assert_eq!(service["spec"]["clusterIP"], "None", "no load balancer publishes it");
                    assert_eq!(of_container["containerPort"], port["port"]);
                    admins += 1;
                }
            }
        }
        assert_eq!(admins, installation.all("ServiceAccount").len(), "the chart has a Service for it");
        let policy = installation.one("NetworkPolicy");
        let rules = list(&policy["spec"]["ingress"]).iter().flat_map(|rule| list(&rule["ports"]));
        let allowed: BTreeSet<u64> = rules.map(|port| port["port"].as_u64().unwrap()).collect();
        assert_eq!(allowed, ports(installation), "{}", installation.name);
        for ingress in installation.all("Ingress") {
            let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
            let service = installation.find("Service", &backend["name"]).unwrap();
            by(&service["spec"]["ports"], "name", text(&backend["port"]["name"]));
        }
    }
}

/// The admin interface is open to the own namespace and to the peers that are named, and the other ports are open to all
/// unless peers are named.
#[test]
fn the_admin_interface_is_not_open_to_all() {
    for installation in installations() {
        let probe = &installation.proxy()["ports"];
        let admin = &by(probe, "name", "admin")["containerPort"];
        for rule in list(&installation.one("NetworkPolicy")["spec"]["ingress"]) {
            let is_admin = list(&rule["ports"]).iter().any(|port| port["port"] == *admin);
            assert!(!is_admin || rule["from"][0]["podSelector"].is_object(), "{rule}");
            assert_eq!(list(&rule["ports"]).len() == 1, is_admin || list(probe).len() == 2, "{rule}");
        }
    }
}

/// Secrets that the installation does not contain: those of the command at the top of a plain manifest, and those that the
/// values name.
fn given_secrets(installation: &Installation) -> BTreeSet<(String, String)> {
    let pair = |name: &str, key: &str| (name.to_owned(), key.to_owned());
    if installation.name == "everything" {
        return BTreeSet::from([
            pair("redis", "connection"),
            pair("tokens", "token"),
            pair("tokens", "read-token"),
            pair("api", ""),
        ]);
    }
    if !["gateway", "sidecar"].contains(&installation.name) {
        return BTreeSet::new();
    }
    let manifest = read(&format!("config/kubernetes/{}.yaml", installation.name));
    let (_, command) = manifest.split_once("kubectl create secret generic ").unwrap();
    let (command, _) = command.split_once("kubectl apply").unwrap();
    let (name, _) = command.split_once(' ').unwrap();
    let keys = command.split("--from-literal=").skip(1);
    keys.map(|key| pair(name, key.split_once('=').unwrap().0)).collect()
}

#[test]
fn secrets_volumes_and_accounts_exist() {
    for installation in installations() {
        let mut secrets = given_secrets(installation);
        for secret in installation.all("Secret") {
            let keys = secret["data"].as_object().unwrap().keys();
            let name = text(&secret["metadata"]["name"]);
            secrets.extend(keys.map(|key| (name.to_owned(), key.clone())));
        }
        let mut used = BTreeSet::new();
        let jobs = installation.all("Job").into_iter().map(|job| &job["spec"]["template"]["spec"]);
        for spec in jobs.chain([&installation.pods()["spec"]]) {
            for container in list(&spec["containers"]) {
                let references =
                    list(&container["env"]).iter().map(|entry| &entry["valueFrom"]["secretKeyRef"]);
                let references = references.filter(|reference| reference.is_object());
                used.extend(references.map(|reference| {
                    (text(&reference["name"]).to_owned(), text(&reference["key"]).to_owned())
                }));
                for mount in list(&container["volumeMounts"]) {
                    assert_eq!(mount["readOnly"], true, "{mount}");
                    assert!(mount["subPath"].is_null(), "such a file never changes: {mount}");
                    by(&spec["volumes"], "name", text(&mount["name"]));
                }
            }
            for volume in list(&spec["volumes"]) {
                if let Some(secret) = volume["secret"]["secretName"].as_str() {
                    used.insert((secret.to_owned(), String::new()));
                } else {
                    assert!(installation.find("ConfigMap", &volume["configMap"]["name"]).is_some());
                }
            }
            let account = &spec["serviceAccountName"];
            assert!(account.is_null() || installation.find("ServiceAccount", account).is_some());
        }
        assert_eq!(used, secrets, "{}", installation.name);
    }
}

#[test]
fn pods_are_counted_in_one_place() {
    for installation in installations() {
        let deployment = installation.one("Deployment");
        let scalers = installation.all("HorizontalPodAutoscaler");
        assert_eq!(deployment["spec"]["replicas"].is_u64(), scalers.is_empty(), "{}", installation.name);
        for scaler in &scalers {
            let target = &scaler["spec"]["scaleTargetRef"];
            assert_eq!(target["name"], deployment["metadata"]["name"]);
            assert!(installation.proxy()["resources"]["requests"]["cpu"].is_string(), "for the utilization");
        }
        // During an outage of Redis each pod admits its share of all that there may be.
        let pods =
            scalers.first().map_or(&deployment["spec"]["replicas"], |scaler| &scaler["spec"]["maxReplicas"]);
        let file: toml::Table = installation.configuration().parse().unwrap();
        if let Some(store) = file.get("store") {
            assert_eq!(store["instances"].as_integer(), pods.as_i64(), "{}", installation.name);
        }
    }
}
