//! The counters of all workers, by the names of limits, routes and upstreams.
//!
//! A scrape reads them in pages: the lock is held for a page only, so that a reload, which looks counters up, never waits for
//! all of them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};

use parking_lot::Mutex;

use super::counts::{
    Counts, LimitCounters, LimitSums, OnDemand, PerWorker, RequestCounts, RouteCounters, RouteSums,
    SettlementSums, WorkerCounters, WorkerSums,
};
use super::upstreams::{NamedUpstream, UpstreamCounts, UpstreamSums};
use crate::limit::Policy;

/// How many names are read under one lock.
const PAGE: usize = 256;

/// The counters of all workers, by name.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    workers: PerWorker<WorkerCounters>,
    /// The counters of requests without a route.
    unrouted: PerWorker<OnDemand<RouteCounters>>,
    limits: ByName<PerWorker<LimitCounters>>,
    routes: ByName<PerWorker<OnDemand<RouteCounters>>>,
    upstreams: ByName<NamedUpstream>,
}

type ByName<T> = BTreeMap<Box<str>, T>;

impl Registry {
    /// The counters of one worker for these limits and routes. Policies of the same name share counters.
    pub fn counts<'a>(
        &self,
        worker: usize,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
    ) -> Counts {
        let Named { workers, unrouted, limits, routes: by_route, .. } = &mut *self.0.lock();
        let limit = |policy: &Policy| limits.entry(policy.name.clone()).or_default().of(worker);
        Counts {
            limits: policies.iter().map(limit).collect(),
            routes: routes
                .map(|name| RequestCounts(by_route.entry(name.into()).or_default().of(worker)))
                .collect(),
            unrouted: RequestCounts(unrouted.of(worker)),
            worker: workers.of(worker),
        }
    }

    /// The counters of one worker for an upstream with servers of these labels.
    pub fn upstream<'a>(
        &self,
        worker: usize,
        name: &str,
        servers: impl Iterator<Item = &'a str>,
    ) -> UpstreamCounts {
        self.0.lock().upstreams.entry(name.into()).or_default().counts(worker, servers)
    }

    /// Removes the counters of all other limits, routes and upstreams.
    pub fn retain<'a>(
        &self,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
        upstreams: impl Iterator<Item = &'a str>,
    ) {
        let limits: HashSet<&str> = policies.iter().map(|policy| &*policy.name).collect();
        let (routes, upstreams): (HashSet<&str>, HashSet<&str>) = (routes.collect(), upstreams.collect());
        let named = &mut *self.0.lock();
        named.limits.retain(|name, _| limits.contains(&**name));
        named.routes.retain(|name, _| routes.contains(&**name));
        named.upstreams.retain(|name, _| upstreams.contains(&**name));
    }

    /// The sums of the counters that belong to no limit, route or upstream.
    pub fn workers(&self) -> WorkerSums {
        let mut sums = WorkerSums::default();
        self.0.lock().workers.all().for_each(|worker| worker.sum_into(&mut sums));
        sums
    }

    /// The sums of the counters of requests without a route.
    pub fn unrouted(&self) -> RouteSums {
        let mut sums = RouteSums::default();
        self.0.lock().unrouted.used().for_each(|counters| counters.sum_into(&mut sums));
        sums
    }

    /// Passes each limit with its sums to `write`, in the order of their names.
    pub fn each_limit<E>(&self, write: impl FnMut(&str, LimitSums) -> Result<(), E>) -> Result<(), E> {
        let sums = |limit: &PerWorker<LimitCounters>| {
            let mut sums = [0; _];
            limit.all().for_each(|counters| counters.sum_into(&mut sums));
            Some(sums)
        };
        self.each(|named| &named.limits, sums, write)
    }

    /// Passes each limit with the sums of what it has settled to `write`, in the order of their names.
    pub fn each_settlement<E>(
        &self,
        write: impl FnMut(&str, SettlementSums) -> Result<(), E>,
    ) -> Result<(), E> {
        let sums = |limit: &PerWorker<LimitCounters>| {
            let mut sums = SettlementSums::default();
            limit.all().for_each(|counters| counters.settlement_into(&mut sums));
            Some(sums)
        };
        self.each(|named| &named.limits, sums, write)
    }

    /// Passes each route with its sums to `write`, in the order of their names.
    pub fn each_route<E>(&self, write: impl FnMut(&str, RouteSums) -> Result<(), E>) -> Result<(), E> {
        let sums = |route: &PerWorker<OnDemand<RouteCounters>>| {
            let mut sums = RouteSums::default();
            route.used().for_each(|counters| counters.sum_into(&mut sums));
            Some(sums)
        };
        self.each(|named| &named.routes, sums, write)
    }

    /// Passes each route that has had requests to `write`, without exemplars, in the order of their names.
    pub fn each_used_route<E>(&self, write: impl FnMut(&str, RouteSums) -> Result<(), E>) -> Result<(), E> {
        let sums = |route: &PerWorker<OnDemand<RouteCounters>>| {
            let mut used = route.used().peekable();
            used.peek()?;
            let mut sums = RouteSums::default();
            used.for_each(|counters| counters.counts_into(&mut sums));
            Some(sums)
        };
        self.each(|named| &named.routes, sums, write)
    }

    /// Passes each upstream with its sums to `write`, in the order of their names.
    pub fn each_upstream<E>(&self, write: impl FnMut(&str, UpstreamSums) -> Result<(), E>) -> Result<(), E> {
        self.each(|named| &named.upstreams, |upstream| Some(upstream.sums()), write)
    }

    fn each<T, S, E>(
        &self,
        select: impl Fn(&Named) -> &ByName<T>,
        sums: impl Fn(&T) -> Option<S>,
        mut write: impl FnMut(&str, S) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last: Option<Box<str>> = None;
        loop {
            let mut page: Vec<(Box<str>, S)> = Vec::new();
            let end = {
                let named = self.0.lock();
                let from = last.as_deref().map_or(Unbounded, Excluded);
                let rest = select(&named).range::<str, _>((from, Unbounded)).take(PAGE);
                let read = |(name, counters)| {
                    page.extend(sums(counters).map(|sums| (Box::clone(name), sums)));
                    name
                };
                rest.map(read).last().cloned()
            };
            if end.is_none() {
                return Ok(());
            }
            last = end;
            for (name, sums) in page {
                write(&name, sums)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use http::StatusCode;

    use super::super::outcome::{DecisionSource, LimitOutcome};
    use super::*;
    use crate::limit::PolicyId;

    fn routes(registry: &Registry) -> Vec<(String, RouteSums)> {
        let mut all = Vec::new();
        let read = registry.each_route(|name, sums| {
            all.push((name.to_owned(), sums));
            Ok::<_, Infallible>(())
        });
        read.unwrap();
        all
    }

    #[test]
    fn workers_have_separate_counters_that_are_summed() {
        let registry = Registry::default();
        let counts: Vec<Counts> =
            (0..3).map(|worker| registry.counts(worker, &[], ["a", "b"].into_iter())).collect();
        assert!(!Arc::ptr_eq(&counts[0].routes[0].0, &counts[1].routes[0].0));
        for worker in &counts {
            worker.requests(Some(1)).record_response(StatusCode::NO_CONTENT);
            worker.requests(None).record_response(StatusCode::TOO_MANY_REQUESTS);
            worker.requests(Some(1)).record_duration(Duration::from_millis(1), None);
        }
        let all = routes(&registry);
        assert_eq!((&*all[0].0, all[0].1.classes), ("a", [0; 7]));
        assert_eq!((&*all[1].0, all[1].1.classes), ("b", [0, 3, 0, 0, 0, 0, 0]));
        assert!(all[0].1.durations.is_empty());
        assert!((all[1].1.durations.sum() - 0.003).abs() < 1e-9);
        assert_eq!(registry.unrouted().classes, [0, 0, 0, 0, 0, 3, 0]);
    }

    #[test]
    fn a_name_keeps_its_counters_when_its_index_changes() {
        let registry = Registry::default();
        registry.counts(0, &[], ["a", "b"].into_iter()).requests(Some(1)).record_response(StatusCode::OK);
        registry.counts(0, &[], ["b"].into_iter()).requests(Some(0)).record_response(StatusCode::OK);
        registry.retain(&[], ["b"].into_iter(), [].into_iter());
        let all = routes(&registry);
        assert_eq!((all.len(), all[0].1.classes[1]), (1, 2));
    }

    #[test]
    fn every_name_is_read_once_whatever_their_number() {
        for count in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE] {
            let registry = Registry::default();
            let mut names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            registry.counts(0, &[], names.iter().map(String::as_str));
            names.sort();
            assert_eq!(routes(&registry).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn unknown_limits_and_classes_are_ignored() {
        let registry = Registry::default();
        let counts = registry.counts(0, &[], [].into_iter());
        counts.record_decision(PolicyId(7), LimitOutcome::Denied, DecisionSource::Store);
        counts.requests(None).record_response(StatusCode::from_u16(999).unwrap());
        assert_eq!(registry.unrouted().classes, [0; 7]);
    }
}
