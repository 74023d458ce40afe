//! Ports that the tests choose themselves.

use std::cell::RefCell;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

thread_local! {
    /// Sockets that have the ports, without listening, until the test ends.
    static RESERVED: RefCell<Vec<Socket>> = const { RefCell::new(Vec::new()) };
}

/// An address where nobody listens, so that connections are refused, until a server of this test does. No other test, and no other
/// process, gets its port before the calling thread ends. It is below those that the system assigns, and so is the bus port of a
/// Redis Cluster, which is ten thousand higher.
pub fn free_address() -> SocketAddr {
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], fastrand::u16(12_000..22_000)));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Fails if any other socket has the port.
        if socket.bind(&address.into()).is_ok() {
            // From now on, servers that set this option, as all do, can bind to the port.
            socket.set_reuse_address(true).unwrap();
            RESERVED.with_borrow_mut(|sockets| sockets.push(socket));
            return address;
        }
    }
}
