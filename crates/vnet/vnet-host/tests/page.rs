//! Tests the web page of an agent with HTTP requests as a browser sends them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::VnetState;
use carina_vnet_host::{Agent, server};
use carina_vnet_web::PageServer;

use crate::waiting::{LIMIT, is_root, wait_until_settled};

/// The answer to a request: headers and body.
fn ask(host: &str, request: &str, headers: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(host).expect("the page is served");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// The web page of an agent, served until this value is dropped.
pub(crate) struct Page {
    pub agent: Arc<Agent>,
    /// URL of the page.
    pub url: String,
    stop: Option<server::Stop>,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    _directory: tempfile::TempDir,
}

impl Page {
    pub(crate) fn serve() -> Page {
        let directory = tempfile::tempdir().unwrap();
        let agent = Arc::new(Agent::new(&RunDir::new(directory.path())).unwrap());
        let page = PageServer::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let url = page.url();
        let (stop, stopped) = server::stop_handle();
        let serves = Arc::clone(&agent);
        Page {
            agent,
            url,
            stop: Some(stop),
            serving: Some(std::thread::spawn(move || {
                carina_vnet_host::web::serve(page, serves, stopped)
            })),
            _directory: directory,
        }
    }

    /// Makes a network `seen` of two namespaces, and waits until it is ready.
    pub(crate) fn make_network(&self) {
        let text = "[vnet]\nname = \"seen\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n\
            [node.b]\n[[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n";
        let document = Document::read(text, Form::Toml).unwrap();
        self.agent.create(&document).unwrap();
        let report = wait_until_settled(&self.agent, "seen");
        assert_eq!(report.state, VnetState::Ready);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Also if the test has failed.
        let _ = self.agent.remove("seen");
        self.stop = None;
        let served = self.serving.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            served.unwrap().unwrap().unwrap();
        }
    }
}

#[test]
fn page_is_for_all_and_networks_for_those_with_the_token() {
    let page = Page::serve();
    let url = &page.url;
    let (host, token) = url
        .trim_start_matches("http://")
        .split_once("/#")
        .expect("an address with a token");
    let (head, body) = ask(host, "GET /", "", "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("default-src 'none'"), "{head}");
    assert!(body.contains("<svg id=\"map\"") && !body.contains(token));
    for wrong in ["", "Authorization: Bearer 0123\r\n"] {
        let (head, body) = ask(host, "GET /v1/vnets", wrong, "");
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
        assert!(body.contains("token"), "{body}");
    }
    let right = format!("Authorization: Bearer {token}\r\n");
    let (head, body) = ask(host, "GET /v1/vnets", &right, "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body, "[]");
    if is_root() {
        page.make_network();
        has_a_console(host, &right);
    }
}

fn has_a_console(host: &str, right: &str) {
    let console = "/v1/vnets/seen/nodes/a/console";
    let typed = "{\"text\": \"echo $((40+2)):$CARINA_NODE\\n\"}";
    let (head, body) = ask(host, &format!("POST {console}"), right, typed);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    let mut output = String::new();
    let mut since = 0;
    let deadline = Instant::now() + LIMIT;
    while !output.contains("42:a") {
        assert!(Instant::now() < deadline, "{output}");
        let path = format!("GET {console}?since={since}&wait_ms=1000");
        let (_, body) = ask(host, &path, right, "");
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        since = json["next"].as_u64().unwrap();
        let bytes = json["bytes"].as_array().unwrap();
        let bytes: Vec<u8> = bytes
            .iter()
            .map(|byte| byte.as_u64().unwrap() as u8)
            .collect();
        output.push_str(&String::from_utf8_lossy(&bytes));
    }
}
