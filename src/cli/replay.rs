//! `tidegate replay`.

mod options;
mod progress;
mod suggestion;
mod table;

use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub(super) use self::options::ReplayArgs;
use self::options::{Output, usage};
use self::progress::ProgressDisplay;
use super::output::{CommandResult, Failure, complain, print, report_write};
use crate::config::Loaded;
use crate::gate::Gate;
use crate::limit::{Charge, Key, PolicyId};
use crate::replay::{
    Arrivals, BackgroundReader, ConfigurationReport, Findings, LoggedRequest, NamedConfig, PartSources,
    PlannedEntry, PlayedEntry, Player, ReadSummary, ReplayReport, Replayer, ResponseCost, html,
};
use crate::suggest::nearest;
use crate::telemetry::escaped;
use crate::time::{Clock, Timestamp};

/// Plays access logs.
pub(super) fn replay(args: &ReplayArgs) -> CommandResult {
    let mut configurations = args.load()?;
    for configuration in &mut configurations {
        if let Some(consumers) = &mut configuration.loaded.config.snapshot.gate.consumers {
            // Whether a credential has expired depends on the clock of the log.
            consumers.clock = Clock::manual(Timestamp::default());
        }
    }
    let sources = configurations.iter().map(|configuration| args.sources(gate(&configuration.loaded)));
    let sources: Vec<PartSources> = sources.collect::<Result<_, Failure>>()?;
    let arrivals = Arrivals::open(&args.logs, &args.read_options(sources.iter()))
        .map_err(|error| Failure::Usage.error(error))?;
    let with_sources = || configurations.iter().zip(&sources);
    if let Some(limit) = &args.emit_arrivals {
        return with_sources()
            .next()
            .map_or(Ok(()), |(named, sources)| emit(limit, named, sources, arrivals));
    }
    let settings = args.settings(&configurations);
    let memory = args.memory(settings.is_some(), configurations.len());
    let replayers: Vec<Replayer<'_>> = with_sources()
        .map(|(named, sources)| Replayer::new(&named.loaded.config.snapshot, sources, memory))
        .collect();
    let formats = arrivals.formats().to_vec();
    if formats.is_empty() {
        return Err(usage("LOG", "the logs have no lines"));
    }
    let (findings, summary) = play(arrivals, replayers).map_err(failed)?;
    let mut report = ReplayReport::new(&formats, &summary);
    let format = formats.first().map(|(_, format)| format);
    for (named, findings) in configurations.iter().zip(findings) {
        report.configurations.push(ConfigurationReport::new(named, findings, format, settings.as_ref()));
    }
    for sources in &sources {
        report.add_missing_fields(sources);
    }
    if args.anonymize {
        report.anonymize();
    }
    write(args, &report)?;
    check(&report, &summary)
}

/// Fails if nothing was played, or a log was not read to its end.
fn check(report: &ReplayReport, summary: &ReadSummary) -> CommandResult {
    let nothing = report.configurations.iter().all(|configuration| configuration.requests.are_none_played());
    if nothing {
        complain("error: no request of the logs could be played; see the reasons above");
        return Err(Failure::Usage);
    }
    if summary.broken.is_empty() { Ok(()) } else { Err(failed("a log was not read to its end")) }
}

/// Plays all requests against each configuration.
fn play(arrivals: Arrivals, mut replayers: Vec<Replayer<'_>>) -> io::Result<(Vec<Findings>, ReadSummary)> {
    let mut progress = ProgressDisplay::new(arrivals.progress());
    let reader = BackgroundReader::start(arrivals)?;
    while let Some(batch) = reader.next_batch() {
        for replayer in &mut replayers {
            for entry in &batch {
                replayer.play(entry);
            }
        }
        progress.add(batch.len());
    }
    Ok((replayers.into_iter().map(Replayer::finish).collect(), reader.finish()?))
}

/// Writes the arrivals at a limit.
fn emit(limit: &str, named: &NamedConfig, sources: &PartSources, arrivals: Arrivals) -> CommandResult {
    let mut emitter = Emitter::new(gate(&named.loaded), limit, BufWriter::new(io::stdout().lock()))
        .map_err(|error| usage("--emit-arrivals", error))?;
    // Which requests reach the limit does not depend on counts.
    let mut player = Player::new(&named.loaded.config.snapshot, sources, 1);
    let reader = BackgroundReader::start(arrivals).map_err(failed)?;
    let mut written = Ok(());
    while let (Some(batch), Ok(())) = (reader.next_batch(), &written) {
        for entry in &batch {
            player.play(entry, |played, planned| {
                if written.is_ok() {
                    written = emitter.write(entry, played, planned);
                }
            });
        }
    }
    report_write("standard output", written.and_then(|()| emitter.flush()))?;
    let summary = reader.finish().map_err(failed)?;
    for line in table::reading(&ReplayReport::new(&[], &summary)) {
        complain(line);
    }
    if summary.broken.is_empty() { Ok(()) } else { Err(failed("a log was not read to its end")) }
}

fn write(args: &ReplayArgs, report: &ReplayReport) -> CommandResult {
    if let Some(path) = &args.html {
        let shown = path.display();
        report_write(&shown.to_string(), write_file(path, &html::page(report)))?;
        complain(format!("report written to {shown}"));
    }
    match args.format {
        Output::Table => print(&table::lines(report).join("\n")),
        Output::Json => {
            let json = serde_json::to_string(report).map_err(failed)?;
            print(&json)
        }
    }
}

fn gate(loaded: &Loaded) -> &Gate {
    &loaded.config.snapshot.gate
}

fn failed(error: impl Display) -> Failure {
    Failure::Running.error(error)
}

/// Writes a file so that its readers find the old content or all of the new. Fails if the file, or one beside it, can't be
/// written.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // A device or a pipe must not be replaced.
        return fs::write(path, text);
    }
    // A link stays, and the file behind it is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Writes arrivals.
struct Emitter<'g, W> {
    gate: &'g Gate,
    limit: PolicyId,
    out: W,
}

impl<'g, W: Write> Emitter<'g, W> {
    /// An emitter of the arrivals of this limit. Fails if there is no such limit.
    pub fn new(gate: &'g Gate, name: &str, out: W) -> Result<Self, String> {
        let limit = gate.limit_named(name).ok_or_else(|| {
            match nearest(name, gate.limits().map(|(_, policy)| &*policy.name)) {
                Some(near) => format!("unknown limit `{name}`; did you mean `{near}`?"),
                None => format!("unknown limit `{name}`"),
            }
        })?;
        Ok(Self { gate, limit, out })
    }

    /// Writes the line of a request, if the limit decides it.
    pub fn write(
        &mut self,
        entry: &LoggedRequest<'_>,
        played: &PlayedEntry,
        planned: Option<&PlannedEntry<'_>>,
    ) -> io::Result<()> {
        let decision = played.decisions.iter().find(|(limit, ..)| *limit == self.limit);
        let (Some((_, charge, _)), Some(planned)) = (decision, planned) else { return Ok(()) };
        let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let (at, flight) = (seconds(entry.arrival.0), seconds(entry.duration.unwrap_or_default().0));
        write!(self.out, "{at} {} {} {flight}", key_word(planned, charge), charge.cost)?;
        match ResponseCost::Logged(entry).charged(self.gate, self.limit) {
            Some(units) => writeln!(self.out, " settle={units}"),
            None => writeln!(self.out),
        }
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The key as one word. Blanks, percent signs, and what would start a comment, are percent-encoded.
fn key_word(planned: &PlannedEntry<'_>, charge: &Charge) -> String {
    let name = planned.key_name(charge).unwrap_or_else(|| format!("{}{}", Key::TAG, charge.key));
    let mut word = String::new();
    for (index, c) in escaped(&name).chars().enumerate() {
        if c.is_whitespace() || c == '%' || index == 0 && c == '#' {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string can't fail.
                let _ = write!(word, "%{byte:02X}");
            }
        } else {
            word.push(c);
        }
    }
    if word.is_empty() { "-".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        for text in ["one", "two"] {
            write_file(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_file(&folder.path().join("missing/report.html"), "x").is_err());
        assert!(write_file(folder.path(), "x").is_err());
    }
}
