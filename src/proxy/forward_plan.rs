//! The parts of a request's plan that forwarding needs, owned: the plan itself borrows the head, which moves upstream.

use std::net::IpAddr;
use std::sync::Arc;

use super::route_action::Target;
use super::snapshot::ConfigSnapshot;
use crate::consumers::Consumer;
use crate::gate::{ClientIdentity, ClientLocation, RequestPlan, RouteId};
use crate::http1::RequestHead;

/// Where an admitted request goes.
#[derive(Debug)]
pub(super) struct ForwardPlan {
    pub route: RouteId,
    /// The client's whole address.
    pub client: IpAddr,
    /// The normalized path, where it differs from the path as sent.
    pub path: Option<String>,
    /// The consumer, if there is one.
    pub consumer: Option<Arc<Consumer>>,
    /// The hash that selects the server, where the upstream balances by a key.
    pub balance_hash: Option<u64>,
}

impl ForwardPlan {
    /// The plan of a request that matches a route.
    #[inline]
    pub fn new(
        snapshot: &ConfigSnapshot,
        client: ClientIdentity<'_>,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
    ) -> Option<Self> {
        let route = plan.matched.route?;
        let balance_hash = match &snapshot.actions[route].target {
            Target::Forward { key: Some(key), .. } => {
                let gate = &snapshot.gate;
                let location = ClientLocation::new(plan.client, gate.geo.as_deref());
                key.balance_hash(&gate.planned_subject(client, head, plan, &location), &gate.hasher)
            }
            _ => None,
        };
        let path = plan.matched.path.changed().map(str::to_owned);
        let consumer = plan.identity.consumer.clone();
        Some(Self { route, client: plan.client, path, consumer, balance_hash })
    }
}
