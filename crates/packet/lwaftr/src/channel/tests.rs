//! Tests of a server with well-behaved and misbehaving clients.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Only bounds how long a test may hang; no assertion depends on it.
const PATIENCE: Duration = Duration::from_secs(60);

fn request(verb: Verb, path: &str) -> Request {
    Request {
        id: Value::Null,
        verb,
        path: Some(path.to_owned()),
        value: None,
    }
}

/// Answers `count` requests: `get` succeeds, every other verb is refused.
fn answer_some(server: &Server, count: usize) {
    let end = Instant::now() + PATIENCE;
    for _ in 0..count {
        let asked = loop {
            if let Some(asked) = server.poll() {
                break asked;
            }
            assert!(Instant::now() < end, "no request");
            server.request_event().wait(Some(10_000_000)).unwrap();
        };
        let path = asked.request.path.clone().unwrap_or_default();
        let result = match asked.request.verb {
            Verb::Get => Ok(format!("this is {path}")),
            _ => Err(format!("not {path}")),
        };
        asked.answer(result);
    }
}

/// Sends raw lines on a new connection, and returns the answers.
fn raw(path: &Path, lines: &[u8], answers: usize) -> Vec<Answer> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(lines).unwrap();
    let read = BufReader::new(stream).lines().take(answers);
    read.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

#[test]
fn requests_are_answered_in_order_and_faults_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("channel");
    let server = Server::bind(&path).unwrap();
    let theirs = path.clone();
    let asking = thread::spawn(move || {
        let mut client = Client::connect(&theirs).unwrap();
        assert_eq!(client.ask(&request(Verb::Get, "/a")).unwrap(), "this is /a");
        let refused = client.ask(&request(Verb::Remove, "/b")).unwrap_err();
        assert_eq!(refused.to_string(), "not /b");
        let lines = b"{\"id\":1,\"verb\":\"get\",\"path\":\"/c\"}\n\n\
                      {\"id\":[2],\"verb\":\"dance\"}\nnonsense\n\
                      {\"id\":\"3\",\"verb\":\"get\"}\n";
        raw(&theirs, lines, 4)
    });
    answer_some(&server, 4);
    let answers = asking.join().unwrap();
    let shown: Vec<(String, Status)> = answers
        .iter()
        .map(|answer| (answer.id.to_string(), answer.status))
        .collect();
    let expected = [
        ("1", Status::Ok),
        ("[2]", Status::Error),
        ("null", Status::Error),
        ("\"3\"", Status::Ok),
    ];
    assert_eq!(shown, expected.map(|(id, status)| (id.to_owned(), status)));
    assert_eq!(answers[0].value.as_deref(), Some("this is /c"));
    let fault = answers[1].value.clone().unwrap();
    assert!(fault.contains("dance"), "{fault}");
}

#[test]
fn endless_lines_and_too_many_clients_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("channel");
    let server = Server::bind(&path).unwrap();
    let long = raw(&path, &vec![b'x'; LINE_MAX as usize + 1], 1);
    assert!(
        long[0]
            .value
            .as_ref()
            .unwrap()
            .contains("more than 1048576")
    );
    let end = Instant::now() + PATIENCE;
    let refused = loop {
        // A connection of the round before may still be counted.
        let mut all: Vec<UnixStream> = (0..=CONNECTIONS_MAX)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        let last = all.pop().unwrap();
        last.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = String::new();
        if BufReader::new(last).read_line(&mut line).is_ok() {
            break line;
        }
        assert!(Instant::now() < end);
    };
    assert!(
        refused.contains("16 connections, which is the limit"),
        "{refused}"
    );
    drop(server);
    assert!(!path.exists());
    assert!(matches!(
        Client::connect(&path),
        Err(ClientError::System(_))
    ));
}
