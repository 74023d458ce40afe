//! How the requests of a route are admitted to an upstream with `overload`: their class, and the key by which they take turns.

use std::hash::{BuildHasher as _, Hash};
use std::net::IpAddr;
use std::sync::LazyLock;

use hashbrown::DefaultHashBuilder;
use http::header::HeaderName;

use crate::consumers::Consumer;
use crate::gate::{ClientIdentity, ClientLocation, Gate, KeyPart, KeySpec, RequestPlan};
use crate::http1::{RequestHead, ascii};
use crate::overload::{Arrival, Class};

/// Randomly seeded, so that a client can't choose the hash of its key.
static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// How the requests of a route are admitted to its upstream.
#[derive(Clone, Debug)]
pub struct AdmissionRule {
    /// The class of the route.
    pub class: Class,
    /// The header in which trusted proxies name another class.
    pub header: Option<HeaderName>,
    /// The key by whose values the waiting requests of a class take turns.
    pub fair_by: KeySpec,
    /// The index of the route at its upstream; see [`ConfigSnapshot::number_routes`](super::ConfigSnapshot::number_routes).
    pub route: u32,
}

impl AdmissionRule {
    /// The class of a request from this peer: that of the route or of its header, or that of the consumer's tier if it is higher.
    #[must_use]
    pub fn class(&self, gate: &Gate, peer: IpAddr, head: &RequestHead, consumer: Option<&Consumer>) -> Class {
        let class = self.named_class(gate, peer, head).unwrap_or(self.class);
        let of_tier = consumer.zip(gate.consumers.as_ref()).and_then(|(known, rules)| rules.priority(known));
        of_tier.map_or(class, |of_tier| class.higher(of_tier))
    }

    /// The class that a trusted proxy names; none if it names none, several, or an unknown one.
    #[must_use]
    pub fn named_class(&self, gate: &Gate, peer: IpAddr, head: &RequestHead) -> Option<Class> {
        let name = self.header.as_ref().filter(|_| gate.client_ip.is_trusted(peer))?;
        let mut values = head.fields.get_all(name);
        let value = values.next().filter(|_| values.next().is_none())?;
        Class::parse(ascii(value)?)
    }

    /// The class and the key of a request.
    pub(super) fn arrival(
        &self,
        gate: &Gate,
        client: ClientIdentity<'_>,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
    ) -> Arrival {
        let class = self.class(gate, client.address, head, plan.identity.consumer.as_deref());
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
