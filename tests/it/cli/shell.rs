//! `tidegate completions` and `tidegate man`.

use super::*;
use crate::support::command;

#[test]
fn completions_are_for_each_shell() {
    for (shell, start) in [
        ("bash", "_tidegate() {"),
        ("zsh", "#compdef tidegate"),
        ("fish", "# Print an optspec"),
        ("elvish", "\nuse builtin;"),
        ("powershell", "\nusing namespace"),
    ] {
        let Finished { status, stdout, .. } = tidegate(repository(), &["completions", shell]);
        assert_eq!(status, 0);
        assert!(stdout.starts_with(start), "{stdout:.40}");
        for word in ["explain", "health", "arrivals"] {
            assert!(stdout.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(tidegate(repository(), &["completions", "cmd"]).status, 2);
}

#[test]
fn bash_completes_commands_and_options() {
    let script = tidegate(repository(), &["completions", "bash"]).stdout;
    let ask =
        "COMP_WORDS=(tidegate keys pe); COMP_CWORD=2; _tidegate tidegate pe keys; echo \"${COMPREPLY[@]}\"";
    let output = command("bash").args(["-c", &format!("{script}\n{ask}")]).output().unwrap();
    assert_eq!(Finished::from(output), ok("peek\n"));
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("new/man1");
    assert_eq!(tidegate(repository(), &["man", pages.to_str().unwrap()]), ok(""));
    let read = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    let top = read("tidegate.1");
    assert_eq!(tidegate(repository(), &["man"]), ok(&top));
    let help = tidegate(repository(), &["--help"]).stdout;
    let commands = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = commands
        .lines()
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.filter(|&name| name != "help").collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let page = read(&format!("tidegate-{name}.1"));
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH \"SEE ALSO\""), "{page}");
    }
    for section in [".SH FILES", ".SH ENVIRONMENT", ".SH \"EXIT STATUS\""] {
        assert!(top.contains(section), "{section}: {top}");
    }
    assert!(read("tidegate-keys-raise.1").contains("\\-\\-by"));
    assert!(read("tidegate-keys.1").contains(".SH EXAMPLES"));
}

#[test]
fn every_command_has_examples_and_its_exit_statuses() {
    let help = tidegate(repository(), &["--help"]).stdout;
    let commands = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = commands.lines().filter(|line| !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    let document = std::fs::read_to_string(repository().join("docs/command-line.md")).unwrap();
    for name in names.into_iter().filter(|&name| name != "help") {
        let help = tidegate(repository(), &[name, "--help"]).stdout;
        assert!(help.contains("\nExamples:\n"), "{name} has no examples");
        assert!(
            help.contains(&format!("  tidegate {name}")) || help.contains(&format!("| tidegate {name}")),
            "{name}"
        );
        assert!(help.contains("\nExit status: 0 "), "{name}");
        assert!(
            document.contains(&format!("`tidegate {name}")) || document.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}
