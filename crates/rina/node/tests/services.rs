//! `[[expose]]` and `[[connect]]` of the configuration.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use crate::support::*;

/// A server that sends back what it reads, and its port.
fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut all = Vec::new();
            connection.read_to_end(&mut all).unwrap();
            connection.write_all(&all).unwrap();
        }
    });
    port
}

/// Sends bytes through a Unix socket of a house; what comes back.
fn ask(house: &House, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut connection = std::os::unix::net::UnixStream::connect(house.scratch.0.join("echo"))?;
    connection.write_all(bytes)?;
    connection.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    Ok(answer)
}

#[test]
fn configured_services_follow_what_is_applied() {
    let house = House::new("services", "");
    let socket = house.scratch.0.join("echo");
    let expose = format!(
        "[[expose]]\nname = \"echo\"\nto = \"tcp:127.0.0.1:{}\"\n",
        echo_server()
    );
    let connect = format!(
        "[[connect]]\nname = \"echo\"\nlisten = \"unix:{}\"\n",
        socket.display()
    );
    house
        .control()
        .apply(&format!("{expose}{connect}"))
        .unwrap();
    eventually("the server is reached", || {
        ask(&house, b"hello").is_ok_and(|answer| answer == b"hello")
    });
    // Applied again, nothing changes.
    house
        .control()
        .apply(&format!("{connect}{expose}"))
        .unwrap();
    assert_eq!(ask(&house, b"again").unwrap(), b"again");
    house.control().apply(&expose).unwrap();
    eventually("the socket is removed", || !socket.exists());
    assert_eq!(house.control().apps().unwrap().len(), 1);
    house.control().apply("").unwrap();
    eventually("the name is free", || {
        house.control().apps().unwrap().is_empty()
    });
}

#[test]
fn a_service_that_cannot_start_is_tried_again() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let connect = format!("[[connect]]\nname = \"x\"\nlisten = \"tcp:127.0.0.1:{port}\"\n");
    let house = House::new("services-retry", &connect);
    assert_eq!(house.control().node().unwrap().flows, 0);
    drop(held);
    eventually("the port is served", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
}
