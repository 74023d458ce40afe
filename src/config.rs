//! The configuration file: from text to checked types, or to a report of all its errors.

mod acme;
mod acme_hosts;
mod acme_names;
mod admin;
mod ahead_lints;
mod answers;
mod client_ip;
mod conditions;
mod consumer_checks;
mod consumers;
mod cors;
mod cors_lints;
pub mod defaults;
mod descriptors;
mod encoded_slash;
mod fingerprint;
mod forward_auth;
mod geo;
mod headers;
mod interfaces;
mod item;
mod jwt;
mod keys;
mod library;
mod limits;
mod lints;
mod listeners;
mod literal_patterns;
mod loaded;
mod log;
mod numbers;
mod quota;
mod rate;
mod rate_form;
mod reader;
mod report;
mod rewrite;
mod route_keys;
mod routes;
mod secrets;
mod source;
mod statuses;
mod store;
mod syntax;
mod table;
mod tls;
mod top;
mod traces;
mod upstreams;
mod written;
mod zone;

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

pub use fingerprint::{Change, Fingerprint, Part};
pub use interfaces::{Interfaces, interfaces, interfaces_from};
pub use keys::Block;
pub use loaded::{Config, Loaded};
pub use report::Report;
pub use top::{reference, schema};
pub use written::WrittenLimit;

use self::consumers::ReadConsumers;
use self::descriptors::ReadDescriptors;
use self::geo::ReadGeo;
use self::keys::KeySet as _;
use self::limits::{Counting, Naming, Policies, ReadLimits};
use self::log::ReadLog;
use self::reader::Reader;
use self::report::Problem;
use self::routes::ReadRoute;
use self::secrets::Variables;
use self::store::ReadStore;
use self::syntax::with_syntax_errors;
use self::table::{Reported, Table};
use self::top::{Process, TopKeys, process};
use self::upstreams::ReadUpstreams;
use crate::acme::AcmeSpec;
use crate::admin::AdminSpec;
use crate::gate::{ClientIp, Gate, RouteTable};
use crate::id_vec::IdVec;
use crate::jwt::{JwtSpec, Verifier};
use crate::limit::{KeyHasher, PolicyId};
use crate::limiter::Limits;
use crate::otlp::TracingSpec;
use crate::proxy::{ConfigSnapshot, CorsPolicy, ResponsePolicy, protected_headers};
use crate::server::ListenerSpec;
use crate::suggest;
use crate::time::Clock;

/// Reads a file, with the variables of this process.
///
/// # Errors
/// All errors of the file.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let (text, file) = (source::read(path)?, path.display().to_string());
    supported(parse(&text, &file, &source::variable)?, &file, &text)
}

/// Reads a configuration from a stream, such as standard input, with the variables of this process. `name` is its name in
/// messages; files that it names are relative to the current directory.
///
/// # Errors
/// All errors of the configuration.
pub fn load_from(stream: impl Read, name: &str) -> Result<Loaded, Report> {
    let text = source::read_from(stream, name)?;
    supported(parse(&text, name, &source::variable)?, name, &text)
}

/// Reads the limits of a file for the library, with the variables of this process. What is about listening, forwarding and
/// operating a proxy is ignored.
///
/// # Errors
/// All errors of the file.
pub fn load_limits(path: &Path) -> Result<Loaded, Report> {
    parse_limits(&source::read(path)?, &path.display().to_string())
}

/// The same with a text. `file` is its name in messages, and other files are relative to its directory.
///
/// # Errors
/// All errors of the text.
pub fn parse_limits(text: &str, file: &str) -> Result<Loaded, Report> {
    let reader = || Reader::for_library(TopKeys::KEYS, &source::variable);
    parse_with(text, file, reader(), reader())
}

/// Rejects a configuration that needs what this build does not have.
fn supported(loaded: Loaded, file: &str, text: &str) -> Result<Loaded, Report> {
    if loaded.config.acme.is_some() && !cfg!(feature = "acme") {
        return Err(Report::new(file, text, vec![acme::not_built()]));
    }
    Ok(loaded)
}

/// Reads the text of a file. `file` is its name in messages, and other files are relative to its directory; `env` looks
/// up variables of the environment.
///
/// # Errors
/// All errors of the file.
pub fn parse(text: &str, file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Report> {
    parse_with(text, file, Reader::new(TopKeys::KEYS, env), Reader::new(TopKeys::KEYS, env))
}

/// The same with these readers of the file and of the file of consumers.
fn parse_with(
    text: &str,
    file: &str,
    reader: Reader<'_>,
    consumers_reader: Reader<'_>,
) -> Result<Loaded, Report> {
    let (root, broken) = DeTable::parse_recoverable(text);
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut top = Table::<TopKeys>::top(&reader, root.get_ref());
    library::exclude_sections(&mut top);
    // The file of consumers has a reader of its own: places in it are not places in the configuration file.
    let consumers = consumers::file(top.consumers().given(), directory);
    let consumers_text = consumers.as_ref().map_or("", |file| &file.text);
    let (consumers_root, consumers_broken) = DeTable::parse_recoverable(consumers_text);
    let entries = consumers.as_ref().map(|_| (&consumers_reader, consumers_root.get_ref()));
    let incomplete = consumers.as_ref().and_then(|file| file.incomplete(consumers_root.get_ref()));
    if let Some(title) = &incomplete {
        let problem = Problem::without_span(title).into_warning();
        consumers_reader.report(problem.help("`watch` does not apply a change to such a file"));
    }
    let read = read_file(top, entries, directory);
    let (read_files, mut variables) = (reader.files(), reader.variables());
    variables.extend(consumers_reader.variables());
    let files = read_files.values().map(|(path, _)| path.clone()).collect();
    let consumers_name = consumers.as_ref().map_or("", |file| &file.name);
    let (warnings, errors) = reports(file, text, &broken, reader);
    let of_consumers = reports(consumers_name, consumers_text, &consumers_broken, consumers_reader);
    let (warnings, errors) = (warnings.followed_by(of_consumers.0), errors.followed_by(of_consumers.1));
    match read {
        Some((config, limits)) if errors.is_empty() => Ok(Loaded {
            config,
            warnings,
            limits,
            sha256: fingerprint::sha256(text),
            fingerprint: Fingerprint::of(root.get_ref(), &read_files),
            files,
            incomplete,
            variables: Variables(variables),
        }),
        _ => Err(errors.naming(files)),
    }
}

/// The warnings and the errors of one file.
fn reports(file: &str, text: &str, broken: &[toml::de::Error], reader: Reader<'_>) -> (Report, Report) {
    let found = reader.into_problems();
    let problems = if broken.is_empty() { found } else { with_syntax_errors(text, broken, found) };
    let (warnings, errors): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(Problem::is_warning);
    (Report::new(file, text, warnings), Report::new(file, text, errors))
}

/// The sections of a file, each as far as it could be read.
struct Sections<'a> {
    process: Option<Process>,
    client_ip: Option<ClientIp>,
    geo: ReadGeo,
    consumers: ReadConsumers<'a>,
    listeners: Option<Vec<ListenerSpec>>,
    store: Option<ReadStore>,
    jwt: Result<Option<JwtSpec>, Reported>,
    limits: ReadLimits,
    defaults: Vec<(PolicyId, Range<usize>)>,
    descriptors: Option<ReadDescriptors>,
    upstreams: ReadUpstreams,
    routes: Option<Vec<ReadRoute>>,
    answers: Option<ResponsePolicy>,
    cors: Result<Option<CorsPolicy>, Reported>,
    log: Option<ReadLog>,
    tracing: Result<Option<TracingSpec>, Reported>,
    admin: Result<Option<AdminSpec>, Reported>,
    acme: Result<Option<AcmeSpec>, Reported>,
}

/// Reads the whole file, with the file of consumers if there is one; `None` if any part of them is
/// invalid. Other files that it names are relative to `directory`.
fn read_file<'a>(
    top: Table<'a, TopKeys>,
    consumers: Option<(&'a Reader<'a>, &'a DeTable<'a>)>,
    directory: &Path,
) -> Option<(Config, IdVec<PolicyId, WrittenLimit>)> {
    let reader = top.reader;
    let sections = Sections::read(&top, consumers, directory);
    top.close();
    if reader.is_for_library() {
        library::check_parts(&sections.limits, reader);
    } else {
        listeners::check_parts(sections.listeners.as_deref(), &sections.limits, reader);
        sections.lint(reader);
    }
    sections.check_parts(reader);
    sections.into_config()
}

impl<'a> Sections<'a> {
    /// Reads every section, even if another one is invalid, so that all mistakes are reported at once.
    fn read(
        top: &Table<'a, TopKeys>,
        consumers: Option<(&'a Reader<'a>, &'a DeTable<'a>)>,
        directory: &Path,
    ) -> Self {
        let client_ip = top.client_ip().section().and_then(client_ip::client_ip);
        let consumers = ReadConsumers::read(top.consumers().given(), consumers);
        let listeners = listeners::listeners(
            top.listen().given(),
            top.listeners().given(),
            top,
            listeners::Context { directory, client_ip: client_ip.as_ref() },
        );
        let store = top.store().section().and_then(|table| store::store(table, directory));
        let hasher = store.as_ref().map_or_else(|| KeyHasher::new(None), |store| store.hasher.clone());
        let naming = Naming { client_ip: client_ip.clone().unwrap_or_else(defaults::client_ip), hasher };
        let counting = store.as_ref().map_or(Counting::InRedis, |store| Counting::of(&store.spec));
        let limits = limits::limits(top.limits().given(), &naming, &consumers, counting);
        consumer_checks::check_limits(&consumers, &limits);
        let defaults = routes::default_limits(top.default_limits().item(), &limits);
        let descriptors = descriptors::descriptors(top.descriptors().given(), &limits);
        let mut upstreams = upstreams::upstreams(top.upstreams().given(), directory);
        let geo = ReadGeo::read(top.geo().given(), directory);
        let mut names = routes::Names {
            limits: &limits,
            geo: &geo,
            consumers: &consumers,
            upstreams: &mut upstreams,
            defaults: &defaults,
        };
        let routes = routes::routes(top.routes().given(), &mut names);
        let admin = top.admin().with(|item| admin::admin(item, directory, listeners.as_deref()));
        let log = top.log().section().and_then(|table| log::log(table, &consumers));
        let acme = top.acme().with(|item| acme::acme(item, directory));
        let acme = acme.and_then(|acme| {
            let (listeners, routes) = (listeners.as_ref().ok_or(Reported)?, routes.as_ref().ok_or(Reported)?);
            acme_names::assign(acme, top.listeners().given(), listeners, routes)
        });
        Self {
            process: process(top),
            client_ip,
            geo,
            consumers,
            listeners,
            store,
            jwt: top.jwt().with(|item| jwt::jwt(item, directory)),
            limits,
            defaults,
            descriptors,
            upstreams,
            routes,
            answers: top.answers().section().and_then(answers::answers),
            cors: top.cors().with(|item| cors::cors(item, "[cors]")),
            log,
            tracing: top.tracing().with(traces::tracing),
            admin,
            acme,
        }
    }

    /// Rejects key parts that need another section which the file does not have.
    fn check_parts(&self, reader: &Reader<'_>) {
        let has_jwt = !matches!(self.jwt, Ok(None));
        jwt::check_parts(has_jwt, &self.limits, &self.upstreams, reader);
        consumer_checks::check_store(&self.consumers, self.store.as_ref(), reader);
        consumer_checks::check_parts(self.consumers.is_there(), &self.limits, &self.upstreams, reader);
        self.geo.check_parts(&self.limits, &self.upstreams, reader);
        lints::check_trust(self.routes.as_deref(), self.client_ip.as_ref(), reader);
        descriptors::check_requests(self.routes.as_deref(), &self.defaults, &self.limits, reader);
    }

    /// Warns of suspicious combinations of valid sections.
    fn lint(&self, reader: &Reader<'_>) {
        let Some(routes) = &self.routes else { return };
        let sections = lints::Sections {
            routes,
            limits: &self.limits,
            upstreams: &self.upstreams,
            defaults: &self.defaults,
            descriptors: self.descriptors.as_ref(),
            listeners: self.listeners.as_deref().unwrap_or_default(),
            store: self.store.as_ref(),
        };
        let slashes = encoded_slash::problems(routes, &self.limits);
        let statuses = statuses::warnings(routes, &self.limits, &self.defaults);
        let cors = cors_lints::warnings(routes, !matches!(self.cors, Ok(None)));
        let default = self.cors.as_ref().ok();
        let preflights = default.map(|default| cors_lints::preflights(routes, default.as_ref()));
        let cors = cors.into_iter().chain(preflights.into_iter().flatten());
        let ahead = ahead_lints::warnings(&self.limits, self.store.as_ref());
        let problems =
            slashes.into_iter().chain(statuses).chain(cors).chain(ahead).chain(lints::warnings(&sections));
        problems.for_each(|problem| reader.report(problem));
    }

    fn into_config(self) -> Option<(Config, IdVec<PolicyId, WrittenLimit>)> {
        let (store, process, (log, logged_headers)) = (self.store?, self.process?, self.log?);
        let (routes, (actions, cors)): (Vec<_>, (IdVec<_, _>, Vec<_>)) =
            self.routes?.into_iter().map(|read| (read.route, (read.action, read.cors))).unzip();
        let cors = cors::rules(self.cors.ok()?, cors, &routes);
        let mut client_ip = self.client_ip?;
        let (consumers, consumer_forwarding) = self.consumers.into_rules(&mut client_ip)?;
        let Policies { all: policies, written, rules, variants } = self.limits.into_policies()?;
        let gate = Gate {
            routes: RouteTable::new(routes),
            client_ip,
            limits: Limits::new(policies, store.instances),
            limit_rules: rules,
            variants,
            descriptor_rules: self.descriptors?.table,
            default_limits: self.defaults.into_iter().map(|(id, _)| id).collect(),
            hasher: store.hasher,
            jwt: self.jwt.ok()?.map(|spec| Verifier::new(spec, Clock::System).into()),
            consumers,
            geo: self.geo.into_databases().ok()?,
        };
        let protected = Arc::new(protected_headers(&gate, &actions));
        let snapshot = ConfigSnapshot {
            gate,
            actions,
            upstreams: self.upstreams.into_all()?,
            response_policy: self.answers?,
            consumer_forwarding,
            cors,
            logged_headers,
            protected_headers: protected,
        };
        let config = Config {
            listeners: self.listeners?,
            workers: process.workers,
            shutdown_delay: process.shutdown_delay,
            shutdown_grace: process.shutdown_grace,
            watch: process.watch,
            store: store.spec,
            max_keys: store.max_keys,
            snapshot,
            log,
            tracing: self.tracing.ok()?,
            admin: self.admin.ok()?,
            acme: self.acme.ok()?,
        };
        Some((config, written))
    }
}
