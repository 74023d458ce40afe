//! The dashboard and the alert rules as tests use them, and traffic.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

/// Windows, delays and offsets of the rules, and what they are in a test, so that an alert takes seconds. The thresholds stay.
const SHORTER: [(&str, &str); 4] =
    [("[5m]", "[2s]"), ("[15m]", "[4s]"), ("[1d] offset 1h", "[30s] offset 4s"), ("for: ", "for: 0s # ")];

/// The values of the dashboard's variables: everything, and an interval of several scrapes.
const VARIABLES: [(&str, &str); 6] = [
    ("$__rate_interval", "3s"),
    ("$job", ".*"),
    ("$instance", ".*"),
    ("$limit", ".*"),
    ("$route", ".*"),
    ("$upstream", ".*"),
];

/// The dashboard.
pub fn board() -> Value {
    serde_json::from_str(&text("config/grafana/dashboards/tidegate.json")).unwrap()
}

/// The elements of an array; none of anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty if it is anything else.
pub fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A query as Grafana sends it.
#[track_caller]
pub fn filled(query: &str) -> String {
    let query = VARIABLES.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value));
    assert!(!query.contains('$'), "a variable without a value: {query}");
    query
}

/// The first query of a panel.
#[track_caller]
pub fn panel_query(id: u64) -> String {
    let board = board();
    let panel = list(&board["panels"]).iter().find(|panel| panel["id"] == id).unwrap();
    filled(string(&panel["targets"][0]["expr"]))
}

/// Requests that clients send again and again until this is dropped.
#[derive(Debug)]
pub struct Traffic {
    is_stopped: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts so many clients at once; each calls `round` with the number of the round, from 0.
    pub fn start(clients: usize, round: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let (is_stopped, round) = (Arc::new(AtomicBool::new(false)), Arc::new(round));
        let client = |_| {
            let (is_stopped, round) = (Arc::clone(&is_stopped), Arc::clone(&round));
            std::thread::spawn(move || {
                for number in 0.. {
                    if is_stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    round(number);
                    // The pace of the load.
                    std::thread::sleep(Duration::from_millis(20));
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { is_stopped, clients }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let ended = client.join();
            assert!(std::thread::panicking() || ended.is_ok(), "a client has failed");
        }
    }
}

/// A file of this project.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The text of a file of this project.
#[track_caller]
pub fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// The alert rules with shorter times.
pub fn quick_alerts() -> String {
    SHORTER.iter().fold(text("config/prometheus/alerts.yaml"), |rules, (from, to)| rules.replace(from, to))
}
