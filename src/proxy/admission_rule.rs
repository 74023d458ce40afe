//! How the requests of a route are admitted to an upstream with `overload`: their class, and the key by which they take turns.

use std::hash::{BuildHasher as _, Hash};
use std::sync::LazyLock;

use hashbrown::DefaultHashBuilder;

use crate::gate::{ClassInput, ClientIdentity, ClientLocation, Gate, KeyPart, KeySpec, RequestPlan};
use crate::http1::RequestHead;
use crate::overload::Arrival;

/// Randomly seeded, so that a client can't choose the hash of its key.
static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// How the requests of a route are admitted to its upstream.
#[derive(Clone, Debug)]
pub struct AdmissionRule {
    /// The key by whose values the waiting requests of a class take turns.
    pub fair_by: KeySpec,
    /// The index of the route at its upstream; see [`ConfigSnapshot::number_routes`](super::ConfigSnapshot::number_routes).
    pub route: u32,
}

impl AdmissionRule {
    /// The class and the key of a request.
    pub(super) fn arrival(
        &self,
        gate: &Gate,
        client: ClientIdentity<'_>,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
    ) -> Arrival {
        let route = plan.matched.route.map(|id| gate.routes.get(id));
        let consumer = plan.identity.consumer.as_deref();
        let (class, _) = gate.class(&ClassInput { route, peer: client.address, head, consumer });
        let key = if *self.fair_by.parts == [KeyPart::ClientIp] {
            None
        } else {
            let location = ClientLocation::new(plan.client, gate.geo.as_deref());
            self.fair_by.find(&gate.planned_subject(client, head, plan, &location), &gate.hasher).key()
        };
        let key = key.map_or_else(|| hash(gate.client_ip.counted(plan.client)), |key| hash(key.0));
        Arrival { class, key }
    }
}

/// The hash of a value, the same in all workers.
pub(super) fn hash(value: impl Hash) -> u64 {
    HASHER.hash_one(value)
}
