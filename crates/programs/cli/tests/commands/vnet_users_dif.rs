//! Tests of end users whose systems become members of a network's DIF.

use std::net::UdpSocket;
use std::process::Stdio;

use carina_namespaces::namespace_file;
use carina_sys::NetworkNamespace;
use rustix::process::Signal;

use crate::commands::node::CARINA;
use crate::commands::providers::is_root;
use crate::commands::users_site::Site;

#[test]
fn user_becomes_a_member_of_the_networks_dif() {
    if !is_root() {
        return;
    }
    let site = Site::new("d");
    site.make("up", "demo", "as = \"dif\"\n");
    let token = site.token("demo", 0, &["--right", "dif"]);
    let (alice, run) = site.join_dif(0, &token);
    assert_eq!(alice.joined["dif"]["via"], "r1", "{}", alice.joined);
    let program = |words: &[&str]| {
        let mut command = site.users[0].1.command(CARINA);
        command.arg("--run").arg(&run).args(words);
        command.stdin(Stdio::null());
        command
    };
    // The user reaches a node behind the access point's by name, also with SDUs that need
    // fragments.
    for size in ["64", "1400"] {
        let words = [
            "--wait", "30s", "ping", "r2", "--dif", "demo", "-c", "3", "-s", size,
        ];
        let output = program(&words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    // A node allocates a flow to a program on the user's system.
    let mut serves = program(&["ping", "--listen", "laptop", "--dif", "demo", "-q"]);
    let mut serves = serves.stdout(Stdio::null()).spawn().unwrap();
    site.wait("an answer of the user's program", || {
        let ping = "carina --wait 10s ping laptop --dif demo -c 2";
        let words: Vec<&str> = ping.split(' ').collect();
        let all = [&["exec", "--vnet", "demo", "r2"][..], &words].concat();
        site.command(&all).status.success()
    });
    serves.kill().unwrap();
    serves.wait().unwrap();
    // Packets to which the token gives no right do not pass.
    assert!(!site.answers(0, "10.0.0.2") && !site.answers(0, "10.128.0.1"));
    let bob = site.join(1, &site.token("demo", 1, &["--right", "ip"]));
    site.wait("an answer to bob", || site.answers(1, "10.0.0.2"));
    let inside = NetworkNamespace::open(&namespace_file(&site.users[1].0)).unwrap();
    let before = refused_for_rights(&site);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket
            .send_to(b"in the shim's place", "10.128.0.1:3359")
            .unwrap();
    };
    inside.within(send).unwrap();
    site.wait("the datagram to be discarded", || {
        refused_for_rights(&site) > before
    });
    // The member ends with the command, however the command ends.
    let runs = || {
        let mut list = program(&["ipcp", "list"]);
        list.output().unwrap().status.success()
    };
    assert!(runs());
    alice.signal(Signal::KILL);
    alice.end();
    site.wait("the node to end", || !runs());
    let (alice, _) = site.join_dif(0, &site.token("demo", 0, &["--right", "dif,ip"]));
    site.wait("an answer to alice", || site.answers(0, "10.0.0.2"));
    site.done(&["revoke", "demo", "home", "--user", "alice"]);
    let (code, printed) = alice.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(!runs());
    bob.signal(Signal::INT);
    bob.end();
    right_to_a_dif_needs_one(&site);
}

/// Number of packets that an access point has discarded because their user has no right to them.
fn refused_for_rights(site: &Site) -> u64 {
    let points = site.done(&["users", "demo"]);
    points[0]["discarded"]["right"].as_u64().unwrap_or(0)
}

fn right_to_a_dif_needs_one(site: &Site) {
    site.up("plain");
    let words = [
        "token", "plain", "home", "--user", "alice", "--right", "dif",
    ];
    let refused = site.command(&words);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && printed.contains("not a member of a DIF"),
        "{printed}"
    );
}
