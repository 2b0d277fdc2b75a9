//! Tests with files of the other stacks, and with the node's parser on the result.

use carina_node::Config;

use super::*;

/// A script with two nodes of a tutorial, and with every command that has no equivalent.
const SCRIPT: &str = "\
# a comment
reset
ipcp-create red.eth shim-eth e.DIF
ipcp-config red.eth netdev eth0
ipcp-create u shim-udp4 u.DIF
ipcp-create a.IPCP normal n.DIF
ipcp-config a.IPCP csum inet
dif-policy-param-mod n.DIF addralloc nack-wait 1000ms
dif-policy-mod n.DIF routing link-state-lfa
dif-policy-param-mod n.DIF enrollment keepalive 10s
dif-policy-param-mod n.DIF flowalloc initial-credit 64
ipcp-register a.IPCP e.DIF
ipcp-enroller-enable a.IPCP
ipcp-create b.IPCP normal m.DIF
ipcp-enroll b.IPCP m.DIF u.DIF c.IPCP
ipcp-lower-flow-alloc b.IPCP m.DIF u.DIF d.IPCP
ipcp-create t.IPCP normal-tiny t.DIF
ipcp-register t.IPCP n.DIF
ipcps-show
ipcp-create w shim-wifi w.DIF
dif-policy-mod n.DIF dft centralized-fault-tolerant
ipcp-enrol b.IPCP
ipcp-config red.eth
";

#[test]
fn an_rlite_script_is_converted_and_the_rest_is_listed() {
    let draft = rlite::read("initscript", SCRIPT);
    let text = draft.to_toml(Config::check_text).unwrap();
    let config = Config::parse(&text, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!((config.ipcps.len(), config.difs.len()), (2, 3), "{text}");
    let eth = config.ipcps[0].get_ref();
    assert_eq!(eth.interface.as_deref(), Some("eth0"));
    assert_eq!(eth.arp, Some(carina_api::control::ArpDialect::Rlite));
    let dif = |name: &str| {
        let mut difs = config.difs.iter().map(|dif| dif.get_ref());
        difs.find(|dif| dif.name.as_str() == name).unwrap()
    };
    let first = dif("n.DIF");
    assert_eq!(first.role, DifRole::Create);
    let made = first.dif_config(None).unwrap().unwrap();
    assert_eq!(made.keepalive_ms, 10_000);
    assert_eq!(made.policies["routing"].name, "link-state-lfa");
    assert_eq!(
        made.policies["address-assignment"].params["nack-wait"],
        "1000ms"
    );
    assert_eq!(made.policies["pci-checksum"].name, "inet");
    assert_eq!(made.cubes[1].window.unwrap().credit_max, 64);
    let joins = dif("m.DIF");
    assert_eq!(joins.role, DifRole::Join);
    assert_eq!(joins.via.as_ref().unwrap().as_str(), "c.IPCP");
    let tiny = dif("t.DIF").dif_config(None).unwrap().unwrap();
    assert_eq!((tiny.widths.address, tiny.widths.seq), (1, 2));
    let noted: Vec<(usize, &str)> = draft
        .notes
        .iter()
        .map(|note| (note.line, note.why.as_str()))
        .collect();
    for (line, words) in [
        (16, "asks one other (c.IPCP)"),
        (17, "it becomes the first member"),
        (20, "no shim for wireless"),
        (21, "available: fully-replicated"),
        (22, "was `ipcp-enroll` meant?"),
        (23, "write the line as: ipcp-config NAME PARAMETER VALUE"),
    ] {
        let is_wanted = |(at, why): &(usize, &str)| *at == line && why.contains(words);
        assert!(noted.iter().any(is_wanted), "{line} {words}: {noted:#?}");
    }
    assert_eq!(noted.len(), 6, "{noted:#?}");
}

const MANAGER: &str = r#"{
  // comments are allowed there
  "configFileVersion": "1.4.1",
  "localConfiguration": {
    "installationPath": "/usr/local/irati/bin",
    "consoleSocket": "/tmp/ipcm-console.sock",
    "system-name": "test1",
    "pluginsPaths": ["/usr/local/lib"]
  },
  "ipcProcessesToCreate": [
    { "type": "shim-eth-vlan", "difName": "110" },
    { "type": "normal-ipc", "difName": "normal.DIF", "difsToRegisterAt": ["110"] },
    { "type": "shim-tcp-udp", "difName": "ip.DIF" },
    { "type": "shim-wifi-ap", "difName": "w.DIF", "colour": "red" }
  ],
  "difConfigurations": [
    { "name": "110", "template": "shim.dif" },
    { "name": "normal.DIF", "template": "default.dif" },
    { "name": "ip.DIF", "template": "ip.dif" },
    { "name": "other.DIF", "template": "other.dif" }
  ],
  "addons": { "mad": {} }
}"#;

const TEMPLATE: &str = r#"{
  "difType": "normal-ipc",
  "dataTransferConstants": {
    "addressLength": 2, "cepIdLength": 2, "lengthLength": 2, "portIdLength": 2, "qosIdLength": 2,
    "rateLength": 4, "frameLength": 4, "sequenceNumberLength": 4, "ctrlSequenceNumberLength": 4,
    "maxPduSize": 1400, "maxPduLifetime": 60000
  },
  "qosCubes": [{
    "name": "unreliablewithflowcontrol", "id": 1, "partialDelivery": false, "orderedDelivery": true,
    "efcpPolicies": {
      "dtpPolicySet": { "name": "default", "version": "0" }, "initialATimer": 300,
      "dtcpPresent": true,
      "dtcpConfiguration": {
        "dtcpPolicySet": { "name": "default", "version": "0" },
        "rtxControl": false, "flowControl": true,
        "flowControlConfig": {
          "rateBased": false, "windowBased": true,
          "windowBasedConfig": { "maxClosedWindowQueueLength": 50, "initialCredit": 40 }
        }
      }
    }
  }, {
    "name": "reliablewithflowcontrol", "id": 2, "orderedDelivery": true, "maxAllowableGap": 0,
    "efcpPolicies": {
      "dtpPolicySet": { "name": "default", "version": "0" }, "initialATimer": 300,
      "dtcpPresent": true,
      "dtcpConfiguration": {
        "dtcpPolicySet": { "name": "default", "version": "0" }, "rtxControl": true,
        "rtxControlConfig": { "dataRxmsNmax": 5, "initialRtxTime": 1000 },
        "flowControl": true,
        "flowControlConfig": {
          "windowBased": true, "windowBasedConfig": { "initialCredit": 50 }
        }
      }
    }
  }],
  "knownIPCProcessAddresses": [
    { "apName": "test1.normal.DIF", "apInstance": "1", "address": 16 },
    { "apName": "test2.normal.DIF", "apInstance": "1", "address": 17 }
  ],
  "addressPrefixes": [
    { "addressPrefix": 0, "organization": "N.Bourbaki" },
    { "addressPrefix": 32, "organization": "IRATI" }
  ],
  "rmtConfiguration": {
    "policySet": { "name": "default", "version": "1" },
    "pffConfiguration": { "policySet": { "name": "multipath", "version": "0" } }
  },
  "routingConfiguration": { "policySet": { "name": "link-state", "version": "1" } },
  "securityManagerConfiguration": {
    "policySet": { "name": "default", "version": "1" },
    "authSDUProtProfiles": {
      "default": { "authPolicy": { "name": "PSOC_authentication-none", "version": "1" } }
    }
  }
}"#;

fn open(name: &str) -> Result<String, String> {
    let text = match name {
        "default.dif" => TEMPLATE,
        "shim.dif" => {
            r#"{ "difType": "shim-eth-vlan", "configParameters": { "interface-name": "eth1" } }"#
        }
        "ip.dif" => {
            r#"{ "configParameters": { "hostname": "10.0.0.1",
                 "dirEntry": "1:4:peer:0::8:10.0.0.2:4:3360", "expReg": "1:2:me:0::4:3361" } }"#
        }
        other => return Err(format!("reading {other}: no such file")),
    };
    Ok(text.to_owned())
}

#[test]
fn an_interface_has_a_name_that_linux_knows() {
    for odd in ["", "eth\u{7f}2", "eth\0", "a/b", "..", "sixteen-bytes-is"] {
        assert!(interface(odd).is_err(), "{odd:?}");
    }
    for sound in ["eth0", "br-lan.110", "fifteen-bytes-i"] {
        assert_eq!(interface(sound).as_deref(), Ok(sound));
    }
}

#[test]
fn what_is_quoted_is_a_string_of_toml() {
    let odd: String = (0..0x100_u32).filter_map(char::from_u32).collect();
    let of = |interface: &str| {
        let quoted = carina_text::toml::quoted(interface);
        let text =
            format!("[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \"1\"\ninterface = {quoted}\n");
        let config = Config::parse(&text, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
        config.ipcps[0].get_ref().interface.clone()
    };
    assert_eq!(of(&odd), Some(odd));
}

#[test]
fn a_configuration_of_irati_takes_its_templates_along() {
    let draft = irati::read("ipcmanager.conf", MANAGER, &open, &[]).unwrap();
    let text = draft.to_toml(Config::check_text).unwrap();
    let config = Config::parse(&text, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(config.node.name.as_deref(), Some("test1"));
    let eth = config.ipcps[0].get_ref();
    assert_eq!(
        (eth.interface.as_deref(), eth.dif.as_str()),
        (Some("eth1"), "110")
    );
    let udp = config.ipcps[1].get_ref();
    assert_eq!(udp.listen.as_deref(), Some("10.0.0.1:3361"));
    assert_eq!(udp.peers[0].address, "10.0.0.2:3360");
    let member = config.difs[0].get_ref();
    assert_eq!(member.ipcp.as_ref().unwrap().as_str(), "test1.normal.DIF");
    let made = member.dif_config(None).unwrap().unwrap();
    assert_eq!((made.max_pdu, made.max_pdu_lifetime_ms), (1400, 60_000));
    assert_eq!(made.cubes[0].window.unwrap().initial_credit, 40);
    assert!(made.cubes[1].retransmission && made.cubes[1].retransmit_ms == 35_000);
    let known = &made.policies["address-assignment"].params;
    assert_eq!(
        known["addresses"],
        "test1.normal.DIF=16,test2.normal.DIF=17"
    );
    assert_eq!(known["prefixes"], "N.Bourbaki=1-31,IRATI=32-65535");
    for (line, words) in [
        (12, "--join normal.DIF=MEMBER"),
        (13, "one of type tcp serves"),
        (14, "no shim for wireless"),
        (14, "an IPCP has no key colour; it has type, difName"),
        (20, "no IPCP of this system"),
        (22, "managed through control.sock"),
    ] {
        let is_wanted = |note: &Note| note.why.contains(words) && note.line == line;
        assert!(
            draft.notes.iter().any(is_wanted),
            "{words}: {:#?}",
            draft.notes
        );
    }
    let pff = draft
        .notes
        .iter()
        .find(|note| note.what.contains("multipath"));
    assert!(pff.is_some_and(|note| note.file == "default.dif" && note.line > 40));
}

#[test]
fn a_member_of_irati_joins_the_neighbour_it_is_given() {
    let joins = [("normal.DIF".to_owned(), Some("test2.normal.DIF".to_owned()))];
    let draft = irati::read("ipcmanager.conf", MANAGER, &open, &joins).unwrap();
    let text = draft.to_toml(Config::check_text).unwrap();
    assert!(text.contains("role = \"join\"") && text.contains("via = \"test2.normal.DIF\""));
    let error = irati::read("x.conf", "{\n \"a\": [1,\n 2 }", &open, &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("x.conf: line 3") && error.contains("`,` or `]`"),
        "{error}"
    );
}
