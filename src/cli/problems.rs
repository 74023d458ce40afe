//! Problems of a configuration that another process has read.

use crate::admin::api::ProblemInfo;

/// A line for each problem and each help for it, such as `tidegate.toml:3:8: a rate of zero would deny every request`.
pub(super) fn lines(problems: &[ProblemInfo]) -> Vec<String> {
    let mut lines = Vec::new();
    for problem in problems {
        let place = match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}: ", problem.file),
            _ if problem.file.is_empty() => String::new(),
            _ => format!("{}: ", problem.file),
        };
        lines.push(format!("{place}{}", problem.message));
        lines.extend(problem.help.iter().map(|help| format!("  help: {help}")));
    }
    lines
}
