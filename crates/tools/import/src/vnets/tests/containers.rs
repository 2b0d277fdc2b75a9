//! Tests networks of containers: containerlab, Kathará and netlab.

use super::*;

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
    let found = imported(Format::Containerlab, "srl02.clab.yml", text);
    assert_eq!(found.document.vnet.name, "srl02");
    assert_eq!(
        links(&found),
        [
            "srl1:e1-1 pc-1:eth1 100Mbps",
            "srl1:e1-3 pc-1:eth2 100Mbps",
            "srl1:e1-4 pc-1:eth3 100Mbps",
            "lan:eth1 pc-1:eth4 100Mbps",
        ]
    );
    let mtus = found.document.link.iter().map(|link| link.mtu);
    assert_eq!(mtus.collect::<Vec<_>>(), [None, Some(1400), None, None]);
    assert_eq!(found.document.node["lan"].kind, Some(Kind::Bridge));
    let notes = notes(&found).join("\n");
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
    let found = imported(Format::Containerlab, "x.clab.yml", text);
    assert_eq!(found.document.vnet.name, "two");
    assert_eq!(links(&found), ["a:eth1 c:eth1 100Mbps"]);
    let node = &found.document.node["a"];
    assert_eq!((node.cpus, node.memory), (Some(2), Some(256)));
    assert_eq!(node.exec, ["ip link || true"]);
    let c = &found.document.node["c"];
    assert_eq!(c.exec, ["ip route add default via 10.0.0.1 || true"]);
    assert_eq!(c.environment["ROLE"], "edge");
    assert!(found.document.node["d"].exec.is_empty());
    let notes = found.notes.iter();
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
fn kathara_domains_join_their_devices() {
    let text = "LAB_NAME=\"Two routers\"\n# a comment\nr1[0]=\"A\"\nr1[1]=\"B/00:00:00:00:00:01\"\n\
                r2[0]=\"B\" # upstream\npc1[0]=A # a#b\npc1[mem]=\"64m\"\npc1[image]=\"kathara/base\"\nr2[1]=C\n\
                r1[2]=\"D\" E\n";
    let found = imported(Format::Kathara, "lab.conf", text);
    assert_eq!(found.document.vnet.name, "Two-routers");
    assert_eq!(
        links(&found),
        ["r1:eth0 pc1:eth0 100Mbps", "r1:eth1 r2:eth0 100Mbps"]
    );
    assert_eq!(found.document.node["pc1"].memory, Some(64));
    let notes = notes(&found).join("\n");
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
- interfaces: [ {node: r2, ipv4: 10.1.0.1/24}, {node: h1} ]
  mtu: 1400
- r1-r9
";
    let found = imported(Format::Netlab, "topology.yml", text);
    assert_eq!(
        links(&found),
        [
            "r1 r2 100Mbps",
            "r1 lan-2 100Mbps",
            "r2 lan-2 100Mbps",
            "h1 lan-2 100Mbps",
            "r1 h1 1Mbps",
            "r2 h1 100Mbps",
        ]
    );
    assert_eq!(found.document.node["lan-2"].kind, Some(Kind::Bridge));
    assert_eq!(
        found.document.link[4].impairment().to_string(),
        "delay=10ms loss=1%"
    );
    assert_eq!(found.document.link[5].mtu, Some(1400));
    let notes = notes(&found).join("\n");
    for what in [
        "module",
        "device of r1",
        "ipv4 of r2 in a link",
        "a link to \"r9\"",
        "network \"lan-5\"",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    let text = "nodes: [ a, b ]\nlinks: [ a-b ]\n";
    let list = imported(Format::Netlab, "t.yml", text);
    assert_eq!(links(&list), ["a b 100Mbps"]);
    assert_eq!(list.notes[0].what, "1 link without a rate");
    let error = refusal(Format::Containerlab, text);
    assert!(error.contains("--from netlab"), "{error}");
}
