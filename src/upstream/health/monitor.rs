//! Background work for upstreams, once per process: name resolution, health checks, and the end of ejections and slow
//! start.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::check::probe;
use super::resolver::{Resolver, SystemResolver};
use crate::time::monotonic;
use crate::upstream::server::ServerSpec;
use crate::upstream::shared::SharedUpstream;
use crate::upstream::spec::HealthSpec;

/// How long the first name resolution may delay the start.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before a name that could not be resolved is resolved again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The first health checks start within this time, so that unhealthy servers are known soon after the start.
const MAX_FIRST_DELAY: Duration = Duration::from_secs(1);
/// Health checks start up to this share of their interval earlier or later, so that the checks of several proxies and
/// servers spread out.
const JITTER: f64 = 0.1;

/// Monitors the upstreams of a process, on its main thread.
pub struct HealthMonitor {
    upstreams: Vec<Arc<SharedUpstream>>,
    names: Vec<NamedServer>,
    /// None if no server has a name.
    system: Option<SystemResolver>,
}

/// A server with a name in the DNS.
struct NamedServer {
    upstream: Arc<SharedUpstream>,
    /// Its index in the upstream's list.
    server: usize,
    /// When to resolve the name next.
    resolve_at: Instant,
    /// The last warning in the log; empty if the name was resolved since.
    last_warning: String,
}

impl HealthMonitor {
    /// A monitor of these upstreams.
    #[must_use]
    pub fn new(upstreams: &[Arc<SharedUpstream>]) -> Self {
        let named_servers = |upstream: &Arc<SharedUpstream>| {
            let servers = upstream.spec().servers.iter().enumerate();
            let named = servers.filter(|(_, server)| server.dns_name().is_some());
            named.map(|(index, _)| NamedServer::new(upstream, index)).collect::<Vec<_>>()
        };
        let names: Vec<NamedServer> = upstreams.iter().flat_map(named_servers).collect();
        let system = (!names.is_empty()).then(|| SystemResolver::new("/etc"));
        Self { upstreams: upstreams.to_vec(), names, system }
    }

    /// Resolves names that have no addresses yet, for two seconds at most. Names that can't be resolved by then are
    /// resolved later; until then their servers get no requests.
    pub async fn resolve(&mut self) {
        let Some(resolver) = self.system.as_ref().and_then(|system| system.resolver().borrow().clone())
        else {
            return;
        };
        let unresolved = self.names.iter_mut().filter(|name| !name.is_resolved());
        let all = join_all(unresolved.map(|name| name.resolve(&resolver)));
        if timeout(START_TIMEOUT, all).await.is_err() {
            for name in
                self.names.iter_mut().filter(|name| name.last_warning.is_empty() && !name.is_resolved())
            {
                name.warn("no response in time");
            }
        }
    }

    /// Starts the background tasks, which run until the returned value is dropped.
    #[must_use]
    pub fn start(self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for upstream in self.upstreams {
            if let Some(health) = upstream.spec().health.clone() {
                tasks.spawn(run_checks(Arc::clone(&upstream), health));
            }
            if upstream.has_alternatives() {
                tasks.spawn(update_shares(upstream));
            }
        }
        if let Some(system) = self.system {
            for name in self.names {
                tasks.spawn(name.run(system.resolver()));
            }
            tasks.spawn(system.watch_files());
        }
        tasks
    }
}

impl std::fmt::Debug for HealthMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HealthMonitor").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

/// Updates the shares of endpoints whenever time, a check or a failure changes them.
async fn update_shares(upstream: Arc<SharedUpstream>) {
    loop {
        let changed = upstream.health_changed.notified();
        match upstream.update_shares(monotonic()) {
            // Both the time and a change need an update.
            Some(due) => drop(timeout_at(due, changed).await),
            None => changed.await,
        }
    }
}

/// Checks all endpoints of an upstream, once per interval.
async fn run_checks(upstream: Arc<SharedUpstream>, spec: HealthSpec) {
    sleep(MAX_FIRST_DELAY.min(spec.interval).mul_f64(fastrand::f64())).await;
    loop {
        let started = monotonic();
        let members = upstream.members();
        let checks = members.iter().map(|member| async {
            let outcome = probe(member, upstream.spec(), &spec).await.map_err(|error| error.to_string());
            upstream.record_check(&member.endpoint, outcome, &spec, monotonic());
        });
        join_all(checks).await;
        sleep_until(started + spec.interval.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))).await;
    }
}

impl NamedServer {
    fn new(upstream: &Arc<SharedUpstream>, server: usize) -> Self {
        let (upstream, last_warning) = (Arc::clone(upstream), String::new());
        Self { upstream, server, resolve_at: monotonic(), last_warning }
    }

    /// Resolves the name whenever its addresses expire or the system's resolver changes.
    async fn run(mut self, mut resolver: watch::Receiver<Option<Resolver>>) {
        loop {
            tokio::select! {
                () = sleep_until(self.resolve_at) => {}
                Ok(()) = resolver.changed() => {}
            }
            let current = resolver.borrow_and_update().clone();
            match current {
                Some(current) => self.resolve(&current).await,
                None => self.resolve_at = monotonic() + RETRY_INTERVAL,
            }
        }
    }

    /// Resolves the name, and logs changes. If that fails, the last addresses stay.
    async fn resolve(&mut self, resolver: &Resolver) {
        let Some(server) = self.upstream.spec().servers.get(self.server) else { return };
        match resolver.resolve(server).await {
            Ok(answer) => {
                self.resolve_at = answer.expires_at;
                let is_changed = self.upstream.set_peers(self.server, &answer.peers, monotonic());
                if is_changed || !self.last_warning.is_empty() {
                    let count = answer.peers.len();
                    let plural = if count == 1 { "" } else { "es" };
                    tracing::info!(
                        "upstream {}: {} has {count} address{plural}",
                        self.upstream.spec().label(),
                        self.name()
                    );
                    self.last_warning.clear();
                }
            }
            Err(reason) => {
                self.resolve_at = monotonic() + RETRY_INTERVAL;
                self.warn(&reason);
            }
        }
    }

    fn warn(&mut self, reason: &str) {
        let consequence = if self.is_resolved() {
            "its last addresses stay in use"
        } else {
            "the server gets no requests until its name is resolved"
        };
        let warning = format!(
            "upstream {}: {} can't be resolved ({reason}): {consequence}",
            self.upstream.spec().label(),
            self.name()
        );
        if warning != self.last_warning {
            tracing::warn!("{warning}");
            self.last_warning = warning;
        }
    }

    fn name(&self) -> &str {
        self.upstream.spec().servers.get(self.server).and_then(ServerSpec::dns_name).unwrap_or_default()
    }

    fn is_resolved(&self) -> bool {
        self.upstream.members().iter().any(|member| member.endpoint.server == self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::upstream::health::resolver::tests::NameServer;

    fn addresses(upstream: &SharedUpstream) -> Vec<String> {
        upstream.members().iter().map(|member| member.endpoint.address.to_string()).collect()
    }

    #[tokio::test]
    async fn names_are_resolved_again_and_keep_their_last_addresses() {
        let names = NameServer::start().await;
        let server = config::defaults::server("http://a.test:9000");
        let upstream = SharedUpstream::new(&config::defaults::upstream("u", vec![server]));
        let mut monitor = HealthMonitor::new(std::slice::from_ref(&upstream));
        monitor.system = Some(names.system());
        monitor.resolve().await;
        assert!(
            addresses(&upstream).is_empty() && monitor.names[0].last_warning.contains("gets no requests")
        );
        let name = &mut monitor.names[0];
        for (known, expected) in [
            (&[[10, 0, 0, 2], [10, 0, 0, 1]][..], &["10.0.0.1:9000", "10.0.0.2:9000"][..]),
            (&[[10, 0, 0, 3]], &["10.0.0.3:9000"]),
            (&[], &["10.0.0.3:9000"]),
        ] {
            names.set(known, 0);
            name.resolve(&names.resolver).await;
            assert_eq!(addresses(&upstream), expected);
        }
        assert!(name.last_warning.contains("its last addresses stay in use"), "{}", name.last_warning);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ejection_ends_on_time() {
        let spec = config::defaults::upstream(
            "u",
            ["http://10.0.0.1", "http://10.0.0.2"].map(config::defaults::server).into(),
        );
        let upstream = SharedUpstream::new(&spec);
        let _tasks = HealthMonitor::new(std::slice::from_ref(&upstream)).start();
        let share = || upstream.members()[0].endpoint.share();
        tokio::task::yield_now().await;
        for _ in 0..5 {
            upstream.record_failure(&upstream.members()[0].endpoint);
        }
        assert_eq!(share(), 0);
        sleep(Duration::from_secs(29)).await;
        assert_eq!(share(), 0);
        sleep(Duration::from_secs(2)).await;
        assert!(share() > 0);
    }
}
