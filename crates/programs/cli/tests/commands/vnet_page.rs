//! `carina vnet up --web`: the page of the agent that the command starts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use crate::commands::node::CARINA;
use crate::commands::providers::is_root;

const DOCUMENT: &str = "[vnet]\nname = \"seen\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n\
    [node.b]\n[[link]]\nends = [\"a\", \"b\"]\nrate = \"10Mbps\"\n";

/// A run directory with the document of a network, which ends with this value.
struct Here(tempfile::TempDir);

impl Here {
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(CARINA);
        command
            .args(words)
            .env("CARINA_RUN", self.0.path().join("run"))
            .stdin(Stdio::null());
        command.output().unwrap()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.run(&["vnet", "down", "--all"]);
    }
}

/// A free address of the loopback interface.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn up_serves_a_page_until_the_last_network_ends() {
    if !is_root() {
        println!("SKIP: networks need root");
        return;
    }
    let here = Here(tempfile::tempdir().unwrap());
    let file = here.0.path().join("seen.toml");
    std::fs::write(&file, DOCUMENT).unwrap();
    let file = file.to_str().unwrap();
    let address = free_address();
    let up = here.run(&["vnet", "up", file, "--web", &address]);
    let printed = String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success(), "{printed}");
    let url = printed
        .split_whitespace()
        .find(|word| word.starts_with("http://"));
    let (host, token) = url.unwrap()["http://".len()..].split_once("/#").unwrap();
    assert_eq!(host, address);
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!(
        "GET /v1/vnets/seen HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"ready\""), "{answer}");
    let page_file = here.0.path().join("run/vnet.page");
    let kept = std::fs::read_to_string(&page_file).unwrap();
    assert_eq!(kept.trim(), url.unwrap());
    assert!(here.run(&["vnet", "down", "seen"]).status.success());
}

#[test]
fn up_with_a_page_is_refused_by_an_agent_without() {
    if !is_root() {
        println!("SKIP: networks need root");
        return;
    }
    let here = Here(tempfile::tempdir().unwrap());
    let file = here.0.path().join("seen.toml");
    std::fs::write(&file, DOCUMENT).unwrap();
    let file = file.to_str().unwrap();
    assert!(here.run(&["vnet", "up", file]).status.success());
    let refused = here.run(&["vnet", "up", file, "--web", &free_address()]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(printed.contains("serves no page"), "{printed}");
}
