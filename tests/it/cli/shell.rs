//! `tidegate completions`, `tidegate man` and `tidegate config`.

use tidegate::config;

use super::*;
use crate::support::{TIDEGATE, command};

#[test]
fn completions_are_for_each_shell() {
    for (shell, word) in [
        ("bash", "complete -o nospace"),
        ("zsh", "#compdef tidegate"),
        ("fish", "--command tidegate"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let Finished { status, stdout, .. } = tidegate(repository(), &["completions", shell]);
        assert_eq!(status, 0);
        assert!(stdout.contains(word) && stdout.contains("TIDEGATE_COMPLETE"), "{stdout}");
    }
    assert_eq!(tidegate(repository(), &["completions", "cmd"]).status, 2);
}

/// A directory with a configuration, another one, and its consumers.
fn named() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    // Names are completed from an invalid configuration too.
    let limits = "[limits.per-key]\nrate = 5\n[limits.per-client]\n[limits.daily]\n";
    write("tidegate.toml", &format!("[consumers]\nfile = \"consumers.toml\"\n{limits}"));
    write("other.toml", "[limits.hourly]\n");
    write("consumers.toml", "[alice]\n[acme]\n[bob]\n");
    directory
}

/// The completions of bash for the last of these words.
fn completed_by_bash(directory: &Path, words: &[&str]) -> String {
    let binary = Path::new(TIDEGATE).parent().unwrap();
    let script = tidegate(repository(), &["completions", "bash"]).stdout;
    let (last, index) = (words.last().unwrap(), words.len() - 1);
    let ask = format!(
        "PATH={}:$PATH; COMP_WORDS=({} {last:?}); COMP_CWORD={index}; _clap_complete_tidegate tidegate {last:?}; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        binary.display(),
        words[..index].join(" ")
    );
    let mut bash = command("bash");
    bash.args(["-c", &format!("{script}\n{ask}")]).current_dir(directory).env_remove("TIDEGATE_CONFIG");
    let Finished { stdout, stderr, .. } = bash.output().unwrap().into();
    assert_eq!(stderr, "");
    stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn bash_completes_commands_options_and_names() {
    let directory = named();
    for (words, completed) in [
        (&["tidegate", "keys", "pe"][..], "peek"),
        (&["tidegate", "simulate", "--arr"], "--arrivals"),
        (&["tidegate", "simulate", "--limit", "per"], "per-client per-key"),
        (&["tidegate", "simulate", "--limit", "daily,per-k"], "daily,per-key"),
        (&["tidegate", "keys", "peek", "da"], "daily"),
        (&["tidegate", "keys", "peek", "-c", "other.toml", "h"], "hourly"),
        (&["tidegate", "top", "--consumer", "a"], "acme alice"),
        (&["tidegate", "explain", "--consumer", "b"], "bob"),
        (&["tidegate", "keys", "peek", "-c", "missing.toml", "h"], ""),
    ] {
        assert_eq!(completed_by_bash(directory.path(), words), completed, "{words:?}");
    }
}

#[test]
fn zsh_and_fish_get_the_names() {
    let directory = named();
    for shell in ["zsh", "fish"] {
        let mut command = command(TIDEGATE);
        command.args(["--", "tidegate", "keys", "peek", "da"]).current_dir(directory.path());
        command.env("TIDEGATE_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
        let Finished { status, stdout, .. } = command.output().unwrap().into();
        assert_eq!((status, stdout.trim_end()), (0, "daily"), "{shell}");
    }
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
fn the_manual_page_of_the_file_has_all_keys() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(tidegate(repository(), &["man", directory.path().to_str().unwrap()]), ok(""));
    let page = std::fs::read_to_string(directory.path().join("tidegate.toml.5")).unwrap();
    assert!(page.contains(".TH tidegate.toml 5 "), "{page:.200}");
    assert_eq!(
        page.matches("\n.TP\n").count(),
        config::tables().iter().map(|table| table.keys.len()).sum::<usize>()
    );
    for heading in ["\"TOP LEVEL\"", "[[listeners]]", "[limits.NAME]", "\"[NAME] of the file of consumers\""]
    {
        assert_eq!(page.matches(&format!("\n.SH {heading}\n")).count(), 1, "{heading}");
    }
}

#[test]
fn a_key_is_described() {
    let described = tidegate(repository(), &["config", "client_ip.trusted_proxies"]);
    let text = "trusted_proxies, in [client_ip]\n  values   an array, each element a string\n  default  `[]`\n  \
                Networks or addresses of the proxies whose headers are trusted\n";
    assert_eq!(described, ok(text));
    let unknown = tidegate(repository(), &["config", "trusted_proxys"]);
    let text = "error: no key has the name `trusted_proxys`\nhelp: did you mean `trusted_proxies`?\n";
    assert_eq!(unknown, wrong(text));
    // Every key of the reference is described.
    for table in config::tables() {
        for key in table.keys {
            assert!(config::describe(&key.name).is_ok(), "{}", key.name);
        }
    }
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
