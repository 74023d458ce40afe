//! Opening of listeners.

use std::net::SocketAddr;

use crate::server::{self, InheritedSockets, ListenError, Listener, ListenerHandle, ListenerSpec};
use crate::tls::ServerTls;

/// Listeners that are open already, by their index among all of them, with their settings in the next configuration.
pub(super) type KeptListeners = Vec<(usize, ListenerSpec)>;

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

/// The TLS settings of these listeners.
pub(super) fn tls_of(listeners: &[ListenerHandle]) -> Vec<ServerTls> {
    listeners.iter().filter_map(|listener| listener.spec().tls.clone()).collect()
}

/// Splits the listeners of a configuration into those that are open already and those to be opened.
pub(super) fn match_listeners(
    open: &[ListenerHandle],
    specs: Vec<ListenerSpec>,
) -> (KeptListeners, Vec<ListenerSpec>) {
    let (mut kept, mut new): (KeptListeners, _) = (Vec::new(), Vec::new());
    for spec in specs {
        let is_same = |(index, listener): &(usize, &ListenerHandle)| {
            listener.spec().address == spec.address && kept.iter().all(|(other, _)| other != index)
        };
        match open.iter().enumerate().find(is_same) {
            Some((index, _)) => kept.push((index, spec)),
            None => new.push(spec),
        }
    }
    (kept, new)
}
