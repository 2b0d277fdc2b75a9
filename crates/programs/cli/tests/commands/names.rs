//! `carina names`: addresses of names, by DNS.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use super::node::both_in_one;
use super::serving::{fails, serve, web_server};

/// A question as a resolver sends it.
fn question(name: &str, kind: u8) -> Vec<u8> {
    let mut message = vec![0x43, 0x41, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, 0, kind, 0, 1]);
    message
}

/// The response code, and the data of the last record.
fn ask(server: &str, name: &str, kind: u8) -> (u8, Vec<u8>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let message = question(name, kind);
    socket.send_to(&message, server).unwrap();
    let mut response = [0; 2048];
    let bytes = socket.recv(&mut response).unwrap();
    let response = &response[..bytes];
    assert_eq!(response[..2], message[..2]);
    (response[3] & 0xf, response[message.len()..].to_vec())
}

#[test]
fn names_have_addresses_that_lead_back_to_them() {
    let node = both_in_one();
    let web = web_server();
    let _exposed = serve(&node, &["expose", "tcp", &web, "--as", "web:80"]);
    let listed = node.done(&["names"]);
    let mut rows = listed.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == "web:80").unwrap();
    assert_eq!(
        (&row["name"], &row["host"]),
        (&"web:80".into(), &"web.dif.internal".into())
    );
    assert_eq!(
        row["addresses"],
        serde_json::json!([]),
        "listing gives no address"
    );
    let hosts = node.directory.path().join("hosts");
    std::fs::write(&hosts, "10.9.0.1 fixed.vm\n").unwrap();
    let hosts = hosts.to_str().unwrap();
    let server = serve(&node, &["names", "--dns", "127.0.0.1:0", "--hosts", hosts]);
    let at = server.printed["listening"]
        .as_str()
        .unwrap()
        .replace("udp:", "");
    let (code, record) = ask(&at, "web.dif.internal", 1);
    let listed = node.done(&["names"]);
    let mut rows = listed.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == "web:80").unwrap();
    let address = row["addresses"][0].as_str().unwrap().to_owned();
    assert!(address.starts_with("198.18."), "{listed}");
    let octets: Vec<u8> = address
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    assert_eq!((code, &record[record.len() - 4..]), (0, &octets[..]));
    let (code, record) = ask(&at, "web.dif.internal", 28);
    assert_eq!((code, record[record.len() - 16]), (0, 0xfd));
    assert_eq!(ask(&at, "web.dif.internal", 15), (0, vec![]));
    assert_eq!(ask(&at, "nobody.dif.internal", 1), (3, vec![]));
    assert_eq!(ask(&at, "example.org", 1), (5, vec![]));
    let (_, record) = ask(&at, "fixed.vm", 1);
    assert_eq!(record[record.len() - 4..], [10, 9, 0, 1]);
    let [a, b, c, d] = octets[..] else {
        panic!("{address}");
    };
    let (code, record) = ask(&at, &format!("{d}.{c}.{b}.{a}.in-addr.arpa"), 12);
    assert_eq!(code, 0);
    assert!(record.ends_with(b"\x03web\x03dif\x08internal\0"));
    // The same over TCP, two questions in one piece.
    let mut client = TcpStream::connect(&at).unwrap();
    let message = question("web.dif.internal", 1);
    let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    client.write_all(&framed.repeat(2)).unwrap();
    for _ in 0..2 {
        let mut length = [0; 2];
        client.read_exact(&mut length).unwrap();
        let mut response = vec![0; u16::from_be_bytes(length).into()];
        client.read_exact(&mut response).unwrap();
        assert_eq!(response[response.len() - 4..], octets);
    }
    // The proxy maps the address back.
    let proxy = serve(&node, &["proxy", "--http", "127.0.0.1:0"]);
    let at = proxy.printed["http"].as_str().unwrap().replace("tcp:", "");
    let mut client = TcpStream::connect(at).unwrap();
    let request = format!("GET http://{address}/by-address HTTP/1.1\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("GET /by-address HTTP/1.1"), "{answer}");
}

#[test]
fn wrong_uses_of_names_say_what_would_be_right() {
    let node = both_in_one();
    let by_udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let of_udp = by_udp.local_addr().unwrap().to_string();
    let by_tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let of_tcp = by_tcp.local_addr().unwrap().to_string();
    let file = node.directory.path().join("hosts");
    std::fs::write(&file, "web 10.0.0.1\n").unwrap();
    let file = file.to_str().unwrap();
    let free = "127.0.0.1:0";
    let cases: [(&[&str], i32, &str); 7] = [
        (&["names", "--dns", &of_udp], 1, "the port is in use"),
        (&["names", "--dns", &of_tcp], 1, "the port is in use"),
        (&["names", "--dns", "127.0.0.53"], 2, "HOST:PORT, such"),
        (&["names", "--domain", "a b"], 2, "--domain a b"),
        (&["names", "--hosts", file], 2, "--dns"),
        (
            &["names", "--dns", free, "--hosts", file],
            3,
            "is no address",
        ),
        (
            &["names", "--dns", free, "--hosts", "/nowhere"],
            3,
            "/nowhere",
        ),
    ];
    for (words, code, right) in cases {
        let (got, error) = fails(&node, words);
        assert!(error.contains(right), "{words:?}: {error}");
        assert_eq!(got, Some(code), "{words:?}: {error}");
    }
    let nowhere = node.directory.path().join("nowhere");
    for words in [&["names"][..], &["names", "--dns", free]] {
        let mut command = std::process::Command::new(super::node::CARINA);
        let output = command.arg("--run").arg(&nowhere).args(words).output();
        let error = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(error.contains("carina node"), "{words:?}: {error}");
    }
    // Without the right to low ports, where they need one.
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first.is_ok_and(|port| port.trim().parse::<u16>().is_ok_and(|port| port <= 53)) {
        return println!("SKIP: every user may use port 53 here");
    }
    let run = node.directory.path().join("run");
    let carina = super::node::CARINA;
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--bounding-set",
        "-all",
        "--inh-caps",
        "-all",
        carina,
        "--run",
    ]);
    command.arg(run).args(["names", "--dns", "127.0.0.1:53"]);
    match command.output() {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("CAP_NET_BIND_SERVICE"), "{error}");
        }
        Err(error) => println!("SKIP: no setpriv here: {error}"),
    }
}
