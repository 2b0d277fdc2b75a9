//! `carina proxy`, with curl as its client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::node::{CARINA, Node, both_in_one};

/// A command that serves until its test ends, and what it said first.
struct Serving {
    child: Child,
    said: Value,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn carina(node: &Node, words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(["--wait", "60s", "--json"]).args(words);
    command
}

fn serve(node: &Node, words: &[&str]) -> Serving {
    let mut command = carina(node, words);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let output = child.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let said = serde_json::from_str(&line).unwrap();
    Serving { child, said }
}

fn fails(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    let output = carina(node, words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// A server of HTTP that keeps connections open, and answers with the request's head and body.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((peer, _)) = listener.accept() {
            std::thread::spawn(move || while answer(&peer).is_some() {});
        }
    });
    address
}

/// Answers one request; `None` at the end of the connection.
fn answer(mut peer: &std::net::TcpStream) -> Option<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        peer.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let head = String::from_utf8(request.clone()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    peer.read_exact(&mut body).ok()?;
    request.extend_from_slice(&body);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        request.len()
    );
    peer.write_all(head.as_bytes()).ok()?;
    peer.write_all(&request).ok()?;
    let asks_to_close = request.windows(17).any(|some| some == b"Connection: close");
    (!asks_to_close).then_some(())
}

fn curl(words: &[&str]) -> Option<Output> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60"]).args(words);
    // Variables such as http_proxy are not for this test.
    curl.env_clear();
    match curl.output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIP: no curl here: {error}");
            None
        }
    }
}

#[test]
fn curl_reaches_an_exposed_server_in_each_way() {
    let node = both_in_one();
    let server = web_server();
    let _exposed = serve(&node, &["expose", "tcp", &server, "--as", "web.vm:8080"]);
    let listen = "127.0.0.1:0";
    let words = [
        "proxy",
        "--socks5",
        listen,
        "--http",
        listen,
        "--rule",
        "*.vm -> dif",
    ];
    let proxy = serve(&node, &words);
    let at = |kind: &str| proxy.said[kind].as_str().unwrap().replace("tcp:", "");
    let (socks, http) = (at("socks5"), at("http"));
    let (of_http, url) = (format!("http://{http}"), "http://web.vm:8080/page");
    let of_socks = format!("socks5h://{socks}");
    let ways: [&[&str]; 4] = [
        &["--socks5-hostname", &socks],
        &["-x", &of_socks],
        &["-x", &of_http],
        &["-x", &of_http, "--proxytunnel"],
    ];
    for way in ways {
        // The second request uses the connection of the first, where there is still one.
        let Some(output) = curl(&[way, &["-d", "the body", url, url]].concat()) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way:?}: {error}");
        assert_eq!(said.matches("POST /page HTTP/1.1").count(), 2, "{said}");
        assert_eq!(said.matches("the body").count(), 2, "{said}");
    }
    let nobody = "http://nobody.vm/";
    let output = curl(&["--socks5-hostname", &socks, nobody]).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(97), "{error}");
    let output = curl(&["-x", &of_http, "-w", "%{http_code}", nobody]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("no application is registered as nobody.vm:80"),
        "{said}"
    );
    assert!(said.ends_with("502"), "{said}");
}

#[test]
fn proxy_ends_within_two_seconds_with_clients() {
    let node = both_in_one();
    let mut proxy = serve(&node, &["proxy", "--http", "127.0.0.1:0"]);
    let address = proxy.said["http"].as_str().unwrap().replace("tcp:", "");
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"CONNECT half").unwrap();
    let start = Instant::now();
    let pid = rustix::process::Pid::from_child(&proxy.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn wrong_uses_say_what_would_be_right() {
    let node = both_in_one();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = held.local_addr().unwrap().to_string();
    let _held = serve(&node, &["proxy", "--socks5", &held]);
    let free = "127.0.0.1:0";
    let cases: [(&[&str], i32, &str); 9] = [
        (&["proxy"], 2, "--socks5"),
        (&["proxy", "--socks5", &held], 1, "the port is in use"),
        (&["proxy", "--http", "127.0.0.1"], 2, "tcp:HOST:PORT"),
        (&["proxy", "--http", free, "--rule", "*.vm"], 2, "->"),
        (
            &["proxy", "--http", free, "--rule", "*.vm -> net"],
            2,
            "none of kernel",
        ),
        (
            &["proxy", "--http", free, "--rule", "listen * -> dif"],
            2,
            "only connects",
        ),
        (
            &[
                "proxy",
                "--http",
                free,
                "--rule",
                "* -> dif",
                "--rule",
                "*.vm -> dif n",
            ],
            2,
            "never used",
        ),
        (
            &["proxy", "--http", free, "--connections-max", "0"],
            2,
            "1 or more",
        ),
        (&["proxy", "--http", "192.0.2.1:1"], 1, "ip address"),
    ];
    for (words, code, right) in cases {
        let (got, error) = fails(&node, words);
        assert!(error.contains(right), "{words:?}: {error}");
        assert_eq!(got, Some(code), "{words:?}: {error}");
    }
    let nowhere = node.directory.path().join("nowhere");
    let mut command = Command::new(CARINA);
    command
        .arg("--run")
        .arg(nowhere)
        .args(["proxy", "--http", free]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("carina node"), "{error}");
}
