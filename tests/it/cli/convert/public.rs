//! How many public configurations are converted without a remark that changes behaviour. The list is in
//! `public/configurations.tsv`; the files are not in this repository, since most of them have no licence.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Finished, repository, tidegate};

/// The variable of the environment with the directory of the files, as `public/fetch.sh` writes it.
const FILES: &str = "TIDEGATE_PUBLIC_CONFIGURATIONS";
/// The columns of the list before the results.
const COLUMNS: usize = 5;
/// The result of a file of which nothing became a route.
const NO_ROUTES: &str = "no routes";

/// A line of the list.
struct Listed {
    /// Program, repository, commit, path and licence.
    cells: Vec<String>,
    /// The number of remarks that changed behaviour before the conversion was improved.
    before: String,
    /// The same now.
    now: String,
}

fn list_path() -> PathBuf {
    repository().join("tests/it/cli/convert/public/configurations.tsv")
}

/// The header of the list, and its lines.
fn list() -> (String, Vec<Listed>) {
    let text = fs::read_to_string(list_path()).unwrap();
    let mut lines = text.lines();
    let header = lines.next().unwrap().to_owned();
    let listed = lines.map(|line| {
        let mut cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        assert_eq!(cells.len(), COLUMNS + 2, "{line}");
        let [now, before] = [(); 2].map(|()| cells.pop().unwrap());
        Listed { cells, before, now }
    });
    (header, listed.collect())
}

/// The number of remarks that change behaviour, from the last but one line of standard error.
fn remarks(converted: &Finished) -> String {
    let summary = converted.stderr.lines().find(|line| line.starts_with("converted to ")).unwrap();
    if summary.starts_with("converted to 0 routes") {
        return NO_ROUTES.to_owned();
    }
    let after = summary.split_once("; ").unwrap().1;
    after.split(' ').next().unwrap().to_owned()
}

/// Converts a file of the list, and checks that the output is valid.
fn convert(files: &Path, listed: &Listed) -> String {
    let [program, repository, _, path, _] = &listed.cells[..] else { panic!("{:?}", listed.cells) };
    let ending = path.rsplit_once('.').unwrap().1;
    let folder = files.join(program);
    let name = format!("{}.{ending}", repository.replace('/', "+"));
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("tidegate.toml").to_str().unwrap().to_owned();
    let converted = tidegate(&folder, &["convert", program, &name, "-o", &output]);
    let found = remarks(&converted);
    if found != NO_ROUTES {
        assert_eq!(converted.status, 0, "{name}: {}", converted.stderr);
        let checked = tidegate(directory.path(), &["check", "tidegate.toml"]);
        assert_eq!(checked.status, 0, "{name}: {}", checked.stderr);
    }
    found
}

#[test]
#[ignore = "needs the files that tests/it/cli/convert/public/fetch.sh copies"]
fn remarks_on_public_configurations_are_those_of_the_list() {
    let files = std::env::var_os(FILES).expect("names the directory of the files");
    let (header, mut listed) = list();
    let mut differing = String::new();
    for one in &mut listed {
        let found = convert(Path::new(&files), one);
        if found != one.now {
            writeln!(differing, "{}: {} remarks, not {}", one.cells[1], found, one.now).unwrap();
            one.now = found;
        }
    }
    if std::env::var_os("UPDATE").is_none() {
        assert!(differing.is_empty(), "{differing}");
        return;
    }
    let line = |one: &Listed| format!("{}\t{}\t{}\n", one.cells.join("\t"), one.before, one.now);
    fs::write(list_path(), header + "\n" + &listed.iter().map(line).collect::<String>()).unwrap();
}

/// The table in the documentation has the sums of the list.
#[test]
fn the_documented_figures_are_those_of_the_list() {
    let (_, listed) = list();
    assert_eq!(listed.len(), 100);
    let row = |title: &str, program: &str| {
        let of_program = || listed.iter().filter(|one| one.cells[0].contains(program));
        let [all, before, now] = [
            of_program().count(),
            of_program().filter(|one| one.before == "0").count(),
            of_program().filter(|one| one.now == "0").count(),
        ];
        format!("| {title} | {all} | {before} | {now} |\n")
    };
    let programs = [("nginx", "nginx"), ("HAProxy", "haproxy"), ("Traefik", "traefik"), ("Kong", "kong")];
    let rows: String = programs.iter().map(|(title, program)| row(title, program)).collect();
    let rows = rows + &row("all", "");
    let page = fs::read_to_string(repository().join("docs/migrating.md")).unwrap();
    assert!(page.contains(&rows), "docs/migrating.md lacks:\n{rows}");
}
