//! Tests requests to an agent over its socket.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_api::ErrorCode;
use carina_api::control::ClientError;
use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::exec_lines::StreamError;
use carina_vnet::report::{Exec, VnetState};
use carina_vnet_host::client::{Client, REMOVAL, socket_of};
use carina_vnet_host::{Agent, Stream, Vnets, server};

use crate::waiting::{LIMIT, TestDirectory, is_root, left_of};

const TEXT: &str = "[vnet]\nname = \"asked\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n\
    [node.b]\n[[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n";

fn code_of(error: ClientError) -> Option<ErrorCode> {
    match error {
        ClientError::Refused { body, .. } => Some(body.code),
        _ => None,
    }
}

#[test]
fn network_is_made_used_and_removed_over_the_socket() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    let (_stop, stopped) = server::stop_handle();
    let serving = std::thread::spawn(move || server::serve(listener, agent, true, stopped));
    let client = Client::new(&run_dir, LIMIT);
    let document = Document::read(TEXT, Form::Toml).unwrap();
    let made = client.create(&document).unwrap();
    let again = client.create(&document).unwrap_err();
    assert_eq!(code_of(again), Some(ErrorCode::DuplicateName));
    let deadline = Instant::now() + LIMIT;
    let mut seen = 0;
    while client.report("asked").unwrap().state == VnetState::Changing {
        for event in client
            .events("asked", seen, Duration::from_millis(100))
            .unwrap()
        {
            assert_eq!(event.number, seen + 1);
            seen = event.number;
        }
        assert!(Instant::now() < deadline);
    }
    assert_eq!(client.list().unwrap()[0].state, VnetState::Ready);
    assert_eq!(client.document("asked").unwrap(), document);
    let exec = Exec {
        node: "a".into(),
        command: "echo out; echo err >&2; exit 7".into(),
        limit_ms: 60_000,
    };
    let reply = client.exec("asked", &exec).unwrap();
    assert_eq!(
        (reply.status, &reply.stdout[..], &reply.stderr[..]),
        (7, &b"out\n"[..], &b"err\n"[..])
    );
    let nowhere = Exec {
        node: "z".into(),
        ..exec
    };
    let error = client.exec("asked", &nowhere).unwrap_err();
    assert!(error.to_string().contains("it has: a, b"), "{error}");
    // The console is a shell in the node.
    let mut console = UnixStream::connect(Vnets::of(&run_dir).vnet("asked").console("b")).unwrap();
    console.set_read_timeout(Some(LIMIT)).unwrap();
    console.write_all(b"echo $((40+2)):$CARINA_NODE\n").unwrap();
    let mut output = Vec::new();
    while !String::from_utf8_lossy(&output).contains("42:b") {
        let mut buffer = [0; 256];
        let length = console.read(&mut buffer).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&output));
        output.extend_from_slice(&buffer[..length]);
    }
    assert!(client.test("asked").unwrap().iter().all(|test| test.holds));
    client.remove("asked", REMOVAL).unwrap();
    assert_eq!(left_of(&made.vnet.to_string()), Vec::<String>::new());
    // The agent ends with its last network, because it is transient.
    serving.join().unwrap().unwrap();
}

/// Bytes of output, far above what fits into one answer.
const LARGE: usize = 64 << 20;

#[test]
fn output_of_any_length_comes_and_a_reader_that_goes_ends_it() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    let (_stop, stopped) = server::stop_handle();
    let served = Arc::clone(&agent);
    let serving = std::thread::spawn(move || server::serve(listener, served, true, stopped));
    let client = Client::new(&run_dir, LIMIT);
    client
        .create(&Document::read(TEXT, Form::Toml).unwrap())
        .unwrap();
    agent.wait_until_settled("asked", LIMIT).unwrap();
    let exec = |command: String| Exec {
        node: "a".into(),
        command,
        limit_ms: 600_000,
    };
    let (mut bytes, mut errors) = (0, Vec::new());
    let mut sink = |stream: Stream, piece: &[u8]| {
        match stream {
            Stream::Stdout => {
                let expected = |at: usize| b"0123456789\n"[at % 11];
                let mut all = piece.iter().enumerate();
                assert!(all.all(|(at, byte)| *byte == expected(bytes + at)));
                bytes += piece.len();
            }
            Stream::Stderr => errors.extend_from_slice(piece),
        }
        ControlFlow::Continue(())
    };
    let large = exec(format!(
        "yes 0123456789 | head -c {LARGE}; echo err >&2; exit 7"
    ));
    let ended = client.stream("asked", &large, &mut sink).unwrap();
    assert_eq!(ended, Ok(Some(7)));
    assert_eq!((bytes, &errors[..]), (LARGE, &b"err\n"[..]));
    // In one answer comes what has room, and the count of the rest.
    let whole = client.exec("asked", &large).unwrap();
    assert_eq!(whole.stdout.len() + whole.dropped as usize, LARGE);
    // A reader that goes: nothing of the command is left.
    let pid = directory.path().join("pid");
    let endless = exec(format!("echo $$ >{}; exec yes", pid.display()));
    let mut goes = |_: Stream, _: &[u8]| ControlFlow::Break(());
    let ended = client.stream("asked", &endless, &mut goes).unwrap();
    assert_eq!(ended, Ok(None));
    let pid = std::fs::read_to_string(pid).unwrap();
    let (pid, deadline) = (pid.trim().parse().unwrap(), Instant::now() + LIMIT);
    while carina_namespaces::Process::numbered(pid).is_some() {
        assert!(Instant::now() < deadline, "{pid} runs on");
        std::thread::sleep(Duration::from_millis(5));
    }
    // What fails before it begins is a refusal; what is ended later, the last line.
    let nowhere = Exec {
        node: "z".into(),
        ..exec("true".into())
    };
    let mut nothing = |_: Stream, _: &[u8]| ControlFlow::Continue(());
    let refused = client.stream("asked", &nowhere, &mut nothing).unwrap_err();
    assert_eq!(code_of(refused), Some(ErrorCode::NotFound));
    let late = Exec {
        limit_ms: 200,
        ..exec("echo begins; exec sleep 1000".into())
    };
    let ended = client.stream("asked", &late, &mut nothing).unwrap();
    assert!(
        matches!(&ended, Err(StreamError::Refused(body)) if body.code == ErrorCode::TimedOut),
        "{ended:?}"
    );
    client.remove("asked", REMOVAL).unwrap();
    serving.join().unwrap().unwrap();
}

#[test]
fn network_goes_when_its_lease_ends() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    let (_stop, stopped) = server::stop_handle();
    let served = Arc::clone(&agent);
    let serving = std::thread::spawn(move || server::serve(listener, served, true, stopped));
    let client = Client::new(&run_dir, LIMIT);
    let leased = |time: &str| {
        let lease = format!("[vnet]\nlease = \"{time}\"\n");
        Document::read(&TEXT.replace("[vnet]\n", &lease), Form::Toml).unwrap()
    };
    let made = client.create(&leased("1h")).unwrap();
    assert_eq!(agent.remove_expired(), Vec::<String>::new());
    client.apply(&leased("1s")).unwrap();
    // The agent ends with its last network, because it is transient.
    serving.join().unwrap().unwrap();
    assert!(agent.is_empty());
    assert_eq!(left_of(&made.vnet.to_string()), Vec::<String>::new());
}

#[test]
fn refusals_say_what_is_wrong() {
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    let (stop, stopped) = server::stop_handle();
    let serving = std::thread::spawn(move || server::serve(listener, agent, false, stopped));
    let client = Client::new(&run_dir, LIMIT);
    let error = client.remove("none", LIMIT).unwrap_err();
    assert!(error.to_string().contains("it has: none"), "{error}");
    assert_eq!(code_of(error), Some(ErrorCode::NotFound));
    let path = client.remove("../..", LIMIT).unwrap_err();
    assert_eq!(code_of(path), Some(ErrorCode::NotFound));
    let text = TEXT.replace("[node.b]", "[node.b]\nkind = \"vm\"\nmemory = 1048576");
    let document = Document::read(&text, Form::Toml).unwrap();
    let error = client.create(&document).unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
    assert_eq!(code_of(error), Some(ErrorCode::LimitReached));
    assert!(client.list().unwrap().is_empty());
    drop(stop);
    serving.join().unwrap().unwrap();
}

#[test]
fn agent_without_networks_ends_after_a_refusal() {
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    let (_stop, stopped) = server::stop_handle();
    let served = Arc::clone(&agent);
    let serving = std::thread::spawn(move || server::serve(listener, served, true, stopped));
    let client = Client::new(&run_dir, LIMIT);
    let text = TEXT.replace("[node.b]", "[node.b]\nkind = \"vm\"\nmemory = 1048576");
    let document = Document::read(&text, Form::Toml).unwrap();
    let error = client.create(&document).unwrap_err();
    assert_eq!(code_of(error), Some(ErrorCode::LimitReached));
    serving.join().unwrap().unwrap();
    // A request that comes while the agent ends is refused.
    let late = agent.create(&Document::read(TEXT, Form::Toml).unwrap());
    assert!(late.unwrap_err().to_string().contains("ending"));
    assert!(agent.is_empty());
}

#[test]
fn command_ends_when_the_connection_of_its_caller_does() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    let (stop, stopped) = server::stop_handle();
    let served = Arc::clone(&agent);
    let serving = std::thread::spawn(move || server::serve(listener, served, false, stopped));
    let client = Client::new(&run_dir, LIMIT);
    client
        .create(&Document::read(TEXT, Form::Toml).unwrap())
        .unwrap();
    crate::waiting::wait_until_settled(&agent, "asked");
    let note = directory.path().join("pid");
    let exec = Exec {
        node: "a".into(),
        command: format!(
            "echo $$ >{0}.new; mv {0}.new {0}; sleep 1000",
            note.display()
        ),
        limit_ms: 3_600_000,
    };
    let body = serde_json::to_string(&exec).unwrap();
    let mut caller = UnixStream::connect(socket_of(&run_dir)).unwrap();
    let head = "POST /v1/vnets/asked/exec HTTP/1.1\r\nHost: carina\r\n";
    let length = body.len();
    caller
        .write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    while !note.exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = std::fs::read_to_string(&note)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(carina_namespaces::Process::numbered(pid).is_some());
    drop(caller);
    while carina_namespaces::Process::numbered(pid).is_some() {
        assert!(Instant::now() < deadline, "{pid} runs on");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Much output comes as far as there is room, and the rest is counted.
    let much = Exec {
        command: "head -c 50000000 /dev/zero; echo no >&2; exit 5".into(),
        ..exec
    };
    let reply = client.exec("asked", &much).unwrap();
    assert_eq!((reply.status, &reply.stderr[..]), (5, &b"no\n"[..]));
    assert_eq!(reply.stdout.len() as u64 + reply.dropped, 50_000_000);
    client.remove("asked", REMOVAL).unwrap();
    drop(stop);
    serving.join().unwrap().unwrap();
}
