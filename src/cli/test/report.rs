//! The results of tests: as text and as JSON.

use serde::Serialize;

use super::comparison::Difference;
use super::run::{Failure, StepFailure};
use crate::config::PolicyTest;
use crate::telemetry::escaped;
use crate::text::counted;

/// The results of all tests.
#[derive(Serialize)]
pub(super) struct TestReport {
    pub tests: Vec<TestResult>,
    pub passed: usize,
    pub failed: usize,
}

/// The result of a test.
#[derive(Serialize)]
pub(super) struct TestResult {
    pub name: String,
    pub file: String,
    /// The line of the test, or of the expectation that is not met.
    pub line: usize,
    pub passed: bool,
    /// The number of the step that fails, from 1, if the test has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// What differs at that step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Why what happens is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl TestResult {
    /// The result of a test that has this failure.
    pub fn new(test: &PolicyTest, failure: Option<StepFailure>) -> Self {
        let mut result = Self {
            name: test.name.clone(),
            file: test.file.clone(),
            line: test.line(),
            passed: failure.is_none(),
            step: None,
            differences: Vec::new(),
            error: None,
        };
        let Some(StepFailure { step, line, failure }) = failure else { return result };
        (result.step, result.line) = (step, line);
        match failure {
            Failure::Differs(differences) => result.differences = differences,
            Failure::Unknown(why) => result.error = Some(why),
        }
        result
    }

    /// A line for each reason why it has failed.
    pub fn reasons(&self) -> Vec<String> {
        let place = self.step.map_or_else(String::new, |step| format!("step {step}: "));
        let error = self.error.iter().map(|error| format!("{place}error: {error}"));
        let differences = self.differences.iter().map(|difference| {
            let Difference { key, expected, actual } = difference;
            format!("{place}expected {key} {expected}, got {actual}")
        });
        error.chain(differences).map(|line| escaped(&line)).collect()
    }

    fn cleaned(mut self, clean: impl Fn(&str) -> String) -> Self {
        for difference in &mut self.differences {
            difference.expected = clean(&difference.expected);
            difference.actual = clean(&difference.actual);
        }
        Self { name: clean(&self.name), error: self.error.as_deref().map(&clean), ..self }
    }
}

impl TestReport {
    /// The report on these results; `clean` removes secrets from texts.
    pub fn new(results: Vec<TestResult>, clean: impl Fn(&str) -> String) -> Self {
        let failed = results.iter().filter(|result| !result.passed).count();
        let passed = results.len() - failed;
        Self { tests: results.into_iter().map(|result| result.cleaned(&clean)).collect(), passed, failed }
    }

    /// The failed tests with their reasons, and a summary.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for result in self.tests.iter().filter(|result| !result.passed) {
            lines.push(format!("{}:{}: {}", result.file, result.line, escaped(&result.name)));
            lines.extend(result.reasons().iter().map(|reason| format!("  {reason}")));
            lines.push(String::new());
        }
        let all = counted(self.tests.len(), "test");
        lines.push(if self.failed == 0 {
            format!("{all} passed")
        } else {
            format!("{} of {all} failed", self.failed)
        });
        lines
    }
}
