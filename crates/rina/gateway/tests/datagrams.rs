//! Datagrams of UDP.

use std::net::UdpSocket;
use std::time::Duration;

use carina_gateway::{Connect, Endpoint, Expose};

use crate::support::{House, app, eventually};

/// A UDP server that answers each datagram with its own address of the peer and the datagram.
fn server() -> Endpoint {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
            let answer = format!("{}:", from.port()).into_bytes();
            let answer = [&answer, &buffer[..bytes]].concat();
            socket.send_to(&answer, from).unwrap();
        }
    });
    Endpoint::Udp(address.to_string())
}

fn client(address: &str) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    client
}

/// The port that the server sees and what it sends back.
fn ask(client: &UdpSocket, words: &str) -> (String, String) {
    client.send(words.as_bytes()).unwrap();
    let mut buffer = [0; 2048];
    let bytes = client.recv(&mut buffer).unwrap();
    let answer = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
    let (port, words) = answer.split_once(':').unwrap();
    (port.to_owned(), words.to_owned())
}

#[test]
fn each_peer_has_a_flow_of_its_own() {
    let house = House::new("");
    let _exposed = house.expose(Expose::new(app("dns"), server()));
    let listen = Endpoint::Udp("127.0.0.1:0".to_owned());
    let (address, _connector) = house.connect(Connect::new(app("dns"), listen));
    let (a, b) = (client(&address), client(&address));
    let (port_of_a, words) = ask(&a, "from a");
    assert_eq!(words, "from a");
    let (port_of_b, words) = ask(&b, "from b");
    assert_eq!(words, "from b");
    assert_ne!(port_of_a, port_of_b);
    assert_eq!(ask(&a, "again"), (port_of_a, "again".to_owned()));
    assert_eq!(house.control().flows().unwrap().len(), 2);
}

#[test]
fn silent_peers_are_forgotten_and_may_return() {
    let house = House::new("");
    let expose = Expose {
        idle_ms: 200,
        ..Expose::new(app("dns"), server())
    };
    let _exposed = house.expose(expose);
    let listen = Endpoint::Udp("127.0.0.1:0".to_owned());
    let connect = Connect {
        idle_ms: 200,
        ..Connect::new(app("dns"), listen)
    };
    let (address, _connector) = house.connect(connect);
    let peer = client(&address);
    ask(&peer, "one");
    eventually("the flow has ended", || {
        house.control().flows().unwrap().is_empty()
    });
    assert_eq!(ask(&peer, "two").1, "two");
}

#[test]
fn peers_beyond_the_limit_get_nothing() {
    let house = House::new("");
    let _exposed = house.expose(Expose::new(app("dns"), server()));
    let connect = Connect {
        connections_max: 1,
        ..Connect::new(app("dns"), Endpoint::Udp("127.0.0.1:0".to_owned()))
    };
    let (address, _connector) = house.connect(connect);
    let (first, second) = (client(&address), client(&address));
    ask(&first, "one");
    second.send(b"two").unwrap();
    second
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(second.recv(&mut [0; 16]).is_err());
    assert_eq!(ask(&first, "three").1, "three");
    assert_eq!(house.control().flows().unwrap().len(), 1);
}
