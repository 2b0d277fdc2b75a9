//! Tests of DIFs in other dialects, over real interfaces and sockets.

use crate::labs::lab::{self, Lab};

#[test]
fn three_systems_speak_as_rlite_and_one_relays() {
    let Some(lab) = Lab::up("rlite") else {
        return;
    };
    lab.all_enrolled();
    for spec in ["reliable", "unreliable"] {
        lab.ping("a", &["echo.c", "--spec", spec]);
    }
    let shown = lab.exec("b", &["carina", "dif", "show", "n.DIF"]);
    let shown = lab::words(&shown);
    assert!(shown.starts_with("Dialect\n  rlite\n"), "{shown}");
    let listed = lab.exec("a", &["carina", "--json", "dif", "list"]);
    let listed = lab::words(&listed);
    assert!(listed.contains("\"dialect\":\"rlite\""), "{listed}");
}

#[test]
fn three_systems_speak_as_irati_and_one_relays() {
    let Some(lab) = Lab::up("irati") else {
        return;
    };
    lab.all_enrolled();
    for spec in ["reliable", "unreliable"] {
        lab.ping("a", &["echo.c", "--spec", spec]);
    }
    for (system, address) in [("a", 16), ("b", 17), ("c", 18)] {
        let ipcps = lab.exec(system, &["carina", "--json", "ipcp", "list"]);
        let ipcps: serde_json::Value = serde_json::from_slice(&ipcps.stdout).unwrap();
        let mut members = ipcps.as_array().unwrap().iter();
        let member = members.find(|ipcp| ipcp["type"] == "normal").unwrap();
        assert_eq!(member["member"]["address"], address, "{member}");
        assert_eq!(member["member"]["dialect"], "irati", "{member}");
    }
}

#[test]
fn flows_go_on_from_a_dif_of_rlite_to_one_of_irati_and_back() {
    let Some(lab) = Lab::up("bridged") else {
        return;
    };
    lab.all_enrolled();
    // A bridge refuses flows if the onward name is not known yet.
    for (name, dif) in [("echo.i", "irati.DIF"), ("echo.r", "rlite.DIF")] {
        lab.ping("gate", &[name, "--dif", dif]);
    }
    for spec in ["reliable", "unreliable"] {
        lab.ping("r", &["echo.i", "--spec", spec]);
        lab.ping("i", &["echo.r", "--spec", spec]);
    }
}

/// Creates an IPCP or a member. `words` is the command line.
fn make(lab: &Lab, system: &str, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let output = lab.exec(system, &words);
    assert!(output.status.success(), "{system}: {}", lab::words(&output));
}

/// Pings an echo server on `b` from `a`.
fn echo(lab: &Lab, dif: &str) {
    let listen = format!("carina ping --listen echo --dif {dif} >/dev/null 2>&1 &");
    let output = lab.exec("b", &["sh", "-c", &listen]);
    assert!(output.status.success(), "{}", lab::words(&output));
    for spec in ["reliable", "unreliable"] {
        lab.ping("a", &["echo", "--dif", dif, "--spec", spec]);
    }
}

#[test]
fn rlite_over_udp_with_addresses_of_peers() {
    let Some(lab) = Lab::up_text("system a b\neth ab 0Mbps a b\n") else {
        return;
    };
    for (system, own, peer, other) in [
        ("a", "10.71.0.1", "b.IPCP", "10.71.0.2"),
        ("b", "10.71.0.2", "a.IPCP", "10.71.0.1"),
    ] {
        make(&lab, system, &format!("ip address add {own}/24 dev ab"));
        let shim = "carina ipcp create u --type udp --dif inet --framing rlite";
        make(&lab, system, &format!("{shim} --peer {peer}={other}"));
    }
    let dif = "udp.DIF --over inet --dialect rlite --ipcp";
    make(&lab, "a", &format!("carina dif create {dif} a.IPCP"));
    let join = format!("carina --wait 600s dif join {dif} b.IPCP --via a.IPCP");
    make(&lab, "b", &join);
    echo(&lab, "udp.DIF");
}

#[test]
fn rlite_over_a_link_of_udp_of_its_demonstrator() {
    let text = "udp4 ab a:10.71.0.1/24 b:10.71.0.2/24\n\
                dif n.DIF a ab dialect=rlite\ndif n.DIF b ab\n";
    let Some(lab) = Lab::up_text(text) else {
        return;
    };
    lab.all_enrolled();
    echo(&lab, "n.DIF");
}

#[test]
fn vlans_carry_irati() {
    let Some(lab) = Lab::up_text("system a b\neth ab 0Mbps a b\n") else {
        return;
    };
    let shim = "carina ipcp create v --type eth --interface ab --dif 110 --arp irati";
    make(&lab, "a", shim);
    make(&lab, "b", shim);
    let dif = "n.DIF --over 110 --dialect irati --ipcp";
    make(&lab, "a", &format!("carina dif create {dif} a.IPCP"));
    let join = format!("carina --wait 600s dif join {dif} b.IPCP --via a.IPCP");
    make(&lab, "b", &join);
    echo(&lab, "n.DIF");
}

#[test]
fn imported_scripts_of_rlite_make_nodes_that_meet() {
    let Some(lab) = Lab::up_text("system a b\neth ab 0Mbps a b\n") else {
        return;
    };
    let shim = "ipcp-create x.eth shim-eth e.DIF\nipcp-config x.eth netdev ab\n";
    for (system, rest) in [
        (
            "a",
            "ipcp-register a.IPCP e.DIF\nipcp-enroller-enable a.IPCP\n",
        ),
        ("b", "ipcp-enroll b.IPCP n.DIF e.DIF a.IPCP\n"),
    ] {
        // A joining member must be configured with the checksum in advance.
        let made = format!("ipcp-create {system}.IPCP normal n.DIF\n");
        let script = format!("{shim}{made}ipcp-config {system}.IPCP csum inet\n{rest}");
        let import = format!(
            "printf '%s' '{script}' > $CARINA_RUN/init && \
             carina import rlite-ctl $CARINA_RUN/init --out $CARINA_RUN/node.toml && \
             carina apply $CARINA_RUN/node.toml"
        );
        let output = lab.exec(system, &["sh", "-c", &import]);
        let printed = lab::words(&output);
        assert!(
            output.status.success() && !printed.contains("NOT CARRIED"),
            "{printed}"
        );
    }
    echo(&lab, "n.DIF");
}

/// The content of IRATI's `default.dif`, for two members.
const TEMPLATE: &str = r#"{
  "difType": "normal-ipc",
  "dataTransferConstants": {
    "addressLength": 2, "cepIdLength": 2, "lengthLength": 2, "portIdLength": 2, "qosIdLength": 2,
    "rateLength": 4, "frameLength": 4, "sequenceNumberLength": 4, "ctrlSequenceNumberLength": 4,
    "maxPduSize": 1470, "maxPduLifetime": 60000
  },
  "qosCubes": [
    { "name": "unreliablewithflowcontrol", "id": 1, "partialDelivery": false,
      "orderedDelivery": true, "efcpPolicies": {
        "dtpPolicySet": { "name": "default", "version": "0" }, "initialATimer": 300,
        "dtcpPresent": true, "dtcpConfiguration": {
          "dtcpPolicySet": { "name": "default", "version": "0" }, "rtxControl": false,
          "flowControl": true, "flowControlConfig": { "rateBased": false, "windowBased": true,
            "windowBasedConfig": { "maxClosedWindowQueueLength": 50, "initialCredit": 50 } } } } },
    { "name": "reliablewithflowcontrol", "id": 2, "partialDelivery": false,
      "orderedDelivery": true, "maxAllowableGap": 0, "efcpPolicies": {
        "dtpPolicySet": { "name": "default", "version": "0" }, "initialATimer": 300,
        "dtcpPresent": true, "dtcpConfiguration": {
          "dtcpPolicySet": { "name": "default", "version": "0" }, "rtxControl": true,
          "rtxControlConfig": { "dataRxmsNmax": 5, "initialRtxTime": 1000 },
          "flowControl": true, "flowControlConfig": { "rateBased": false, "windowBased": true,
            "windowBasedConfig": { "maxClosedWindowQueueLength": 50, "initialCredit": 50 } } } } }
  ],
  "knownIPCProcessAddresses": [
    { "apName": "a.n.DIF", "apInstance": "1", "address": 16 },
    { "apName": "b.n.DIF", "apInstance": "1", "address": 17 }
  ],
  "rmtConfiguration": { "policySet": { "name": "default", "version": "1" },
    "pffConfiguration": { "policySet": { "name": "default", "version": "0" } } },
  "enrollmentTaskConfiguration": { "policySet": { "name": "default", "version": "1" } },
  "routingConfiguration": { "policySet": { "name": "link-state", "version": "1" } }
}"#;

#[test]
fn imported_configurations_of_irati_make_nodes_that_meet() {
    let Some(lab) = Lab::up_text("system a b\neth ab 0Mbps a b\n") else {
        return;
    };
    for (system, join) in [("a", "--join x.DIF"), ("b", "--join n.DIF=a.n.DIF")] {
        let conf = format!(
            r#"{{ "configFileVersion": "1.4.1",
              "localConfiguration": {{ "system-name": "{system}" }},
              "ipcProcessesToCreate": [
                {{ "type": "shim-eth-vlan", "difName": "110" }},
                {{ "type": "normal-ipc", "difName": "n.DIF", "difsToRegisterAt": ["110"] }} ],
              "difConfigurations": [ {{ "name": "110", "template": "110.dif" }},
                {{ "name": "n.DIF", "template": "n.dif" }} ] }}"#
        );
        let shim =
            r#"{ "difType": "shim-eth-vlan", "configParameters": { "interface-name": "ab" } }"#;
        let import = format!(
            "cd $CARINA_RUN && printf '%s' '{conf}' > m.conf && printf '%s' '{shim}' > 110.dif && \
             printf '%s' '{TEMPLATE}' > n.dif && \
             carina import irati m.conf {join} --out node.toml && carina apply node.toml"
        );
        let output = lab.exec(system, &["sh", "-c", &import]);
        let printed = lab::words(&output);
        assert!(output.status.success(), "{printed}");
        // The file does not say which member is the first.
        let is_whole = !printed.contains("NOT CARRIED");
        assert_eq!(is_whole, system == "b", "{printed}");
    }
    echo(&lab, "n.DIF");
    for (system, address) in [("a", 16), ("b", 17)] {
        let shown = lab.exec(system, &["carina", "--json", "ipcp", "list"]);
        let shown = lab::words(&shown);
        assert!(shown.contains(&format!("\"address\":{address}")), "{shown}");
    }
    let listed = lab.exec("b", &["carina", "policy", "list", "--dif", "n.DIF"]);
    let listed = lab::words(&listed);
    assert!(
        listed.contains("known-addresses") && listed.contains("a.n.DIF=16,b.n.DIF=17"),
        "{listed}"
    );
}
