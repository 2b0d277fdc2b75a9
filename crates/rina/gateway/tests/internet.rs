//! Programs of a DIF that reach the network of the host through a door, under rules.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use carina_gateway::{Connect, Endpoint, Internet, InternetCounters};

use crate::support::{House, Running, app, echo, eventually, tcp_server};

/// A door with rules, and a port that leads to it.
struct ProxySite {
    proxy: String,
    counters: Arc<InternetCounters>,
    _door: Running,
    _connector: Running,
    house: House,
}

impl ProxySite {
    fn new(rules: &[String]) -> ProxySite {
        ProxySite::with(rules, |_| {})
    }

    fn with(rules: &[String], change: impl FnOnce(&mut Internet)) -> ProxySite {
        let house = House::new("");
        let mut door = Internet::new(app("internet"), None, rules).unwrap();
        change(&mut door);
        let counters = Arc::clone(&door.counters);
        let door = house.internet(door);
        let listen = Endpoint::Tcp("127.0.0.1:0".to_owned());
        let (proxy, connector) = house.connect(Connect::new(app("internet"), listen));
        ProxySite {
            proxy,
            counters,
            _door: door,
            _connector: connector,
            house,
        }
    }

    fn open(&self, text: &str) -> TcpStream {
        let mut program = TcpStream::connect(&self.proxy).unwrap();
        program.write_all(text.as_bytes()).unwrap();
        program
    }

    /// The answer to a request, to its end.
    fn ask(&self, text: &str) -> String {
        let mut answer = String::new();
        self.open(text).read_to_string(&mut answer).unwrap();
        answer
    }
}

/// A server that answers each connection with the head that it was sent.
fn echo_server() -> SocketAddr {
    tcp_server(|mut connection| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            connection.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        connection.write_all(&head).unwrap();
    })
}

#[test]
fn requests_reach_the_server_and_end_with_its_answer() {
    let server = echo_server();
    let site = ProxySite::new(&[server.to_string()]);
    // The program keeps its direction open, as one that keeps connections alive does.
    let text = format!("GET http://{server}/a?b HTTP/1.1\r\nHost: x\r\nAccept: y\r\n\r\n");
    let answer = site.ask(&text);
    let wanted = format!(
        "HTTP/1.1 200 OK\r\n\r\nGET /a?b HTTP/1.1\r\nHost: {server}\r\nAccept: y\r\n\
         Connection: close\r\nVia: 1.1 carina\r\n\r\n"
    );
    assert_eq!(answer, wanted);
    assert_eq!(site.counters.connected.load(Ordering::Relaxed), 1);
    eventually("no flow is left", || {
        site.house.control().flows().unwrap().is_empty()
    });
}

#[test]
fn tunnels_carry_both_directions_to_their_ends() {
    let server = tcp_server(|connection| drop(echo(connection)));
    let site = ProxySite::new(&[server.to_string()]);
    let question = vec![7; 3 << 20];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // The first bytes of the program come with its request.
                let mut program = site.open(&format!("CONNECT {server} HTTP/1.1\r\n\r\nfirst"));
                let mut writer = program.try_clone().unwrap();
                let question = &question;
                scope.spawn(move || {
                    writer.write_all(question).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut answer = Vec::new();
                program.read_to_end(&mut answer).unwrap();
                let begin = b"HTTP/1.1 200 Connection established\r\n\r\nfirst";
                assert!(answer.starts_with(begin));
                assert!(answer[begin.len()..] == *question);
            });
        }
    });
    assert_eq!(site.counters.connected.load(Ordering::Relaxed), 8);
}

#[test]
fn destinations_outside_the_rules_are_refused_and_counted() {
    let server = echo_server();
    let site = ProxySite::new(&["*".to_owned(), "10.0.0.0/8".to_owned()]);
    for (host, cause) in [
        (server.to_string(), "127.0.0.1 leads to the host of the VM"),
        (
            format!("localhost:{}", server.port()),
            "localhost, which is",
        ),
        ("169.254.169.254".to_owned(), "or to its link"),
    ] {
        let answer = site.ask(&format!("GET http://{host}/ HTTP/1.1\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden: "), "{answer}");
        assert!(answer.contains(cause), "{answer}");
    }
    assert_eq!(site.counters.outside_rules.load(Ordering::Relaxed), 3);

    let site = ProxySite::new(&["deb.example:80".to_owned()]);
    let answer = site.ask("CONNECT deb.example:443 HTTP/1.1\r\n\r\n");
    let cause = "deb.example:443 is outside the rules of --internet (deb.example:80)";
    assert!(answer.contains(cause), "{answer}");
    assert_eq!(site.counters.outside_rules.load(Ordering::Relaxed), 1);
    assert_eq!(site.counters.connected.load(Ordering::Relaxed), 0);
}

/// A server on all addresses of this host, among them one that is not of the loopback.
#[test]
fn rules_of_networks_do_not_lead_to_this_host() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket
        .connect("192.0.2.77:9")
        .and_then(|()| socket.local_addr());
    let Ok(own) = own.map(|address| address.ip()) else {
        return println!("SKIP: this host has no address but those of the loopback");
    };
    let server = TcpListener::bind((own, 0)).unwrap();
    let at = server.local_addr().unwrap();
    let site = ProxySite::new(&["*".to_owned(), "0.0.0.0/0".to_owned(), format!("{own}:1")]);
    let answer = site.ask(&format!("GET http://{at}/ HTTP/1.1\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden: "), "{answer}");
    assert!(answer.contains("leads to the host of the VM"), "{answer}");
    assert_eq!(site.counters.outside_rules.load(Ordering::Relaxed), 1);
    let site = ProxySite::new(&[at.to_string()]);
    let mut program = site.open(&format!("CONNECT {at} HTTP/1.1\r\n\r\n"));
    let mut answer = [0; 12];
    program.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn bad_requests_and_dead_servers_have_answers_of_their_own() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let site = ProxySite::new(&[closed.to_string(), "no.such.host.invalid".to_owned()]);
    let answer = site.ask(&format!("CONNECT {closed} HTTP/1.1\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("connection refused"), "{answer}");
    let answer = site.ask("GET http://no.such.host.invalid/ HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(site.counters.unreachable.load(Ordering::Relaxed), 2);
    let answer = site.ask("SSH-2.0-x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(site.counters.malformed.load(Ordering::Relaxed), 1);
    // A program that goes away in the middle of its request leaves nothing.
    drop(site.open("GET http://"));
    eventually("no flow is left", || {
        site.house.control().flows().unwrap().is_empty()
    });
}

#[test]
fn programs_that_speak_socks_are_served_too() {
    let server = tcp_server(|connection| drop(echo(connection)));
    let site = ProxySite::new(&[server.to_string()]);
    let address = [
        &[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..],
        &server.port().to_be_bytes(),
    ];
    let mut program = TcpStream::connect(&site.proxy).unwrap();
    program.write_all(&address.concat()).unwrap();
    program.write_all(b"first").unwrap();
    program.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    program.read_to_end(&mut answer).unwrap();
    assert_eq!(
        answer,
        b"\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00first"
    );
    assert_eq!(site.counters.connected.load(Ordering::Relaxed), 1);

    let mut program = TcpStream::connect(&site.proxy).unwrap();
    let name = [&[5, 1, 0, 5, 1, 0, 3, 7][..], b"a.other", &[0, 80]];
    program.write_all(&name.concat()).unwrap();
    let mut answer = Vec::new();
    program.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 2], "not allowed by the rules");
    assert_eq!(site.counters.outside_rules.load(Ordering::Relaxed), 1);
}

#[test]
fn bytes_behind_a_request_reach_no_server() {
    let server = tcp_server(|mut connection| {
        let mut all = Vec::new();
        while !all.ends_with(b"body") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            all.push(byte[0]);
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        connection.set_nonblocking(true).unwrap();
        let is_alone = connection.read(&mut [0]).is_err();
        connection
            .write_all(is_alone.to_string().as_bytes())
            .unwrap();
    });
    let site = ProxySite::new(&[server.to_string()]);
    let answer = site.ask(&format!(
        "POST http://{server}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET http://x/ HTTP/1.1\r\n"
    ));
    assert!(answer.ends_with("\r\n\r\ntrue"), "{answer}");
    let answer = site.ask(&format!(
        "POST http://{server}/ HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    ));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(site.counters.malformed.load(Ordering::Relaxed), 1);
}

#[test]
fn flows_beyond_the_limit_are_refused_and_counted() {
    let server = tcp_server(|connection| drop(echo(connection)));
    let site = ProxySite::with(&[server.to_string()], |door| door.connections_max = 1);
    let mut first = site.open(&format!("CONNECT {server} HTTP/1.1\r\n\r\n"));
    first.read_exact(&mut [0; 12]).unwrap();
    // The connector resets a connection whose flow is refused.
    let mut second = TcpStream::connect(&site.proxy).unwrap();
    assert!(!matches!(second.read(&mut [0]), Ok(1..)));
    // It does so before the proxy has counted the flow.
    eventually("the flow is counted", || {
        site.counters.over_limit.load(Ordering::Relaxed) == 1
    });
}
