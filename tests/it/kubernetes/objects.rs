//! Each object has the fields of its kind in the API of Kubernetes, and no others.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::setup::{CHARTS, installations, render, text, values};

/// What the API understands of an object. A field that it does not know is absent, and one that is missing is added.
fn understood<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    match serde_json::from_value::<T>(object.clone()) {
        Ok(typed) => serde_json::to_value(typed).unwrap(),
        Err(error) => json!(error.to_string()),
    }
}

/// The object as the API understands it. Kinds of the Prometheus Operator are checked in `monitors`.
#[track_caller]
fn through_the_api(object: &Value) -> Option<Value> {
    Some(match (text(&object["apiVersion"]), text(&object["kind"])) {
        ("apps/v1", "Deployment") => understood::<Deployment>(object),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => understood::<HorizontalPodAutoscaler>(object),
        ("batch/v1", "Job") => understood::<Job>(object),
        ("networking.k8s.io/v1", "Ingress") => understood::<Ingress>(object),
        ("networking.k8s.io/v1", "NetworkPolicy") => understood::<NetworkPolicy>(object),
        ("policy/v1", "PodDisruptionBudget") => understood::<PodDisruptionBudget>(object),
        ("v1", "ConfigMap") => understood::<ConfigMap>(object),
        ("v1", "Secret") => understood::<Secret>(object),
        ("v1", "Service") => understood::<Service>(object),
        ("v1", "ServiceAccount") => understood::<ServiceAccount>(object),
        ("monitoring.coreos.com/v1", "PodMonitor" | "PrometheusRule" | "ServiceMonitor") => return None,
        other => panic!("unknown kind {other:?}"),
    })
}

#[test]
fn objects_are_those_of_the_api() {
    let mut kinds = BTreeSet::new();
    for installation in installations() {
        for object in &installation.objects {
            kinds.insert(text(&object["kind"]).to_owned());
            if let Some(understood) = through_the_api(object) {
                assert_eq!(understood, *object, "{}", installation.name);
            }
        }
    }
    assert_eq!(kinds.len(), 13, "{kinds:?}");
}

#[test]
fn a_wrong_object_is_found() {
    for (from, to) in [("containerPort", "port"), ("\"readOnly\":true", "\"readOnly\":\"yes\"")] {
        let object = installations()[0].one("Deployment");
        let wrong = serde_json::from_str(&object.to_string().replace(from, to)).unwrap();
        assert_ne!(through_the_api(&wrong).unwrap(), wrong, "{to}");
    }
}

/// Also with the longest name that Helm allows for a release.
#[test]
fn names_and_labels_are_valid_and_unique() {
    let name = Regex::new("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$").unwrap();
    let label = Regex::new("^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$").unwrap();
    let long = "a-release-with-the-longest-name-that-helm-allows-12-x";
    assert_eq!(long.len(), 53);
    let long = CHARTS.map(|name| render(&values(name), long, &json!({})).unwrap());
    for objects in installations().iter().map(|installation| &installation.objects).chain(&long) {
        let mut names = BTreeSet::new();
        for object in objects {
            let metadata = &object["metadata"];
            assert!(name.is_match(text(&metadata["name"])), "{metadata}");
            assert!(names.insert((text(&object["kind"]).to_owned(), text(&metadata["name"]).to_owned())));
            for value in metadata["labels"].as_object().unwrap().values() {
                assert!(label.is_match(text(value)), "{metadata}");
            }
        }
    }
}
