//! Tests that a TCP stream gets the rate of its link, and no more.

use std::net::{IpAddr, Ipv4Addr};

use carina_api::paths::RunDir;
use carina_frame_engine::counter_file;
use carina_vnet::document::{Document, Form};
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::VnetState;
use carina_vnet_host::names::{node_namespace, rate_app};
use carina_vnet_host::{Agent, Vnets};

use crate::streams::{connect, listen, stream};
use crate::waiting::{TestDirectory, is_root, wait_until_settled};

const TEXT: &str = r#"
[vnet]
name = "rates"
[defaults]
kind = "namespace"
[node.a]
[node.b]
[node.c]
[[link]]
ends = ["a", "b"]
rate = "10Mbps"
[[link]]
ends = ["b", "c"]
rate = "50Mbps"
"#;

#[test]
fn one_stream_gets_the_rate_of_its_link_both_ways() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    let document = Document::read(TEXT, Form::Toml).unwrap();
    agent.create(&document).unwrap();
    let report = wait_until_settled(&agent, "rates");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    let rate_between = |ends: [&str; 2], last: u8, is_back: bool| {
        let [near, far] = ends.map(|node| node_namespace(report.vnet, node));
        let listener = listen(&far, IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let [near, far] = connect(&near, &listener);
        if is_back {
            stream(&far, &near)
        } else {
            stream(&near, &far)
        }
    };
    for (ends, last, rate) in [(["a", "b"], 2, 10e6), (["b", "c"], 6, 50e6)] {
        for is_back in [false, true] {
            let got = rate_between(ends, last, is_back);
            let expected = rate * 0.8..rate * 1.02;
            assert!(expected.contains(&got), "{ends:?}, {is_back}: {got}");
        }
    }
    // What the queue drops is counted under its reasons, and the report adds it up.
    let counters = Vnets::of(&run_dir).vnet("rates").counters();
    let counters = counter_file::read(&counters).unwrap();
    let value = |name: &str| {
        let name = format!("{}/{name}", rate_app(0, 0));
        let found = counters.iter().find(|counter| counter.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).value
    };
    let dropped = value("drop_full") + value("drop_codel");
    assert!(dropped > 0, "{counters:?}");
    let report = agent.report("rates").unwrap();
    assert_eq!(report.links[0].passed[0].dropped, dropped, "{report:?}");
    // An impairment by a rate has the same queue.
    let slow = Some(Impairment {
        rate: "10Mbps".parse().ok(),
        ..Impairment::default()
    });
    let (there, back) = (slow, None);
    agent
        .impair("rates", 1, LinkImpairment { there, back })
        .unwrap();
    for (is_back, rate) in [(false, 10e6), (true, 50e6)] {
        let got = rate_between(["b", "c"], 6, is_back);
        let expected = rate * 0.8..rate * 1.02;
        assert!(expected.contains(&got), "impaired, {is_back}: {got}");
    }
    agent.remove("rates").unwrap();
}
