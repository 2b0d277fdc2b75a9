//! Tests observing and impairing running networks.

use std::time::Duration;

use carina_api::paths::RunDir;
use carina_graph::trace::{TraceRequest, TraceStream};
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::LinkState;
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::VnetState;
use carina_vnet::trace::TraceQuery;
use carina_vnet_host::link_name::NamedLink;
use carina_vnet_host::names::port_app;
use carina_vnet_host::plan::Action;
use carina_vnet_host::{Agent, Vnets, whereabouts};

use crate::waiting::{LIMIT, is_root, run, wait_until_settled};

fn pair(name: &str, rate: &str) -> Document {
    let text = format!(
        "[vnet]\nname = \"{name}\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n\
         [[link]]\nends = [\"a\", \"b\"]\nrate = \"{rate}\"\n"
    );
    Document::read(&text, Form::Toml).expect("the text is a document")
}

#[test]
fn frames_of_a_link_are_copied_under_the_names_of_its_ends() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&pair("seen", "10Mbps")).unwrap();
    let report = wait_until_settled(&agent, "seen");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    let link = NamedLink::find(&report, "b,a").unwrap();
    let (near, far) = (link.near(), link.far());
    let port = port_app(link.link.number, link.side);
    let request = TraceRequest {
        snap_bytes: None,
        links: vec![
            format!("{port}.output as {near} -> {far}"),
            format!("{port}.input as {far} -> {near}"),
        ],
    };
    let counters = Vnets::of(&run_dir).vnet("seen").counters();
    let mut stream = TraceStream::open(&counters, &request).unwrap();
    assert!(agent.test("seen").unwrap()[0].holds);
    let mut reader = carina_wire::pcapng::Reader::new();
    let (mut names, mut packets) = (Vec::new(), [0; 2]);
    let deadline = std::time::Instant::now() + LIMIT;
    while packets.contains(&0) {
        assert!(std::time::Instant::now() < deadline, "{packets:?}");
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes, Duration::from_millis(100)).unwrap();
        reader.feed(&bytes[..read.expect("the links are there")]);
        while let Some(item) = reader.poll().unwrap() {
            match item {
                carina_wire::pcapng::Item::Interface(interface) => {
                    names.push(interface.name.clone())
                }
                carina_wire::pcapng::Item::Packet(packet) => {
                    packets[packet.interface as usize] += 1
                }
                _ => {}
            }
        }
    }
    assert_eq!(names, ["a:eth0 -> b:eth0", "b:eth0 -> a:eth0"]);
    agent.remove("seen").unwrap();
}

#[test]
fn impaired_link_is_late_and_lossy_until_it_is_not() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&pair("worse", "10Mbps")).unwrap();
    assert_eq!(wait_until_settled(&agent, "worse").state, VnetState::Ready);
    let delay = Impairment {
        delay: "50ms".parse().ok(),
        ..Impairment::default()
    };
    let late = LinkImpairment {
        there: Some(delay),
        back: Some(delay),
    };
    agent.impair("worse", 0, late).unwrap();
    assert!(agent.test("worse").unwrap()[0].holds);
    let report = agent.report("worse").unwrap();
    assert_eq!(report.links[0].impairment, late);
    assert!(report.links[0].rtt_ns.unwrap() >= 100_000_000, "{report:?}");
    // Frames that wait behind the shaper do not count as dropped, although counters there start
    // from zero.
    let passed = report.links[0].passed;
    assert!(
        passed
            .iter()
            .all(|candidate| candidate.frames > 1 && candidate.dropped == 0),
        "{passed:?}"
    );
    // The impairment lasts when the network changes, and when another agent adopts it.
    agent.apply(&pair("worse", "20Mbps")).unwrap();
    assert_eq!(wait_until_settled(&agent, "worse").state, VnetState::Ready);
    drop(agent);
    let agent = Agent::new(&run_dir).unwrap();
    let report = wait_until_settled(&agent, "worse");
    assert!(report.links[0].rtt_ns.unwrap() >= 100_000_000, "{report:?}");
    let lossy = LinkImpairment {
        there: None,
        back: Some(Impairment {
            loss: "100%".parse().ok(),
            ..Impairment::default()
        }),
    };
    agent.impair("worse", 0, lossy).unwrap();
    // The ARP request, or the ICMP error for a closed port, is lost on its way back.
    let send = "exec 3<>/dev/udp/10.0.0.2/9; echo hello >&3";
    run(&agent, "worse", "a", &format!("bash -c '{send}'"));
    let deadline = std::time::Instant::now() + LIMIT;
    while agent.report("worse").unwrap().links[0].passed[1].lost == 0 {
        assert!(std::time::Instant::now() < deadline, "no frame was lost");
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.impair("worse", 0, LinkImpairment::default()).unwrap();
    assert!(agent.test("worse").unwrap()[0].holds);
    let refused = agent.impair("worse", 7, late).unwrap_err();
    assert!(refused.to_string().contains("no link 7"), "{refused}");
    agent.remove("worse").unwrap();
}

#[test]
fn saved_network_keeps_impairments_and_links_that_are_down() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&pair("kept", "10Mbps")).unwrap();
    assert_eq!(wait_until_settled(&agent, "kept").state, VnetState::Ready);
    let late = LinkImpairment {
        there: Some(Impairment {
            delay: "5ms".parse().ok(),
            ..Impairment::default()
        }),
        back: None,
    };
    agent.impair("kept", 0, late).unwrap();
    agent.switch_link("kept", 0, false).unwrap();
    let place = directory.path().join("saved");
    agent.save("kept", &place).unwrap();
    let again = agent.save("kept", &place).unwrap_err().to_string();
    assert!(again.contains("name one that does not exist"), "{again}");
    agent.remove("kept").unwrap();
    agent.restore(&place).unwrap();
    let report = wait_until_settled(&agent, "kept");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(report.links[0].impairment, late);
    assert!(
        matches!(report.links[0].state, LinkState::Down { .. }),
        "{report:?}"
    );
    agent.remove("kept").unwrap();
}

/// A reply arrives after the next requests were sent.
#[test]
fn link_with_a_long_delay_is_up() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&pair("far", "10Mbps")).unwrap();
    assert_eq!(wait_until_settled(&agent, "far").state, VnetState::Ready);
    let delay = Some(Impairment {
        delay: "400ms".parse().ok(),
        ..Impairment::default()
    });
    let late = LinkImpairment {
        there: delay,
        back: delay,
    };
    agent.impair("far", 0, late).unwrap();
    let tests = agent.test("far").unwrap();
    assert!(tests[0].holds, "{tests:?}");
    let report = agent.report("far").unwrap();
    let rtt = Duration::from_nanos(report.links[0].rtt_ns.unwrap());
    assert!(rtt >= Duration::from_millis(800), "{rtt:?}");
    // A trace sends one request for each that it counts. (Replies to earlier ones may still
    // arrive.)
    let query = TraceQuery {
        from: "a".to_owned(),
        to: "b".to_owned(),
        echoes: 2,
    };
    let trace = agent.trace("far", &query).unwrap();
    assert_eq!(trace.answered, 2, "{trace:?}");
    assert_eq!(trace.places[0].seen, 2, "{trace:?}");
    agent.remove("far").unwrap();
}

#[test]
fn plan_and_whereabouts_are_of_what_is_there() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    let plan = agent.plan(&pair("there", "10Mbps")).unwrap();
    assert_eq!((plan.is_there, plan.count(Action::Add)), (false, 3));
    agent.create(&pair("there", "10Mbps")).unwrap();
    let report = wait_until_settled(&agent, "there");
    assert!(
        agent
            .plan(&pair("there", "10Mbps"))
            .unwrap()
            .steps
            .is_empty()
    );
    let plan = agent.plan(&pair("there", "20Mbps")).unwrap();
    assert_eq!(plan.steps[0].reason, "rate 10Mbps -> 20Mbps");
    let vnets = Vnets::of(&run_dir);
    let nodes = whereabouts::nodes(&vnets).unwrap();
    assert_eq!(nodes.len(), 2);
    assert!(nodes.iter().all(|node| node.is_there), "{nodes:?}");
    assert_eq!(nodes[1].namespace, format!("cv-{}-b", report.vnet));
    assert_eq!(nodes[1].ports["eth0"], "l0.1");
    agent.remove("there").unwrap();
    assert!(whereabouts::nodes(&vnets).unwrap().is_empty());
}

#[test]
fn trace_says_where_echos_are_dropped() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let text = "[vnet]\nname = \"way\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n\
        [node.c]\n[[link]]\nends = [\"a\", \"b\"]\nrate = \"10Mbps\"\n[[link]]\nends = [\"b\", \
        \"c\"]\nrate = \"10Mbps\"\n[[test]]\nthroughput = [\"a\", \"c\"]\nrate_min = \"10kbps\"\n";
    let document = Document::read(text, Form::Toml).unwrap();
    agent.create(&document).unwrap();
    assert_eq!(wait_until_settled(&agent, "way").state, VnetState::Ready);
    let query = TraceQuery {
        from: "a".into(),
        to: "c".into(),
        echoes: 2,
    };
    let mut trace = agent.trace("way", &query).unwrap();
    let deadline = std::time::Instant::now() + LIMIT;
    // On a busy machine a reply may come too late.
    while (trace.answered, trace.findings.len()) != (2, 0) {
        assert!(std::time::Instant::now() < deadline, "{trace:?}");
        trace = agent.trace("way", &query).unwrap();
    }
    let ends: Vec<&str> = trace
        .places
        .iter()
        .map(|place| place.end.as_str())
        .collect();
    let request_ends = ["a:eth0", "b:eth0", "b:eth1", "c:eth0"];
    let back = ["c:eth0", "b:eth1", "b:eth0", "a:eth0"];
    assert_eq!(ends, [request_ends, back].concat());
    assert!(
        trace.places.iter().all(|place| place.seen >= 2),
        "{trace:?}"
    );
    // A TCP stream arrives, too.
    let tests = agent.test("way").unwrap();
    assert!(tests.iter().all(|test| test.holds), "{tests:?}");
    assert!(tests[1].seen.ends_with("Mbit/s"), "{tests:?}");
    let lossy = LinkImpairment {
        there: Some(Impairment {
            loss: "100%".parse().ok(),
            ..Impairment::default()
        }),
        back: None,
    };
    agent.impair("way", 1, lossy).unwrap();
    let trace = agent.trace("way", &query).unwrap();
    assert_eq!(trace.answered, 0, "{trace:?}");
    let finding = &trace.findings[0];
    // The middle node may just have forgotten the MAC address of the last one.
    let on_link = finding.starts_with("link 1 (b:eth1 -- c:eth0) delivers 0 of");
    let in_vain = finding.starts_with("node b passes on ");
    assert!(on_link || in_vain, "{trace:?}");
    let nowhere = agent.trace(
        "way",
        &TraceQuery {
            to: "z".into(),
            ..query
        },
    );
    assert!(nowhere.unwrap_err().to_string().contains("it has: a, b, c"));
    agent.remove("way").unwrap();
}
