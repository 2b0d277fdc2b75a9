//! Tests a user of a network with parts on two hosts, which get them as from a provider.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_frame::PoolConfig;
use carina_frame_engine::Graph;
use carina_graph::runner::GraphRunner;
use carina_namespaces::namespace_file;
use carina_ports::tun::TunConfig;
use carina_sys::NetworkNamespace;
use carina_vnet::access::TokenWanted;
use carina_vnet::division::{Placement, divide};
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::layout::Layout;
use carina_vnet::message::ToAgent;
use carina_vnet_access::join::join;
use carina_vnet_access::key::PrivateKey;
use carina_vnet_access::token::Token;
use carina_vnet_access::user_app::{UserConfig, Watch};
use carina_vnet_host::names::node_namespace;

use crate::segment::{Host, Segment, ip};
use crate::streams::{dial, listen, stream};
use crate::waiting::{LIMIT, is_root};

const TEXT: &str = r#"
[vnet]
name = "far"
[defaults]
kind = "namespace"
[node.a]
[node.b]
[[link]]
ends = ["a", "b"]
rate = "100Mbps"
as = "gre"
[access.home]
node = "a"
users = ["alice"]
rate = "10Mbps"
"#;

/// Node `a` with the access point on the first host, node `b` on the second.
fn parts() -> Vec<HostPart> {
    let document = Document::read(TEXT, Form::Toml).unwrap();
    let layout = Layout::of(&document, &Layout::default());
    let host = |node: &str, host: &str| (node.to_owned(), host.to_owned());
    let placement = Placement {
        hosts: [host("a", "h1"), host("b", "h2")].into(),
        tags: [(0, 5)].into(),
        outer: [(0, [1, 2].map(|last| Ipv4Addr::new(203, 0, 113, last)))].into(),
    };
    let parts: BTreeMap<String, HostPart> =
        divide(&document, (VnetId::new(77), 1), &layout, &placement).unwrap();
    parts.into_values().collect()
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Joins from the system of a user. Returns the rates at which streams of TCP arrive from there at
/// a listener of a node, and from the node at the system.
fn stream_rates(namespace: &str, token: &str, node: &TcpListener) -> [f64; 2] {
    NetworkNamespace::open(&namespace_file(namespace))
        .unwrap()
        .enter()
        .unwrap();
    let token = Token::read(token).unwrap();
    let key = PrivateKey::generate().unwrap();
    let admission = join(&token, &key, LIMIT, || false).unwrap();
    let mut graph = Graph::new();
    let tun = TunConfig {
        mtu: Some(usize::from(admission.joined.mtu)),
        ..TunConfig::of("tun0")
    };
    graph.app("tun", tun);
    let user = UserConfig {
        key,
        point: admission.point,
        point_key: token.claims().key,
        address: admission.joined.address.address(),
        watch: Watch::default(),
    };
    graph.app("user", user);
    graph.link("tun.output -> user.input").unwrap();
    graph.link("user.output -> tun.input").unwrap();
    let mut runner = GraphRunner::new(PoolConfig::default(), None).unwrap();
    runner.configure(&graph).unwrap();
    let run = |words: &str| {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().unwrap().success()
    };
    assert!(run(&format!(
        "ip address add {}/32 dev tun0",
        admission.joined.address.address()
    )));
    for route in &admission.joined.routes {
        assert!(run(&format!("ip route add {route} dev tun0")));
    }
    [false, true].map(|is_back| {
        let near = dial(node.local_addr().unwrap());
        let far = node.accept().unwrap().0;
        if is_back {
            stream(&far, &near)
        } else {
            stream(&near, &far)
        }
    })
}

#[test]
fn user_joins_at_one_host_and_reaches_the_next() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("acc", 3);
    let hosts: Vec<Host> = [1, 2].map(|host| segment.agent(host)).into();
    for host in [1, 3] {
        let address = format!("192.0.2.{host}/24");
        ip(&[
            "-n",
            &segment.name(host),
            "address",
            "add",
            &address,
            "dev",
            "wire0",
        ]);
    }
    let parts = parts();
    for (host, part) in hosts.iter().zip(&parts) {
        host.agent
            .tell(&ToAgent::Set(Box::new(part.clone())))
            .unwrap();
    }
    let name = hosts[0].agent.list()[0].name.clone();
    assert!(name.starts_with('@'), "{name}");
    for host in &hosts {
        wait("the parts to be ready", || {
            let report = host.agent.say();
            report.parts.iter().any(|part| part.is_ready())
        });
    }
    let wanted = TokenWanted {
        user: "alice".to_owned(),
        lease_s: 3600,
        at: Vec::new(),
        rights: BTreeSet::new(),
    };
    let made = hosts[0].agent.token(&name, "home", &wanted).unwrap();
    assert_eq!(made.at[0].ip().to_string(), "192.0.2.1");
    let system = segment.name(3);
    let node = hosts[1].agent.report(&name).unwrap().vnet;
    let node = listen(
        &node_namespace(node, "b"),
        Ipv4Addr::new(10, 0, 0, 2).into(),
    );
    let user = std::thread::spawn(move || stream_rates(&system, &made.token, &node));
    for rate in user.join().unwrap() {
        // The user's rate is 10 Mbit/s in each direction.
        assert!((8e6..10.2e6).contains(&rate), "{rate}");
    }
    wait("what the user has sent to be counted", || {
        let points = hosts[0].agent.access(&name).unwrap();
        points[0].users[0].sent_bytes > 0
    });
    // The other host has no access point of this network.
    let error = hosts[1].agent.token(&name, "home", &wanted).unwrap_err();
    assert!(
        error.to_string().contains("no access point home"),
        "{error}"
    );
    for host in &hosts {
        let vnet = VnetId::new(77);
        host.agent
            .tell(&ToAgent::Remove { vnet, through: 9 })
            .unwrap();
        wait("the removal", || host.agent.is_empty());
    }
}
