//! The sections of a file, from tables to checked specs.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use super::consumers::ReadConsumers;
use super::descriptors::{self, ReadDescriptors};
use super::geo::ReadGeo;
use super::limits::{self, Counting, Naming, Policies, ReadLimits};
use super::loaded::Config;
use super::log::{self, ReadLog};
use super::reader::Reader;
use super::report::Problem;
use super::routes::{self, ReadRoute};
use super::store::{self, ReadStore};
use super::table::{Reported, Table};
use super::top::{Process, TopKeys, process};
use super::upstreams::{self, ReadUpstreams};
use super::{acme, acme_names, admin, answers, client_ip, cors, defaults, jwt, listeners};
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
use crate::time::Clock;

/// The sections of a file, each as far as it could be read.
pub(super) struct Sections<'a> {
    pub process: Option<Process>,
    pub client_ip: Option<ClientIp>,
    pub geo: ReadGeo,
    pub consumers: ReadConsumers<'a>,
    pub listeners: Option<Vec<ListenerSpec>>,
    pub store: Option<ReadStore>,
    pub jwt: Result<Option<JwtSpec>, Reported>,
    pub limits: ReadLimits,
    pub defaults: Vec<(PolicyId, Range<usize>)>,
    pub descriptors: Option<ReadDescriptors>,
    pub upstreams: ReadUpstreams,
    pub routes: Option<Vec<ReadRoute>>,
    pub answers: Option<ResponsePolicy>,
    pub cors: Result<Option<CorsPolicy>, Reported>,
    pub log: Option<ReadLog>,
    pub tracing: Result<Option<TracingSpec>, Reported>,
    pub admin: Result<Option<AdminSpec>, Reported>,
    pub acme: Result<Option<AcmeSpec>, Reported>,
}

impl<'a> Sections<'a> {
    /// Reads every section, even if another one is invalid, so that all mistakes are reported at once.
    pub fn read(
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
            listeners::ListenerContext { directory, client_ip: client_ip.as_ref() },
        );
        let store = top.store().section().and_then(|table| store::store(table, directory));
        let hasher = store.as_ref().map_or_else(|| KeyHasher::new(None), |store| store.hasher.clone());
        let naming = Naming { client_ip: client_ip.clone().unwrap_or_else(defaults::client_ip), hasher };
        let counting = store.as_ref().map_or(Counting::InRedis, |store| Counting::of(&store.spec));
        let limits = limits::limits(top.limits().given(), &naming, &consumers, counting, directory);
        check_own_numbers(&consumers, &limits);
        let defaults = routes::default_limits(top.default_limits().item(), &limits);
        let descriptors = descriptors::descriptors(top.descriptors().given(), &limits);
        let mut upstreams = upstreams::upstreams(top.upstreams().given(), directory);
        let geo = ReadGeo::read(top.geo().given(), directory);
        let mut names = routes::RouteNames {
            limits: &limits,
            geo: &geo,
            listeners: listeners.as_deref(),
            consumers: &consumers,
            upstreams: &mut upstreams,
            defaults: &defaults,
        };
        let routes = routes::routes(top.routes().given(), &mut names);
        let admin = top.admin().with(|item| admin::admin(item, directory, listeners.as_deref()));
        let log = top.log().section().and_then(|table| log::log(table, &consumers, directory));
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
            tracing: top.tracing().with(log::tracing),
            admin,
            acme,
        }
    }

    /// The routes; none if they are invalid.
    pub fn routes(&self) -> &[ReadRoute] {
        self.routes.as_deref().unwrap_or_default()
    }

    /// The listeners; none if they are invalid.
    pub fn listeners(&self) -> &[ListenerSpec] {
        self.listeners.as_deref().unwrap_or_default()
    }

    /// The configuration, if all sections are valid.
    pub fn into_config(self) -> Option<Config> {
        let (store, process, log) = (self.store?, self.process?, self.log?);
        let (routes, (actions, cors)): (Vec<_>, (IdVec<_, _>, Vec<_>)) =
            self.routes?.into_iter().map(|read| (read.route, (read.action, read.cors))).unzip();
        let cors = cors::rules(self.cors.ok()?, cors, &routes);
        let mut client_ip = self.client_ip?;
        let (consumers, consumer_forwarding) = self.consumers.into_rules(&mut client_ip)?;
        let (descriptors, mut policies) = (self.descriptors?, self.limits.into_policies()?);
        policies.allow_debts(&descriptors.late_limits().collect::<Vec<_>>());
        let Policies { all: policies, numbers, rules, variants } = policies;
        let gate = Gate {
            routes: RouteTable::new(routes),
            client_ip,
            limits: Limits::new(policies, store.instances),
            limit_rules: rules,
            numbers,
            variants,
            descriptor_rules: descriptors.table,
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
            logged_headers: log.headers,
            protected_headers: protected,
        };
        Some(Config {
            listeners: self.listeners?,
            workers: process.workers,
            shutdown_delay: process.shutdown_delay,
            shutdown_grace: process.shutdown_grace,
            watch: process.watch,
            store: store.spec,
            max_keys: store.max_keys,
            snapshot,
            log: log.spec,
            access_file: log.access_file,
            tracing: self.tracing.ok()?,
            admin: self.admin.ok()?,
            acme: self.acme.ok()?,
            tests: Vec::new(),
        })
    }
}

/// Rejects numbers of consumers for limits that the file does not have. Their places are in the file of consumers.
fn check_own_numbers(consumers: &ReadConsumers<'_>, limits: &ReadLimits) {
    for own in consumers.all_own_numbers().filter(|own| !limits.has(own.limit.text)) {
        let problem =
            Problem::error(own.limit.span.clone(), format!("unknown limit `{}`", own.limit.text)).derived();
        own.item.reader.report(match limits.nearest(own.limit.text) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help(format!("define it: [limits.{}]", own.limit.text)),
        });
    }
}
