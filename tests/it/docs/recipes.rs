//! The commands of the documentation have the output that is written below them.
//!
//! A page is played from the top: a TOML block whose first line is `# tidegate.toml` is the file of the proxy, which
//! starts before the next command of a `console` block. `PAGE=docs/recipes/NAME.md` plays one page alone, and `SHOW=1` prints
//! the output of each command.

use std::fs;
use std::sync::Mutex;
use std::time::Instant;

use super::console::steps;
use super::pages::{Block, Page, pages, root};
use super::stage::Stage;
use crate::support::patience;

/// How many pages are played at a time.
const AT_A_TIME: usize = 3;

/// Languages of blocks that are shown and not run.
const SHOWN: [&str; 8] = ["toml", "json", "text", "yaml", "nginx", "python", "javascript", "mermaid"];

#[test]
fn commands_have_the_documented_output() {
    let only = std::env::var("PAGE").ok();
    let is_meant = |page: &Page| page.is_played() && only.as_ref().is_none_or(|only| *only == page.path);
    let waiting: Mutex<Vec<Page>> = Mutex::new(pages().into_iter().filter(is_meant).collect());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(page) = take(&waiting) {
                    if let Err(failure) = play_in_time(&page) {
                        failures.lock().unwrap().push(format!("{}: {failure}", page.path));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn take(waiting: &Mutex<Vec<Page>>) -> Option<Page> {
    waiting.lock().unwrap().pop()
}

/// Plays a page until all outputs are as documented: where the commands take long, limits refill between them.
fn play_in_time(page: &Page) -> Result<(), String> {
    let start = Instant::now();
    loop {
        // A panic of a helper, such as a wait that fails, is the failure of its page too.
        let played = std::panic::catch_unwind(|| play(page));
        let result = played.unwrap_or_else(|_| Err("see the panic above".to_owned()));
        if result.is_ok() || start.elapsed() >= patience() {
            return result;
        }
    }
}

/// Plays a page.
fn play(page: &Page) -> Result<(), String> {
    let blocks = page.blocks();
    let text: String = blocks.iter().map(|block| &*block.text).collect();
    let mut stage = Stage::new(&text);
    for block in &blocks {
        match (block.language(), block.file_name()) {
            ("toml", Some(name)) => stage.write(name, &block.text),
            ("console", _) if block.info == "console" => {
                if !stage.has_configuration() {
                    let quickstart = fs::read_to_string(root().join("config/quickstart.toml")).unwrap();
                    stage.write("tidegate.toml", &quickstart);
                }
                for step in steps(block) {
                    stage.play(&step).map_err(|error| format!("line {}\n{error}", step.line))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn a_block_that_is_not_run_says_why() {
    let mut problems = Vec::new();
    for page in pages() {
        for block in page.blocks() {
            if let Some(problem) = problem(&page, &block) {
                problems.push(format!("{}:{}: {problem}", page.path, block.line));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is wrong with the info string of a block.
fn problem(page: &Page, block: &Block) -> Option<&'static str> {
    let has_reason = block.info.split_once("not run: ").is_some_and(|(_, reason)| !reason.trim().is_empty());
    match block.language() {
        "" => Some("the block has no language"),
        "console" if page.is_played() && block.info == "console" => None,
        "console" | "sh" => {
            (!has_reason).then_some("the block is not run: write why, as in `sh not run: REASON`")
        }
        // Doctests of the library.
        "rust" | "rust,no_run" if page.path == "docs/library.md" => None,
        language => (!SHOWN.contains(&language)).then_some("unknown language"),
    }
}

#[test]
fn every_recipe_has_a_file_and_commands() {
    let recipes = pages().into_iter().filter(|page| page.path.starts_with("docs/recipes/"));
    for page in recipes.filter(|page| !page.path.ends_with("/README.md")) {
        let blocks = page.blocks();
        let has_file = blocks.iter().any(|block| block.file_name() == Some("tidegate.toml"));
        assert!(has_file, "{} has no TOML block that begins with `# tidegate.toml`", page.path);
        let commands = blocks.iter().filter(|block| block.info == "console").flat_map(steps);
        assert!(commands.filter(|step| !step.expected.is_empty()).count() > 0, "{} plays nothing", page.path);
    }
}
