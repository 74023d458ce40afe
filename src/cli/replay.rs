//! `tidegate replay`.

mod emit;
mod html_file;
mod options;
mod progress;
mod suggestion;
mod table;

use std::fmt::Display;
use std::io::{self, BufWriter};

use self::emit::Emitter;
use self::html_file::write_file;
pub(super) use self::options::ReplayArgs;
use self::options::{Named, Output, usage};
use self::progress::ProgressDisplay;
use super::outcome::{Failure, Outcome};
use super::output::{complain, print, report_write};
use crate::config::Loaded;
use crate::gate::Gate;
use crate::replay::{
    Arrivals, BackgroundReader, ConfigurationReport, Findings, PartSources, Player, ReadSummary,
    ReplayReport, Replayer, html,
};
use crate::time::{Clock, Timestamp};

/// Plays access logs.
pub(super) fn replay(args: &ReplayArgs) -> Outcome {
    let mut configurations = args.load()?;
    for (_, loaded) in &mut configurations {
        if let Some(consumers) = &mut loaded.config.snapshot.gate.consumers {
            // Whether a credential has expired depends on the clock of the log.
            consumers.clock = Clock::manual(Timestamp::default());
        }
    }
    let sources = configurations.iter().map(|(_, loaded)| args.sources(&loaded.config.snapshot.gate));
    let sources: Vec<PartSources> = sources.collect::<Result<_, Failure>>()?;
    let arrivals = Arrivals::open(&args.logs, &args.read_options(sources.iter())).map_err(|error| {
        complain(format!("error: {error}"));
        Failure::Usage
    })?;
    let with_sources = || configurations.iter().zip(&sources);
    if let Some(limit) = &args.emit_arrivals {
        return with_sources()
            .next()
            .map_or(Ok(()), |(named, sources)| emit(limit, named, sources, arrivals));
    }
    let settings = args.settings(&configurations);
    let memory = args.memory(settings.is_some(), configurations.len());
    let replayers: Vec<Replayer<'_>> = with_sources()
        .map(|((_, loaded), sources)| Replayer::new(&loaded.config.snapshot, sources, memory))
        .collect();
    let formats = arrivals.formats().to_vec();
    if formats.is_empty() {
        return Err(usage("LOG", "the logs have no lines"));
    }
    let (findings, summary) = play(arrivals, replayers).map_err(failed)?;
    let mut report = ReplayReport::new(&formats, &summary);
    let format = formats.first().map(|(_, format)| format);
    for ((file, loaded), findings) in configurations.iter().zip(findings) {
        let named = (file.clone(), loaded);
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
fn check(report: &ReplayReport, summary: &ReadSummary) -> Outcome {
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
fn emit(limit: &str, (_, loaded): &Named, sources: &PartSources, arrivals: Arrivals) -> Outcome {
    let gate = gate(loaded);
    let mut emitter = Emitter::new(gate, limit, BufWriter::new(io::stdout().lock()))
        .map_err(|error| usage("--emit-arrivals", error))?;
    // Which requests reach the limit does not depend on counts.
    let mut player = Player::new(&loaded.config.snapshot, sources, 1);
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

fn write(args: &ReplayArgs, report: &ReplayReport) -> Outcome {
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
    complain(format!("error: {error}"));
    Failure::Running
}
