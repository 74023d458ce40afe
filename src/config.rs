//! The configuration file: from text to checked types, or to a list of everything that is wrong with it.

mod admin;
mod answers;
mod client_ip;
mod encoded_slash;
mod fingerprint;
mod headers;
mod jwt;
mod limits;
mod lints;
mod listeners;
mod numbers;
mod quota;
mod rate;
mod reader;
mod redis;
mod report;
mod rewrite;
mod routes;
mod secrets;
mod statuses;
mod store;
mod table;
mod tls;
mod unmatched;
mod upstreams;
mod zone;

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeTable;

pub use fingerprint::{Change, Fingerprint, Part};
pub use report::Report;

use self::limits::{Naming, Policies, ReadLimits};
use self::reader::{Item, Reader};
use self::report::Problem;
use self::routes::ReadRoute;
use self::store::ReadStore;
use self::table::Table;
use self::upstreams::ReadUpstreams;
use crate::admin::AdminSpec;
use crate::gate::{ClientIp, Gate, RouteTable};
use crate::id_vec::IdVec;
use crate::jwt::Verifier;
use crate::limit::{KeyHasher, PolicyId};
use crate::limiter::Limits;
use crate::proxy::{ConfigSnapshot, protected_headers};
use crate::server::ListenerSpec;
use crate::store::StoreSpec;
use crate::suggest;
use crate::telemetry::LogSpec;
use crate::time::Clock;

const WORKERS: RangeInclusive<u64> = 1..=1_024;
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// A configuration that is right in itself.
#[derive(Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<ListenerSpec>,
    /// Threads that serve; at least one.
    pub workers: usize,
    /// How long a server that is to end serves on, and says that it is not ready.
    pub shutdown_delay: Duration,
    /// How long a stopping server then waits for what it has begun.
    pub shutdown_grace: Duration,
    /// Whether the file is read anew whenever it changes.
    pub watch: bool,
    /// Where counts live.
    pub store: StoreSpec,
    /// The bound on keys that this process counts by itself.
    pub max_keys: usize,
    /// Routes, limits, upstreams and answers.
    pub site: ConfigSnapshot,
    /// What is logged.
    pub log: LogSpec,
    /// The admin interface, if there is one.
    pub admin: Option<AdminSpec>,
}

/// A configuration, and what else there is to say of its file.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is odd about it, though not wrong.
    pub warnings: Report,
    /// The numbers of each limit, tier and override as the file has them, by [`PolicyId`].
    pub limits: IdVec<PolicyId, WrittenLimit>,
    /// What stands in the file, part by part.
    pub outline: Fingerprint,
    /// The other files that it names: keys and certificates.
    pub files: Vec<PathBuf>,
    variables: Variables,
}

/// The variables of the environment that the file names, with their values, which may be secrets.
struct Variables(Vec<(String, String)>);

/// The numbers of a limit as the file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenLimit {
    /// In words, such as `100/minute, burst 500`.
    pub numbers: Box<str>,
}

impl Loaded {
    /// A text with `${NAME}` wherever the value of a variable stands that the file names.
    #[must_use]
    pub fn without_variables(&self, text: &str) -> String {
        secrets::without_values(text, &self.variables.0)
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Variables(…)")
    }
}

/// Reads a file, with the variables of this process.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Report::unreadable(&file, &error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| Report::not_utf8(&file, &bytes, error))?;
    parse(text, &file, &|name| std::env::var(name).ok())
}

/// Reads the text of a file. `file` is its name in messages, from whose directory other files are looked for,
/// and `env` looks up variables.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Report> {
    let (root, broken) = DeTable::parse_recoverable(text);
    let reader = Reader::new(env);
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let read = read_file(Table::new(&reader, "", 0..0, root.get_ref()), directory);
    let (read_files, variables) = (reader.files(), Variables(reader.variables()));
    let files = read_files.values().map(|(path, _)| path.clone()).collect();
    let found = reader.into_problems();
    let problems = if broken.is_empty() { found } else { beside_broken(text, &broken, found) };
    let (warnings, errors): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(Problem::is_warning);
    match read {
        Some((config, limits)) if errors.is_empty() => Ok(Loaded {
            config,
            warnings: Report::new(file, text, warnings),
            limits,
            outline: Fingerprint::of(root.get_ref(), &read_files),
            files,
            variables,
        }),
        _ => Err(Report::new(file, text, errors).naming(files)),
    }
}

/// Where the text is no TOML, what it means is partly a guess: of the other problems only those are shown
/// that do not come from the guess. One broken line can give several errors, of which the first says most.
fn beside_broken(text: &str, broken: &[toml::de::Error], found: Vec<Problem>) -> Vec<Problem> {
    let row = |at: usize| text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
    let mut broken: Vec<(Range<usize>, &str)> =
        broken.iter().map(|error| (error.span().unwrap_or_default(), error.message())).collect();
    broken.sort_by_key(|(span, _)| span.start);
    broken.dedup_by_key(|(span, _)| row(span.start));
    let rows: Vec<usize> = broken.iter().map(|(span, _)| row(span.start)).collect();
    let mut problems: Vec<Problem> =
        broken.into_iter().map(|(span, message)| no_toml(text, span, message)).collect();
    let is_sound = |problem: &Problem| !problem.is_derived() && !rows.contains(&row(problem.start()));
    problems.extend(found.into_iter().filter(is_sound));
    problems
}

/// A place where the text is no TOML, with the cure where the mistake is a common one.
fn no_toml(text: &str, span: Range<usize>, message: &str) -> Problem {
    let problem = Problem::error(span.clone(), format!("this is not valid TOML: {message}"));
    if message == "duplicate key" {
        let key = text.get(span).unwrap_or_default();
        return problem.help(format!("`{key}` stands twice in one table, or two tables have this name"));
    }
    if message.starts_with("invalid ") || message.starts_with("string values must be quoted") {
        return problem.help("text, rates and durations stand in quotes: \"5/minute\", \"30s\"");
    }
    problem
}

/// Reads the whole file; `None` if anything in it is wrong. Other files that it names are looked for from
/// `directory`.
fn read_file(mut top: Table<'_>, directory: &Path) -> Option<(Config, IdVec<PolicyId, WrittenLimit>)> {
    let reader = top.reader;
    let workers = top.item("workers").map_or_else(|| Some(all_cpus()), workers);
    let mut wait = |key, default| top.item(key).map_or(Some(default), |item| item.duration(&GRACE));
    let shutdown_delay = wait("shutdown_delay", Duration::ZERO);
    let shutdown_grace = wait("shutdown_grace", Duration::from_secs(30));
    let watch = top.item("watch").map_or(Some(false), Item::boolean);
    let client_ip = client_ip::client_ip(top.item("client_ip"));
    let listeners = listeners::listeners(&mut top, directory, client_ip.as_ref());
    let store = store::store(top.item("store"), directory);
    let naming = Naming {
        client_ip: client_ip.clone().unwrap_or_default(),
        hasher: store.as_ref().map_or_else(|| KeyHasher::new(None), |store| store.hasher.clone()),
    };
    let jwt = top.item("jwt").map(|item| jwt::jwt(item, directory));
    let limits = limits::limits(top.item("limits"), &naming);
    listeners::check_parts(listeners.as_deref(), &limits, reader);
    let defaults = top.item("default_limits").map_or_else(Vec::new, |item| default_limits(item, &limits));
    let mut upstreams = upstreams::upstreams(top.item("upstreams"), directory);
    jwt::check_parts(jwt.is_some(), &limits, &upstreams, reader);
    let mut names = routes::Names { limits: &limits, upstreams: &mut upstreams, defaults: &defaults };
    let routes = routes::routes(top.item("routes"), &mut names);
    let answers = answers::answers(top.item("answers"));
    let log = answers::log(top.item("log"));
    let admin =
        top.item("admin").map_or(Some(None), |item| admin::admin(item, listeners.as_deref()).map(Some));
    top.close();
    let routes = routes?;
    let sections = lints::Sections {
        routes: &routes,
        limits: &limits,
        upstreams: &upstreams,
        defaults: &defaults,
        listeners: listeners.as_deref().unwrap_or_default(),
        store: store.as_ref(),
    };
    let across = encoded_slash::problems(&routes, &limits);
    let statuses = statuses::warnings(&routes, &limits, &defaults);
    across
        .into_iter()
        .chain(statuses)
        .chain(lints::warnings(&sections))
        .for_each(|problem| reader.note(problem));
    let store = store?;
    let jwt = match jwt {
        Some(spec) => Some(Verifier::new(spec?, Clock::System).into()),
        None => None,
    };
    let (site, written) =
        Parts { routes, limits, upstreams, client_ip: client_ip?, defaults, jwt }.site(&store)?;
    let config = Config {
        listeners: listeners?,
        workers: workers?,
        shutdown_delay: shutdown_delay?,
        shutdown_grace: shutdown_grace?,
        watch: watch?,
        store: store.spec,
        max_keys: store.max_keys,
        site: ConfigSnapshot { response_policy: answers?, ..site },
        log: log?,
        admin: admin?,
    };
    Some((config, written))
}

/// What makes a site.
struct Parts {
    routes: Vec<ReadRoute>,
    limits: ReadLimits,
    upstreams: ReadUpstreams,
    client_ip: ClientIp,
    defaults: Vec<(PolicyId, Range<usize>)>,
    jwt: Option<Arc<Verifier>>,
}

impl Parts {
    fn site(self, store: &ReadStore) -> Option<(ConfigSnapshot, IdVec<PolicyId, WrittenLimit>)> {
        let Policies { all: policies, written, terms, variants } = self.limits.into_policies()?;
        let (routes, treatments): (Vec<_>, IdVec<_, _>) =
            self.routes.into_iter().map(|read| (read.route, read.treatment)).unzip();
        let gate = Gate {
            routes: RouteTable::new(routes),
            client_ip: self.client_ip,
            limits: Limits::new(policies, store.instances),
            limit_rules: terms,
            variants,
            default_limits: self.defaults.into_iter().map(|(id, _)| id).collect(),
            hasher: store.hasher.clone(),
            jwt: self.jwt,
        };
        let upstreams = self.upstreams.into_all()?;
        let protected = Arc::new(protected_headers(&gate, &treatments));
        Some((
            ConfigSnapshot {
                gate,
                actions: treatments,
                upstreams,
                response_policy: crate::proxy::ResponsePolicy::default(),
                protected_headers: protected,
            },
            written,
        ))
    }
}

/// Requests that match no route have these alone, so that the bound of routes holds for them as well.
fn default_limits(item: Item<'_>, limits: &ReadLimits) -> Vec<(PolicyId, Range<usize>)> {
    let defaults = limits.resolve_all(item);
    if defaults.len() > routes::MAX_LIMITS {
        let problem = item.error(format!("there are {} default limits", defaults.len()));
        item.refuse::<()>(problem.help(format!("a request has at most {}", routes::MAX_LIMITS)));
    }
    defaults
}

fn workers(item: Item<'_>) -> Option<usize> {
    if item.is_integer() {
        return item.count(&WORKERS);
    }
    let text = item.string_like("\"auto\" or a number of threads", "")?;
    let help = "write \"auto\" for one thread per CPU, or a number without quotes";
    text.parsed("a number of threads", help, |text| (text == "auto").then(all_cpus))
}

fn all_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
