//! A real Prometheus, which scrapes proxies and evaluates rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{Process, command, eventually, free_address, get, scaled};

/// How long a query may take to get its data: several scrapes and evaluations of rules, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    _process: Process,
    address: SocketAddr,
    _directory: TempDir,
}

/// A series of the result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels, with its name.
    pub labels: BTreeMap<String, String>,
    /// Its value, which is not a number if the query divides by zero.
    pub value: f64,
}

impl Prometheus {
    /// Starts one that scrapes these admin interfaces as the job `tidegate`, and evaluates the rules of these files, four
    /// times a second.
    #[track_caller]
    pub fn start(targets: &[SocketAddr], rules: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config =
            "global: { scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms }\n"
                .to_owned();
        let targets: Vec<String> = targets.iter().map(SocketAddr::to_string).collect();
        writeln!(
            config,
            "scrape_configs: [{{ job_name: tidegate, static_configs: [{{ targets: {targets:?} }}] }}]"
        )
        .unwrap();
        for (number, rules) in rules.iter().enumerate() {
            std::fs::write(directory.path().join(format!("{number}.rules")), rules).unwrap();
        }
        config.push_str("rule_files: [\"*.rules\"]\n");
        std::fs::write(directory.path().join("prometheus.yml"), config).unwrap();
        for _ in 0..10 {
            let address = free_address();
            // Another process may take the port before the server does; then another port may do.
            if let Some(process) = launch(address, directory.path()) {
                return Self { _process: process, address, _directory: directory };
            }
        }
        panic!("prometheus does not start");
    }

    /// The present result of a query.
    #[track_caller]
    pub fn query(&self, query: &str) -> Vec<Sample> {
        self.read("query", query)["result"].as_array().unwrap().iter().map(sample).collect()
    }

    /// How many exemplars the series of a query have, from the first one on.
    #[track_caller]
    pub fn exemplars(&self, query: &str) -> usize {
        let series = self.read("query_exemplars", query);
        series.as_array().unwrap().iter().map(|series| series["exemplars"].as_array().unwrap().len()).sum()
    }

    /// The `data` of the response to a query.
    #[track_caller]
    fn read(&self, operation: &str, query: &str) -> Value {
        let response = get(self.address, &format!("/api/v1/{operation}?query={}", encoded(query)), &[]);
        assert_eq!(response.status(), 200, "{query}: {}", response.text());
        serde_json::from_str::<Value>(response.text()).unwrap()["data"].take()
    }

    /// Repeats a query until its result has the property, and returns that.
    #[track_caller]
    pub fn wait(&self, query: &str, mut holds: impl FnMut(&[Sample]) -> bool) -> Vec<Sample> {
        let start = Instant::now();
        loop {
            let samples = self.query(query);
            if holds(&samples) {
                return samples;
            }
            let waited = start.elapsed();
            assert!(waited < scaled(PATIENCE), "still after {waited:?}: {query} is {samples:#?}");
            // A pause between two attempts: Prometheus scrapes four times a second.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Annotations of the present alerts that could not be expanded, or that name a label that is absent.
    #[track_caller]
    pub fn broken_annotations(&self) -> Vec<String> {
        let alerts = self.read("alerts", "")["alerts"].take();
        let annotations =
            alerts.as_array().unwrap().iter().flat_map(|alert| alert["annotations"].as_object().unwrap());
        let texts = annotations.map(|(_, text)| text.as_str().unwrap().to_owned());
        texts.filter(|text| text.contains("<error") || text.contains("<no value>")).collect()
    }

    /// The values of a label in the series of a selector, as the variables of a dashboard list them.
    #[track_caller]
    pub fn label_values(&self, selector: &str, label: &str) -> BTreeSet<String> {
        let samples = self.query(selector).into_iter();
        samples.filter_map(|mut sample| sample.labels.remove(label)).collect()
    }
}

impl Sample {
    /// The value of a label; empty if it is absent.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Starts a server in a directory with its file, and waits until it is ready; `None` if it ends before.
fn launch(address: SocketAddr, directory: &Path) -> Option<Process> {
    let mut command = command("prometheus");
    command.current_dir(directory).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.args(["--log.level=error", "--enable-feature=exemplar-storage"]);
    command.arg(format!("--web.listen-address={address}"));
    let mut process = Process::start_silent(&mut command);
    let mut is_ready = false;
    eventually("prometheus is ready or ends", || {
        is_ready = TcpStream::connect(address).is_ok() && get(address, "/-/ready", &[]).status() == 200;
        is_ready || process.try_wait().is_some()
    });
    is_ready.then_some(process)
}

fn sample(series: &Value) -> Sample {
    let labels = series["metric"].as_object().unwrap().iter();
    let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
    Sample { labels, value: series["value"][1].as_str().unwrap().parse().unwrap() }
}

/// Encodes a value for the query of a URL.
fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").unwrap();
        }
        text
    })
}
