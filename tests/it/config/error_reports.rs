//! The exact output of `check` for invalid and suspicious files: for each `error_reports/NAME.toml` the text of
//! `error_reports/NAME.txt`.

use std::fs;
use std::path::Path;

use tidegate::config;

fn env(name: &str) -> Option<String> {
    (name == "REDIS_PASSWORD").then(|| "hush@/:#".to_owned())
}

/// The errors of a file, or else its warnings; `/etc/tidegate` is its directory.
fn report(text: &str) -> String {
    let report = match config::parse(text, "tidegate.toml", &env) {
        Ok(loaded) => loaded.warnings.to_string() + "\n",
        Err(report) => report.to_string() + "\n",
    };
    let directory = std::env::current_dir().unwrap();
    report.replace(directory.to_str().unwrap(), "/etc/tidegate")
}

/// With `UPDATE=1` in the environment the reports are written instead of compared.
#[test]
fn reports_match_the_golden_files() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/config/error_reports");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let cases: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(cases.len() >= 24, "{} cases", cases.len());
    let update = std::env::var_os("UPDATE").is_some();
    for case in cases {
        let golden = case.with_extension("txt");
        let found = report(&fs::read_to_string(&case).unwrap());
        if update {
            fs::write(golden, found).unwrap();
            continue;
        }
        let wanted = fs::read_to_string(golden).unwrap();
        assert!(found == wanted, "the report of {} is:\n{found}\nexpected:\n{wanted}", case.display());
    }
}
