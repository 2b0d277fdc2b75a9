//! Tests of end users who join networks from systems that have only IP connectivity.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use carina_namespaces::{NamespaceAccess, namespace_file};
use carina_sys::NetworkNamespace;
use rustix::process::Signal;

use crate::commands::providers::is_root;
use crate::commands::users_site::{Site, answers};

/// Time to transfer a megabyte from a user to a node.
fn megabyte(site: &Site, user: usize, name: &str) -> Duration {
    megabyte_of(site, user, name, &format!("10.128.0.{}", 3 + user))
}

/// Time to transfer a megabyte from a user with this address to a node.
fn megabyte_of(site: &Site, user: usize, name: &str, address: &str) -> Duration {
    const BYTES: usize = 1_000_000;
    let to: SocketAddr = "10.0.0.2:7000".parse().unwrap();
    let listener = site
        .node(name, "r2")
        .within(|| TcpListener::bind(to))
        .unwrap()
        .unwrap();
    let inside = NetworkNamespace::open(&namespace_file(&site.users[user].0)).unwrap();
    let begin = Instant::now();
    let sender = std::thread::spawn(move || {
        let mut stream = inside.within(|| TcpStream::connect(to)).unwrap().unwrap();
        stream.write_all(&vec![7; BYTES]).unwrap();
    });
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), address);
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), BYTES);
    sender.join().unwrap();
    begin.elapsed()
}

#[test]
fn users_join_a_network_are_bounded_and_cut_off() {
    if !is_root() {
        return;
    }
    let mut site = Site::new("u");
    for name in ["demo", "other"] {
        site.up(name);
    }
    let token = site.token("demo", 0, &[]);
    let alice = site.join(0, &token);
    assert_eq!(alice.joined["address"], "10.128.0.3/23");
    user_is_in_one_network_with_a_rate(&site);
    tokens_that_do_not_hold_are_refused(&site, &token);
    let bob = site.join(1, &site.token("demo", 1, &[]));
    site.wait("an answer to bob", || site.answers(1, "10.0.0.2"));
    users_are_told_apart(&site);
    // A revoked user is disconnected at once, with a message.
    let begin = Instant::now();
    site.done(&["revoke", "demo", "home", "--user", "alice"]);
    let (code, printed) = alice.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("revoked"), "{printed}");
    let elapsed = begin.elapsed();
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    assert!(!site.answers(0, "10.0.0.2") && !site.interfaces(0).contains("carina"));
    assert!(site.refusal(0, &token).contains("revoked"));
    site.wait("an answer to bob still", || site.answers(1, "10.0.0.2"));
    // A user's system leaves nothing behind when its command is killed.
    bob.signal(Signal::KILL);
    bob.end();
    site.wait("the interface to go", || {
        !site.interfaces(1).contains("carina")
    });
    // A user stays connected when the agent is killed, and the next agent goes on.
    let alice = site.join(0, &site.token("demo", 0, &[]));
    site.wait("an answer", || site.answers(0, "10.0.0.2"));
    site.kill();
    assert!(!site.answers(0, "10.0.0.2"));
    site.begin();
    let what = "the network to be taken up";
    site.wait(what, || site.answers(0, "10.0.0.2"));
    alice.signal(Signal::INT);
    assert_eq!(alice.end().0, Some(0));
    nothing_is_left_of(&site, ["demo", "other"]);
}

fn user_is_in_one_network_with_a_rate(site: &Site) {
    let others = site.segments("other", "r2");
    for address in ["10.128.0.1", "10.0.0.2"] {
        site.wait("an answer", || site.answers(0, address));
    }
    for _ in 0..20 {
        site.wait("one answer more", || site.answers(0, "10.0.0.2"));
    }
    let elapsed = megabyte(site, 0, "demo");
    // 8 Mbit at 10 Mbit/s take this long, apart from the first burst.
    assert!(elapsed > Duration::from_millis(700), "{elapsed:?}");
    assert_eq!(site.segments("other", "r2"), others);
    // A node reaches the user.
    let node = site.node("demo", "r2");
    site.wait("an answer of the user", || answers(&node, "10.128.0.3"));
}

fn tokens_that_do_not_hold_are_refused(site: &Site, used: &str) {
    let again = site.refusal(1, used);
    assert!(
        again.contains("used before") && again.contains("a new token"),
        "{again}"
    );
    let short = site.token("demo", 1, &["--for", "1s"]);
    let letter = if short[60..].starts_with('A') {
        "B"
    } else {
        "A"
    };
    let mut changed = short.clone();
    changed.replace_range(60..61, letter);
    let changed = site.refusal(1, &changed);
    assert!(
        changed.contains("changed") || changed.contains("not a valid token"),
        "{changed}"
    );
    std::thread::sleep(Duration::from_millis(2100));
    let expired = site.refusal(1, &short);
    assert!(expired.contains("expired"), "{expired}");
}

fn users_are_told_apart(site: &Site) {
    // The users reach each other through their node.
    site.wait("an answer of alice", || site.answers(1, "10.128.0.3"));
    let points = site.done(&["users", "demo"]);
    let users = &points[0]["users"];
    assert_eq!(users[1]["user"], "bob");
    let sent = users[0]["sent_bytes"].as_u64().unwrap();
    assert!(sent > 1_000_000, "{points}");
    let above = points[0]["discarded"]["rate_up"].as_u64();
    assert!(above.is_some_and(|above| above > 0), "{points}");
}

fn nothing_is_left_of(site: &Site, names: [&str; 2]) {
    let uids = names.map(|name| site.uid(name));
    site.done(&["down", "--all"]);
    let mut left = NamespaceAccess::of_root().list().unwrap();
    left.retain(|name| uids.iter().any(|uid| name.contains(uid)));
    assert!(left.is_empty(), "{left:?}");
    let mut files = std::fs::read_dir(site.run_dir().join("vnet")).unwrap();
    assert!(files.next().is_none());
}

#[test]
fn nodes_have_cards_of_the_host_and_give_them_back() {
    if !is_root() {
        return;
    }
    let mut site = Site::new("n");
    // The wire of a user's system becomes a card of a node: it no longer belongs to the host.
    site.kill();
    site.host.ip(&["address", "flush", "dev", "wire0"]).unwrap();
    site.options = ["--nic", "wire0"].map(str::to_owned).to_vec();
    site.begin();
    let file = |name: &str, via: &str| {
        let text = format!(
            "[vnet]\nname = \"{name}\"\n[node.r1]\nkind = \"namespace\"\n\
             nics = {{ count = 1, via = \"{via}\" }}\n"
        );
        let file = site.directory.path().join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (one, two) = (file("one", "forwarder"), file("two", "forwarder"));
    site.done(&["up", &one]);
    let status = site.done(&["status", "one"]);
    assert_eq!(status["links"][0]["ends"][1], "card wire0", "{status}");
    let add = "ip address add 192.0.2.1/30 dev nic0";
    let words = [
        &["exec", "--vnet", "one", "r1"][..],
        &add.split(' ').collect::<Vec<_>>(),
    ];
    assert!(site.command(&words.concat()).status.success());
    site.wait("an answer through the card", || {
        site.answers(0, "192.0.2.1")
    });
    // There is only one card.
    let refused = site.command(&["up", &two]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{printed}");
    assert!(printed.contains("network card"), "{printed}");
    let unknown = site.command(&["up", &file("three", "bridge")]);
    let printed = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        !unknown.status.success() && printed.contains("forwarder"),
        "{printed}"
    );
    // The next agent adopts the network, and the card returns to the host with the network's
    // removal.
    site.kill();
    site.begin();
    site.wait("the network to be taken up", || {
        site.answers(0, "192.0.2.1")
    });
    site.done(&["down", "one"]);
    assert!(!site.answers(0, "192.0.2.1"));
    site.done(&["up", &two]);
    let status = site.done(&["status", "two"]);
    assert_eq!(status["links"][0]["state"], "up", "{status}");
    site.done(&["down", "two"]);
}

#[test]
fn user_who_has_joined_learns_what_the_network_becomes() {
    if !is_root() {
        return;
    }
    let site = Site::new("l");
    site.up("demo");
    let alice = site.join(0, &site.token("demo", 0, &[]));
    site.wait("an answer", || site.answers(0, "10.0.0.2"));
    assert!(!site.answers(0, "10.0.0.6"));
    let more = "[[link]]\nends = [\"r2\", \"r3\"]\nrate = \"10Mbps\"\n[node.r3]\n";
    site.make("apply", "demo", more);
    site.wait("an answer of the new node", || site.answers(0, "10.0.0.6"));
    site.wait("an answer as before", || site.answers(0, "10.0.0.2"));
    site.make("apply", "demo", "");
    let routes = || {
        NamespaceAccess::of_root()
            .ip(&["-n", &site.users[0].0, "route", "show", "dev", "carina0"])
            .unwrap()
    };
    site.wait("the route to go", || !routes().contains("10.0.0.0/29"));
    site.wait("an answer as before", || site.answers(0, "10.0.0.2"));
    alice.signal(Signal::INT);
    assert_eq!(alice.end().0, Some(0));
}

#[test]
fn machine_of_a_user_is_plugged_into_the_network() {
    if !is_root() {
        return;
    }
    let mut site = Site::new("p");
    // The network extends to alice's machine over the wire.
    site.kill();
    site.host.ip(&["address", "flush", "dev", "wire0"]).unwrap();
    site.options = ["--nic", "wire0"].map(str::to_owned).to_vec();
    site.begin();
    let more = "[access.branch]\nnode = \"r1\"\nattach = \"extend\"\ncard = true\n\
                users = [\"carol\"]\nrate = \"10Mbps\"\n[[test]]\nping = [\"carol\", \"r2\"]\n";
    site.make("up", "demo", more);
    let machine = &site.users[0].1;
    machine.ip(&["address", "flush", "dev", "eth0"]).unwrap();
    for words in [
        "address add 10.160.0.2/30 dev eth0",
        "route add 10.0.0.0/8 via 10.160.0.1",
    ] {
        machine.ip(&words.split(' ').collect::<Vec<_>>()).unwrap();
    }
    // The machine reaches nodes and nodes reach the machine, as if it were a node itself.
    site.wait("an answer through the card", || site.answers(0, "10.0.0.2"));
    let node = site.node("demo", "r2");
    site.wait("an answer of the machine", || answers(&node, "10.160.0.2"));
    let tested = site.done(&["test", "demo"]);
    assert!(tested.to_string().contains("carol"), "{tested}");
    // Its link has a rate limit, as all links of a network.
    let elapsed = megabyte_of(&site, 0, "demo", "10.160.0.2");
    assert!(elapsed > Duration::from_millis(700), "{elapsed:?}");
    site.done(&["down", "demo"]);
    assert!(!site.answers(0, "10.0.0.2"));
}
