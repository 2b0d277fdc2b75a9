//! Tests of networks that an operator gets from two providers, whose processes are killed at any
//! step.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use carina_namespaces::{Namespace, namespace_file};
use carina_sys::NetworkNamespace;
use carina_vnet::document::Form;
use carina_vnet::message::Condition;
use carina_vnet::trace::Trace;
use carina_vnet::vno::Seen;
use carina_vnet_access::token::Token;
use carina_wire::pcapng::{Item, Reader};

use crate::commands::node::CARINA;
use crate::commands::providers::{
    HOST_FOR_USERS, PROCESSES, Providers, SECRETS, document, document_with, is_root, namespaces_of,
};

#[test]
fn operator_gets_a_network_of_two_providers() {
    if !is_root() {
        return;
    }
    let providers = Providers::start("op");
    let logs = || providers.logs();
    let file = providers.path("two.toml");
    std::fs::write(&file, document("two").write(Form::Toml)).unwrap();
    providers.wait("the VNO", || providers.ask(|client| client.list()).ok());
    let output = providers.command(&["up", &file]);
    assert!(output.status.success(), "{output:?}\n{}", logs());
    let seen: Seen = serde_json::from_slice(&output.stdout).unwrap();
    assert!(seen.standing.is_ready());
    // Each host has its two nodes, and the namespace of their ports.
    let uids = providers.uids();
    let made = namespaces_of(&uids);
    assert_eq!(made.len(), 6, "{made:?}");
    operator_goes_into_nodes(&providers);
    operator_looks_at_links(&providers);
    for words in [
        &["status"][..],
        &["list"],
        &["events", "two"],
        &["test"],
        &["show"],
    ] {
        let output = providers.command(words);
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", logs());
        has_no_secrets(&output.stdout);
    }
    let again = providers.command(&["up", &file]);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    let output = providers.command(&["down", "--all"]);
    assert!(output.status.success(), "{output:?}\n{}", logs());
    providers.wait_until_gone("two", &uids);
    // A network that does not fit is refused for good, with the reason.
    let large = document_with("large", "reject", "2Gbps");
    std::fs::write(&file, large.write(Form::Toml)).unwrap();
    let refused = providers.command(&["up", &file]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}\n{}", logs());
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(printed.contains("network large is refused"), "{printed}");
    assert_eq!(providers.records().len(), 0);
}

/// Checks commands, consoles and refusals: they work wherever the node is, and the agents log them.
fn operator_goes_into_nodes(providers: &Providers) {
    for node in ["a", "d"] {
        let words = [node, "sh", "-c", "ip -br address show dev eth0; exit 3"];
        let output = providers.command_inside("exec", &words, b"");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            output.status.code(),
            Some(3),
            "{output:?}\n{}",
            providers.logs()
        );
        assert!(printed.contains("10.0.0."), "{printed}");
        let answer = format!("it is {node}");
        providers.console(node, "echo it is $CARINA_NODE\n", &answer);
    }
    // Output that no answer has room for.
    const LARGE: usize = 64 << 20;
    let script = format!("yes 0123456789 | head -c {LARGE}; echo err >&2; exit 7");
    let output = providers.command_inside("exec", &["d", "sh", "-c", &script], b"");
    assert_eq!(output.status.code(), Some(7), "{}", providers.logs());
    assert_eq!(
        (output.stdout.len(), &output.stderr[..]),
        (LARGE, &b"err\n"[..])
    );
    let expected = |at: usize| b"0123456789\n"[at % 11];
    assert!((0..LARGE).all(|at| output.stdout[at] == expected(at)));
    let test = providers.command(&["test"]);
    let printed = String::from_utf8_lossy(&test.stdout).into_owned();
    assert!(printed.contains("probes have passed 3 links"), "{printed}");
    for (verb, words) in [
        ("exec", &["z", "true"][..]),
        ("migrate", &["a"]),
        ("console", &["z"]),
    ] {
        let output = providers.command_inside(verb, words, b"");
        assert!(!output.status.success(), "{output:?}");
        has_no_secrets(&output.stderr);
    }
    let notes = providers.accesses();
    for what in [
        "\"operator acme\",\"vno acme\",\"vnp net\"",
        "runs `'sh' '-c'",
        "watches the console",
        "leaves the console",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
}

/// An operator can make tokens at an access point, wherever the access point is, and pass them on.
/// A delegate with the right to make tokens can do the same, but nothing else.
#[test]
fn operator_lets_users_in_at_a_provider() {
    if !is_root() {
        return;
    }
    let mut providers = Providers::start("us");
    let name = format!("cvr{}laptop", std::process::id());
    let laptop = laptop(&providers, &name);
    let file = providers.path("club.toml");
    let text = document("club").write(Form::Toml);
    let text = format!(
        "{text}\n[access.home]\nnode = \"d\"\nusers = [\"alice\"]\n\
         [access.branch]\nnode = \"a\"\nattach = \"extend\"\nusers = [\"carol\"]\n\
         location = [\"berlin\"]\nrate = \"1Mbps\"\n"
    );
    std::fs::write(&file, text).unwrap();
    providers.wait("the VNO", || providers.ask(|client| client.list()).ok());
    done(&providers, &["up", &file]);
    let mut member = member(&providers, &laptop);
    // The most distant node is at the other provider.
    let inside = NetworkNamespace::open(&namespace_file(&name)).unwrap();
    providers.wait("an answer of node a", || {
        let to = "10.0.0.1:9".parse().unwrap();
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
        let refused = inside.within(connect).unwrap().unwrap_err();
        (refused.kind() == std::io::ErrorKind::ConnectionRefused).then_some(())
    });
    providers.wait("the user to be seen", || {
        let users = done(&providers, &["users", "club"]);
        users.contains("\"until\"").then_some(())
    });
    tokens_that_cannot_be_are_refused(&providers);
    user_to_whom_the_network_reaches_is_a_node_near_them(&providers);
    delegate_lets_users_in_and_does_no_more(&providers);
    namespaces_of_a_careful_provider_are_closed(&mut providers);
    let cut = done(&providers, &["revoke", "club", "home", "--user", "alice"]);
    assert!(cut.contains("true"), "{cut}");
    assert_eq!(member.wait().unwrap().code(), Some(3));
    done(&providers, &["down", "club"]);
}

/// A user's system, with a wire to the hosts.
fn laptop(providers: &Providers, name: &str) -> Namespace {
    let laptop = Namespace::new(name).unwrap();
    let hosts = providers.namespace();
    hosts.connect("wire9", &laptop, "eth0").unwrap();
    for (space, words) in [
        (hosts, "address add 192.0.2.1/30 dev wire9"),
        (&laptop, "address add 192.0.2.2/30 dev eth0"),
    ] {
        space.ip(&words.split(' ').collect::<Vec<_>>()).unwrap();
    }
    laptop
}

/// Lets `alice` join, with a token that the operator has made.
fn member(providers: &Providers, laptop: &Namespace) -> Child {
    let made = done(providers, &["token", "club", "home", "--user", "alice"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let token = made["token"].as_str().unwrap();
    let printed = Token::read(token).unwrap();
    let claims = printed.claims();
    has_no_secrets(serde_json::to_string(claims).unwrap().as_bytes());
    let is_right = |at: &SocketAddr| at.ip().to_string() == HOST_FOR_USERS;
    assert!(claims.at.iter().all(is_right), "{claims:?}");
    let mut member = laptop.command(CARINA);
    member.args(["--json", "vnet", "join", token]);
    member.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut member = member.spawn().unwrap();
    let mut printed = BufReader::new(member.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.contains("10.128.0.3"), "{line}");
    has_no_secrets(line.as_bytes());
    member
}

fn tokens_that_cannot_be_are_refused(providers: &Providers) {
    for (access, user, why) in [
        ("away", "alice", "no access point away"),
        ("home", "zoe", "no user zoe"),
    ] {
        let output = providers.command(&["token", "club", access, "--user", user]);
        assert!(!output.status.success(), "{output:?}");
        has_no_secrets(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains(why), "{printed}");
    }
}

fn user_to_whom_the_network_reaches_is_a_node_near_them(providers: &Providers) {
    // Her location is Berlin, that of her node London. Nothing listens there, so the answer is a
    // refusal.
    let reach = ["carol", "bash", "-c", ": < /dev/tcp/10.0.0.1/9"];
    let output = providers.command_inside("exec", &reach, b"");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("refused"),
        "{printed}\n{}",
        providers.logs()
    );
    let record_of = |agent: &str| {
        let record = providers.records_of(agent).pop().unwrap();
        std::fs::read_to_string(record.join("record.json")).unwrap()
    };
    let has_node = |text: &str| {
        let record: serde_json::Value = serde_json::from_str(text).unwrap();
        let nodes = record["part"]["nodes"].as_array().unwrap().clone();
        nodes.iter().any(|node| node["name"] == "carol")
    };
    assert!(has_node(&record_of("agent h2")) && !has_node(&record_of("agent h1")));
    let refused = providers.command(&["token", "club", "branch", "--user", "carol"]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && printed.contains("needs no token"),
        "{printed}"
    );
}

fn namespaces_of_a_careful_provider_are_closed(providers: &mut Providers) {
    providers.opens_namespaces = false;
    providers.kill_and_begin("agent h1");
    let printed = providers.wait("the agent to be back", || {
        let output = providers.command_inside("exec", &["a", "true"], b"");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{output:?}");
        printed
            .contains("is a namespace")
            .then_some((output.status.code(), printed))
    });
    assert_eq!(printed.0, Some(3), "{}", printed.1);
    assert!(
        printed.1.contains("--open-namespaces") && printed.1.contains("kind = \"vm\""),
        "{}",
        printed.1
    );
    let console = providers.command_inside("console", &["a"], b"id\n");
    assert_eq!(console.status.code(), Some(3), "{console:?}");
    has_no_secrets(&console.stderr);
    assert!(providers.accesses().contains("\"is_done\":false"));
    // The node of the other provider stays accessible.
    let open = providers.command_inside("exec", &["d", "true"], b"");
    assert!(open.status.success(), "{open:?}");
}

fn delegate_lets_users_in_and_does_no_more(providers: &Providers) {
    let token = ["token", "club", "home", "--user", "alice", "--for", "1m"];
    let refused = providers.command_of_delegate(&token);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{printed}");
    assert!(
        printed.contains("bob has no rights in a network club"),
        "{printed}"
    );
    let granted = providers.command(&["grant", "club", "--to", "bob", "--may", "token"]);
    assert!(granted.status.success(), "{granted:?}");
    let made = providers.command_of_delegate(&token);
    assert!(made.status.success(), "{made:?}");
    for words in [&["status"][..], &["users"]] {
        let output = providers.command_of_delegate(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    for words in [&["down", "club"][..], &["show"], &["test"], &["grants"]] {
        let output = providers.command_of_delegate(words);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && printed.contains("acme"),
            "{words:?}: {printed}"
        );
    }
    let listed = providers.command(&["grants", "club"]);
    let printed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        printed.contains("\"bob\"") && printed.contains("token"),
        "{printed}"
    );
    let notes = providers.accesses();
    for what in [
        "lets alice in at access point home",
        "\"delegate bob\",\"vno acme\"",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
}

/// Runs a command of the operator. Returns whether it succeeded, and its output, which must contain
/// no name of the substrate.
fn printed(providers: &Providers, words: &[&str]) -> (bool, String) {
    let output = providers.command(words);
    has_no_secrets(&output.stdout);
    has_no_secrets(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

/// Runs a command of the operator that must succeed, and returns its output.
fn done(providers: &Providers, words: &[&str]) -> String {
    let (is_done, text) = printed(providers, words);
    assert!(is_done, "{words:?}: {text}\n{}", providers.logs());
    text
}

/// Checks traces, impairments, captures and rates across both providers, with the names of the
/// document.
fn operator_looks_at_links(providers: &Providers) {
    let all = |words: &[&str]| done(providers, words);
    // On a busy machine an echo reply may arrive too late.
    let trace = providers.wait("an answer to each echo", || {
        let (is_answered, text) = printed(providers, &["trace", "a", "d"]);
        let trace: Trace = serde_json::from_str(text.lines().next()?).ok()?;
        (is_answered && trace.answered == trace.asked).then_some(trace)
    });
    assert_eq!(trace.asked, 3, "{trace:?}");
    // Three links, each left and entered, in both directions.
    let is_seen = trace.places.iter().all(|place| place.seen >= 3);
    assert!(trace.places.len() == 12 && is_seen, "{trace:?}");
    assert_eq!(trace.places[0].after_us, Some(0));
    // Loss at the link between the providers is detected there, by the one that loses the packets.
    let (near, far) = (trace.places[2].end.as_str(), trace.places[3].end.as_str());
    let both = [near, far].map(|end| end.split(':').next().unwrap());
    let both = both.join(",");
    all(&["impair", &both, "loss=100%", "--one-way"]);
    let (is_answered, text) = printed(providers, &["trace", "a", "d"]);
    assert!(!is_answered, "{text}");
    // The output has the trace, and then the reason why the command failed.
    let trace: Trace = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // An unanswered echo request is sent again.
    let found = format!("({near} -- {far}) delivers 0 of ");
    let is_found = |line: &&String| line.contains(&found) && line.ends_with("by its impairment");
    assert!(
        trace.findings.iter().any(|line| is_found(&line)),
        "{found}: {trace:?}"
    );
    let (is_done, text) = printed(providers, &["impair", &both, "jitter=9ms", "delay=1ms"]);
    assert!(!is_done, "{text}");
    let shown = all(&["impair"]);
    assert!(
        shown.contains("100%") && !shown.contains("\"back\""),
        "{shown}"
    );
    all(&["impair", &both, "--clear"]);
    assert_eq!(all(&["impair"]).trim(), "[]");
    let rates = all(&["top", "--once", "--interval", "200ms"]);
    assert!(
        rates.contains(near) && rates.contains("frames_per_s"),
        "{rates}"
    );
    operator_captures(providers, &both, [near, far]);
    let events = all(&["events"]);
    for what in ["impairs what it sends at", "captures at"] {
        assert!(events.contains(what), "{what}: {events}");
    }
}

/// Checks that a capture at the edge of a provider contains the names of both ends, and no header
/// of the tunnel.
fn operator_captures(providers: &Providers, link: &str, [near, far]: [&str; 2]) {
    let file = providers.path("capture.pcapng");
    std::thread::scope(|scope| {
        let words = ["capture", link, "--for", "12s", "--write", &file];
        let captures = scope.spawn(move || done(providers, &words));
        // Echo requests are sent until the capture has ended, because its start is not known.
        while !captures.is_finished() {
            providers.command(&["trace", "a", "d"]);
        }
        captures.join().unwrap()
    });
    let bytes = std::fs::read(&file).unwrap();
    let mut reader = Reader::new();
    reader.feed(&bytes);
    let (mut packets, mut names) = (0, Vec::new());
    while let Some(item) = reader.poll().unwrap() {
        match item {
            Item::Packet(_) => packets += 1,
            Item::Interface(interface) => names.push(interface.name.clone()),
            Item::Section => {}
        }
    }
    // The packets contain random bytes, which may contain any short word, so only the names are
    // checked.
    has_no_secrets(names.join(" ").as_bytes());
    names.sort();
    let mut wanted = [format!("{near} -> {far}"), format!("{far} -> {near}")];
    wanted.sort();
    assert_eq!(names, wanted);
    assert!(packets >= 6 && reader.ends_with_statistics(), "{packets}");
}

/// Checks that the text contains no name of a provider or host, and no address of a host.
fn has_no_secrets(printed: &[u8]) {
    let printed = String::from_utf8_lossy(printed);
    let is_of_word = |c: char| c.is_alphanumeric() || c == '.';
    for secret in SECRETS {
        let mut words = printed.split(|c| !is_of_word(c));
        assert!(!words.any(|word| word == secret), "{secret}: {printed}");
    }
}

/// Each role is killed as soon as each condition becomes true. Afterwards the network must become
/// ready, and after its removal nothing of it may be left.
#[test]
fn network_becomes_ready_whichever_role_is_killed() {
    if !is_root() {
        return;
    }
    let mut providers = Providers::start("kill");
    let steps = [
        None,
        Some(Condition::Admitted),
        Some(Condition::Reserved),
        Some(Condition::Ready),
    ];
    let mut number = 0;
    for process in PROCESSES {
        for step in steps {
            number += 1;
            let name = format!("n{number}");
            let wanted = document(&name);
            providers.wait("the VNO", || {
                providers.ask(|client| client.create(&wanted)).ok()
            });
            if let Some(step) = step {
                providers.wait_until(&name, |seen| seen.standing.holds.contains(&step));
            }
            providers.kill_and_begin(process);
            providers.wait_until(&name, |seen| seen.standing.is_ready());
            // An agent that was killed before it recorded that everything was up recreates all of
            // it.
            providers.wait("the namespaces of both hosts", || {
                (namespaces_of(&providers.uids()).len() == 6).then_some(())
            });
            let uids = providers.uids();
            // The role is also killed during the removal.
            providers.wait("the VNO", || {
                providers.ask(|client| client.remove(&name)).ok()
            });
            providers.kill_and_begin(process);
            providers.wait_until_gone(&name, &uids);
        }
    }
}
