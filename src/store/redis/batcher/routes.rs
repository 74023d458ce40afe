//! The lane of each server: one, or those of the nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use fred::interfaces::ClusterInterface as _;
use fred::types::cluster::ClusterRouting;
use fred::types::config::Server;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::lane::Lane;
use crate::limit::Charge;
use crate::store::redis::client::RedisClient;
use crate::store::redis::cluster;
use crate::time::cached_now;

/// For how long a copy of the map of slots is used. A lane only gathers requests: fred sends a command by its own map, so that
/// an outdated copy costs a call at most.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The lanes of all servers.
#[derive(Debug)]
pub(super) enum Routes {
    OneServer(Arc<Lane>),
    Cluster { client: Arc<RedisClient>, nodes: Mutex<Nodes> },
}

/// The nodes of a cluster.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// A copy of fred's map of slots, and when it was made; none while that is unknown.
    map: Option<(ClusterRouting, Instant)>,
    /// By their nodes; `None` for slots whose node is unknown.
    lanes: HashMap<Option<Server>, Arc<Lane>>,
}

impl Routes {
    pub fn new(client: Arc<RedisClient>, is_cluster: bool) -> Self {
        if is_cluster {
            Self::Cluster { client, nodes: Mutex::default() }
        } else {
            Self::OneServer(Lane::new(client))
        }
    }

    /// The lane and the hash slot of charges, which all have the tag of the first.
    pub fn route(&self, charges: &[Charge]) -> (Arc<Lane>, u16) {
        match self {
            Self::OneServer(lane) => (Arc::clone(lane), 0),
            Self::Cluster { client, nodes } => {
                let slot = charges.first().map_or(0, |charge| cluster::slot(charge.key));
                (nodes.lock().lane(client, slot), slot)
            }
        }
    }
}

impl Nodes {
    fn lane(&mut self, client: &Arc<RedisClient>, slot: u16) -> Arc<Lane> {
        let now = cached_now();
        if self.map.as_ref().is_none_or(|(_, made)| now.saturating_duration_since(*made) >= MAX_AGE) {
            self.map = client.client().cached_cluster_state().map(|map| (map, now));
            if let Some((map, _)) = &self.map {
                // The task of a lane with requests keeps it until they are decided.
                let nodes = map.unique_primary_nodes();
                self.lanes.retain(|node, _| node.as_ref().is_none_or(|node| nodes.contains(node)));
            }
        }
        let node = self.map.as_ref().and_then(|(map, _)| map.get_server(slot));
        let lane = self.lanes.entry(node.cloned()).or_insert_with(|| Lane::new(Arc::clone(client)));
        Arc::clone(lane)
    }
}
