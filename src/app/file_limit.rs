//! The limit on open files: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::ListenerSpec;

/// Raises the soft limit on open files to the hard limit. Most systems start programs with a soft limit of 1,024, for
/// those that use `select`; with that many clients, no file would remain for connections to servers. Logs a warning if
/// the limit is too low for `max_connections` of all listeners.
pub(super) fn raise(listeners: &[ListenerSpec]) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!("can't raise the limit on open files: {error}");
    }
    let clients =
        listeners.iter().map(|listener| listener.max_connections as u64).fold(0, u64::saturating_add);
    if let Some(files) = getrlimit(Resource::Nofile).current
        && files < clients
    {
        tracing::warn!(
            "`max_connections` allows {clients} client connections, but this process may open only {files} files: \
             raise the limit on open files (LimitNOFILE of systemd, ulimit -n), or lower `max_connections`"
        );
    }
}
