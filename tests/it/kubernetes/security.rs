//! Pods keep the profile "restricted" of the Pod Security Standards, and more.

use serde_json::{Value, json};

use super::setup::{installations, list};

#[track_caller]
fn check(spec: &Value, name: &str) {
    let pod = &spec["securityContext"];
    assert_eq!(pod["runAsNonRoot"], true, "{name}");
    assert!(pod["runAsUser"].as_u64().unwrap() > 0, "{name}");
    assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault", "{name}");
    assert_eq!(spec["automountServiceAccountToken"], false, "{name}: no token for the API of Kubernetes");
    for key in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
        assert!(spec[key].is_null(), "{name}: {key}");
    }
    for container in list(&spec["containers"]) {
        let own = &container["securityContext"];
        assert_eq!(own["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(own["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
        for key in ["privileged", "runAsUser", "runAsNonRoot", "seccompProfile"] {
            assert!(own[key].is_null(), "{name}: {key}");
        }
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}: memory is bounded");
        assert!(list(&container["ports"]).iter().all(|port| port["hostPort"].is_null()), "{name}");
    }
}

#[test]
fn pods_are_restricted() {
    for installation in installations() {
        check(&installation.pods()["spec"], installation.name);
        for job in installation.all("Job") {
            check(&job["spec"]["template"]["spec"], installation.name);
        }
    }
}
