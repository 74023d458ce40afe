//! The training of the build with profile-guided optimisation.

use super::{BINARY, repository};
use crate::support::{command, free_ports};

#[test]
fn the_training_sends_requests_of_all_scenarios() {
    let output = command("/usr/bin/python3")
        .arg("-B")
        .arg(repository().join("benches/instructions/train.py"))
        .arg(BINARY)
        .envs([("CONNECTIONS", "2"), ("ROUNDS", "2")])
        .env("BASE_PORT", free_ports(4).to_string())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let scenarios = ["plain", "allowed", "denied", "redis", "tls", "http2", "connection"];
    for name in scenarios {
        assert!(errors.contains(&format!("training: {name}\n")), "no {name} in {errors}");
    }
}
