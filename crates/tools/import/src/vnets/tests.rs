//! Tests with a network in each of the formats.

use carina_vnet::document::{Carrier, Kind};

use super::*;

fn imported(format: Format, file: &str, text: &str) -> Imported {
    let rate = "100Mbps".parse().expect("a rate");
    read(format, Source { file, text, rate }, &carina_lab::CarinaNode)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(format: Format, text: &str) -> String {
    let rate = "100Mbps".parse().expect("a rate");
    let file = "x";
    match read(format, Source { file, text, rate }, &carina_lab::CarinaNode) {
        Ok(imported) => panic!("{:?}", imported.document),
        Err(error) => error.to_string(),
    }
}

fn links(imported: &Imported) -> Vec<String> {
    let links = imported.document.link.iter();
    links
        .map(|link| {
            let [one, other] = &link.ends;
            format!("{one} {other} {}", link.rate)
        })
        .collect()
}

fn notes(imported: &Imported) -> Vec<String> {
    let notes = imported.notes.iter();
    notes
        .map(|note| format!("{} {}", note.line, note.what))
        .collect()
}

#[test]
fn lab_becomes_nodes_and_links() {
    let text = "system a b c\nvm v on a memory=192 cpus=2\neth ab 10Mbps a b delay=5ms\n\
                eth abc 0Mbps a b c\ndif n a ab\ndif n b ab\n";
    let it = imported(Format::Lab, "dir/two.lab", text);
    assert_eq!(it.document.vnet.name, "two");
    let node = &it.document.node["v"];
    assert_eq!(
        (node.kind, node.memory, node.cpus),
        (Some(Kind::Vm), Some(192), Some(2))
    );
    assert_eq!(it.document.link[0].carrier, Carrier::Dif);
    assert_eq!(
        links(&it),
        [
            "a v 100Mbps",
            "a b 10Mbps",
            "a abc 100Mbps",
            "b abc 100Mbps",
            "c abc 100Mbps",
        ]
    );
    let link = &it.document.link[1];
    assert_eq!(link.impairment().to_string(), "delay=5ms");
    assert!(it.document.link[2].impairment().is_none());
    let notes = notes(&it).join("\n");
    let hub = &it.document.node["abc"];
    assert_eq!(hub.kind, Some(Kind::Bridge));
    assert_eq!(it.document.link[2].carrier, Carrier::Gre);
    for what in ["DIF n", "4 links"] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    assert!(refusal(Format::Lab, "eth ab").contains("line 1"));
}

#[test]
fn containerlab_nodes_keep_their_interfaces() {
    let text = "name: srl02
prefix: x
topology:
  kinds:
    nokia_srlinux:
      image: srl
  nodes:
    srl1:
      kind: nokia_srlinux
    pc_1:
      kind: linux
      image: alpine
    lan:
      kind: bridge
  links:
    - endpoints: [\"srl1:e1-1\", \"pc_1:eth1\"]
    - endpoints: [srl1:e1-2, host:srl_e1-2]
    - type: veth
      endpoints:
        - node: srl1
          interface: e1-3
        - node: pc_1
          interface: eth2
      mtu: 1400
    - endpoints: [srl1:e1-4, pc_1:eth3]
      mtu: 9500
    - endpoints: [lan:eth1, pc_1:eth4]
";
    let it = imported(Format::Containerlab, "srl02.clab.yml", text);
    assert_eq!(it.document.vnet.name, "srl02");
    assert_eq!(
        links(&it),
        [
            "srl1:e1-1 pc-1:eth1 100Mbps",
            "srl1:e1-3 pc-1:eth2 100Mbps",
            "srl1:e1-4 pc-1:eth3 100Mbps",
            "lan:eth1 pc-1:eth4 100Mbps",
        ]
    );
    let mtus = it.document.link.iter().map(|link| link.mtu);
    assert_eq!(mtus.collect::<Vec<_>>(), [None, Some(1400), None, None]);
    assert_eq!(it.document.node["lan"].kind, Some(Kind::Bridge));
    let notes = notes(&it).join("\n");
    for what in [
        "2 prefix",
        "topology.kinds",
        "kind of srl1",
        "image of pc_1",
        "the name \"pc_1\"",
        "17 a link to \"host\"",
        "addresses and MTU of the link srl1 -- pc_1",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    let error = refusal(Format::Containerlab, "topology: *all\n");
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn containerlab_variables_become_their_defaults() {
    let text = "name: ${LAB:=two}
topology:
  nodes:
    a: {kind: \"${KIND:-linux}\", cpu: 2, memory: 256Mib, exec: [ip link]}
    ${B}: {kind: linux}
    c:
      kind: linux
      exec:
        - >
          ip route add default
          via 10.0.0.1
      labels: {graph-icon: router}
      env: {ROLE: edge, \"A B\": x}
    d:
      kind: linux
      exec: [ip link; rm -rf /x, vtysh -c show]
  links:
    - endpoints: [a:eth1, c:eth1]
";
    let it = imported(Format::Containerlab, "x.clab.yml", text);
    assert_eq!(it.document.vnet.name, "two");
    assert_eq!(links(&it), ["a:eth1 c:eth1 100Mbps"]);
    let node = &it.document.node["a"];
    assert_eq!((node.cpus, node.memory), (Some(2), Some(256)));
    assert_eq!(node.exec, ["ip link || true"]);
    let c = &it.document.node["c"];
    assert_eq!(c.exec, ["ip route add default via 10.0.0.1 || true"]);
    assert_eq!(c.environment["ROLE"], "edge");
    assert!(it.document.node["d"].exec.is_empty());
    let notes = it.notes.iter();
    let notes: Vec<String> = notes
        .map(|note| format!("{} {}: {}", note.line, note.what, note.why))
        .collect();
    let notes = notes.join("\n");
    for what in [
        "5 the variable B",
        "exec of d: its program may change the host",
        "labels of c: a document has no labels",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    assert!(!notes.contains("kind of a"), "{notes}");
}

#[test]
fn fit_name_is_kept_whatever_comes_before_it() {
    let text = "a_b[0]=X\na-b[0]=X\na+b[0]=Y\na_b[1]=Y\n";
    let it = imported(Format::Kathara, "lab.conf", text);
    let names: Vec<&String> = it.document.node.keys().collect();
    assert_eq!(names, ["a-b", "a-b-2", "a-b-3"]);
    assert_eq!(
        links(&it),
        [
            "a-b-2:eth0 a-b:eth0 100Mbps",
            "a-b-3:eth0 a-b-2:eth1 100Mbps"
        ]
    );
    assert_eq!(
        notes(&it)[..2],
        ["1 the name \"a_b\"", "3 the name \"a+b\""]
    );
}

#[test]
fn kathara_domains_join_their_devices() {
    let text = "LAB_NAME=\"Two routers\"\n# a comment\nr1[0]=\"A\"\nr1[1]=\"B/00:00:00:00:00:01\"\n\
                r2[0]=\"B\" # upstream\npc1[0]=A # a#b\npc1[mem]=\"64m\"\npc1[image]=\"kathara/base\"\nr2[1]=C\n\
                r1[2]=\"D\" E\n";
    let it = imported(Format::Kathara, "lab.conf", text);
    assert_eq!(it.document.vnet.name, "Two-routers");
    assert_eq!(
        links(&it),
        ["r1:eth0 pc1:eth0 100Mbps", "r1:eth1 r2:eth0 100Mbps"]
    );
    assert_eq!(it.document.node["pc1"].memory, Some(64));
    let notes = notes(&it).join("\n");
    for what in [
        "4 the MAC address of r1[1",
        "8 image of pc1",
        "9 network \"C\"",
        "10 r1[2]=\"D\" E",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
}

#[test]
fn rspec_nodes_have_sizes_and_links_rates() {
    let text = "<?xml version=\"1.0\"?>
<rspec type=\"request\" xmlns=\"http://www.geni.net/resources/rspec/3\">
<node client_id=\"left\" component_id=\"urn:x\"><sliver_type name=\"emulab-xen\">
<emulab:xen xmlns:emulab=\"http://www.protogeni.net/resources/rspec/ext/emulab/1\" cores=\"2\"
 ram=\"512\" disk=\"20\"/></sliver_type>
<interface client_id=\"left:if0\"><ip address=\"10.0.0.1\"/></interface>
<location country=\"be\"/><jFed:location xmlns:jFed=\"http://jfed.iminds.be/rspec/ext/jfed/1\"
 x=\"1\" y=\"2\"/></node>
<node client_id=\"right\"><sliver_type name=\"namespace\"/><interface client_id=\"right:if0\"/></node>
<link client_id=\"l0\"><interface_ref client_id=\"left:if0\"/>
<interface_ref client_id=\"right:if0\"/>
<property source_id=\"left:if0\" dest_id=\"right:if0\" capacity=\"20000\" latency=\"5.5\"
 packet_loss=\"0.01\"/><link_type name=\"egre-tunnel\"/></link>
</rspec>
";
    let it = imported(Format::Rspec, "two.rspec", text);
    assert_eq!(links(&it), ["left right 20Mbps"]);
    let link = &it.document.link[0];
    assert_eq!((link.delay_max, link.loss_max), (None, None));
    assert_eq!(
        link.impairment().to_string(),
        "delay=5500us loss=1% from its first end, none from its second"
    );
    assert_eq!(link.carrier, Carrier::Gre);
    let left = &it.document.node["left"];
    assert_eq!(left.location, ["be"]);
    assert_eq!((left.cpus, left.memory), (Some(2), Some(512)));
    assert_eq!(left.kind, Some(Kind::Vm));
    assert_eq!(it.document.node["right"].kind, Some(Kind::Namespace));
    let notes = notes(&it).join("\n");
    for what in [
        "component_id of left",
        "disk=\"20\" of left",
        "a <location> of left without country",
        "an address of left",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    assert!(refusal(Format::Rspec, "<vnet/>").contains("no <rspec>"));
    let entity = "<!DOCTYPE rspec [<!ENTITY a \"b\">]><rspec>&a;</rspec>";
    assert!(refusal(Format::Rspec, entity).contains("document type"));
}

#[test]
fn graphml_nodes_are_called_by_their_labels() {
    let text = "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n\
                <key attr.name=\"label\" for=\"node\" id=\"d1\"/>\n\
                <key attr.name=\"LinkSpeedRaw\" for=\"edge\" id=\"d2\"/>\n\
                <key attr.name=\"Network\" for=\"graph\" id=\"d3\"/>\n\
                <graph edgedefault=\"undirected\"><data key=\"d3\">Abilene</data>\n\
                <node id=\"0\"><data key=\"d1\">New York</data></node>\n\
                <node id=\"1\"><data key=\"d1\">AT&amp;T</data></node>\n\
                <node id=\"2\"><data key=\"d1\">New York</data></node>\n\
                <edge source=\"0\" target=\"1\"><data key=\"d2\">10000000000.0</data></edge>\n\
                <edge source=\"1\" target=\"2\"/>\n<edge source=\"1\" target=\"9\"/>\n\
                </graph></graphml>\n";
    let it = imported(Format::Graphml, "Abilene.graphml", text);
    assert_eq!(it.document.vnet.name, "Abilene");
    assert_eq!(
        links(&it),
        ["New-York AT-T 10Gbps", "AT-T New-York-2 100Mbps"]
    );
    let notes = notes(&it).join("\n");
    assert!(notes.contains("11 an edge without two nodes"), "{notes}");
    assert!(refusal(Format::Graphml, "<graphml/>").contains("no <graph>"));
    let deep = "<graphml>".repeat(50);
    assert!(refusal(Format::Graphml, &deep).contains("deeper"));
}

#[test]
fn gml_nodes_are_called_by_their_labels() {
    let text = "# of the Topology Zoo\nCreator \"x\"\ngraph [\n  Network \"Abilene\"\n  \
                node [ id 0 label \"New York\" graphics [ x 1.5 ] ]\n  \
                node [ id 1 label \"AT&amp;T\" ]\n  node [\n    id 2\n    label \"New York\"\n  ]\n  \
                edge [ source 0 target 1 LinkSpeedRaw 10000000000.0 ]\n  \
                edge [ source 1 target 2 ]\n  edge [ source 1 target 9 ]\n]\n";
    let it = imported(Format::Gml, "Abilene.gml", text);
    assert_eq!(it.document.vnet.name, "Abilene");
    assert_eq!(
        links(&it),
        ["New-York AT-T 10Gbps", "AT-T New-York-2 100Mbps"]
    );
    let notes = notes(&it).join("\n");
    assert!(notes.contains("13 an edge without two nodes"), "{notes}");
    for (text, what) in [
        ("graph [ node [ id 0 ]", "line 1: a `[` without"),
        ("graph [ ] ]", "line 1: a `]` without"),
        ("graph\n[ node ]", "line 2: the key \"node\" has no value"),
        ("graph [ \"a\" 1 ]", "a key is expected"),
        ("a \"b", "a text without its end"),
        ("a 1", "there is no list"),
    ] {
        let error = refusal(Format::Gml, text);
        assert!(error.contains(what), "{text}: {error}");
    }
    let deep = "a [ ".repeat(50);
    assert!(refusal(Format::Gml, &deep).contains("deeper than 32"));
}

#[test]
fn links_of_rspec_have_their_addresses_unless_they_overlap() {
    let link = |number: u32, first: &str, second: &str| {
        format!(
            "<node client_id=\"a{number}\"><interface client_id=\"a{number}:0\">\
             <ip address=\"{first}\" netmask=\"255.255.255.0\"/></interface></node>\
             <node client_id=\"b{number}\"><interface client_id=\"b{number}:0\">\
             <ip address=\"{second}\" netmask=\"255.255.255.0\"/></interface></node>\
             <link client_id=\"l{number}\"><interface_ref client_id=\"a{number}:0\"/>\
             <interface_ref client_id=\"b{number}:0\"/></link>"
        )
    };
    let text = format!(
        "<rspec>{}{}{}</rspec>",
        link(0, "10.10.1.1", "10.10.1.2"),
        link(1, "10.10.1.3", "10.10.1.4"),
        link(2, "10.10.2.1", "10.10.3.1"),
    );
    let it = imported(Format::Rspec, "x.rspec", &text);
    let addresses = it.document.link.iter().map(|link| link.addresses);
    let first = ["10.10.1.1/24", "10.10.1.2/24"].map(|it| it.parse().unwrap());
    assert_eq!(addresses.collect::<Vec<_>>(), [Some(first), None, None]);
    let notes = notes(&it).join("\n");
    for what in [
        "addresses and MTU of the link a2 -- b2",
        "the addresses of the link a1 -- b1",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
}

#[test]
fn edges_have_the_impairments_of_shadow() {
    let text = "graph [ node [ id 0 ] node [ id 1 ]\n\
                edge [ source 0 target 1 latency \"10 ms\" jitter \"1 ms\" packet_loss 0.01 ]\n\
                edge [ source 0 target 1 latency 0.5 loss 2 ]\n\
                edge [ source 0 target 1 jitter 3 ] ]\n";
    let it = imported(Format::Gml, "x.gml", text);
    let impaired = it
        .document
        .link
        .iter()
        .map(|it| it.impairment().to_string());
    assert_eq!(
        impaired.collect::<Vec<_>>(),
        ["delay=10ms jitter=1ms loss=1%", "delay=500us", "none"]
    );
    assert_eq!(
        notes(&it)[..2],
        ["3 loss \"2\"", "4 the impairment of the link 0 -- 1"]
    );
}

#[test]
fn scenarios_of_core_have_switches_addresses_and_impairments() {
    let text = "<?xml version='1.0' encoding='UTF-8'?>
<scenario name=\"/tmp/two.xml\">
  <networks>
    <network id=\"5\" name=\"n5\" icon=\"\" canvas=\"0\" type=\"SWITCH\">
      <position x=\"1.0\" y=\"2.0\" lat=\"47\" lon=\"-122\" alt=\"2\"/>
    </network>
    <network id=\"6\" name=\"wlan6\" type=\"WIRELESS_LAN\"/>
  </networks>
  <devices>
    <device id=\"1\" name=\"n1\" type=\"router\" class=\"\" image=\"\">
      <position x=\"1.0\" y=\"2.0\"/>
      <services><service name=\"zebra\"/></services>
    </device>
    <device id=\"2\" name=\"n2\" type=\"PC\"/>
    <device id=\"3\" name=\"n3\" type=\"PC\"/>
  </devices>
  <links>
    <link node1=\"1\" node2=\"2\">
      <iface1 id=\"0\" name=\"eth0\" mac=\"00:00:00:aa:00:00\" ip4=\"10.0.0.1\" ip4_mask=\"24\"/>
      <iface2 id=\"0\" name=\"eth0\" ip4=\"10.0.0.2\" ip4_mask=\"24\"/>
      <options delay=\"20000\" bandwidth=\"54000000\" loss=\"1.5\" dup=\"0\" jitter=\"0\"/>
    </link>
    <link node1=\"5\" node2=\"2\"><iface2 id=\"1\" name=\"eth1\" ip4=\"10.0.1.2\" ip4_mask=\"24\"/></link>
    <link node1=\"3\" node2=\"5\"/>
    <link node1=\"3\" node2=\"9\"/>
  </links>
  <session_options/>
</scenario>
";
    let it = imported(Format::Core, "two.xml", text);
    assert_eq!(
        links(&it),
        [
            "n1:eth0 n2:eth0 54Mbps",
            "n5 n2:eth1 100Mbps",
            "n3 n5 100Mbps"
        ]
    );
    assert_eq!(it.document.node["n5"].kind, Some(Kind::Bridge));
    let first = &it.document.link[0];
    assert_eq!(first.impairment().to_string(), "delay=20ms loss=1.5%");
    let addresses = ["10.0.0.1/24", "10.0.0.2/24"].map(|it| it.parse().unwrap());
    assert_eq!(
        (first.addresses, it.document.link[1].addresses),
        (None, None)
    );
    assert_eq!(it.document.link[1].carrier, Carrier::Gre);
    let notes = notes(&it).join("\n");
    for what in [
        "type WIRELESS_LAN of wlan6",
        "<services> of n1",
        "addresses of n5 -- n2",
        "a link without two known nodes",
        "<session_options>",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    // In another prefix than those of other links, addresses stay.
    let elsewhere = text.replace("\"10.0.0.", "\"192.168.0.");
    let addresses = addresses.map(|it: carina_vnet::document::InterfaceAddress| {
        it.to_string()
            .replace("10.0.0.", "192.168.0.")
            .parse()
            .unwrap()
    });
    let it = imported(Format::Core, "two.xml", &elsewhere);
    assert_eq!(it.document.link[0].addresses, Some(addresses));
    assert!(refusal(Format::Core, "<vnet/>").contains("no <scenario>"));
}

#[test]
fn links_of_netlab_are_read_in_every_form() {
    let text = "provider: clab
defaults.device: frr
module: [ospf]
nodes:
  r1:
    device: eos
  r2:
  h1:
links:
- r1-r2
- [ r1, r2, h1 ]
- r1:
  h1:
  bandwidth: 1000
  tc:
    delay: 10
    loss: 1
- interfaces: [ {node: r2}, {node: h1} ]
  mtu: 1400
- r1-r9
";
    let it = imported(Format::Netlab, "topology.yml", text);
    assert_eq!(
        links(&it),
        [
            "r1 r2 100Mbps",
            "r1 lan-2 100Mbps",
            "r2 lan-2 100Mbps",
            "h1 lan-2 100Mbps",
            "r1 h1 1Mbps",
            "r2 h1 100Mbps",
        ]
    );
    assert_eq!(it.document.node["lan-2"].kind, Some(Kind::Bridge));
    assert_eq!(
        it.document.link[4].impairment().to_string(),
        "delay=10ms loss=1%"
    );
    assert_eq!(it.document.link[5].mtu, Some(1400));
    let notes = notes(&it).join("\n");
    for what in [
        "module",
        "device of r1",
        "a link to \"r9\"",
        "network \"lan-5\"",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    let list = imported(Format::Netlab, "t.yml", "nodes: [ a, b ]\nlinks: [ a-b ]\n");
    assert_eq!(links(&list), ["a b 100Mbps"]);
}

#[test]
fn network_that_is_too_large_is_refused_at_once() {
    let text: String = (0..100_000).map(|n| format!("_{n}_[0]=A\n")).collect();
    assert!(refusal(Format::Kathara, &text).contains("2000"));
    let text = format!("a: {}", "[\n".repeat(1_000_000));
    assert!(refusal(Format::Containerlab, &text).contains("line "));
    let text: String = (0..100_000).map(|n| format!("k{n}: 1\n")).collect();
    assert!(refusal(Format::Containerlab, &text).contains("no node"));
}

#[test]
fn name_of_a_file_says_its_format() {
    let names = [
        "lab.conf",
        "a.lab",
        "a.clab.yml",
        "a.rspec",
        "a.graphml",
        "a.gml",
    ];
    let found: Vec<&str> = names
        .iter()
        .filter_map(|name| Format::of_file(name).map(Format::name))
        .collect();
    assert_eq!(
        found,
        ["kathara", "lab", "containerlab", "rspec", "graphml", "gml"]
    );
    assert_eq!(Format::of_file("a.toml"), None);
}
