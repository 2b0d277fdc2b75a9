//! Tests operators' requests to nodes, and certificates that are revoked meanwhile.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use carina_api::output::Stream;
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::VnetId;
use carina_vnet::report::Exec;
use carina_vnet_roles::calling::connection::{CallError, Callee, Request};
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::inside::{Answer, NetworkRequest, NodeRequest};
use carina_vnet_roles::keys::{KeyDir, Tls};
use serde_json::json;

use crate::played::{LIMIT, Providers, at, document, wait_until, wait_until_gone};

fn exec(node: &str, command: &str) -> Exec {
    Exec {
        node: node.to_owned(),
        command: command.to_owned(),
        limit_ms: 10_000,
    }
}

/// Sends a request to a role directly, as another party.
fn ask(
    tls: &Tls,
    (role, name, port): (Role, &str, u16),
    wanted: &NetworkRequest,
) -> Result<Answer, CallError> {
    let callee = Callee {
        party: Identity::new(role, name).unwrap(),
        address: at(port),
        tls: tls.clone(),
    };
    let mut connection = callee.connect()?;
    let body = serde_json::to_string(wanted).unwrap();
    let request = Request {
        method: "POST",
        target: "/v1/asks",
        body: &body,
        wait: Duration::ZERO,
    };
    let answer = callee.request(&mut connection, &request)?;
    Ok(serde_json::from_slice(&answer).unwrap())
}

/// A party without rights on a network can neither see nor change what passes its links.
fn sees_no_link(tls: &Tls, to: (Role, &str, u16), wanted: &NetworkRequest) {
    for looks in [
        json!({ "look": {} }),
        json!({ "impair": { "node": "a", "interface": "eth0" } }),
        json!({ "copy": { "node": "a", "interface": "eth0", "far": "b:eth0", "session": 1,
            "since": 0, "wait_ms": 0 } }),
        json!({ "seek": { "session": 1, "sought": { "from": "a", "own": [],
            "to": "10.0.0.2", "ends": [] } } }),
    ] {
        let wanted = NetworkRequest {
            ask: serde_json::from_value(looks).unwrap(),
            ..wanted.clone()
        };
        let refused = ask(tls, to, &wanted).unwrap_err().to_string();
        assert!(refused.contains("belongs to another party"), "{refused}");
    }
}

#[test]
fn operator_asks_its_nodes_wherever_they_are() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let operator = providers.operator();
    operator.create(&document("ring")).unwrap();
    // The network waits for hosts, and has no node yet.
    let early = operator.exec("ring", &exec("a", "true"));
    assert!(matches!(early, Err(CallError::Refused(_))), "{early:?}");
    let _agents = [0, 1].map(|number| providers.agent(number));
    let seen = wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    // Each request reaches the host of its node, on behalf of the operator and the forwarding
    // roles.
    for node in document("ring").node.keys() {
        let reply = operator.exec("ring", &exec(node, "who")).unwrap();
        let text = String::from_utf8(reply.stdout).unwrap();
        assert_eq!(text, format!("{node}: operator acme, vno acme, vnp net"));
    }
    let look = operator.look("ring").unwrap();
    assert_eq!(look.nodes.len(), document("ring").node.len());
    let events = operator.events("ring", 0, Duration::ZERO).unwrap();
    let deed = "node a: operator acme runs `who`";
    let mut all = events.iter();
    assert!(all.any(|event| event.what == deed), "{events:?}");
    let unknown = operator.exec("ring", &exec("z", "true")).unwrap_err();
    let unknown = unknown.to_string();
    assert!(unknown.contains("no node z"), "{unknown}");
    let text = serde_json::to_string(&(&look, &events, &unknown)).unwrap();
    for name in ["secret", "172.31", "pip", "border"] {
        assert!(!text.contains(name), "{name} in {text}");
    }

    // Other parties get into no node, at any role.
    let keys = providers.keys();
    let wanted = |vnet: VnetId| NetworkRequest {
        vnet,
        ask: NodeRequest::Exec {
            node: "a".into(),
            command: "true".into(),
            limit_ms: 1000,
            session: None,
        },
        who: Vec::new(),
    };
    for (role, to) in [
        (Role::Vno, (Role::Vnp, "net", providers.ports.net)),
        (Role::Vnp, (Role::Pip, "uk", providers.ports.uk)),
    ] {
        let other = Identity::new(role, "other").unwrap();
        keys.issue(&other, 2, &keys).unwrap();
        let tls = Tls::of(&keys, &other).unwrap();
        let refused = ask(&tls, to, &wanted(seen.vnet)).unwrap_err().to_string();
        assert!(
            refused.contains("belongs to another party"),
            "{role}: {refused}"
        );
        sees_no_link(&tls, to, &wanted(seen.vnet));
        let nothing = ask(&tls, to, &wanted(VnetId::new(5)))
            .unwrap_err()
            .to_string();
        assert!(nothing.contains("no node a"), "{role}: {nothing}");
        let long = NetworkRequest {
            who: vec!["x".repeat(65)],
            ..wanted(seen.vnet)
        };
        let long = ask(&tls, to, &long).unwrap_err().to_string();
        assert!(long.contains("without a name"), "{long}");
    }
    let operator_tls = providers.tls(Role::Operator, "acme");
    let at_vnp = (Role::Vnp, "net", providers.ports.net);
    let refused = ask(&operator_tls, at_vnp, &wanted(seen.vnet));
    assert!(refused.unwrap_err().to_string().contains("may not call"));
    operator.remove("ring").unwrap();
    wait_until_gone(&operator, "ring");
}

/// Forwards one connection to a port, until it ends. Returns the port to connect to, and the two
/// ends of the connection.
fn passing(port: u16) -> (u16, std::thread::JoinHandle<[TcpStream; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().port();
    let accepts = std::thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            // The thread ends with the connection.
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        [near, far]
    });
    (here, accepts)
}

#[test]
fn command_ends_when_its_operator_goes() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let operator = providers.operator();
    operator.create(&document("ring")).unwrap();
    wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    let (port, passes) = passing(providers.ports.acme);
    let callee = Callee {
        party: Identity::new(Role::Vno, "acme").unwrap(),
        address: at(port),
        tls: providers.tls(Role::Operator, "acme"),
    };
    let wait = json!({ "exec": { "node": "a", "command": "wait", "limit_ms": 600_000 } });
    let waits = std::thread::spawn(move || {
        let mut connection = callee.connect().unwrap();
        let request = Request {
            method: "POST",
            target: "/v1/vnets/ring/asks",
            body: &wait.to_string(),
            wait: LIMIT,
        };
        callee.request(&mut connection, &request)
    });
    let deadline = Instant::now() + LIMIT;
    let until = |what: &str, is_so: &dyn Fn([Vec<u64>; 2]) -> bool| {
        while !is_so(providers.commands.seen()) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("it has not begun", &|[begun, _]| begun.len() == 1);
    // A command whose caller gets the answer is not ended early.
    operator.exec("ring", &exec("a", "who")).unwrap();
    assert!(providers.commands.seen()[1].is_empty());
    for end in passes.join().unwrap() {
        // It has already ended if the other end closed first.
        let _ = end.shutdown(Shutdown::Both);
    }
    until("it runs on", &|[begun, ended]| ended == begun);
    assert!(waits.join().unwrap().is_err());
    operator.remove("ring").unwrap();
    wait_until_gone(&operator, "ring");
}

/// A network of one namespace at the first provider.
fn alone() -> Document {
    let text = "[vnet]\nname = \"alone\"\non_insufficient = \"queue 2m\"\n\
        [node.a]\nkind = \"namespace\"\nlocation = [\"uk\"]\n";
    Document::read(text, Form::Toml).unwrap()
}

#[test]
fn output_of_any_length_comes_through_the_roles() {
    const LARGE: usize = 64 << 20;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP output_of_any_length_comes_through_the_roles: needs root");
        return;
    }
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let (_host, _service) = providers.real_agent();
    let operator = providers.operator();
    operator.create(&alone()).unwrap();
    wait_until(&operator, "alone", |seen| seen.standing.is_ready());
    let long = |command: String| Exec {
        limit_ms: 600_000,
        ..exec("a", &command)
    };
    let (mut bytes, mut errors) = (0, Vec::new());
    let mut sink = |stream: Stream, piece: &[u8]| {
        match stream {
            Stream::Stdout => {
                let expected = |at: usize| b"0123456789\n"[at % 11];
                assert!(
                    (0..piece.len())
                        .all(|candidate| piece[candidate] == expected(bytes + candidate))
                );
                bytes += piece.len();
            }
            Stream::Stderr => errors.extend_from_slice(piece),
        }
        ControlFlow::Continue(())
    };
    let large = long(format!(
        "yes 0123456789 | head -c {LARGE}; echo err >&2; exit 7"
    ));
    let begin = Instant::now();
    let ended = operator.stream("alone", &large, &mut sink).unwrap();
    eprintln!("{LARGE} bytes in {:?}", begin.elapsed());
    assert_eq!(ended, Ok(Some(7)));
    assert_eq!((bytes, &errors[..]), (LARGE, &b"err\n"[..]));
    // A reader that goes, also of a command that says no more.
    for (number, last) in ["exec yes", "echo begins; exec sleep 1234"]
        .iter()
        .enumerate()
    {
        let file = providers.directory.path().join(format!("pid{number}"));
        let endless = long(format!("echo $$ >{}; {last}", file.display()));
        let mut goes = |_: Stream, _: &[u8]| ControlFlow::Break(());
        let ended = operator.stream("alone", &endless, &mut goes).unwrap();
        assert_eq!(ended, Ok(None));
        let pid = std::fs::read_to_string(file).unwrap();
        let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
        let begin = Instant::now();
        while process.exists() {
            assert!(begin.elapsed() < LIMIT, "{last} runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
        eprintln!("`{last}` has ended {:?} after its reader", begin.elapsed());
    }
    let mut nothing = |_: Stream, _: &[u8]| ControlFlow::Continue(());
    let unknown = operator.stream("alone", &exec("z", "true"), &mut nothing);
    assert!(unknown.unwrap_err().to_string().contains("no node z"));
    let events = operator.events("alone", 0, Duration::ZERO).unwrap();
    let is_deed = |what: &str| what.starts_with("node a: operator acme runs `yes 0123456789");
    assert!(
        events.iter().any(|event| is_deed(&event.what)),
        "{events:?}"
    );
    operator.remove("alone").unwrap();
    wait_until_gone(&operator, "alone");
}

#[test]
fn connections_of_a_revoked_party_end() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let operator = providers.operator();
    operator.create(&document("ring")).unwrap();
    wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    // A waiting request is ended, too, although its connection was made while the certificate was
    // valid.
    let party = Identity::new(Role::Operator, "acme").unwrap();
    let last = operator.events("ring", 0, Duration::ZERO).unwrap().len() as u64;
    let elapsed = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let begin = Instant::now();
            let ended = operator.events("ring", last + 9, Duration::from_secs(30));
            assert!(ended.is_err(), "{ended:?}");
            begin.elapsed()
        });
        std::thread::sleep(Duration::from_millis(500));
        providers.keys().revoke(&party).unwrap();
        waits.join().unwrap()
    });
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    let refused = operator.list();
    assert!(
        matches!(
            refused,
            Err(CallError::Unreached { .. } | CallError::Broken { .. })
        ),
        "{refused:?}"
    );
    // Another certificate of the same party is valid, and the roles still communicate.
    let anew = KeyDir::new(providers.directory.path().join("anew"));
    providers.keys().issue(&party, 2, &anew).unwrap();
    let path = providers.keys().path().join("revoked.pem");
    std::fs::copy(path, anew.path().join("revoked.pem")).unwrap();
    let operator =
        carina_vnet_roles::operator::Client::new(&anew, at(providers.ports.acme)).unwrap();
    assert!(operator.seen("ring").unwrap().standing.is_ready());
    // A host whose agent's certificate is revoked gets no more requests.
    let agent = Identity::new(Role::Agent, "secret-a").unwrap();
    providers.keys().revoke(&agent).unwrap();
    let begin = Instant::now();
    let mut is_out = false;
    while !is_out {
        let asked: Vec<bool> = document("ring")
            .node
            .keys()
            .map(|node| operator.exec("ring", &exec(node, "who")).is_ok())
            .collect();
        is_out = asked.iter().any(|is_ok| !is_ok);
        assert!(begin.elapsed() < LIMIT, "{asked:?}");
    }
}
