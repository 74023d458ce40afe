//! What is done for upstreams beside requests, once per process: names are resolved, servers are checked, and those
//! that were put out come back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::probe::probe;
use super::resolver::{Resolver, System};
use super::shared::SharedUpstream;
use super::spec::HealthSpec;
use crate::time::monotonic;

/// How long the first look at names may keep a start.
const PATIENCE: Duration = Duration::from_secs(2);
/// When a name is looked up again that could not be resolved.
const AGAIN: Duration = Duration::from_secs(2);
/// The first checks come within this time, so that a start soon knows what is well.
const FIRST_CHECK: Duration = Duration::from_secs(1);
/// Checks come up to this share of their interval earlier or later: not all proxies and servers at once.
const JITTER: f64 = 0.1;

/// Keeps the upstreams of a process; lives on its main thread.
pub struct HealthMonitor {
    upstreams: Vec<Arc<SharedUpstream>>,
    names: Vec<Name>,
    /// Only if there are names.
    system: Option<System>,
}

/// A server that is named by a name.
struct Name {
    upstream: Arc<SharedUpstream>,
    /// Its place in the upstream's list.
    server: usize,
    /// When to look it up.
    due: Instant,
    /// What the log was last told.
    said: String,
}

impl HealthMonitor {
    /// A keeper of these upstreams.
    #[must_use]
    pub fn new(upstreams: &[Arc<SharedUpstream>]) -> Self {
        let of = |upstream: &Arc<SharedUpstream>| {
            let servers = upstream.spec().servers.iter().enumerate();
            let names = servers.filter(|(_, server)| server.literal().is_none());
            let name = |server| {
                let (upstream, said) = (Arc::clone(upstream), String::new());
                Name { upstream, server, due: monotonic(), said }
            };
            names.map(|(server, _)| name(server)).collect::<Vec<_>>()
        };
        let names: Vec<Name> = upstreams.iter().flat_map(of).collect();
        let system = (!names.is_empty()).then(|| System::at("/etc"));
        Self { upstreams: upstreams.to_vec(), names, system }
    }

    /// Looks up names that have no addresses yet, for two seconds at most. Those that can't be resolved by then are
    /// looked up again later; until then their servers get no requests.
    pub async fn resolve(&mut self) {
        let Some(resolver) = self.system.as_ref().and_then(|system| system.resolver().borrow().clone())
        else {
            return;
        };
        let unknown = self.names.iter_mut().filter(|name| !name.is_known());
        let all = join_all(unknown.map(|name| name.look_up(&resolver)));
        if timeout(PATIENCE, all).await.is_err() {
            for name in self.names.iter_mut().filter(|name| name.said.is_empty() && !name.is_known()) {
                name.warn("no answer in time");
            }
        }
    }

    /// Keeps them for as long as what it returns lives.
    #[must_use]
    pub fn start(self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for upstream in self.upstreams {
            if let Some(health) = upstream.spec().health.clone() {
                tasks.spawn(check(Arc::clone(&upstream), health));
            }
            if upstream.has_choice() {
                tasks.spawn(judge(upstream));
            }
        }
        if let Some(system) = self.system {
            for name in self.names {
                tasks.spawn(name.follow(system.resolver()));
            }
            tasks.spawn(system.follow());
        }
        tasks
    }
}

impl std::fmt::Debug for HealthMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

/// Gives endpoints their shares whenever time or a failure changes them.
async fn judge(upstream: Arc<SharedUpstream>) {
    loop {
        let stirred = upstream.ejected.notified();
        match upstream.update_shares(monotonic()) {
            // Either way it is time to look again.
            Some(due) => drop(timeout_at(due, stirred).await),
            None => stirred.await,
        }
    }
}

/// Checks all endpoints of an upstream, again and again.
async fn check(upstream: Arc<SharedUpstream>, spec: HealthSpec) {
    sleep(FIRST_CHECK.min(spec.interval).mul_f64(fastrand::f64())).await;
    loop {
        let begun = monotonic();
        let members = upstream.members();
        let checks = members.iter().map(|member| async {
            let outcome = probe(member, upstream.spec(), &spec).await.map_err(|unwell| unwell.to_string());
            upstream.record_check(&member.endpoint, outcome, &spec, monotonic());
        });
        join_all(checks).await;
        sleep_until(begun + spec.interval.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))).await;
    }
}

impl Name {
    /// Looks it up again and again, whenever it is due or somebody else is to be asked.
    async fn follow(mut self, mut resolver: watch::Receiver<Option<Resolver>>) {
        loop {
            tokio::select! {
                () = sleep_until(self.due) => {}
                Ok(()) = resolver.changed() => {}
            }
            let current = resolver.borrow_and_update().clone();
            match current {
                Some(current) => self.look_up(&current).await,
                None => self.due = monotonic() + AGAIN,
            }
        }
    }

    /// Looks it up, and says in the log what has changed by that. A name that can't be resolved any more keeps
    /// the addresses that it had.
    async fn look_up(&mut self, resolver: &Resolver) {
        match resolver.look_up(self.host()).await {
            Ok(found) => {
                self.due = found.until;
                let is_changed = self.upstream.set_addresses(self.server, &found.addresses, monotonic());
                if is_changed || !self.said.is_empty() {
                    let count = found.addresses.len();
                    let plural = if count == 1 { "" } else { "es" };
                    tracing::info!(
                        "upstream {}: {} has {count} address{plural}",
                        self.upstream.spec().label(),
                        self.host()
                    );
                    self.said.clear();
                }
            }
            Err(reason) => {
                self.due = monotonic() + AGAIN;
                self.warn(&reason);
            }
        }
    }

    fn warn(&mut self, reason: &str) {
        let consequence = if self.is_known() {
            "its last addresses stay in use"
        } else {
            "it gets no requests until it is"
        };
        let said = format!(
            "upstream {}: {} can't be resolved ({reason}): {consequence}",
            self.upstream.spec().label(),
            self.host()
        );
        if said != self.said {
            tracing::warn!("{said}");
            self.said = said;
        }
    }

    fn host(&self) -> &str {
        self.upstream.spec().servers.get(self.server).map_or("", |server| &server.host)
    }

    fn is_known(&self) -> bool {
        self.upstream.members().iter().any(|member| member.endpoint.server == self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolver::tests::NameServer;
    use super::*;
    use crate::upstream::{ServerSpec, UpstreamSpec};

    fn addresses(upstream: &SharedUpstream) -> Vec<String> {
        upstream.members().iter().map(|member| member.endpoint.address.to_string()).collect()
    }

    #[tokio::test]
    async fn a_name_is_followed_and_keeps_its_last_addresses() {
        let names = NameServer::start().await;
        let server =
            ServerSpec { is_tls: false, host: "a.test".into(), port: 9000, base_path: "".into(), weight: 1 };
        let upstream = SharedUpstream::new(&UpstreamSpec::new("u", vec![server]));
        let mut keeper = HealthMonitor::new(std::slice::from_ref(&upstream));
        keeper.system = Some(names.system());
        keeper.resolve().await;
        assert!(addresses(&upstream).is_empty() && keeper.names[0].said.contains("it gets no requests"));
        let name = &mut keeper.names[0];
        for (known, expected) in [
            (&[[10, 0, 0, 2], [10, 0, 0, 1]][..], &["10.0.0.1:9000", "10.0.0.2:9000"][..]),
            (&[[10, 0, 0, 3]], &["10.0.0.3:9000"]),
            (&[], &["10.0.0.3:9000"]),
        ] {
            names.set(known, 0);
            name.look_up(&names.resolver).await;
            assert_eq!(addresses(&upstream), expected);
        }
        assert!(name.said.contains("its last addresses stay in use"), "{}", name.said);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_put_out_comes_back_in_time() {
        let server = |host: &str| ServerSpec {
            is_tls: false,
            host: host.into(),
            port: 9000,
            base_path: "".into(),
            weight: 1,
        };
        let spec = UpstreamSpec::new("u", vec![server("10.0.0.1"), server("10.0.0.2")]);
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
