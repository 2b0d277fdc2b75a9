//! Connections of TCP and of Unix sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use carina_api::FlowSpec;
use carina_client::Error;
use carina_gateway::{Connect, Endpoint, Expose, GatewayError};

use crate::support::{House, app, echo, eventually, tcp_server};

fn tcp(address: impl ToString) -> Endpoint {
    Endpoint::Tcp(address.to_string())
}

fn asks(mut connection: impl Read + Write, end: impl FnOnce(), question: &[u8]) -> Vec<u8> {
    connection.write_all(question).unwrap();
    end();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    answer
}

/// Sends a question, ends its direction, and reads the answer to its end.
fn ask(connection: &TcpStream, question: &[u8]) -> Vec<u8> {
    asks(
        connection,
        || connection.shutdown(Shutdown::Write).unwrap(),
        question,
    )
}

#[test]
fn connections_reach_the_server_and_end_by_direction() {
    let house = House::new("");
    let server = tcp_server(|connection| drop(echo(connection)));
    let exposed = house.expose(Expose::new(app("echo"), tcp(server)));
    let (address, connector) = house.connect(Connect::new(app("echo"), tcp("127.0.0.1:0")));
    let question = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                assert!(ask(&TcpStream::connect(&address).unwrap(), &question) == question)
            });
        }
    });
    eventually("no flow is left", || {
        house.control().flows().unwrap().is_empty()
    });
    connector.stop();
    exposed.stop();
    assert!(TcpStream::connect(&address).is_err());
    eventually("the name is free", || {
        house.control().apps().unwrap().is_empty()
    });
}

#[test]
fn connections_stay_when_the_gateways_end() {
    let house = House::new("");
    let server = tcp_server(|connection| drop(echo(connection)));
    let exposed = house.expose(Expose::new(app("echo"), tcp(server)));
    let (address, connector) = house.connect(Connect::new(app("echo"), tcp("127.0.0.1:0")));
    let mut connection = TcpStream::connect(&address).unwrap();
    connection.write_all(b"before, ").unwrap();
    eventually("the flow is up", || {
        house.control().flows().unwrap().len() == 1
    });
    eventually("the flow is up", || {
        let flow = &house.control().flows().unwrap()[0];
        flow.state == carina_api::control::FlowState::Up
    });
    connector.stop();
    exposed.stop();
    assert_eq!(ask(&connection, b"after"), b"before, after");
}

#[test]
fn unix_sockets_serve_at_both_ends_and_the_file_goes() {
    let house = House::new("");
    let (server, client) = (house.path("server"), house.path("client"));
    let listener = UnixListener::bind(&server).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming().take(3) {
            echo(connection.unwrap());
        }
    });
    let _exposed = house.expose(Expose::new(app("app"), Endpoint::Unix(server)));
    let (_, connector) = house.connect(Connect::new(app("app"), Endpoint::Unix(client.clone())));
    for _ in 0..3 {
        let connection = UnixStream::connect(&client).unwrap();
        let end = || connection.shutdown(Shutdown::Write).unwrap();
        assert_eq!(asks(&connection, end, b"hello"), b"hello");
    }
    connector.stop();
    assert!(!client.exists(), "the socket file stays");
}

#[test]
fn the_caller_gets_the_reason_of_a_server_that_refuses() {
    let house = House::new("");
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let _exposed = house.expose(Expose::new(app("closed"), tcp(nobody)));
    let missing = Endpoint::Unix(house.path("missing"));
    let _missing = house.expose(Expose::new(app("missing"), missing));
    let call = |name: &str| {
        let (local, remote, spec) = (app("caller"), app(name), FlowSpec::reliable());
        let refused = house.client().allocate(&local, &remote, None, &spec);
        match refused {
            Err(Error::Refused(error)) => error.message,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(call("closed"), format!("tcp:{nobody}: connection refused"));
    assert!(call("missing").ends_with("missing: no such socket"));
}

#[test]
fn a_refused_flow_resets_its_connection() {
    let house = House::new("");
    let (address, _connector) = house.connect(Connect::new(app("nobody"), tcp("127.0.0.1:0")));
    for _ in 0..100 {
        let mut connection = TcpStream::connect(&address).unwrap();
        let error = connection.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    let unix = Endpoint::Unix(house.path("s"));
    let (path, _connector) = house.connect(Connect::new(app("nobody"), unix));
    let mut connection = UnixStream::connect(path).unwrap();
    assert_eq!(connection.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn more_connections_than_allowed_wait_or_are_refused() {
    let house = House::new("");
    let server = tcp_server(|connection| drop(echo(connection)));
    let few = Expose {
        connections_max: 2,
        ..Expose::new(app("few"), tcp(server))
    };
    let _exposed = house.expose(few);
    let (address, _connector) = house.connect(Connect::new(app("few"), tcp("127.0.0.1:0")));
    let open = || {
        let mut connection = TcpStream::connect(&address).unwrap();
        connection.write_all(b"x").unwrap();
        connection
    };
    let first = [open(), open()];
    eventually("both are connected", || {
        let flows = house.control().flows().unwrap();
        let up = |flow: &&carina_api::control::FlowInfo| {
            flow.direct || flow.state != carina_api::control::FlowState::Allocating
        };
        flows.iter().filter(up).count() == 2
    });
    let mut third = open();
    let error = third.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let narrow = Connect {
        connections_max: 1,
        ..Connect::new(app("few"), tcp("127.0.0.1:0"))
    };
    let (narrow, _narrow) = house.connect(narrow);
    drop(first);
    // One has room; the next waits until it has ended.
    let held = eventually_answered(&narrow);
    let waiting = std::thread::spawn(move || ask(&TcpStream::connect(narrow).unwrap(), b"later"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!waiting.is_finished());
    assert_eq!(ask(&held, b"y"), b"xy");
    drop(held);
    assert_eq!(waiting.join().unwrap(), b"later");
}

/// A connection that has a flow: not reset, because there was no room for it.
fn eventually_answered(address: &str) -> TcpStream {
    loop {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"x").unwrap();
        let limit = Some(std::time::Duration::from_millis(300));
        connection.set_read_timeout(limit).unwrap();
        match connection.read(&mut [0; 8]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.set_read_timeout(None).unwrap();
                return connection;
            }
            _ => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
}

#[test]
fn a_thousand_connections_pass_one_thread() {
    let limits = "[limits]\nconnections_per_uid = 2000\nflows_per_uid = 4000\n";
    let house = House::new(limits);
    let server = tcp_server(|connection| drop(echo(connection)));
    let _exposed = house.expose(Expose::new(app("echo"), tcp(server)));
    let (address, _connector) = house.connect(Connect::new(app("echo"), tcp("127.0.0.1:0")));
    let connect = |n: u32| {
        let mut connection = TcpStream::connect(&address).unwrap();
        connection.write_all(&n.to_be_bytes()).unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
        connection
    };
    let all: Vec<_> = (0..1000).map(connect).collect();
    for (n, mut connection) in all.into_iter().enumerate() {
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, (n as u32).to_be_bytes());
    }
    eventually("no flow is left", || {
        house.control().flows().unwrap().is_empty()
    });
}

#[test]
fn header_of_the_proxy_protocol_comes_first() {
    let house = House::new("");
    let (tell, told) = std::sync::mpsc::channel();
    let server = tcp_server(move |connection| tell.send(echo(connection)).unwrap());
    let exposed = Expose {
        proxy_protocol: true,
        ..Expose::new(app("web"), tcp(server))
    };
    let _exposed = house.expose(exposed);
    let (address, _connector) = house.connect(Connect::new(app("web"), tcp("127.0.0.1:0")));
    ask(&TcpStream::connect(&address).unwrap(), b"GET");
    let received = told.recv().unwrap();
    assert!(received.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x00"));
    let contains = |words: &[u8]| received.windows(words.len()).any(|found| found == words);
    assert!(contains(b"\xe0\x00\x03web") && contains(b"\xe1\x00\x0ecarina.connect"));
    assert!(contains(b"\xe2\x00\x05local") && received.ends_with(b"GET"));
}

#[test]
fn a_node_that_ends_ends_the_exposure_and_resets_connections() {
    let mut house = House::new("");
    let server = tcp_server(|connection| drop(echo(connection)));
    let exposed = house.expose(Expose::new(app("echo"), tcp(server)));
    let (address, _connector) = house.connect(Connect::new(app("echo"), tcp("127.0.0.1:0")));
    house.node.take().unwrap().stop();
    let error = exposed.ended();
    assert!(matches!(error, GatewayError::Ended { .. }), "{error}");
    let mut connection = TcpStream::connect(&address).unwrap();
    assert!(connection.read(&mut [0; 8]).is_err(), "there is no node");
}

#[test]
fn wrong_settings_and_taken_names_are_named() {
    let house = House::new("");
    let to = || tcp("127.0.0.1:9");
    let _first = house.expose(Expose::new(app("taken"), to()));
    let error = house
        .try_expose(Expose::new(app("taken"), to()))
        .err()
        .unwrap();
    assert!(error.to_string().contains("registering taken"), "{error}");
    let elsewhere = Expose {
        dif: Some(carina_api::DifName::new("atlantis").unwrap()),
        ..Expose::new(app("a"), to())
    };
    let error = house.try_expose(elsewhere).err().unwrap();
    assert!(error.to_string().contains("atlantis"), "{error}");
    let none = Expose {
        connections_max: 0,
        ..Expose::new(app("b"), to())
    };
    let error = house.try_expose(none).err().unwrap();
    assert!(
        error.to_string().contains("connections_max is 0"),
        "{error}"
    );
}
