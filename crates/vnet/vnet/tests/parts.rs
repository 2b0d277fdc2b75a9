//! Tests networks divided among hosts, and the serialization of their parts.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_vnet::division::{DivisionError, Placement, divide};
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::{ACCESS_MTU_MAX, Far, HostPart, HostStatus, VnetId};
use carina_vnet::layout::Layout;

const TEXT: &str = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\nkind = \"namespace\"\n[node.c]\n\
    [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n\
    [[link]]\nends = [\"c\", \"b\"]\nrate = \"2Mbps\"\nas = \"vxlan\"\n";
const ID: VnetId = VnetId::new(0x0123_4567_89ab_cdef);

fn placement(hosts: &[(&str, &str)]) -> Placement {
    let owned = |(node, host): &(&str, &str)| ((*node).to_owned(), (*host).to_owned());
    Placement {
        hosts: hosts.iter().map(owned).collect(),
        tags: BTreeMap::from([(0, 70), (1, 71)]),
        outer: BTreeMap::from([(1, [1, 2].map(|end| Ipv4Addr::new(192, 0, 2, end)))]),
    }
}

fn divided(hosts: &[(&str, &str)]) -> Result<BTreeMap<String, HostPart>, DivisionError> {
    let document = Document::read(TEXT, Form::Toml).expect("the text is a document");
    let layout = Layout::of(&document, &Layout::default());
    divide(&document, (ID, 3), &layout, &placement(hosts))
}

#[test]
fn every_host_gets_its_nodes_and_the_ends_of_their_links() {
    let parts = divided(&[("a", "h1"), ("b", "h1"), ("c", "h2")]).unwrap();
    let (one, two) = (&parts["h1"], &parts["h2"]);
    assert_eq!((one.nodes.len(), one.links.len()), (2, 2));
    assert_eq!((two.nodes.len(), two.links.len()), (1, 1));
    assert!(matches!(&one.links[0].far, Far::Here(end) if end.to_string() == "b:eth0"));
    let (Far::Host(one_end), Far::Host(other_end)) = (&one.links[1].far, &two.links[0].far) else {
        panic!("{parts:?}");
    };
    assert_eq!(
        (one_end.host.as_str(), other_end.host.as_str()),
        ("h2", "h1")
    );
    assert_eq!(
        (one_end.local, one_end.remote),
        (other_end.remote, other_end.local)
    );
    assert_eq!(one.links[1].near.to_string(), "b:eth1");
    assert_eq!(one.links[1].tag, two.links[0].tag);
    for part in parts.values() {
        part.check().unwrap();
    }
}

#[test]
fn each_host_impairs_what_its_own_end_sends() {
    let text = TEXT.replace(
        "as = \"vxlan\"",
        "as = \"vxlan\"\ndelay = [\"10ms\", \"20ms\"]\nloss = [\"0%\", \"1%\"]",
    );
    let document = Document::read(&text, Form::Toml).expect("the text is a document");
    let layout = Layout::of(&document, &Layout::default());
    let words = |hosts: &[(&str, &str)]| -> Vec<String> {
        let parts = divide(&document, (ID, 3), &layout, &placement(hosts)).unwrap();
        let links = parts.values().flat_map(|part| {
            assert_eq!(HostPart::read(part.write().as_bytes()).unwrap(), *part);
            part.links.iter().filter(|link| link.number == 1)
        });
        links
            .map(|link| format!("{}: {}", link.near, link.impairment))
            .collect()
    };
    assert_eq!(
        words(&[("a", "h1"), ("b", "h1"), ("c", "h2")]),
        [
            "b:eth1: delay=20ms loss=1% from its first end, none from its second",
            "c:eth0: delay=10ms from its first end, none from its second",
        ]
    );
    assert_eq!(
        words(&[("a", "h"), ("b", "h"), ("c", "h")]),
        ["c:eth0: delay=10ms from its first end, delay=20ms loss=1% from its second"]
    );
}

#[test]
fn parts_and_status_survive_the_wire() {
    let parts = divided(&[("a", "h1"), ("b", "h1"), ("c", "h2")]).unwrap();
    for part in parts.values() {
        assert_eq!(HostPart::read(part.write().as_bytes()).unwrap(), *part);
        let status = part.absent();
        let text = serde_json::to_vec(&status).unwrap();
        assert_eq!(serde_json::from_slice::<HostStatus>(&text).unwrap(), status);
        assert_eq!(
            status.obstacles().len(),
            part.nodes.len() + part.links.len()
        );
    }
}

#[test]
fn what_a_placement_lacks_is_named() {
    let error = divided(&[("a", "h1"), ("b", "h1")]).unwrap_err();
    assert_eq!(error.to_string(), "node c is not assigned to a host");
    let error = divided(&[("a", "h1"), ("b", "h2"), ("c", "h2")]).unwrap_err();
    assert_eq!(error, DivisionError::NoOuter(0));
}

#[test]
fn part_that_cannot_be_made_is_refused_with_the_reason() {
    let good = divided(&[("a", "h"), ("b", "h"), ("c", "h")]).unwrap();
    let good = good["h"].write();
    let refusal = |from: &str, to: &str| {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        HostPart::read(bad.as_bytes()).unwrap_err().to_string()
    };
    for (from, to, words) in [
        ("\"name\":\"x\"", "\"name\":\"../x\"", "network \"../x\""),
        ("\"name\":\"eth0\"", "\"name\":\"a/b\"", "interface \"a/b\""),
        ("\"name\":\"c\"", "\"name\":\"b\"", "node b occurs twice"),
        ("\"number\":1", "\"number\":0", "link 0 occurs twice"),
        (
            "\"rate\":\"1Mbps\"",
            "\"rate\":\"1Mbps\",\"impairment\":{\"there\":{\"jitter\":\"1ms\"}}",
            "link 0: jitter is 1ms; must be at most the delay",
        ),
        (
            "\"link\":1",
            "\"link\":0",
            "is not an interface of this part",
        ),
        ("\"cpus\":1", "\"cpus\":0", "cpus 0: must be 1 to 256"),
        (
            "\"image\":\"carina\"",
            "\"image\":\"\"",
            "an image has a name",
        ),
        ("\"mtu\":1480", "\"mtu\":9", "mtu 9"),
        ("10.0.0.6", "10.0.0.9", "must be two of one prefix"),
        ("02:01:23", "03:01:23", "address of a group"),
        ("0123456789abcdef", "0123456789ABCDEF", "16 digits"),
        ("\"generation\"", "\"generatoin\"", "unknown field"),
    ] {
        let error = refusal(from, to);
        assert!(error.contains(words), "{from} -> {to}: {error}");
    }
}

#[test]
fn mtu_of_an_access_point_is_what_tunnels_of_users_carry() {
    let text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n\
                [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n\
                [access.home]\nnode = \"a\"\nusers = [\"alice\"]\n";
    let document = Document::read(text, Form::Toml).unwrap();
    let layout = Layout::of(&document, &Layout::default());
    let parts = divide(
        &document,
        (ID, 3),
        &layout,
        &placement(&[("a", "h"), ("b", "h")]),
    );
    let mut part = parts.unwrap()["h"].clone();
    let number = part
        .links
        .iter()
        .find(|link| matches!(link.far, Far::Users(_)))
        .unwrap()
        .number;
    let mut with_mtu = |mtu: u16| {
        let interfaces = &mut part.nodes[0].interfaces;
        let end = interfaces
            .iter_mut()
            .find(|interface| interface.link == number)
            .unwrap();
        end.mtu = mtu;
        part.check()
    };
    with_mtu(ACCESS_MTU_MAX).unwrap();
    let error = with_mtu(ACCESS_MTU_MAX + 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "node a: mtu of an access point 2017: must be 68 to 2016"
    );
}
