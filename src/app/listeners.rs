//! Opening of listeners.

use std::net::SocketAddr;

use crate::server::{self, InheritedSockets, ListenError, Listener, ListenerHandle, ListenerSpec};

/// Listens on the addresses of all listeners; returns their handles, and the sockets of each worker.
pub(super) fn listen(
    specs: &[ListenerSpec],
    workers: usize,
    inherited: &InheritedSockets,
    ours: &[SocketAddr],
) -> Result<(Vec<ListenerHandle>, Vec<Vec<Listener>>), ListenError> {
    let mut handles = Vec::new();
    let mut sockets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    for spec in specs {
        let (handle, listeners) = server::listen(spec, workers, inherited, ours)?;
        handles.push(handle);
        sockets.iter_mut().zip(listeners).for_each(|(worker, listener)| worker.push(listener));
    }
    Ok((handles, sockets))
}
