//! Tests of DIFs in other dialects, and of files of rlite's demonstrator.

use carina_node::config::Config;

use carina_lab::CarinaNode;
use carina_topology::{Topology, node_config};

#[test]
fn file_of_rlite_is_read() {
    let text = "\
eth 110 10Mbps a b
eth 120 0Mbps b c
netem 110 b delay 15ms loss 1%
netem 120 rate 5mbit delay 2ms
hostfwd a 2222:22
dif n a 110
dif n b 110 120
dif n c 120
policy n * routing link-state
policy n a,b addralloc static
policy n c routing static
";
    let error = Topology::parse(text, &CarinaNode).unwrap_err();
    assert_eq!(error.at.line, 11, "{error}");
    let topology = Topology::parse(text.rsplit_once("policy").unwrap().0, &CarinaNode).unwrap();
    assert_eq!(topology.systems.len(), 3);
    let fault = topology.links[0].ends[1].fault.unwrap();
    assert_eq!((fault.rate_bps, fault.delay_ms), (10_000_000, 15.0));
    assert_eq!(topology.links[0].ends[0].fault.unwrap().delay_ms, 0.0);
    assert_eq!(topology.links[1].ends[0].fault.unwrap().rate_bps, 5_000_000);
    assert_eq!(topology.notes.len(), 3, "{:?}", topology.notes);
}

#[test]
fn parameters_of_mapped_policies_are_left_out_with_a_notice() {
    let links = "eth l 0Mbps a b\n";
    for (dialect, policy, left_out) in [
        ("native", "enrollment default auto-reconnect=false", 1),
        ("native", "enrollment default", 0),
        ("native", "routing link-state-lfa age-max=900s", 1),
        (
            "rlite",
            "enrollment default auto-reconnect=false keepalive=9s",
            2,
        ),
        ("rlite", "flowalloc default initial-credit=512", 1),
    ] {
        let difs = format!("dif n a l dialect={dialect}\ndif n b l\npolicy n * {policy}\n");
        let topology = Topology::parse(&format!("{links}{difs}"), &CarinaNode).unwrap();
        let notes = &topology.notes;
        assert_eq!(notes.len(), left_out, "{policy}: {notes:?}");
        assert!(
            notes
                .iter()
                .all(|note| note.starts_with("line 4: the parameter"))
        );
    }
    // A policy with a name of Carina's own is not translated, so its parameters are checked.
    let wrong = format!("{links}dif n a l\ndif n b l\npolicy n enrollment reconnecting x=1\n");
    assert!(Topology::parse(&wrong, &CarinaNode).is_err());
}

#[test]
fn members_of_rlite_are_given_what_no_message_tells_them() {
    let text = "eth l 0Mbps a b\ndif n a l dialect=rlite\ndif n b l\n";
    let configs = |more: &str| {
        let topology = Topology::parse(&format!("{text}{more}"), &CarinaNode).unwrap();
        let difs: Vec<_> = topology.difs.iter().collect();
        ["a", "b"].map(|system| {
            let made = node_config(&topology, system, &difs, str::to_owned);
            let config = Config::parse(&made, None).unwrap();
            let dif = config.difs[0].get_ref().clone();
            dif.dif_config(None).unwrap()
        })
    };
    let [first, joining] =
        configs("set n widths.address=1 widths.cep=1\npolicy n pci-checksum inet\n");
    assert!(first.is_some());
    assert_eq!(first, joining);
    assert_eq!(joining.unwrap().widths.address, 1);
    let [_, joining] = configs("");
    assert_eq!(joining, None);
}

#[test]
fn addresses_are_configured_where_none_are_assigned() {
    let text =
        |a: &str, b: &str| format!("eth l 0Mbps a b\ndif n a l dialect=rlite{a}\ndif n b l{b}\n");
    let policy = "policy n addralloc static\n";
    let topology =
        Topology::parse(&format!("{}{policy}", text("", " address=7")), &CarinaNode).unwrap();
    let difs: Vec<_> = topology.difs.iter().collect();
    let made = node_config(&topology, "b", &difs, str::to_owned);
    assert!(made.contains("\"address\" = \"7\""), "{made}");
    for (file, words) in [
        (
            format!("{}{policy}", text("", "")),
            "a and b have the same address 1 in DIF n",
        ),
        (
            format!("{}{policy}", text(" address=7", " address=7")),
            "a and b have the same address 7",
        ),
        (text("", " address=7"), "DIF n assigns addresses"),
        (
            format!("{}{policy}", text("", " address=seven")),
            "has no number",
        ),
        (
            format!("{}{policy}", text("", " address=0")),
            "no address from 1 to",
        ),
    ] {
        let error = Topology::parse(&file, &CarinaNode).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn dif_and_links_below_it_have_the_dialect_of_its_lines() {
    let text = "eth l 0Mbps a b\ndif d a l dialect=irati\ndif d b l\nset d widths.address=4\n\
                policy d address-assignment known-addresses addresses=d.a=1,d.b=2";
    let topology = Topology::parse(text, &CarinaNode).unwrap();
    let difs: Vec<_> = topology.difs.iter().collect();
    for (system, role) in [("a", "create"), ("b", "join")] {
        let text = node_config(&topology, system, &difs, str::to_owned);
        let config = Config::parse(&text, None).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert!(text.contains("arp = \"irati\""), "{text}");
        let new = config.difs[0].get_ref();
        assert!(text.contains(&format!("role = \"{role}\"")), "{text}");
        let made = new.dif_config(None).unwrap().unwrap();
        assert_eq!((made.widths.address, made.max_pdu), (4, 1470));
    }
    let message = |text: &str| Topology::parse(text, &CarinaNode).unwrap_err().to_string();
    let two = message("eth l 0Mbps a b\ndif d a l dialect=irati\ndif d b l dialect=rlite");
    assert!(two.contains("has dialect irati on a line above"), "{two}");
    let none = message("eth l 0Mbps a b\ndif d a l dialect=x");
    assert!(
        none.contains("valid values are native, rlite and irati"),
        "{none}"
    );
    let other = message("eth l 0Mbps a b\ndif d a l size=1");
    assert!(other.contains("the options are dialect=NAME"), "{other}");
}

#[test]
fn policies_of_rlite_with_a_like_here_are_carried_over() {
    let native = "eth x 0Mbps a b\ndif n a x\ndif n b x\n\
                  policy n * routing link-state-lfa\npolicy n * enrollment default\n";
    let topology = Topology::parse(native, &CarinaNode).unwrap();
    let policies = &topology.difs[0].config.policies;
    assert_eq!(policies["routing"].name, "link-state");
    assert_eq!(policies["routing"].params["lfa"], "true");
    assert_eq!(policies["enrollment"].name, "reconnecting");
    assert_eq!(topology.notes, Vec::<String>::new());
    // In dialect rlite the first policy keeps its name, and the second is the default of every
    // member.
    let rlite = native.replacen("dif n a x", "dif n a x dialect=rlite", 1);
    let topology = Topology::parse(&rlite, &CarinaNode).unwrap();
    let policies = &topology.difs[0].config.policies;
    assert_eq!(policies["routing"].name, "link-state-lfa");
    assert!(!policies.contains_key("enrollment"), "{policies:?}");
}

#[test]
fn policies_of_rlite_for_each_member_are_one_policy() {
    let text = "eth x 0Mbps a a2\ndif n a x\ndif n a2 x\n\
                policy n a access-control list write=$a,$a2\n\
                policy n a2 access-control list write=$a,$a2\n";
    let topology = Topology::parse(text, &CarinaNode).unwrap();
    let policy = &topology.difs[0].config.policies["access-control"];
    assert_eq!(policy.params["write"], "n.a,n.a2");
    assert_eq!(topology.notes.len(), 2, "{:?}", topology.notes);
}
