//! Tests of the helpers themselves.

use std::io::{BufRead as _, BufReader};
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use socket2::{Domain, Socket, Type};

use super::{Process, command, eventually, free_address, free_ports};

/// A process, and another one that it has started.
fn family() -> (Process, [u32; 2]) {
    let mut shell = command("sh");
    shell.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
    let mut process = Process::start(&mut shell);
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ids = [process.id(), line.trim().parse().unwrap()];
    assert!(ids.into_iter().all(is_running));
    (process, ids)
}

/// Whether a process runs. One that has ended may still wait to be reaped.
fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

#[test]
fn a_process_and_its_children_end_when_it_is_dropped() {
    let (process, ids) = family();
    drop(process);
    eventually("both have ended", || !ids.into_iter().any(is_running));
}

#[test]
fn children_end_with_a_process_that_ends_by_itself() {
    let (mut process, ids) = family();
    super::signal(process.id(), "TERM");
    assert!(!process.wait().success());
    eventually("both have ended", || !ids.into_iter().any(is_running));
}

/// As it is when the tests are killed: nothing is dropped.
#[test]
fn a_process_ends_with_the_thread_that_started_it() {
    let start = || {
        let id = ManuallyDrop::new(Process::start_silent(command("sleep").arg("1000"))).id();
        // From then on the kernel knows when to kill it.
        let name = || std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap();
        eventually("the program runs", || name() == "sleep\n");
        id
    };
    let id = thread::spawn(start).join().unwrap();
    eventually("it has ended", || !is_running(id));
}

#[test]
fn a_free_port_refuses_connections_and_is_kept_for_the_test() {
    let address = free_address();
    assert!(TcpStream::connect(address).is_err());
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    assert!(other.bind(&address.into()).is_err(), "another one gets it");
    for _ in 0..2 {
        let server = TcpListener::bind(address).unwrap();
        TcpStream::connect(address).unwrap();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
    let first = free_ports(3);
    assert!((first..first + 3).all(|port| TcpStream::connect(("127.0.0.1", port)).is_err()));
}
