//! The JSON schema of the configuration: it accepts what the reader accepts, and rejects unknown keys, wrong types and
//! numbers out of range.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::config;
use toml::Table;

use crate::support::{Authority, mmdb, schema_problems};

/// The problems that the schema finds in a file.
fn problems(text: &str) -> Vec<String> {
    let table: Table = text.parse().unwrap();
    let schema = config::schema();
    schema_problems(&schema, &serde_json::to_value(table).unwrap(), &schema)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder of the repository whose names have this ending.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == ending)).collect();
    assert!(!paths.is_empty(), "{folder} has no .{ending} file");
    paths
}

fn env(name: &str) -> Option<String> {
    let is_secret = ["PASSWORD", "KEY", "TOKEN"].iter().any(|end| name.ends_with(end));
    // Each value differs: an interface does not accept equal tokens.
    is_secret.then(|| format!("hush-hush-hush-{name}"))
}

/// The text of each TOML block of a document.
fn toml_blocks(document: &str) -> impl Iterator<Item = &str> {
    let blocks = document.split("```toml\n").skip(1);
    blocks.map(|block| block.split_once("```").expect("the block ends").0)
}

/// A valid configuration of which a block of a document is a part: of the top level, or of one of its tables.
fn completed(block: &str, authority: &Authority) -> Option<String> {
    let schema = config::schema();
    let sections = schema["properties"].as_object().unwrap().keys().map(|name| format!("[{name}]\n{block}"));
    [block.to_owned()].into_iter().chain(sections).find_map(|text| {
        let mut table: Table = text.parse().ok()?;
        if !table.contains_key("listeners") {
            table.entry("listen").or_insert_with(|| "127.0.0.1:0".into());
        }
        let text = toml::to_string(&table).unwrap();
        let file = authority.file("tidegate.toml");
        config::parse(&text, file.to_str().unwrap(), &env).is_ok().then_some(text)
    })
}

/// The key that an error of the configuration is about, if the schema can find this error too.
fn key_of_error(error: &str) -> Option<&str> {
    let (before, after) = error.split_once('`')?;
    let (key, rest) = after.split_once('`')?;
    let types = ["a string", "a whole number", "a decimal number", "true or false", "an array", "a table"];
    let title = rest.split("; ").next()?;
    let is_wrong_type = || {
        let found = title.strip_prefix(" must be ").and_then(|rest| rest.rsplit_once(", not "));
        found.is_some_and(|(_, found)| types.contains(&found))
    };
    // The schema has no ranges of durations and of sizes with a unit, which are strings.
    let is_out_of_range = || {
        let found = title.strip_prefix(" must be from ").and_then(|rest| rest.rsplit_once(", not "));
        found.is_some_and(|(_, found)| found.parse::<f64>().is_ok())
    };
    let is_unknown = before.ends_with("unknown key ");
    (is_unknown || is_wrong_type() || is_out_of_range()).then_some(key)
}

#[test]
fn the_schema_accepts_every_example() {
    let tests = ["every_key.toml", "reference.toml"].map(|name| root().join("tests/it/config").join(name));
    for path in files("config", "toml").into_iter().chain(tests) {
        let found = problems(&fs::read_to_string(&path).unwrap());
        assert!(found.is_empty(), "{}:\n{}", path.display(), found.join("\n"));
    }
}

/// The problems that the library jsonschema finds in a file.
fn library_problems(text: &str) -> Vec<String> {
    let table: Table = text.parse().unwrap();
    let validator = jsonschema::validator_for(&config::schema()).unwrap();
    let value = serde_json::to_value(table).unwrap();
    validator.iter_errors(&value).map(|error| error.to_string()).collect()
}

#[test]
fn a_library_accepts_every_example_that_names_the_schema() {
    let templates = root().join("src/cli/init");
    let templates = files(templates.to_str().unwrap(), "toml");
    // The file of consumers is another one.
    let demo = files("config/demo", "toml").into_iter().filter(|path| !path.ends_with("consumers.toml"));
    for path in files("config", "toml").into_iter().chain(templates).chain(demo) {
        let text = fs::read_to_string(&path).unwrap();
        let named = text.strip_prefix("#:schema ").and_then(|rest| rest.lines().next()).unwrap_or_default();
        let folder = if path.starts_with(root().join("src")) {
            root().join("config")
        } else {
            path.parent().unwrap().into()
        };
        assert!(folder.join(named).ends_with("tidegate.schema.json"), "{}", path.display());
        assert!(folder.join(named).exists(), "{}", path.display());
        let found = library_problems(&text);
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
    for wrong in ["listn = \"127.0.0.1:80\"", "workers = 0", "[limits.a]\nrate = 1"] {
        assert!(!library_problems(wrong).is_empty(), "{wrong}");
    }
}

/// With `UPDATE=1` in the environment the file is written instead of compared.
#[test]
fn the_schema_beside_the_examples_is_the_present_one() {
    let path = root().join("config/tidegate.schema.json");
    let schema = format!("{:#}\n", config::schema());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, schema).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(path).unwrap() == schema,
        "config/tidegate.schema.json is not the schema of the keys in src/config: run `make reference`"
    );
}

#[test]
fn the_schema_accepts_the_examples_of_the_documents() {
    let authority = Authority::new();
    for name in ["api", "www", "gate"] {
        authority.sign(name);
    }
    authority.sign_client("client");
    let documents = files("docs", "md").into_iter().chain([root().join("README.md")]);
    let documents: Vec<_> = documents.map(|path| (fs::read_to_string(&path).unwrap(), path)).collect();
    let other_file = |block: &str| {
        let files = ["consumers.toml", "prices.toml"];
        files.into_iter().find(|name| block.starts_with(&format!("# {name}\n")))
    };
    for block in documents.iter().flat_map(|(text, _)| toml_blocks(text)) {
        // The configuration beside it names this file, and so is valid only with it.
        if let Some(name) = other_file(block) {
            fs::write(authority.file(name), block).unwrap();
        }
    }
    fs::write(authority.file("GeoLite2-Country.mmdb"), mmdb::countries(&[("192.0.2.0", 24, "DE")])).unwrap();
    let mut count = 0;
    for (text, path) in &documents {
        for block in toml_blocks(text).filter(|block| other_file(block).is_none()) {
            let text = completed(block, &authority);
            let text = text.unwrap_or_else(|| panic!("{}: not a valid example:\n{block}", path.display()));
            let found = problems(&text);
            assert!(found.is_empty(), "{}:\n{block}\n{}", path.display(), found.join("\n"));
            count += 1;
        }
    }
    assert!(count >= 10, "{count} examples");
}

#[test]
fn the_schema_rejects_what_the_reader_rejects() {
    let (mut valid, mut errors) = (0, 0);
    for path in files("tests/it/config/error_reports", "toml") {
        let text = fs::read_to_string(&path).unwrap();
        if text.parse::<Table>().is_err() {
            continue;
        }
        let found = problems(&text);
        let Err(report) = config::parse(&text, "tidegate.toml", &env) else {
            assert!(found.is_empty(), "{}:\n{}", path.display(), found.join("\n"));
            valid += 1;
            continue;
        };
        // Not those of the files of consumers and prices, which have no schema.
        let lines: Vec<String> = report.lines().filter(|line| line.starts_with("tidegate.toml")).collect();
        for key in lines.iter().filter_map(|line| key_of_error(line)) {
            let place = format!(".{key}");
            assert!(found.iter().any(|problem| problem.contains(&place)), "{}: `{key}`", path.display());
            errors += 1;
        }
    }
    assert!(valid >= 10 && errors >= 40, "{valid} valid files, {errors} errors");
}

#[test]
fn the_schema_rejects_wrong_files() {
    for text in [
        "listn = \"127.0.0.1:80\"",
        "workers = 0",
        "workers = \"many\"",
        "watch = \"yes\"",
        "[[listeners]]\nprotocols = [\"h1\"]",
        "[limits.a]\nrate = \"1/s\"\nmode = \"watch\"",
        "[limits.a.tiers]\nby = \"method\"\nGET = { cost = 1 }",
        "[upstreams.a]\nservers = [{ weight = 1 }]",
        "[log]\naccess_sample = 1.5",
    ] {
        assert_eq!(problems(text).len(), 1, "{text}: {:?}", problems(text));
    }
}

#[test]
fn the_patterns_accept_what_the_reader_accepts() {
    let durations = [
        "30s",
        "1h 30m",
        "1h30m",
        " 5s ",
        "5 seconds",
        "250ms",
        "0s",
        "0",
        "5",
        "",
        "1.5h",
        "500µs",
        ".5h",
        "1.h",
        "s",
        "off",
    ];
    let sizes = ["512", "512b", "32KiB", "10 MB", "1gib", "1.5MiB", "KiB", "", "32K", "32 kilobytes", "32ki"];
    let rows = durations.map(|text| ("", "shutdown_grace", text)).into_iter();
    let rows = rows.chain(durations.map(|text| ("[answers]\n", "retry_after_max", text)));
    let size = "[[routes]]\npath = \"/\"\nrespond = {}\n";
    for (table, key, text) in rows.chain(sizes.map(|text| (size, "max_body", text))) {
        let text = format!("listen = \"127.0.0.1:0\"\n{}", format_args!("{table}{key} = \"{text}\"\n"));
        let report = config::parse(&text, "tidegate.toml", &env).err();
        let is_malformed = report.as_ref().is_some_and(|report| report.to_string().contains(" is not a "));
        assert_eq!(is_malformed, !problems(&text).is_empty(), "{text}");
    }
}
