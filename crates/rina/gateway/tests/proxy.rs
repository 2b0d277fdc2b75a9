//! Clients of a proxy: what passes, what is refused and how it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use carina_gateway::{Connect, Endpoint, Expose, Protocol, Proxy};
use carina_wrap::name_table::{NameTable, address_v4};

use crate::support::{House, Running, app, echo, eventually, tcp_server};

/// A proxy whose rule makes flows of `*.vm`.
fn proxy(house: &House, protocol: Protocol, change: impl FnOnce(&mut Proxy)) -> (String, Running) {
    let rules = vec!["*.vm -> dif".parse().unwrap()];
    let names = NameTable::new(house.path("names"));
    let listen = "tcp:127.0.0.1:0".parse().unwrap();
    let mut settings = Proxy::new(protocol, listen, rules, names);
    change(&mut settings);
    house.proxy(settings)
}

fn expose(house: &House, name: &str, server: SocketAddr) -> Running {
    house.expose(Expose::new(app(name), Endpoint::Tcp(server.to_string())))
}

/// Connects by SOCKS5; gives the connection and the code of the reply.
fn socks(proxy: &str, host: &str, port: u16) -> (TcpStream, u8) {
    let mut client = TcpStream::connect(proxy).unwrap();
    let length = u8::try_from(host.len()).unwrap();
    let port = port.to_be_bytes();
    let request = [&[5, 1, 0, 5, 1, 0, 3, length][..], host.as_bytes(), &port].concat();
    client.write_all(&request).unwrap();
    let mut reply = [0; 12];
    client.read_exact(&mut reply).unwrap();
    assert_eq!((reply[0], reply[1], reply[2]), (5, 0, 5));
    (client, reply[3])
}

/// Sends a request by HTTP; gives all that comes back.
fn http(proxy: &str, request: &str) -> String {
    let mut client = TcpStream::connect(proxy).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn socks_client_reaches_a_name_and_ends_by_direction() {
    let house = House::new("");
    let _exposed = expose(&house, "echo.vm:7", tcp_server(|peer| drop(echo(peer))));
    let (address, _proxy) = proxy(&house, Protocol::Socks5, |_| {});
    let question = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let (mut client, code) = socks(&address, "Echo.vm", 7);
                assert_eq!(code, 0);
                client.write_all(&question).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).unwrap();
                assert!(answer == question);
            });
        }
    });
    eventually("no flow is left", || {
        house.control().flows().unwrap().is_empty()
    });
}

#[test]
fn server_that_speaks_first_is_heard_behind_the_reply() {
    let house = House::new("");
    let server = tcp_server(|mut peer| peer.write_all(b"SSH-2.0-x\r\n").unwrap());
    let _exposed = expose(&house, "ssh.vm:22", server);
    let (address, _proxy) = proxy(&house, Protocol::Http, |_| {});
    for _ in 0..50 {
        let answer = http(&address, "CONNECT ssh.vm:22 HTTP/1.1\r\n\r\n");
        let (head, rest) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(rest, "SSH-2.0-x\r\n");
    }
}

#[test]
fn address_of_a_name_leads_to_the_name() {
    let house = House::new("");
    let _exposed = expose(&house, "echo.vm:7", tcp_server(|peer| drop(echo(peer))));
    let (address, _proxy) = proxy(&house, Protocol::Socks5, |_| {});
    let number = NameTable::new(house.path("names")).number("echo.vm");
    let of_name = address_v4(number.unwrap()).to_string();
    assert_eq!(socks(&address, &of_name, 7).1, 0);
    assert_eq!(socks(&address, "198.18.99.99", 7).1, 2);
}

#[test]
fn rule_that_leads_to_the_proxy_itself_ends() {
    let house = House::new("");
    let (address, _passing) = proxy(&house, Protocol::Http, |proxy| proxy.pass = true);
    for to in [address.clone(), address.replace("127.0.0.1", "0.0.0.0")] {
        let answer = http(&address, &format!("CONNECT {to} HTTP/1.1\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("is this proxy itself"), "{answer}");
    }
    // By a flow: each client adds one connection, and the end of the client ends all.
    let (address, _proxy) = proxy(&house, Protocol::Http, |proxy| {
        proxy.rules = vec!["* -> dif as proxy.host".parse().unwrap()];
    });
    let _exposed = expose(&house, "proxy.host", address.parse().unwrap());
    let answer = http(&address, "GET http://any.example/ HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut client = TcpStream::connect(&address).unwrap();
    for _ in 0..10 {
        client
            .write_all(b"CONNECT any.example:80 HTTP/1.1\r\n\r\n")
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
    }
    assert_eq!(
        house.control().flows().unwrap().len(),
        10,
        "one for each client"
    );
    drop(client);
    eventually("no flow is left", || {
        house.control().flows().unwrap().is_empty()
    });
}

/// Whether the kernel will probe a silent peer, for each TCP connection from or to a port.
fn probed(port: u16) -> Vec<bool> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let ends = format!(":{port:04X}");
    let is_of_port = |row: &Vec<&str>| {
        let is_established = row[3] == "01";
        is_established && (row[1].ends_with(&ends) || row[2].ends_with(&ends))
    };
    // The test has the other end of each connection, which has no timer.
    rows.filter(is_of_port)
        .map(|row| row[5].starts_with("02:"))
        .collect()
}

#[test]
fn silent_peers_of_a_proxy_are_probed() {
    let house = House::new("");
    let server = tcp_server(|mut connection| {
        let mut byte = [0];
        while connection.read_exact(&mut byte).is_ok() {
            connection.write_all(&byte).unwrap();
        }
    });
    let (address, _proxy) = proxy(&house, Protocol::Socks5, |proxy| proxy.pass = true);
    let (mut client, code) = socks(&address, "127.0.0.1", server.port());
    assert_eq!(code, 0);
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let listening = address.parse::<SocketAddr>().unwrap();
    for port in [listening.port(), server.port()] {
        eventually("one end of two has the timer of keep-alive", || {
            let mut ends = probed(port);
            ends.sort_unstable();
            ends == [false, true]
        });
    }
    // A server that is exposed, and a client of its flow.
    let _exposed = expose(&house, "echo.vm:7", server);
    let listen = Endpoint::Tcp("127.0.0.1:0".to_owned());
    let (at, _connector) = house.connect(Connect::new(app("echo.vm:7"), listen));
    let mut client = TcpStream::connect(&at).unwrap();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let port = at.parse::<SocketAddr>().unwrap().port();
    eventually("the accepted end has the timer", || {
        probed(port).contains(&true)
    });
    eventually("the connected end has the timer", || {
        probed(server.port())
            .iter()
            .filter(|probed| **probed)
            .count()
            == 2
    });
}

#[test]
fn refusals_tell_the_cause() {
    let house = House::new("");
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let _exposed = expose(&house, "down.vm:80", closed);
    let (of_socks, _socks) = proxy(&house, Protocol::Socks5, |_| {});
    assert_eq!(socks(&of_socks, "nobody.vm", 80).1, 5);
    assert_eq!(socks(&of_socks, "down.vm", 80).1, 5);
    assert_eq!(socks(&of_socks, "example.org", 80).1, 2);
    assert_eq!(socks(&of_socks, "127.0.0.1", closed.port()).1, 2);
    let (of_http, _http) = proxy(&house, Protocol::Http, |_| {});
    for (target, status, cause) in [
        (
            "nobody.vm",
            "502",
            "no application is registered as nobody.vm:80",
        ),
        ("down.vm", "502", "connection refused"),
        ("example.org", "403", "no rule of the proxy fits"),
    ] {
        let requests = [
            format!("GET http://{target}/ HTTP/1.1\r\n\r\n"),
            format!("CONNECT {target}:80 HTTP/1.1\r\n\r\n"),
        ];
        for request in requests {
            let answer = http(&of_http, &request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
            assert!(answer.contains(cause), "{answer}");
        }
    }
    let answer = http(&of_http, "GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn with_pass_other_destinations_are_reached_by_tcp() {
    let house = House::new("");
    let server = tcp_server(|peer| drop(echo(peer)));
    let (address, _proxy) = proxy(&house, Protocol::Socks5, |settings| settings.pass = true);
    for host in ["127.0.0.1", "localhost"] {
        let (mut client, code) = socks(&address, host, server.port());
        assert_eq!(code, 0, "{host}");
        client.write_all(b"abc").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"abc");
    }
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(socks(&address, "127.0.0.1", closed.port()).1, 5);
    assert_eq!(socks(&address, "no-such-host.invalid", 80).1, 4);
}

#[test]
fn forwarded_request_ends_with_its_body() {
    let house = House::new("");
    let server = tcp_server(|mut peer| {
        let mut received = Vec::new();
        let mut piece = [0; 4096];
        while !received.ends_with(b"body") {
            let read = peer.read(&mut piece).unwrap();
            assert_ne!(read, 0);
            received.extend_from_slice(&piece[..read]);
        }
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        peer.write_all(&received).unwrap();
    });
    let _exposed = expose(&house, "web.vm:80", server);
    let (address, _proxy) = proxy(&house, Protocol::Http, |_| {});
    let request = "POST http://web.vm/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
    let answer = http(
        &address,
        &format!("{request}GET http://other.vm/ HTTP/1.1\r\n\r\n"),
    );
    assert!(
        answer.contains("POST /x HTTP/1.1\r\nHost: web.vm\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nbody"), "{answer}");
}

#[test]
fn connections_beyond_the_limit_wait_for_others_to_end() {
    let house = House::new("");
    let _exposed = expose(&house, "echo.vm:7", tcp_server(|peer| drop(echo(peer))));
    let limit = |settings: &mut Proxy| settings.connections_max = 2;
    let (address, _proxy) = proxy(&house, Protocol::Socks5, limit);
    let first = socks(&address, "echo.vm", 7).0;
    let _second = TcpStream::connect(&address).unwrap();
    let third = std::thread::spawn(move || socks(&address, "echo.vm", 7).1);
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(third.join().unwrap(), 0);
}

#[test]
fn reset_of_the_server_resets_the_client() {
    let house = House::new("");
    // It closes with a byte unread: the kernel resets the connection.
    let server = tcp_server(|peer| while peer.peek(&mut [0]).unwrap() == 0 {});
    let _exposed = expose(&house, "rude.vm:7", server);
    let (address, _proxy) = proxy(&house, Protocol::Socks5, |_| {});
    let (mut client, code) = socks(&address, "rude.vm", 7);
    assert_eq!(code, 0);
    client.write_all(b"x").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn reset_of_the_client_resets_the_server() {
    let house = House::new("");
    let (sender, seen) = std::sync::mpsc::channel();
    let server = tcp_server(move |mut peer| {
        peer.write_all(b"x").unwrap();
        let error = peer.read(&mut [0]).map_err(|error| error.kind());
        sender.send(error).unwrap();
    });
    let (address, _proxy) = proxy(&house, Protocol::Socks5, |settings| settings.pass = true);
    let (client, code) = socks(&address, "127.0.0.1", server.port());
    assert_eq!(code, 0);
    // It closes with a byte unread: the kernel resets the connection.
    while client.peek(&mut [0]).unwrap() == 0 {}
    drop(client);
    assert_eq!(seen.recv().unwrap(), Err(ErrorKind::ConnectionReset));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let names = || NameTable::new("/nowhere");
    let of = |listen: &str, rules: &[&str]| {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let settings = Proxy::new(Protocol::Http, listen.parse().unwrap(), rules, names());
        settings.check().unwrap_err().to_string()
    };
    assert!(of("udp:127.0.0.1:1", &[]).contains("tcp:HOST:PORT"));
    assert!(of("tcp:127.0.0.1:1", &["listen 0.0.0.0 -> dif"]).contains("a rule without `listen`"));
}
