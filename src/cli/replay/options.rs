//! The arguments of `tidegate replay`.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;

use crate::cli::decimal;
use crate::cli::file;
use crate::cli::output::Failure;
use crate::config;
use crate::gate::Gate;
use crate::replay::suggest::{ShareOf, SuggestSettings, WrittenLimits};
use crate::replay::{FieldMap, Format, MemoryBudget, NamedConfig, PartSources, ReadOptions};
use crate::suggest::nearest;

/// The configuration that is used if there is no file: all requests, without limits.
const WITHOUT_FILE: &str =
    "listen = \"127.0.0.1:0\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\nrespond = { status = 200 }\n";
/// The bytes for the arrivals from which limits are suggested.
const HISTORY_BYTES: usize = 72 << 20;

/// What to replay, and what to report.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct ReplayArgs {
    /// The access logs, plain or compressed by gzip or zstd; `-` for standard input.
    ///
    /// Several logs are merged by the time of the requests; files of a rotated log may be in any order.
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,
    /// The configuration, or `-` for standard input; by default the one that `TIDEGATE_CONFIG` names, or else tidegate.toml in the current directory, if
    /// there is one.
    ///
    /// Without a configuration all requests are on one route without limits, and limits are suggested.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Play the logs against this configuration too, and report both side by side.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub format: Output,
    /// Write the report as a page with plots into this file. Implies --suggest.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Replace keys by pseudonyms, and leave out lines of the logs.
    #[arg(long)]
    pub anonymize: bool,
    /// Write the arrivals of the requests that this limit decides, for `tidegate simulate`, in place of a report.
    #[arg(long, value_name = "LIMIT", conflicts_with_all = ["format", "html", "compare", "suggest", "anonymize"])]
    pub emit_arrivals: Option<String>,
    #[command(flatten)]
    suggest: SuggestArgs,
    #[command(flatten)]
    reading: ReadArgs,
    /// How many keys are counted at a time.
    ///
    /// Of more keys, those that were not used for the longest time start again.
    #[arg(long, value_name = "COUNT", default_value = "1000000")]
    max_keys: NonZeroUsize,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Suggestions")]
struct SuggestArgs {
    /// Suggest numbers for each limit, and limits for routes that have none.
    ///
    /// They are chosen from the first part of the time, and checked on the rest.
    #[arg(long)]
    suggest: bool,
    /// The share that suggested limits may deny, such as 0.1% or 0.
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = share)]
    deny_at_most: f64,
    /// Of what --deny-at-most is a share.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Of::Clients)]
    share_of: Of,
    /// The share of the time that is held back to check suggested limits, from its end. Time without requests does not count.
    #[arg(long, value_name = "SHARE", default_value = "14.3%", value_parser = held_back)]
    hold_back: f64,
    /// How many times what the clients need suggested limits are.
    #[arg(long, value_name = "FACTOR", default_value = "1.2", value_parser = headroom)]
    headroom: f64,
}

// In the help backticks would be shown.
#[allow(clippy::doc_markdown)]
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading logs")]
struct ReadArgs {
    /// The format of the logs, in place of the one that is found: common, combined, vhost-combined, nginx-json, caddy-json,
    /// traefik-clf, traefik-json, envoy-text, envoy-json, haproxy-http, alb, elb, w3c, nginx-proxy-manager, cloudflare-json,
    /// tidegate-json or tidegate-text.
    #[arg(long, value_name = "NAME", value_parser = format, conflicts_with = "fields")]
    log_format: Option<Format>,
    /// The fields of JSON lines in any other format, such as time=ts,client=request.ip,method=verb,target=url.
    ///
    /// Names are time, end, client, method, target, path, query, request, host, protocol, status, bytes, duration,
    /// user_agent, referer, user, consumer, headers, header.NAME and field.NAME. A duration is in seconds, or in the unit after
    /// a colon, as in duration=elapsed:ms. Limits that settle their cost by the response read the fields prompt_tokens,
    /// completion_tokens, max_tokens and model, as in field.prompt_tokens=llm.tokens_in.
    #[arg(long, value_name = "NAME=FIELD,…", value_parser = fields)]
    fields: Option<FieldMap>,
    /// The field with the address of the client, if a proxy is in front of the server that wrote the logs.
    ///
    /// Of a list of addresses, the last one that is not in trusted_proxies counts; a dash is for the address that the server
    /// has seen. A field is a name of a JSON line, of a
    /// request header, or extra1, extra2 … for what follows the format at the end of a line.
    #[arg(long, value_name = "FIELD")]
    client_from: Option<String>,
    /// The field with the value of a part of keys that the logs lack, such as header:x-api-key=extra1.
    ///
    /// Without a part, the field is used for all parts that the limits count by and that logs lack. May be repeated.
    #[arg(long, value_name = "[PART=]FIELD")]
    key_from: Vec<String>,
    /// The host of all requests of which the log has none, for routes that are for one host.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The time zone of times without an offset from UTC, such as Europe/Berlin; by default that of this system.
    #[arg(long, value_name = "NAME", value_parser = zone)]
    time_zone: Option<TimeZone>,
    /// How many seconds after its arrival a request may be logged; by default 10, and 300 for logs of cloud services.
    ///
    /// The default grows to 300 where requests take longer.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    window: Option<crate::time::Micros>,
}

const EXAMPLES: &str = "\
Examples:
  What the limits of tidegate.toml would have done last week:
    tidegate replay -c tidegate.toml /var/log/nginx/access.log*

  Limits from a log alone, which deny at most 1 % of clients, as a page:
    tidegate replay --suggest --deny-at-most 1% --html report.html access.log

  Limits by API key, which nginx logs at the end of each line:
    tidegate replay -c tidegate.toml --key-from header:x-api-key=extra1 access.log

  The arrivals at one limit, for a plot:
    tidegate replay --emit-arrivals per-client access.log | tidegate simulate --limit per-client

Exit status: 0 on success, 1 if a log can't be read to its end or the output fails, 2 for an invalid configuration, logs \
without requests, or wrong usage.";

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Output {
    /// Tables.
    Table,
    /// One JSON object.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Clients of which a request is denied.
    Clients,
    /// Requests.
    Requests,
}

impl ReplayArgs {
    /// Reads the configuration, and the one to compare it with.
    pub fn load(&self) -> Result<Vec<NamedConfig>, Failure> {
        // The file of the system is no default: logs of another server are replayed without limits.
        let default = || Some(PathBuf::from("tidegate.toml")).filter(|file| file.exists());
        let file = file::named(self.config.as_deref()).or_else(default);
        self.check_stdin(file.as_deref())?;
        [file.as_deref(), self.compare.as_deref()]
            .into_iter()
            .enumerate()
            .filter_map(|(index, file)| match (index, file) {
                (0, None) => Some(without_file()),
                (_, None) => None,
                (_, Some(file)) => Some(load(file)),
            })
            .collect()
    }

    /// Rejects standard input for more than one of the configurations and logs.
    fn check_stdin(&self, file: Option<&Path>) -> Result<(), Failure> {
        let logs = self.logs.iter().map(PathBuf::as_path);
        let all = file.into_iter().chain(self.compare.as_deref()).chain(logs);
        if all.filter(|path| file::is_stdin(path)).count() < 2 {
            return Ok(());
        }
        Err(usage("-", "standard input can be read only once; name files for the others"))
    }

    /// The sources of parts of requests.
    pub fn sources(&self, gate: &Gate) -> Result<PartSources, Failure> {
        PartSources::parse(gate, self.reading.client_from.as_deref(), &self.reading.key_from)
            .map(|sources| sources.with_host(self.reading.host.as_deref()))
            .map_err(|error| usage("--key-from", error))
    }

    /// How logs are read, with the fields that `sources` need.
    pub fn read_options<'s>(&self, sources: impl Iterator<Item = &'s PartSources>) -> ReadOptions {
        let reading = &self.reading;
        let format = reading.fields.as_ref().map(|fields| Format::JsonFields(fields.clone()));
        let mut fields: Vec<String> = Vec::new();
        for field in sources.flat_map(PartSources::fields) {
            // Configurations that are compared need the same ones.
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        ReadOptions {
            format: reading.log_format.clone().or(format),
            fields,
            zone: reading.time_zone.clone().unwrap_or_else(TimeZone::system),
            window: reading.window,
        }
    }

    /// How limits are suggested, if they are.
    pub fn settings(&self, configurations: &[NamedConfig]) -> Option<SuggestSettings> {
        let args = &self.suggest;
        let has_file = configurations.iter().any(|configuration| configuration.file.is_some());
        (args.suggest || self.html.is_some() || !has_file).then_some(SuggestSettings {
            deny_at_most: args.deny_at_most,
            of: match args.share_of {
                Of::Clients => ShareOf::Clients,
                Of::Requests => ShareOf::Requests,
            },
            fit: 1.0 - args.hold_back,
            headroom: args.headroom,
        })
    }

    /// How much memory each of `count` configurations may use.
    pub fn memory(&self, suggests: bool, count: usize) -> MemoryBudget {
        MemoryBudget {
            max_keys: self.max_keys.get(),
            history_bytes: suggests.then_some(HISTORY_BYTES / count.max(1)),
        }
    }
}

fn load(file: &Path) -> Result<NamedConfig, Failure> {
    let (loaded, text) = file::load_with_text(file)?;
    let included = loaded.included.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let texts: Vec<String> = [text].into_iter().chain(included).collect();
    Ok(NamedConfig { file: Some(file::name(file)), loaded, written: WrittenLimits::parse(&texts) })
}

fn without_file() -> Result<NamedConfig, Failure> {
    let loaded =
        config::parse(WITHOUT_FILE, "", &|_| None).map_err(|_| usage("-c", "name a configuration"))?;
    Ok(NamedConfig { file: None, loaded, written: WrittenLimits::default() })
}

/// Reports an invalid argument.
pub(super) fn usage(argument: &str, error: impl Display) -> Failure {
    Failure::Usage.error(format!("{argument}: {error}"))
}

/// A share as percentage or fraction.
fn share(text: &str) -> Result<f64, String> {
    let (number, percent) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_end(), 100.0));
    let share =
        number.parse::<f64>().map_err(|_| "write a share such as 0.1% or 0.001".to_owned())? / percent;
    (0.0..1.0)
        .contains(&share)
        .then_some(share)
        .ok_or_else(|| "a share is from 0 to less than 100%".to_owned())
}

/// A share of the time, of which enough is left to choose limits from.
fn held_back(text: &str) -> Result<f64, String> {
    share(text)?.le(&0.9).then(|| share(text)).ok_or_else(|| "at most 90% can be held back".to_owned())?
}

fn headroom(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1.0..=100.0).contains(factor));
    factor.ok_or_else(|| "headroom is a factor from 1 to 100, such as 1.2".to_owned())
}

fn format(name: &str) -> Result<Format, String> {
    Format::named(name).ok_or_else(|| {
        let names = || Format::KNOWN.iter().map(Format::name);
        match nearest(name, names()) {
            Some(near) => format!("unknown format; did you mean {near}?"),
            None if name == "json" => "name the fields of other JSON with --fields".to_owned(),
            None => format!("unknown format; formats are {}", names().collect::<Vec<_>>().join(", ")),
        }
    })
}

fn fields(text: &str) -> Result<FieldMap, String> {
    FieldMap::parse(text).map_err(|error| error.to_string())
}

fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "unknown time zone; write a name such as Europe/Berlin or UTC".to_owned())
}

fn seconds(text: &str) -> Result<crate::time::Micros, String> {
    decimal::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(
            [share("0.5%"), share("1 %"), share("0.25"), share("0")],
            [Ok(0.005), Ok(0.01), Ok(0.25), Ok(0.0)]
        );
        for wrong in ["", "x", "100%", "-1%", "NaN", "1.5"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_formats_are_corrected() {
        assert_eq!(format("combined"), Ok(Format::Combined));
        assert_eq!(format("combind"), Err("unknown format; did you mean combined?".to_owned()));
        assert!(format("json").unwrap_err().contains("--fields"));
    }
}
