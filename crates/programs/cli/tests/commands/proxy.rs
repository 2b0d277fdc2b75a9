//! `carina proxy`, with curl as its client.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use super::node::{CARINA, both_in_one};
use super::serving::{fails, serve, web_server};

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
    let at = |kind: &str| proxy.printed[kind].as_str().unwrap().replace("tcp:", "");
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
        let printed = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way:?}: {error}");
        assert_eq!(
            printed.matches("POST /page HTTP/1.1").count(),
            2,
            "{printed}"
        );
        assert_eq!(printed.matches("the body").count(), 2, "{printed}");
    }
    let nobody = "http://nobody.vm/";
    let output = curl(&["--socks5-hostname", &socks, nobody]).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(97), "{error}");
    let output = curl(&["-x", &of_http, "-w", "%{http_code}", nobody]).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("no application is registered as nobody.vm:80"),
        "{printed}"
    );
    assert!(printed.ends_with("502"), "{printed}");
}

#[test]
fn proxy_ends_by_a_signal_with_clients() {
    let node = both_in_one();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = silent.local_addr().unwrap();
    let mut proxy = serve(&node, &["proxy", "--http", "127.0.0.1:0", "--pass"]);
    let address = proxy.printed["http"].as_str().unwrap().replace("tcp:", "");
    let client = |request: String| {
        let mut client = std::net::TcpStream::connect(&address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client
    };
    let _half = client("CONNECT half".to_owned());
    let mut connected = client(format!("CONNECT {server} HTTP/1.1\r\n\r\n"));
    connected.read_exact(&mut [0; 12]).unwrap();
    let pid = rustix::process::Pid::from_child(&proxy.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // It does not wait for the connected client, which never ends by itself.
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));
}

#[test]
fn wrong_uses_say_what_would_be_right() {
    let node = both_in_one();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = holder.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    let cases: [(&[&str], i32, &str); 9] = [
        (&["proxy"], 2, "--socks5"),
        (&["proxy", "--socks5", &held], 1, "the port is in use"),
        (&["proxy", "--http", "127.0.0.1"], 2, "HOST:PORT, such as"),
        (&["proxy", "--http", free, "--rule", "*.vm"], 2, "->"),
        (
            &["proxy", "--http", free, "--rule", "*.vm -> net"],
            2,
            "must be kernel, refuse or dif",
        ),
        (
            &["proxy", "--http", free, "--rule", "listen * -> dif"],
            2,
            "a rule without `listen`",
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
    let rule = "*.vm -> dif atlantis";
    let proxy = serve(&node, &["proxy", "--http", free, "--rule", rule]);
    let at = proxy.printed["http"].as_str().unwrap().replace("tcp:", "");
    let mut client = std::net::TcpStream::connect(at).unwrap();
    client
        .write_all(b"CONNECT web.vm:80 HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("atlantis"), "{answer}");
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
