//! Tests networks of test beds and emulators: RSpec of GENI, and CORE.

use super::*;

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
    let found = imported(Format::Rspec, "two.rspec", text);
    assert_eq!(links(&found), ["left right 20Mbps"]);
    let link = &found.document.link[0];
    assert_eq!((link.delay_max, link.loss_max), (None, None));
    assert_eq!(
        link.impairment().to_string(),
        "delay=5500us loss=1% from its first end, none from its second"
    );
    assert_eq!(link.carrier, Carrier::Gre);
    let left = &found.document.node["left"];
    assert_eq!(left.location, ["be"]);
    assert_eq!((left.cpus, left.memory), (Some(2), Some(512)));
    assert_eq!(left.kind, Some(Kind::Vm));
    assert_eq!(found.document.node["right"].kind, Some(Kind::Namespace));
    let notes = notes(&found).join("\n");
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
    let found = imported(Format::Rspec, "x.rspec", &text);
    let addresses = found.document.link.iter().map(|link| link.addresses);
    let first = ["10.10.1.1/24", "10.10.1.2/24"].map(|text| text.parse().unwrap());
    assert_eq!(addresses.collect::<Vec<_>>(), [Some(first), None, None]);
    let notes = notes(&found).join("\n");
    for what in [
        "addresses and MTU of the link a2 -- b2",
        "the addresses of the link a1 -- b1",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
}

/// A scenario of CORE with a switch, a wireless network, addresses and an impaired link.
const SCENARIO: &str = "<?xml version='1.0' encoding='UTF-8'?>
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
      <iface1 id=\"0\" name=\"eth0\" mac=\"00:00:00:aa:00:00\" ip4=\"10.0.0.1\" ip4_mask=\"24\"
        ip6=\"2001::14\" ip6_mask=\"64\"/>
      <iface2 id=\"0\" name=\"eth0\" ip4=\"10.0.0.2\" ip4_mask=\"24\"
        ip6=\"2001::15\" ip6_mask=\"64\"/>
      <options delay=\"20000\" bandwidth=\"54000000\" loss=\"1.5\" dup=\"0\" jitter=\"0\"/>
    </link>
    <link node1=\"5\" node2=\"2\"><iface2 id=\"1\" name=\"eth1\" ip4=\"10.0.1.2\" ip4_mask=\"24\"/></link>
    <link node1=\"3\" node2=\"5\"/>
    <link node1=\"3\" node2=\"9\"/>
  </links>
  <session_options/>
</scenario>
";

#[test]
fn scenarios_of_core_have_switches_addresses_and_impairments() {
    let found = imported(Format::Core, "two.xml", SCENARIO);
    assert_eq!(
        links(&found),
        [
            "n1:eth0 n2:eth0 54Mbps",
            "n5 n2:eth1 100Mbps",
            "n3 n5 100Mbps"
        ]
    );
    assert_eq!(found.document.node["n5"].kind, Some(Kind::Bridge));
    assert_eq!(
        (position(&found, "n1"), position(&found, "n2")),
        ("1 2".into(), String::new())
    );
    let first = &found.document.link[0];
    assert_eq!(first.impairment().to_string(), "delay=20ms loss=1.5%");
    let addresses = ["10.0.0.1/24", "10.0.0.2/24"].map(|text| text.parse().unwrap());
    assert_eq!(
        (first.addresses, found.document.link[1].addresses),
        (None, None)
    );
    let addresses6 = ["2001::14/64", "2001::15/64"].map(|text| text.parse().unwrap());
    assert_eq!(first.addresses6, Some(addresses6));
    assert_eq!(first.carrier, Carrier::Gre);
    assert_eq!(found.document.link[1].carrier, Carrier::Gre);
    let notes = notes(&found).join("\n");
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
    let elsewhere = SCENARIO.replace("\"10.0.0.", "\"192.168.0.");
    let addresses = addresses.map(|address: carina_vnet::document::InterfaceAddress| {
        address
            .to_string()
            .replace("10.0.0.", "192.168.0.")
            .parse()
            .unwrap()
    });
    let found = imported(Format::Core, "two.xml", &elsewhere);
    assert_eq!(found.document.link[0].addresses, Some(addresses));
    assert!(refusal(Format::Core, "<vnet/>").contains("no <scenario>"));
}
