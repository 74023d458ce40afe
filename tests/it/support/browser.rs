//! A real browser without a window.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{Tidegate, command};

/// The browsers that are tried, in order. The first is the program itself, which Debian's script of that name starts: the end
/// of that script would leave the browser running.
const PROGRAMS: [&str; 3] =
    ["/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/google-chrome"];

/// A command of a browser without a window, which keeps its files in this directory.
#[track_caller]
pub(super) fn headless(profile: &Path) -> Command {
    let program = PROGRAMS.iter().find(|program| Path::new(program).exists());
    let mut command = command(program.expect("no browser; see scripts/setup"));
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command
}

/// A page that runs a script. Its origin is a server of its own, so requests to other servers are cross-origin.
pub struct Page {
    server: Tidegate,
}

impl Page {
    /// A page with the body of an async function, which returns its result. It has a function `ask(url, options)`, which
    /// fetches and returns `{status, headers, body}`, or `{error}` where the browser does not let the page read the response.
    pub fn new(script: &str) -> Self {
        let html = format!(
            "<!doctype html><title>page</title><pre id=result></pre><script>\
             const ask = async (url, options) => {{ try {{ const response = await fetch(url, options);\
             return {{ status: response.status, headers: Object.fromEntries(response.headers), body: await response.text() }};\
             }} catch (error) {{ return {{ error: String(error) }}; }} }};\
             (async () => {{ {script} }})().catch(error => ({{ thrown: String(error) }}))\
             .then(value => {{ result.textContent = encodeURIComponent(JSON.stringify(value)); }});</script>"
        );
        let server = Tidegate::start(&format!(
            "[[routes]]\npath = \"/*\"\nrespond = {{ body = '''{html}''' }}\n\
             response_headers.set = {{ content-type = \"text/html; charset=utf-8\" }}\n"
        ));
        Self { server }
    }

    /// The origin of the page.
    pub fn origin(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// Opens the page with this fragment, which the script finds as `location.hash`; returns the result of the script.
    pub fn run(&self, fragment: &str) -> Value {
        let profile = TempDir::new().unwrap();
        let output = headless(profile.path())
            // Time that is skipped while the page waits for nothing but timers; it does not pass during requests.
            .args(["--virtual-time-budget=60000", "--dump-dom"])
            .arg(format!("{}/#{fragment}", self.origin()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = dom.split_once("<pre id=\"result\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (text, _) =
            text.unwrap_or_else(|| panic!("no result: {dom}\n{}", String::from_utf8_lossy(&output.stderr)));
        let json = percent_encoding::percent_decode_str(text).decode_utf8().unwrap();
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json:?} in {dom}"))
    }
}
