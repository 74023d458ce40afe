//! The workflows of GitHub Actions, as far as what users rely on depends on them.

use std::fs;

use super::repository;

fn workflow(name: &str) -> String {
    fs::read_to_string(repository().join(".github/workflows").join(name)).unwrap()
}

/// The text of a job, from its name to the next job.
fn job(workflow: &str, name: &str) -> String {
    let start = format!("  {name}:\n");
    let (_, rest) = workflow.split_once(&start).unwrap_or_else(|| panic!("there is no job {name}"));
    let is_next = |line: &&str| line.starts_with("  ") && !line.starts_with("   ") && line.ends_with(":\n");
    rest.split_inclusive('\n').take_while(|line| !is_next(line)).collect()
}

/// `gh attestation verify` of docs/releasing.md works for each file of a release.
#[test]
fn the_files_of_a_release_are_attested_before_they_are_attached() {
    let publish = job(&workflow("release.yml"), "publish");
    for permission in ["contents: write", "id-token: write", "attestations: write"] {
        assert!(publish.contains(&format!("      {permission}\n")), "{permission}");
    }
    let attest = publish.find("uses: actions/attest-build-provenance@").unwrap();
    let attach = publish.find("gh release create").unwrap();
    assert!(attest < attach);
    // The same files.
    assert!(publish[attest..].contains("          subject-path: dist/tidegate*\n"));
    assert!(publish[attach..].contains(" dist/tidegate*\n"));
    // No other job can attest anything.
    assert_eq!(workflow("release.yml").matches("attestations: write").count(), 1);
}

#[test]
fn the_feature_fips_is_built_and_tested() {
    let fips = job(&workflow("ci.yml"), "fips");
    for command in ["cargo check --locked --features fips", "cargo test --locked --features fips --lib tls::"]
    {
        assert!(fips.contains(command), "{command}");
    }
    // `cargo deny` sees its crates as well.
    let rules = fs::read_to_string(repository().join("deny.toml")).unwrap();
    assert!(rules.contains("\nall-features = true\n") && rules.contains("aws-lc-fips-sys"));
}
