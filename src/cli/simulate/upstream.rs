//! `tidegate simulate --upstream`: the admission to an upstream under overload, in virtual time.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, value_parser};

use super::OutputFormat;
use crate::config::Loaded;
use crate::overload::simulation::{Change, Discipline, Group, Load, Measured, Run, Scenario, Service, run};
use crate::overload::{Class, LimitSpec, Mode};
use crate::plot::{CurvePanel, Curves};
use crate::suggest::nearest;
use crate::time::{Micros, Timestamp, format_duration};

/// The load before and after the simulated one, relative to the capacity.
const CALM: f64 = 0.5;
/// From when until when the simulated load lasts, in seconds.
const LOADED: (f64, f64) = (10.0, 40.0);
/// The time that is simulated, in seconds.
const SECONDS: f64 = 55.0;
/// How much longer slow servers take, and for how many seconds.
const SLOWER: (f64, f64) = (3.0, 15.0);
/// The part of the requests of each class, by [`Class::index`].
const PARTS: [f64; Class::COUNT] = [0.1, 0.1, 0.6, 0.2];
/// Points of the trace in a second.
const POINTS: usize = 10;

/// The arguments about an upstream.
#[derive(Debug, Args)]
pub(super) struct UpstreamArgs {
    /// Simulate the admission of requests to this upstream, which has `overload`.
    ///
    /// The load is half of the capacity of the servers for 10 s, then that of --load for 30 s, then a half again. A tenth of the
    /// requests each is of the classes critical and high, six tenths are normal, and two tenths low, of 50 clients each.
    #[arg(
        long = "upstream",
        id = "upstream",
        value_name = "NAME",
        conflicts_with_all = ["limits", "descriptor", "arrivals", "store", "compare"]
    )]
    pub name: Option<String>,
    /// The load as a multiple of what the servers can do.
    #[arg(long, value_name = "FACTOR", default_value_t = 3.0, value_parser = load, requires = "upstream", conflicts_with_all = ["limits", "descriptor"])]
    load: f64,
    /// The mean time that a server works at a request; times are exponential.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = service_time, requires = "upstream", conflicts_with_all = ["limits", "descriptor"])]
    service_time: Duration,
    /// How many requests each server works at in that time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = value_parser!(u16).range(1..=1000),
        requires = "upstream",
        conflicts_with_all = ["limits", "descriptor"]
    )]
    slots: u16,
    /// Servers work at all of their requests at once, more slowly if there are more than slots, instead of one after another.
    #[arg(long, requires = "upstream", conflicts_with_all = ["limits", "descriptor"])]
    sharing: bool,
    /// From this second on, the servers take three times as long, for 15 s.
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u16).range(0..=55), requires = "upstream", conflicts_with_all = ["limits", "descriptor"])]
    slow_from: Option<u16>,
    /// The seed of the random numbers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "upstream", conflicts_with_all = ["limits", "descriptor"])]
    seed: u64,
}

/// A simulation that has ended.
pub(super) struct Simulated {
    title: String,
    subtitle: String,
    run: Run,
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.01..=20.0).contains(load));
    load.ok_or_else(|| "it must be from 0.01 to 20".to_owned())
}

fn service_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let range = Duration::from_micros(100)..=Duration::from_mins(1);
    if range.contains(&time) { Ok(time) } else { Err("it must be from 100us to 1min".to_owned()) }
}

impl UpstreamArgs {
    /// Simulates the upstream, with the requests shared equally by this many proxies.
    pub fn simulation(&self, loaded: &Loaded, proxies: usize) -> Result<Simulated, String> {
        let name = self.name.as_deref().unwrap_or_default();
        let upstreams = || loaded.config.snapshot.upstreams.iter();
        let Some(upstream) = upstreams().find(|upstream| *upstream.name == *name) else {
            let near = nearest(name, upstreams().map(|upstream| &*upstream.name));
            let help = near.map_or_else(String::new, |near| format!("\nhelp: did you mean `{near}`?"));
            return Err(format!("error: unknown upstream `{name}`{help}"));
        };
        let Some(spec) = &upstream.overload else {
            return Err(format!(
                "error: upstream `{name}` has no `overload`, so no request is refused before its server\n\
                 help: add overload = true to [upstreams.{name}]"
            ));
        };
        let scenario =
            Scenario { admission: Some(spec.clone()), ..self.scenario(upstream.servers.len(), proxies) };
        let limit = match spec.limit {
            LimitSpec::Fixed(limit) => format!("a fixed limit of {limit}"),
            LimitSpec::Adaptive { min, max } => format!("a learned limit from {min} to {max}"),
        };
        let mode = if spec.mode == Mode::Shadow { ", in shadow mode" } else { "" };
        Ok(Simulated {
            title: format!("{name} at {} times its capacity: {limit}{mode}", self.load),
            subtitle: self.subtitle(&scenario),
            run: run(&scenario, self.seed),
        })
    }

    fn subtitle(&self, scenario: &Scenario) -> String {
        let slow =
            self.slow_from.map_or_else(String::new, |from| format!(", three times slower from {from} s"));
        let by = match scenario.proxies.len() {
            1 => String::new(),
            proxies => format!(", {proxies} proxies"),
        };
        format!(
            "{} × {} slots, {} each: {:.0} requests/s{by}{slow}",
            scenario.servers,
            scenario.slots,
            format_duration(self.service_time),
            scenario.capacity()
        )
    }

    fn scenario(&self, servers: usize, proxies: usize) -> Scenario {
        let load = Load(vec![(0.0, CALM), (LOADED.0, self.load), (LOADED.1, CALM)]);
        let group =
            |class: Class| Group { load: load.times(PARTS[class.index()]), tenants: 50, class, route: None };
        let mut changes = Vec::new();
        if let Some(from) = self.slow_from.map(f64::from) {
            for server in 0..servers {
                changes.push(Change { at: from, server, speed: 1.0 / SLOWER.0 });
                changes.push(Change { at: from + SLOWER.1, server, speed: 1.0 });
            }
        }
        Scenario {
            servers,
            slots: self.slots.into(),
            discipline: if self.sharing { Discipline::ProcessorSharing } else { Discipline::Fifo },
            routes: Service::Exponential(self.service_time.as_secs_f64()).only(),
            groups: Class::ALL.map(group).to_vec(),
            proxies: vec![1.0; proxies],
            changes,
            seconds: SECONDS,
            ..Scenario::calm()
        }
    }
}

/// Writes the result.
pub(super) fn write(simulated: &Simulated, format: OutputFormat) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match format {
        OutputFormat::Table => write_table(simulated, &mut out)?,
        OutputFormat::Jsonl => write_json(simulated, &mut out)?,
        OutputFormat::Svg => out.write_all(curves(simulated).draw().as_bytes())?,
    }
    out.flush()
}

/// A second of the simulation.
struct Second {
    at: f64,
    limit: u32,
    in_flight: u32,
    waiting: u32,
    refused: [u64; Class::COUNT],
    measured: Measured,
}

/// The seconds, each with the state at its end.
fn seconds(run: &Run) -> impl Iterator<Item = Second> {
    run.trace.windows(POINTS + 1).step_by(POINTS).map(|points| {
        let (first, last) = (points[0], points[POINTS]);
        let refused = std::array::from_fn(|class| last.refused[class] - first.refused[class]);
        let measured = run.measure(first.time, last.time);
        Second {
            at: first.time,
            limit: last.limit,
            in_flight: last.in_flight,
            waiting: last.waiting,
            refused,
            measured,
        }
    })
}

fn write_table(simulated: &Simulated, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}\n{}\n", simulated.title, simulated.subtitle)?;
    writeln!(
        out,
        " second  limit  in flight  waiting  requests  good  refused: critical   high  normal    low"
    )?;
    for second in seconds(&simulated.run) {
        let Second { at, limit, in_flight, waiting, refused: [critical, high, normal, low], measured } =
            second;
        writeln!(
            out,
            "{at:7.0} {limit:6} {in_flight:10} {waiting:8} {:9} {:4.0}% {critical:18} {high:6} {normal:7} {low:6}",
            measured.requests,
            measured.goodput * 100.0
        )?;
    }
    let loaded = simulated.run.measure(LOADED.0, LOADED.1);
    writeln!(
        out,
        "\nFrom {} s to {} s: {:.1} % of the capacity was served within twice the calm p99 of {:.0} ms; p99 {:.1} times that.",
        LOADED.0,
        LOADED.1,
        loaded.goodput * 100.0,
        simulated.run.calm_p99 * 1000.0,
        loaded.p99
    )?;
    for class in Class::ALL {
        let measured = simulated.run.measure_of(LOADED.0, LOADED.1, |request| request.class == class);
        writeln!(
            out,
            "{:9} {:5.1} % of {} served",
            class.name(),
            measured.served() * 100.0,
            measured.requests
        )?;
    }
    Ok(())
}

fn write_json(simulated: &Simulated, out: &mut impl Write) -> io::Result<()> {
    for second in seconds(&simulated.run) {
        let refused: serde_json::Map<String, serde_json::Value> = Class::ALL
            .map(|class| (class.name().to_owned(), second.refused[class.index()].into()))
            .into_iter()
            .collect();
        let line = serde_json::json!({
            "second": second.at.round(),
            "limit": second.limit,
            "in_flight": second.in_flight,
            "waiting": second.waiting,
            "requests": second.measured.requests,
            "goodput": second.measured.goodput,
            "refused": refused,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn curves(simulated: &Simulated) -> Curves {
    let trace = &simulated.run.trace;
    let at = |seconds: f64| Timestamp::default().after(Micros::from(Duration::from_secs_f64(seconds)));
    let of = |value: &dyn Fn(usize) -> f64| -> Vec<(Timestamp, f64)> {
        (0..trace.len()).map(|point| (at(trace[point].time), value(point))).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "requests of a second")]
    let refused = |class: Class| {
        let before = |point: usize| trace[point.saturating_sub(POINTS)].refused[class.index()];
        of(&|point| (trace[point].refused[class.index()] - before(point)) as f64)
    };
    let requests = vec![
        ("in flight".to_owned(), of(&|point| f64::from(trace[point].in_flight))),
        ("limit".to_owned(), of(&|point| f64::from(trace[point].limit))),
    ];
    let waiting = vec![("waiting".to_owned(), of(&|point| f64::from(trace[point].waiting)))];
    let classes = [Class::Normal, Class::Low, Class::High, Class::Critical];
    let refused = classes.map(|class| (class.name().to_owned(), refused(class)));
    Curves {
        title: simulated.title.clone(),
        subtitle: simulated.subtitle.clone(),
        span: (Timestamp::default(), at(SECONDS)),
        panels: vec![
            CurvePanel { name: "Requests in flight".to_owned(), curves: requests },
            CurvePanel { name: "Requests that wait".to_owned(), curves: waiting },
            CurvePanel { name: "Refusals per second".to_owned(), curves: refused.to_vec() },
        ],
    }
}
