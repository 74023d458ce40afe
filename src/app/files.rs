//! How many files the process may have open: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::ListenerSpec;

/// Has the process open as many files as the system lets it. What starts programs allows them 1,024 at first, for the
/// sake of old ones; with as many clients there would be none left for connections to servers. Says so where it is too
/// few for the clients that may come.
pub(super) fn allow_all(listeners: &[ListenerSpec]) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!("the limit on open files can't be raised: {error}");
    }
    let clients =
        listeners.iter().map(|listener| listener.max_connections as u64).fold(0, u64::saturating_add);
    if let Some(files) = getrlimit(Resource::Nofile).current
        && files < clients
    {
        tracing::warn!(
            "clients may have {clients} connections, and this process {files} open files in all: raise the latter \
             (LimitNOFILE of systemd, ulimit -n), or lower `max_connections`"
        );
    }
}
