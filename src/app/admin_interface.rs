//! The admin interface of a running server.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::tasks::{serve_admin, take_top_keys};
use crate::admin::{Admin, AdminListener, AdminSpec, ProcessActivity};

/// The admin interface, which outlives a configuration.
#[derive(Debug)]
pub(super) struct AdminInterface {
    spec: AdminSpec,
    current: Arc<ArcSwap<Admin>>,
}

impl AdminInterface {
    /// Starts to serve this state.
    pub fn start(admin: Admin, listener: AdminListener) -> Self {
        let (url, credentials) = (admin.spec.url(listener.address()), admin.spec.credentials());
        tracing::info!("the admin interface is at {url}, and needs {credentials}");
        admin.top.iter().for_each(|top| drop(tokio::spawn(take_top_keys(Arc::clone(top)))));
        let (spec, current) = (admin.spec.clone(), Arc::new(ArcSwap::from_pointee(admin)));
        tokio::spawn(serve_admin(Arc::clone(&current), listener));
        Self { spec, current }
    }

    /// Its settings at the start.
    pub fn spec(&self) -> &AdminSpec {
        &self.spec
    }

    /// Serves another state, which `state` makes of the settings and what has happened so far.
    pub fn replace(
        &self,
        next: Option<AdminSpec>,
        state: impl FnOnce(AdminSpec, Arc<ProcessActivity>) -> Admin,
    ) {
        // With another address the settings stay until a restart: whether a token is required depends on the address.
        let spec = next.filter(|next| next.address == self.spec.address).unwrap_or_else(|| self.spec.clone());
        let activity = Arc::clone(&self.current.load().activity);
        self.current.store(Arc::new(state(spec, activity)));
    }
}
