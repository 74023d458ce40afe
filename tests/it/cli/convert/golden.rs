//! The exact output for the files in `golden/ORIGIN`: the configuration in `NAME.toml`, and standard error in `NAME.txt`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tidegate::config;

use super::{Finished, repository, tidegate};
use crate::support::{TIDEGATE, command};

fn folder(origin: &str) -> PathBuf {
    repository().join("tests/it/cli/convert/golden").join(origin)
}

/// Compares the output for all files of an origin, which is valid. With `UPDATE=1` in the environment the output is written
/// instead.
#[track_caller]
fn check(origin: &str, ending: &str) {
    check_with(&[origin], origin, ending);
}

/// The same for a folder of another name, with these arguments.
#[track_caller]
fn check_with(arguments: &[&str], folder_name: &str, ending: &str) {
    let folder = folder(folder_name);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let cases: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == ending)).collect();
    assert!(!cases.is_empty());
    let update = std::env::var_os("UPDATE").is_some();
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap();
        let Finished { status, stdout, stderr } =
            tidegate(&folder, &[&["convert"], arguments, &[name]].concat());
        assert_eq!(status, 0, "{name}: {stderr}");
        if let Err(report) = config::parse(&stdout, name, &|_| None) {
            panic!("{name}: {report}");
        }
        for (ending, found) in [("toml", stdout), ("txt", stderr)] {
            let golden = case.with_extension(ending);
            if update {
                fs::write(golden, found).unwrap();
                continue;
            }
            let wanted = fs::read_to_string(&golden).unwrap();
            assert!(found == wanted, "{} is:\n{found}\nexpected:\n{wanted}", golden.display());
        }
    }
}

#[test]
fn nginx() {
    check("nginx", "conf");
}

#[test]
fn haproxy() {
    check("haproxy", "cfg");
}

#[test]
fn traefik() {
    check("traefik", "yaml");
}

#[test]
fn kong() {
    check("kong", "yaml");
}

#[test]
fn kubernetes() {
    check("kubernetes", "yaml");
}

#[test]
fn envoy_ratelimit() {
    check("envoy-ratelimit", "yaml");
}

#[test]
fn envoy_ratelimit_as_routes() {
    check_with(&["envoy-ratelimit", "--routes"], "envoy-ratelimit-routes", "yaml");
}

#[test]
fn routes_are_an_option_of_one_origin() {
    let found = tidegate(Path::new("/"), &["convert", "nginx", "--routes", "file"]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.starts_with("error: --routes is for envoy-ratelimit"), "{}", found.stderr);
}

#[test]
fn traefik_is_read_from_yaml_and_toml() {
    let directory = tempfile::tempdir().unwrap();
    let toml = "[http.routers.all]\nrule = \"PathPrefix(`/`)\"\nservice = \"web\"\nmiddlewares = [\"limit\"]\n\
                [http.middlewares.limit.rateLimit]\naverage = 10\nburst = 20\n\
                [[http.services.web.loadBalancer.servers]]\nurl = \"http://127.0.0.1:9000\"\n";
    let yaml = "http:\n  routers:\n    all:\n      rule: PathPrefix(`/`)\n      service: web\n      middlewares: [limit]\n  \
                middlewares:\n    limit:\n      rateLimit: { average: 10, burst: 20 }\n  services:\n    web:\n      \
                loadBalancer: { servers: [{ url: http://127.0.0.1:9000 }] }\n";
    let [toml, yaml] = [("a.toml", toml), ("a.yaml", yaml)].map(|(name, text)| {
        fs::write(directory.path().join(name), text).unwrap();
        let found = tidegate(directory.path(), &["convert", "traefik", name]);
        assert_eq!(found.status, 0, "{}", found.stderr);
        // The comments have the lines.
        found.stdout.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    });
    assert!(toml.contains("rate = \"10/s\"\nburst = 20\n"), "{toml}");
    assert_eq!(toml, yaml);
}

/// The first block of each page in `docs/migrating` is converted to the second one.
#[test]
fn the_documented_examples_are_the_output() {
    let directory = tempfile::tempdir().unwrap();
    let lines = |text: &str| {
        let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        text.lines().filter(is_content).map(str::to_owned).collect::<Vec<_>>()
    };
    for origin in ["nginx", "haproxy", "traefik", "kong", "kubernetes", "envoy-ratelimit"] {
        let page = repository().join(format!("docs/migrating/{origin}.md"));
        let page = fs::read_to_string(page).unwrap();
        let blocks: Vec<&str> = page.split("\n```").skip(1).step_by(2).take(2).collect();
        let [input, output] = [blocks[0], blocks[1]].map(|block| block.split_once('\n').unwrap().1);
        fs::write(directory.path().join("file"), input.to_owned() + "\n").unwrap();
        let found = tidegate(directory.path(), &["convert", origin, "file"]);
        assert_eq!(lines(&found.stdout), lines(output), "{origin}: {}", found.stderr);
    }
}

#[test]
fn standard_input_is_converted() {
    let file = folder("nginx").join("limits.conf");
    let output = command(TIDEGATE)
        .args(["convert", "nginx", "-"])
        .current_dir(folder("nginx"))
        .stdin(Stdio::from(fs::File::open(&file).unwrap()))
        .output();
    let found = Finished::from(output.unwrap());
    let expected = fs::read_to_string(file.with_extension("toml")).unwrap();
    assert_eq!(found.stdout, expected.replace("limits.conf", "<stdin>"));
}

#[test]
fn a_file_is_written_and_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("a.conf", "server { location / { proxy_pass http://127.0.0.1:9000; } }");
    let convert = || tidegate(directory.path(), &["convert", "nginx", "a.conf", "-o", "a.toml"]);
    let first = convert();
    assert_eq!((first.status, &*first.stdout), (0, ""), "{}", first.stderr);
    let written = fs::read_to_string(directory.path().join("a.toml")).unwrap();
    assert!(written.contains("upstream = \"http://127.0.0.1:9000\""), "{written}");
    let second = convert();
    assert_eq!(second.status, 1);
    assert!(second.stderr.contains("`convert` replaces no files"), "{}", second.stderr);
    assert_eq!(fs::read_to_string(directory.path().join("a.toml")).unwrap(), written);
}

#[test]
fn errors_have_a_place() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("nginx", "http {\n  server {\n", "error: file:1: a block is not closed\n"),
        ("nginx", "http {\n  gzip on\n}", "error: file:2: a `;` is missing\n"),
        ("nginx", "user \"a;", "error: file:1: a quote is not closed\n"),
        ("nginx", ";", "error: file:1: a directive is missing\n"),
        ("haproxy", "global\n  log \"a\n", "error: file:2: a quote is not closed\n"),
        ("haproxy", "\nmode http\n", "error: file:2: `mode` is not in a section\n"),
    ];
    for (origin, text, expected) in cases {
        fs::write(directory.path().join("file"), text).unwrap();
        let found = tidegate(directory.path(), &["convert", origin, "file"]);
        assert_eq!(found, super::super::wrong(expected));
    }
    let missing = tidegate(Path::new("/"), &["convert", "nginx", "no/such/file"]);
    assert_eq!(missing.status, 2);
    assert!(missing.stderr.starts_with("error: can't read no/such/file: "), "{}", missing.stderr);
}

#[test]
fn included_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "conf/nginx.conf",
        "http { include zones.conf; include sites/*.conf; include none/*.conf; include x.conf; }",
    );
    write("conf/zones.conf", "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;");
    write(
        "conf/sites/b.conf",
        "server { server_name b; location / { limit_req zone=one; proxy_pass http://b; } }",
    );
    write("conf/sites/a.conf", "\n\nserver { server_name a; location / { root /; } }");
    let Finished { status, stdout, stderr } =
        tidegate(directory.path(), &["convert", "nginx", "conf/nginx.conf"]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stdout.contains("[limits.one]") && stdout.contains("host = \"b\""), "{stdout}");
    assert!(stderr.contains("conf/sites/a.conf:3: not converted: root /\n"), "{stderr}");
    assert!(stderr.contains("conf/nginx.conf:1: not converted: include x.conf\n"), "{stderr}");
    assert!(!stderr.contains("none/"), "{stderr}");

    write("loop.conf", "include loop.conf;");
    let found = tidegate(directory.path(), &["convert", "nginx", "loop.conf"]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.contains("include each other"), "{}", found.stderr);

    // Few files that include many.
    for level in 0..8 {
        write(&format!("level{level}.conf"), &format!("include level{}.conf;\n", level + 1).repeat(20));
    }
    write("level8.conf", "");
    let found = tidegate(directory.path(), &["convert", "nginx", "level0.conf"]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.contains("that are included are more than 1000"), "{}", found.stderr);

    write("deep.conf", &"a {".repeat(100_000));
    let found = tidegate(directory.path(), &["convert", "nginx", "deep.conf"]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.contains("nested more than 64 times"), "{}", found.stderr);
}
