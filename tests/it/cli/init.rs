//! `tidegate init`, and the schema of what it prints.

use super::*;
use crate::support::{Authority, Tidegate, Upstream, get};

const PURPOSES: [&str; 4] = ["api", "login", "static", "llm"];

#[test]
fn every_configuration_passes_a_strict_check() {
    let directory = tempfile::tempdir().unwrap();
    for purpose in PURPOSES {
        for upstream in ["http://127.0.0.1:9000", "https://app.internal", "http://10.0.1.5:3000/base"] {
            let file = format!("{purpose}.toml");
            let written =
                tidegate(directory.path(), &["init", "--for", purpose, "--upstream", upstream, "-o", &file]);
            let message = format!("{file} is written: edit it, then start with tidegate run -c {file}\n");
            assert_eq!(written, Finished { stderr: message, ..ok("") });
            let text = std::fs::read_to_string(directory.path().join(&file)).unwrap();
            assert!(text.contains(&format!("\nservers = [\"{upstream}\"]\n")), "{text}");
            let printed = tidegate(directory.path(), &["init", "--for", purpose, "--upstream", upstream]);
            assert_eq!(printed, ok(&text));
            let checked = tidegate(directory.path(), &["check", "--strict", &file]);
            assert_eq!((checked.status, checked.stderr.as_str()), (0, ""), "{purpose}");
            std::fs::remove_file(directory.path().join(&file)).unwrap();
        }
    }
    let default = tidegate(directory.path(), &["init"]);
    assert_eq!(default, tidegate(directory.path(), &["init", "--for", "api"]));
}

#[test]
fn the_listeners_for_https_are_valid() {
    let authority = Authority::new();
    authority.sign("site");
    let directory = authority.file("site.pem").parent().unwrap().to_owned();
    let quickstart = std::fs::read_to_string(repository().join("config/quickstart.toml")).unwrap();
    let printed = PURPOSES.map(|purpose| tidegate(&directory, &["init", "--for", purpose]).stdout);
    for text in printed.into_iter().chain([quickstart]) {
        let (before, after) = text.split_once("listen = \"127.0.0.1:8080\"\n").unwrap();
        let (listeners, rest) = after.split_once("# [[listeners]]\n").unwrap().1.split_once("\n\n").unwrap();
        let listeners = listeners.replace("# ", "").replace('#', "").replace("/etc/tidegate/", "");
        std::fs::write(
            directory.join("tidegate.toml"),
            format!("{before}[[listeners]]\n{listeners}\n\n{rest}"),
        )
        .unwrap();
        let checked = tidegate(&directory, &["check"]);
        assert_eq!((checked.status, checked.stderr.as_str()), (0, ""), "{listeners}");
    }
}

#[test]
fn an_existing_file_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    std::fs::write(&file, "mine").unwrap();
    let refused = tidegate(directory.path(), &["init", "-o", "tidegate.toml"]);
    assert_eq!((refused.status, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.starts_with("error: tidegate.toml exists already\nhelp: "), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "mine");
    let missing = tidegate(directory.path(), &["init", "-o", "missing/tidegate.toml"]);
    assert_eq!(missing.status, 1);
    assert!(missing.stderr.starts_with("error: can't write missing/tidegate.toml: "), "{}", missing.stderr);
}

#[test]
fn an_upstream_that_a_configuration_cannot_have_is_rejected() {
    for (upstream, error) in [
        ("ftp://a", "the URL of a server starts with http://, https://, srv:// or unix:/"),
        ("10.0.1.5:3000", "this is not a URL: it has no scheme"),
        ("http://127.0.0.1:8080", "requests would loop: 127.0.0.1:8080 is a listener of this file"),
    ] {
        let rejected = tidegate(repository(), &["init", "--upstream", upstream]);
        assert_eq!((rejected.status, rejected.stdout.as_str()), (2, ""));
        assert!(
            rejected.stderr.starts_with(&format!("error: --upstream {upstream}: {error}\n")),
            "{}",
            rejected.stderr
        );
    }
    assert_eq!(tidegate(repository(), &["init", "--for", "mail"]).status, 2);
}

#[test]
fn what_is_written_serves() {
    let server = Upstream::echo();
    for purpose in PURPOSES {
        let text = tidegate(repository(), &["init", "--for", purpose, "--upstream", &server.url()]).stdout;
        // Other processes may use these ports.
        let text = text
            .replace("\"127.0.0.1:8080\"", "\"127.0.0.1:0\"")
            .replace("\"127.0.0.1:9900\"", "\"127.0.0.1:0\"");
        let proxy = Tidegate::start(&text);
        let key = ["X-Api-Key: k-1", "Authorization: Bearer k-1"];
        assert_eq!(get(proxy.addr(), "/", &key).status(), 200, "{purpose}");
        let without_key = if matches!(purpose, "api" | "llm") { 401 } else { 200 };
        assert_eq!(get(proxy.addr(), "/", &[]).status(), without_key, "{purpose}");
    }
}
