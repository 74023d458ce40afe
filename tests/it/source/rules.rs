//! The source's own rules: what ARCHITECTURE.md says of the modules is true.

use std::fs;
use std::path::Path;

use regex::Regex;

use super::files::{SourceFile, files_below, parsed, sources};

/// The modules in their order: each may import only the modules before it.
const ORDER: [&str; 37] = [
    "text",
    "suggest",
    "boxed",
    "id_vec",
    "sharded",
    "generations",
    "time",
    "plot",
    "convert",
    "limit",
    "http1",
    "usage",
    "overload",
    "telemetry",
    "socket",
    "tls",
    "http_client",
    "acme",
    "otlp",
    "store",
    "limiter",
    "body",
    "upstream",
    "jwt",
    "consumers",
    "gate",
    "proxy",
    "ratelimit_service",
    "server",
    "admin",
    "config",
    "limits",
    "reload",
    "replay",
    "app",
    "cli",
    "main",
];

/// Libraries that only this module uses.
const LIBRARIES: [(&str, &[&str]); 14] = [
    ("fred::", &["src/store/redis"]),
    ("instant_acme::", &["src/acme"]),
    ("jsonwebtoken::", &["src/jwt"]),
    ("hickory_resolver::", &["src/upstream/health/resolver"]),
    ("clap::", &["src/cli"]),
    ("maxminddb::", &["src/gate/geo"]),
    ("anstream::", &["src/telemetry/log"]),
    ("annotate_snippets::", &["src/config"]),
    ("toml::", &["src/config", "crates/convert/src/document"]),
    ("saphyr::", &["crates/convert/src/document"]),
    ("glob::", &["crates/convert/src/nginx/tree"]),
    ("flate2::", &["src/proxy/settlement/decoder", "src/replay"]),
    ("ruzstd::", &["src/proxy/settlement/zstd", "src/replay/input"]),
    ("toml_edit::", &["src/replay/suggest/snippet"]),
];

/// Calls that only `time` may make, because no other module reads clocks.
const CLOCKS: [&str; 2] = ["SystemTime::now", "Instant::now"];

const LONGEST: usize = 400;

/// The module of the first rank that a file belongs to.
pub fn module(file: &SourceFile) -> &str {
    let root = if file.path == "src/main.rs" { "main" } else { "lib" };
    file.module.first().map_or(root, String::as_str)
}

#[test]
fn imports_follow_the_module_order() {
    for file in parsed() {
        let own = module(file);
        let Some(rank) = ORDER.iter().position(|name| *name == own) else {
            assert_eq!(own, "lib", "{} has no rank in the order of modules", file.path);
            continue;
        };
        for path in &file.paths {
            // The module that a path leads into, from the root of the crate.
            let used = match &*path[0] {
                "crate" => path.get(1),
                "super" => {
                    let ups = path.iter().take_while(|segment| *segment == "super").count();
                    if ups == file.module.len() { path.get(ups) } else { None }
                }
                _ => None,
            };
            let is_right = |name: &String| ORDER[rank + 1..].contains(&name.as_str());
            assert!(
                !used.is_some_and(is_right),
                "{} uses {}, which is to its right in the order of modules",
                file.path,
                path.join("::")
            );
        }
    }
}

#[test]
fn architecture_lists_the_modules_in_order() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = fs::read_to_string(path).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("`{}`", ORDER.join(" < "))));
}

#[test]
fn libraries_stay_in_their_modules() {
    for (path, text) in sources() {
        for (library, modules) in LIBRARIES {
            let is_allowed = modules.iter().any(|module| path.starts_with(module));
            assert!(is_allowed || !text.contains(library), "{path} uses {library}");
        }
    }
}

#[test]
fn only_time_reads_a_clock() {
    for (path, text) in sources() {
        for clock in CLOCKS {
            assert!(path == "crates/limit/src/time.rs" || !text.contains(clock), "{path} calls {clock}");
        }
    }
}

#[test]
fn files_are_short_and_modules_have_no_mod_rs() {
    for (path, text) in sources() {
        assert!(!path.ends_with("/mod.rs"), "{path}");
        assert!(text.lines().count() <= LONGEST, "{path} has more than {LONGEST} lines");
        let is_documented = text.starts_with("//!") || text.starts_with("#![doc = include_str!");
        assert!(is_documented, "{path} does not say what it is for");
    }
}

/// What only the helpers of the tests may do: processes that they start end with their test, and the ports that they choose stay
/// reserved until then.
const OF_HELPERS: [(&str, &str, &str); 3] = [
    (r"\bCommand::new\(", "support/process.rs", "a process is started through `support::command`"),
    (r"\.spawn\(\)", "support/process.rs", "a process is started through `support::Process::start`"),
    (
        r"bind\([^;]*\)\.unwrap\(\)\.local_addr\(\)",
        "support/port.rs",
        "a free port comes from `support::free_address`",
    ),
];

#[test]
fn tests_use_the_helpers_for_processes_and_ports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for (pattern, helper, rule) in OF_HELPERS {
        let pattern = Regex::new(pattern).unwrap();
        for path in files_below(&root, ".rs").iter().filter(|path| !path.ends_with(helper)) {
            let found =
                pattern.find(&fs::read_to_string(path).unwrap()).map(|found| found.as_str().to_owned());
            assert_eq!(found, None, "{}: {rule}", path.display());
        }
    }
}

#[test]
fn every_script_documents_its_input_and_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let joined = fs::read_to_string(root.join("src/store/redis/script.rs")).unwrap();
    for path in files_below(&root.join("lua"), ".lua") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("-- "), "{}", path.display());
        let (name, stem) = (path.file_name().unwrap(), path.file_stem().unwrap());
        let is_part = [name, stem].iter().any(|name| joined.contains(&format!("\"{}\"", name.display())));
        assert!(is_part, "{} is not part of a script", path.display());
    }
}
