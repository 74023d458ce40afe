//! A connection to the admin interface.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::sessions::AdminSession;
use super::state::Admin;

/// A connection of a client.
pub(super) struct AdminConnection {
    /// The state when it was accepted.
    pub admin: Arc<Admin>,
    /// The state of the configuration that is served.
    pub current: Arc<ArcSwap<Admin>>,
    pub session: AdminSession,
}
