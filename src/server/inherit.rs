//! Listening sockets that the process inherits, as from systemd (socket activation, `LISTEN_FDS`).

use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use socket2::SockRef;

/// Inherited listening sockets. They stay open as long as the process lives, so that a listener that a reload removed can
/// be added again.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(SocketAddr, TcpListener)>);

impl InheritedSockets {
    /// The sockets that the environment names; to be called before threads are started.
    #[must_use]
    pub fn from_env() -> Self {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            match passed.take_tcp_listener(index).and_then(|socket| socket.map(listening).transpose()) {
                Ok(socket) => sockets.extend(socket),
                Err(error) => tracing::warn!("ignored an inherited socket (`LISTEN_FDS`): {error}"),
            }
        }
        Self(sockets)
    }

    /// `count` handles of the socket on this address, if there is one: all workers accept from it.
    pub(super) fn handles(&self, address: SocketAddr, count: usize) -> Option<io::Result<Vec<TcpListener>>> {
        let (_, socket) = self.0.iter().find(|(own, _)| *own == address)?;
        Some((0..count).map(|_| socket.try_clone()).collect())
    }

    /// A handle of the socket on this address, if there is one.
    #[must_use]
    pub fn handle(&self, address: SocketAddr) -> Option<io::Result<TcpListener>> {
        Some(
            self.handles(address, 1)?
                .and_then(|handles| handles.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())),
        )
    }

    /// Warns about sockets on addresses that no listener uses: clients that connect there are never accepted.
    pub fn warn_about_unused(&self, used: impl Fn(SocketAddr) -> bool) {
        for (address, _) in self.0.iter().filter(|(address, _)| !used(*address)) {
            tracing::warn!(
                "an inherited socket listens on {address}, but no listener of the configuration has that address"
            );
        }
    }
}

fn listening(socket: TcpListener) -> io::Result<(SocketAddr, TcpListener)> {
    let address = socket.local_addr()?;
    if !SockRef::from(&socket).is_listener()? {
        return Err(io::Error::other(format!("the socket does not listen ({address})")));
    }
    socket.set_nonblocking(true)?;
    Ok((address, socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_address() {
        let bound = || listening(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let (one, other) = (bound(), bound());
        let addresses = [one.0, other.0];
        let inherited = InheritedSockets(vec![one, other]);
        for address in addresses {
            let handles = inherited.handles(address, 3).unwrap().unwrap();
            assert!(handles.len() == 3 && handles.iter().all(|one| one.local_addr().unwrap() == address));
            assert_eq!(inherited.handle(address).unwrap().unwrap().local_addr().unwrap(), address);
        }
        assert!(inherited.handles("127.0.0.2:1".parse().unwrap(), 1).is_none());
    }
}
