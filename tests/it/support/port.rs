//! Ports that the tests choose themselves.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

thread_local! {
    /// Sockets that have the ports, without listening, until the test ends.
    static RESERVED: RefCell<Vec<Socket>> = const { RefCell::new(Vec::new()) };
}

/// An address without a listener, so that connections are refused, until a server of this test does. No other test, and no other
/// process, gets its port before the calling thread ends. It is below those that the system assigns, and so is the bus port of a
/// Redis Cluster, which is ten thousand higher.
pub fn free_address() -> SocketAddr {
    local(free_ports(1))
}

/// The first of so many consecutive ports, each as that of [`free_address`].
pub fn free_ports(count: u16) -> u16 {
    loop {
        let first = fastrand::u16(12_000..22_000 - count);
        let sockets: io::Result<Vec<Socket>> =
            (first..first + count).map(|port| reserve(local(port))).collect();
        if let Ok(sockets) = sockets {
            RESERVED.with_borrow_mut(|reserved| reserved.extend(sockets));
            return first;
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Binds a socket, which fails if any other one has the port.
fn reserve(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&address.into())?;
    // From now on, servers that set this option, as all do, can bind to the port.
    socket.set_reuse_address(true)?;
    Ok(socket)
}
