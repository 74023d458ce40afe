//! Functions are short and have few parameters.

use std::collections::BTreeSet;

use super::files::{Function, SourceFile, parsed};

/// Lines of a function, from its name to its end.
const MOST_LINES: usize = 60;
/// Parameters of a function, `self` among them, and each member of a tuple.
const MOST_PARAMETERS: usize = 5;

/// The functions that are too long today. The list only gets shorter.
const LONG: &[&str] = &[];

/// The functions that have too many parameters today. The list only gets shorter.
const WIDE: &[&str] = &[];

fn assert_known(found: &BTreeSet<String>, known: &[&str], list: &str, rule: &str) {
    let new: Vec<&String> = found.iter().filter(|name| !known.contains(&name.as_str())).collect();
    assert!(new.is_empty(), "{rule}: {new:#?}");
    let resolved: Vec<&&str> = known.iter().filter(|name| !found.contains(**name)).collect();
    assert!(resolved.is_empty(), "remove these from {list}, since they keep the rule now: {resolved:#?}");
}

#[test]
fn functions_have_at_most_60_lines_and_five_parameters() {
    let named = |is_wrong: fn(&Function) -> bool| -> BTreeSet<String> {
        let of_file = |file: &'static SourceFile| {
            let wrong = file.functions.iter().filter(move |function| is_wrong(function));
            wrong.map(|function| format!("{}: {}", file.path, function.name))
        };
        parsed().iter().flat_map(of_file).collect()
    };
    let long = named(|function| function.lines > MOST_LINES);
    let wide = named(|function| function.parameters > MOST_PARAMETERS && !function.is_of_trait);
    let rule = format!("functions of more than {MOST_LINES} lines; take steps out of them");
    assert_known(&long, LONG, "LONG", &rule);
    let rule =
        format!("functions of more than {MOST_PARAMETERS} parameters; group those that travel together");
    assert_known(&wide, WIDE, "WIDE", &rule);
}
