//! The result of `tidegate check --json`.

use serde::Serialize;

use super::connection::ConnectionCheck;
use crate::admin::api::ProblemInfo;
use crate::cli::outcome::Outcome;
use crate::cli::output::print_json;
use crate::config::{Loaded, Report};
use crate::store::StoreSpec;

/// The result of a check, for other programs.
#[derive(Debug, Serialize)]
pub(super) struct CheckReport {
    /// The name of the file.
    file: String,
    /// Whether the file is accepted.
    pub valid: bool,
    errors: Vec<ProblemInfo>,
    /// Those of a file without errors.
    warnings: Vec<ProblemInfo>,
    /// What a valid file has.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<CheckSummary>,
    /// What --connect has found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Vec<ConnectionCheck>>,
}

#[derive(Debug, Serialize)]
struct CheckSummary {
    routes: usize,
    limits: usize,
    upstreams: usize,
    /// `memory`, or the address of Redis.
    store: String,
}

impl CheckReport {
    /// The result for a valid file; with `strict` only a file without warnings is accepted.
    pub fn of_valid(file: String, loaded: &Loaded, strict: bool) -> Self {
        let snapshot = &loaded.config.snapshot;
        let summary = CheckSummary {
            routes: snapshot.gate.routes.routes().len(),
            limits: snapshot.gate.limit_rules.len(),
            upstreams: snapshot.upstreams.len(),
            store: match &loaded.config.store {
                StoreSpec::Memory => "memory".to_owned(),
                StoreSpec::Redis(redis) => redis.target.to_string(),
            },
        };
        Self {
            valid: !strict || loaded.warnings.is_empty(),
            errors: Vec::new(),
            warnings: problems(&file, &loaded.warnings),
            summary: Some(summary),
            connections: None,
            file,
        }
    }

    /// The result for an invalid file.
    pub fn of_invalid(file: String, report: &Report) -> Self {
        let errors = problems(&file, report);
        Self { file, valid: false, errors, warnings: Vec::new(), summary: None, connections: None }
    }

    /// Prints it to standard output.
    pub fn print(&self) -> Outcome {
        print_json(self)
    }
}

/// The problems of a report; a file that can't be read has no name there.
fn problems(file: &str, report: &Report) -> Vec<ProblemInfo> {
    let mut problems = report.problems();
    for problem in problems.iter_mut().filter(|problem| problem.file.is_empty()) {
        file.clone_into(&mut problem.file);
    }
    problems
}
