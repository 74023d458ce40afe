//! What `check` says about wrong and odd files, word for word: for each `error_reports/NAME.toml` what stands in
//! `error_reports/NAME.txt`.

use std::fs;
use std::path::Path;

use tidegate::config;

fn env(name: &str) -> Option<String> {
    (name == "REDIS_PASSWORD").then(|| "hush@/:#".to_owned())
}

/// What is wrong with a file, or else what is odd about it.
fn said(text: &str) -> String {
    match config::parse(text, "tidegate.toml", &env) {
        Ok(loaded) => loaded.warnings.to_string() + "\n",
        Err(report) => report.to_string() + "\n",
    }
}

#[test]
fn every_report_is_as_it_is_written_down() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/config/error_reports");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let cases: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(cases.len() >= 24, "{} cases", cases.len());
    for case in cases {
        let wanted = fs::read_to_string(case.with_extension("txt")).unwrap();
        let found = said(&fs::read_to_string(&case).unwrap());
        assert!(found == wanted, "{} says:\n{found}\nand should say:\n{wanted}", case.display());
    }
}
