//! Tests that every key in files of IRATI is translated, or noted with a reason.

use super::*;

/// A configuration with one IPCP and its template.
fn manager(ipcp: &str, sections: &str) -> String {
    format!(
        r#"{{ "configFileVersion": "1.4.1",
 "localConfiguration": {{ "installationPath": "/bin", "libraryPath": "/lib", "logPath": "/log",
   "consoleSocket": "/c", "system-name": "s", "pluginsPaths": ["/lib"] }},
 "ipcProcessesToCreate": [ {{ "type": "shim-eth-vlan", "difName": "110" }},
  {ipcp} ],
 "difConfigurations": [ {{ "name": "110", "template": "110.dif" }},
   {{ "name": "x.DIF", "template": "x.dif" }} ]{sections} }}"#
    )
}

fn read_irati(ipcp: &str, sections: &str, template: &str) -> Draft {
    let open = |name: &str| match name {
        "110.dif" => Ok(
            r#"{ "difType": "shim-eth-vlan", "configParameters": { "interface-name": "eth1" } }"#
                .to_owned(),
        ),
        "x.dif" => Ok(template.to_owned()),
        "da.map" => Ok(
            r#"[ { "encodedAppName": "app-1--", "difName": "x.DIF" }, { "name": "b" } ]"#
                .to_owned(),
        ),
        other => Err(format!("reading {other}: no such file")),
    };
    let joins = [("x.DIF".to_owned(), None)];
    let joins = if ipcp.contains("normal-ipc") {
        &joins[..]
    } else {
        &[]
    };
    let draft = irati::read("m.conf", &manager(ipcp, sections), &open, joins);
    let draft = draft.expect("it is read");
    draft
        .to_toml(carina_node::Config::check_text)
        .expect("a configuration");
    draft
}

const NORMAL: &str = r#"{ "type": "normal-ipc", "difName": "x.DIF", "difsToRegisterAt": ["110"] }"#;

/// Asserts that exactly one note contains each of the texts.
fn assert_noted(draft: &Draft, wanted: &[&str], of: &str) {
    for words in wanted {
        let is_wanted = |note: &Note| note.why.contains(words) || note.what.contains(words);
        let count = draft.notes.iter().filter(|note| is_wanted(note)).count();
        assert!(count > 0, "{of}: {words}: {:#?}", draft.notes);
    }
    assert_eq!(draft.notes.len(), wanted.len(), "{of}: {:#?}", draft.notes);
}

#[test]
fn every_type_and_key_of_an_ipcp_of_irati_is_known() {
    let shim =
        |kind: &str, more: &str| format!(r#"{{ "type": "{kind}", "difName": "x.DIF"{more} }}"#);
    let parameters = |all: &str| format!(r#"{{ "configParameters": {{ {all} }} }}"#);
    let eth = parameters(r#""interface-name": "eth2""#);
    let normal = |more: &str| NORMAL.replace(" }", &format!(", {more} }}"));
    for (ipcp, template, wanted) in [
        (NORMAL.to_owned(), "{}", &[][..]),
        (normal(r#""n1difPeerDiscovery": ["110"]"#), "{}", &[]),
        (normal(r#""apName": "a""#), "{}", &["called SYSTEM.DIF"]),
        (normal(r#""hostName": "h""#), "{}", &["called after"]),
        (
            normal(r#""difsToRegister": ["110"]"#),
            "{}",
            &["was `difsToRegisterAt` meant?"],
        ),
        (
            normal(r#""parameters": { "a": 1 }"#),
            "{}",
            &["no such parameter"],
        ),
        (shim("shim-eth", ""), &eth, &[]),
        (
            shim(
                "shim-eth",
                r#", "parameters": { "interface-name": "eth3" }"#,
            ),
            "{}",
            &[],
        ),
        (
            shim("shim-eth", ""),
            r#"{ "difType": "shim-eth-vlan", "configParameters": {
                 "interface-name": "eth2", "spoof-mac": "1", "arp-timeout": "5000", "vlan": "3" } }"#,
            &[
                "difType shim-eth-vlan",
                "keeps its address",
                "no parameter vlan",
            ],
        ),
        (shim("shim-eth", ""), "{}", &["`interface-name` is missing"]),
        (shim("shim-eth-vlan", ""), &eth, &["must be the VLAN id"]),
        (shim("shim-tcp-udp", ""), "{}", &["of type tcp"]),
        (
            shim("shim-tcp-udp", ""),
            &parameters(r#""hostname": "::1", "expReg": "1:3:app:2:ae:4:5000""#),
            &["of type tcp"],
        ),
        (
            shim("shim-tcp-udp", ""),
            &parameters(r#""hostname": "here.example""#),
            &["of type tcp", "`listen` says one"],
        ),
        (
            shim("shim-tcp-udp", ""),
            &parameters(r#""dirEntry": "1:4:peer:0::8:10.0.0.2:4:33""#),
            &["COUNT:LENGTH:TEXT"],
        ),
        (shim("shim-wifi-ap", ""), "{}", &["wireless"]),
        (shim("shim-wifi-sta", ""), "{}", &["wireless"]),
        (shim("shim-hv", ""), "{}", &["[[vm]]"]),
        (shim("shim-dummy", ""), "{}", &["not a type of IPCP"]),
    ] {
        assert_noted(&read_irati(&ipcp, "", template), wanted, &ipcp);
    }
}

#[test]
fn every_section_of_irati_s_files_is_known() {
    for (sections, wanted) in [
        ("", &[][..]),
        (
            r#""addons": { "mad": { "managerConnections": [], "keyMgrConnection": {} },
               "mobman": {}, "madd": {} }"#,
            &["control.sock", "no shims for wireless", "was `mad` meant?"],
        ),
        (
            r#""difallocator": { "type": "static-dif-allocator", "dafName": "d", "dapName": "p",
               "joinableDIFs": [], "parameters": [] }"#,
            &["`dif_order`", "app-1-- in x.DIF", "an entry has"],
        ),
        (
            r#""difallocator": { "type": "dynamic-dif-allocator", "enrollments": [], "dafnName": "" }"#,
            &[
                "joins no further ones",
                "--join DIF=MEMBER",
                "was `dafName` meant?",
                "app-1-- in x.DIF",
                "an entry has",
            ],
        ),
        (r#""ipcProcesses": []"#, &["has no section ipcProcesses"]),
    ] {
        let sections = match sections {
            "" => String::new(),
            sections => format!(", {sections}"),
        };
        assert_noted(&read_irati(NORMAL, &sections, "{}"), wanted, &sections);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn every_section_of_irati_s_templates_is_known() {
    for (template, wanted) in [
        (
            r#""rmtConfiguration": { "policySet": { "name": "default", "version": "0" },
               "pffConfiguration": { "policySet": { "name": "default", "version": "0" } } }"#,
            &[][..],
        ),
        (
            r#""rmtConfiguration": { "pfConfiguration": {}, "policySet": { "name": "red" } }"#,
            &[
                "was `pffConfiguration` meant?",
                "the RMT has the policy set default only",
            ],
        ),
        (
            r#""pffConfiguration": {}"#,
            &["belongs into rmtConfiguration"],
        ),
        (
            r#""pduftgConfiguration": {}"#,
            &["belongs into resourceAllocatorConfiguration"],
        ),
        (
            r#""enrollmentTaskConfiguration": { "policySet": { "name": "default", "version": "1",
               "parameters": [ { "name": "useReliableNFlow", "value": "true" },
                               { "name": "enrollTimeoutInMs", "value": "10000" } ] } }"#,
            &["the N-1 flow that data takes", "times and bounds are fixed"],
        ),
        (
            r#""flowAllocatorConfiguration": { "policySet": { "name": "qta-ps" } }"#,
            &["flow allocation has the policy set default only"],
        ),
        (
            r#""namespaceManagerConfiguration": { "policySet": { "name": "address-change" } }"#,
            &["names and addresses has"],
        ),
        (
            r#""resourceAllocatorConfiguration": {
               "pduftgConfiguration": { "policySet": { "name": "default", "version": "0" } } }"#,
            &[],
        ),
        (
            r#""routingConfiguration": { "policySet": { "name": "link-state", "version": "1" } }"#,
            &[],
        ),
        (
            r#""routingConfiguration": { "policySet": { "name": "static" } }"#,
            &["routing has the policy set link-state only"],
        ),
        (
            r#""securityManagerConfiguration": { "policySet": { "name": "default" },
               "authSDUProtProfiles": {
                 "default": { "authPolicy": { "name": "PSOC_authentication-password" } },
                 "specific": [ { "underlyingDIF": "110", "TTLPolicy": { "name": "default" },
                                 "authPolicy": { "name": "PSOC_authentication-ssh2" } } ],
                 "others": [] } }"#,
            &[
                "password:FILE",
                "are not protected",
                "there are PSOC_authentication-none",
                "has no key others",
            ],
        ),
        (
            r#""knownIPCProcessAddresses": [ { "apName": "s.x.DIF", "apInstance": "1", "address": 16 },
               { "apName": "t", "apInstance": "2", "address": 17 }, { "apName": "u" } ]"#,
            &["an entry has `apName`"],
        ),
        (
            r#""addressPrefixes": [ { "addressPrefix": 0, "organization": "a" },
               { "addressPrefix": 16, "organization": "b" }, { "organization": "c" } ],
               "dataTransferConstants": { "addressLength": 1 }"#,
            &["those up to 255", "an entry has `organization`"],
        ),
        (
            r#""dataTransferConstants": { "maxPduSize": 1470, "portIdLength": 2, "colour": 1 }"#,
            &["no such constant"],
        ),
        (
            r#""qosCubes": [ { "name": "a", "id": 1, "jitter": 3, "efcpPolicies": {
               "dtcpPresent": true, "initialATimer": 300, "dtcpConfiguration": { "rtxControl": true,
                 "rtxControlConfig": { "dataRxmsNmax": 5, "initialRtxTme": 1000 },
                 "flowControl": true, "flowControlConfig": { "rateBased": true,
                   "rateBasedConfig": { "sendingRate": 9, "timePeriod": 100 } } } } },
               { "name": "b", "id": 2, "efcpPolicies": { "dtcpPresent": false } }, {} ]"#,
            &[
                "no such thing",
                "was `initialRtxTime` meant?",
                "delivers nothing",
                "a cube needs an `id`",
            ],
        ),
        (r#""difType": "normal""#, &["has difType normal-ipc"]),
        (
            r#""configParameters": { "a": "b" }"#,
            &["no such parameter"],
        ),
        (r#""routing": {}"#, &["has no section routing"]),
    ] {
        let draft = read_irati(NORMAL, "", &format!("{{ {template} }}"));
        assert_noted(&draft, wanted, template);
    }
}

#[test]
fn only_members_that_the_template_knows_have_addresses() {
    let known = r#"{ "knownIPCProcessAddresses": [ { "apName": "s.x.DIF", "address": 16 } ] }"#;
    let draft = read_irati(NORMAL, "", known);
    let toml = draft
        .to_toml(carina_node::Config::check_text)
        .expect("a configuration");
    assert!(toml.contains("\"addresses\" = \"s.x.DIF=16\""), "{toml}");
    assert!(toml.contains("\"prefixes\" = \"\""), "{toml}");
}
