//! Commands that serve until a test ends, and a web server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::node::{CARINA, Node};
use super::within::{first_line, output_of};

/// A command that serves until its test ends, and what it said first.
pub(super) struct Serving {
    pub child: Child,
    pub printed: Value,
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

/// Starts a command that serves.
pub(super) fn serve(node: &Node, words: &[&str]) -> Serving {
    let mut command = carina(node, words);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let printed = serde_json::from_str(&first_line(&mut child)).unwrap();
    Serving { child, printed }
}

/// The exit code and the message of a command that fails.
pub(super) fn fails(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    let output = output_of(&mut carina(node, words));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), printed)
}

/// A server of HTTP that keeps connections open, and answers with the request's head and body.
pub(super) fn web_server() -> String {
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
