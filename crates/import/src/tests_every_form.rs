//! Every form that the other stacks' files have: carried over, or named with why.

use super::*;

/// A script without notes, of one member.
const FRAME: &str = "ipcp-create e shim-eth e.DIF\nipcp-config e netdev eth0\n\
                     ipcp-create a normal n.DIF\nipcp-register a e.DIF\nipcp-enroller-enable a\n";

/// Notes of a script, but for those of what its frame leaves out.
fn notes(lines: &str) -> Vec<Note> {
    let draft = rlite::read("init", &format!("{FRAME}{lines}"));
    draft.to_toml().expect("a configuration");
    draft.notes
}

#[test]
fn every_command_of_rlite_ctl_is_known() {
    for line in [
        "probe",
        "reset",
        "terminate",
        "ipcp-create x normal x.DIF\nipcp-register x e.DIF\nipcp-enroller-enable x",
        "ipcp-create x shim-eth x.DIF\nipcp-config x netdev eth1",
        "ipcp-create x shim-eth 110\nipcp-config x netdev eth1.110",
        "ipcp-create x shim-udp4 x.DIF\nipcp-config x mss 1400",
        "ipcp-create x shim-tcp4 x.DIF",
        "ipcp-create x shim-loopback x.DIF",
        "ipcp-create x normal x.DIF\nipcp-destroy x",
        "ipcp-config a ttl 64",
        "ipcp-config a csum none",
        "ipcp-config a csum inet",
        "ipcp-config e mss 1400",
        "ipcp-config-get a ttl",
        "ipcp-sched-config a none",
        "ipcp-sched-config a pfifo qsize 131072",
        "ipcp-sched-config a wrr quantum 2000",
        "ipcp-register a e.DIF",
        "ipcp-unregister a e.DIF\nipcp-register a e.DIF",
        "ipcps-show",
        "ipcp-stats a",
        "uipcp-stats-show a",
        "dif-rib-show n.DIF",
        "dif-routing-show n.DIF",
        "dif-rib-paths-show",
        "dif-policy-list n.DIF",
        "dif-policy-param-list n.DIF",
        "flows-show",
        "flow-dump 3",
        "regs-show",
        "memtrack",
        "rlite-ctl ipcps-show",
        "sudo rlite-ctl ipcp-config a csum inet",
        "ipcp-create b normal m.DIF\nipcp-enroll b m.DIF e.DIF",
        "ipcp-create b normal m.DIF\nipcp-enroll b m.DIF e.DIF c",
        "ipcp-create b normal m.DIF\nipcp-enroll-retry b m.DIF e.DIF c",
        "ipcp-create b normal m.DIF\nipcp-enroll b m.DIF e.DIF c\n\
         ipcp-lower-flow-alloc b m.DIF e.DIF c",
        "dif-policy-mod n.DIF addralloc static",
        "dif-policy-mod n.DIF addralloc distributed",
        "dif-policy-mod n.DIF dft fully-replicated",
        "dif-policy-mod n.DIF routing link-state",
        "dif-policy-mod n.DIF routing link-state-lfa",
        "dif-policy-param-mod n.DIF addralloc nack-wait 1000ms",
        "dif-policy-param-mod n.DIF routing age-incr-intval 10s",
        "dif-policy-param-mod n.DIF routing age-max 900s",
        "dif-policy-param-mod n.DIF enrollment keepalive 20s",
        "dif-policy-param-mod n.DIF flowalloc initial-rtx-timeout 1000ms",
        "dif-policy-param-mod n.DIF flowalloc initial-a 20ms",
        "dif-policy-param-mod n.DIF flowalloc initial-credit 512",
    ] {
        assert_eq!(notes(line), [], "{line}");
    }
}

#[test]
fn unsupported_values_are_replaced_by_supported_ones() {
    let policy = |line: &str, component: &str| {
        let draft = rlite::read("init", &format!("{FRAME}{line}"));
        draft.members[0].config["policies"][component]["params"].clone()
    };
    for (line, component, param, value) in [
        (
            "ipcp-sched-config a wrr quantum 200",
            "rmt-scheduling",
            "quantum",
            "256",
        ),
        (
            "ipcp-sched-config a wrr quantum 300",
            "rmt-scheduling",
            "quantum",
            "300",
        ),
        (
            "ipcp-sched-config a none qsize 1",
            "rmt-queue",
            "limit-bytes",
            "4096",
        ),
        (
            "dif-policy-param-mod n.DIF routing age-max 900000",
            "routing",
            "age-max",
            "900000ms",
        ),
        (
            "dif-policy-param-mod n.DIF routing age-max 900s",
            "routing",
            "age-max",
            "900s",
        ),
    ] {
        assert_eq!(policy(line, component)[param], value, "{line}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn what_rlite_ctl_can_and_a_node_cannot_is_named() {
    for (line, words) in [
        ("ipcp-create x shim-wifi x.DIF", "no shim for wireless"),
        ("ipcp-create x normal-fat x.DIF", "flavour normal-fat"),
        ("ipcp-create x shim-hv x.DIF", "no type of IPCP"),
        ("ipcp-config a address 7", "addresses are assigned"),
        ("ipcp-config a flow-del-wait-ms 4000", "timers of EFCP"),
        ("ipcp-config a sched pfifo", "ipcp-sched-config NAME"),
        ("ipcp-config a csum crc", "csum is none or inet"),
        ("ipcp-config a tll 9", "was `ttl` meant?"),
        ("ipcp-config e netdevs eth0", "was `netdev` meant?"),
        (
            "ipcp-sched-config a pfifo levels 4 qsize 131072",
            "levels and weights",
        ),
        (
            "ipcp-sched-config a wrr quantum 2000 weights 1 4",
            "levels and weights",
        ),
        (
            "ipcp-sched-config a wrr quantum 200",
            "quantum is 200 bytes and was made 256",
        ),
        (
            "ipcp-sched-config a pfifo qsize 100",
            "qsize is 100 bytes and was made 4096",
        ),
        (
            "dif-policy-param-mod n.DIF routing age-max 90000s",
            "a day is possible",
        ),
        ("ipcp-sched-config a wrr quantum", "quantum has no value"),
        (
            "ipcp-sched-config a none levels 3",
            "levels is no parameter",
        ),
        ("ipcp-sched-config a red", "no scheduler"),
        ("ipcp-enroller-disable a", "every member admits others"),
        ("ipcp-neigh-disconnect a b", "no neighbour to leave"),
        ("ipcp-route-add a b c", "routing policy's matter"),
        ("ipcp-route-del a b", "routing policy's matter"),
        (
            "dif-policy-mod n.DIF addralloc centralized-fault-tolerant",
            "there is distributed, static",
        ),
        ("dif-policy-mod n.DIF routing static", "link-state-lfa"),
        ("dif-policy-mod n.DIF rooting static", "is no component"),
        ("dif-policy-mod n.DIF ribd fast", "one way to work"),
        (
            "dif-policy-param-mod n.DIF dft replicas a,b,c",
            "replicated at all members",
        ),
        (
            "dif-policy-param-mod n.DIF addralloc cli-timeout 5s",
            "replicated at all members",
        ),
        (
            "dif-policy-param-mod n.DIF routing age-incr-max 900s",
            "age-max is meant",
        ),
        (
            "dif-policy-param-mod n.DIF enrollment timeout 7000ms",
            "is fixed",
        ),
        (
            "dif-policy-param-mod n.DIF enrollment keepalive-thresh 3",
            "three missed",
        ),
        (
            "dif-policy-param-mod n.DIF enrollment auto-reconnect true",
            "always asked again",
        ),
        (
            "dif-policy-param-mod n.DIF flowalloc force-flow-control true",
            "flow specification",
        ),
        (
            "dif-policy-param-mod n.DIF flowalloc max-rtxq-len 512",
            "bounded by the window",
        ),
        (
            "dif-policy-param-mod n.DIF flowalloc max-cwq-len 128",
            "bounded by the window",
        ),
        (
            "dif-policy-param-mod n.DIF resalloc reliable-flows true",
            "same N-1 flow",
        ),
        (
            "dif-policy-param-mod n.DIF resalloc reliable-n-flows true",
            "same N-1 flow",
        ),
        (
            "dif-policy-param-mod n.DIF resalloc broadcast-enroller false",
            "name of its DIF",
        ),
        (
            "dif-policy-param-mod n.DIF ribd refresh-intval 30s",
            "is fixed",
        ),
        (
            "dif-policy-param-mod n.DIF flowalloc initial-cradit 5",
            "was `initial-credit` meant?",
        ),
        (
            "dif-policy-param-mod n.DIF enrollment keepalive soon",
            "no number",
        ),
        (
            "dif-policy-param-mod n.DIF enrollment keepalive 0s",
            "keep-alives are always sent",
        ),
        (
            "dif-policy-param-mod n.DIF flowalloc initial-credit 0",
            "lets none pass",
        ),
        (
            "dif-policy-param-mod n.DIF flowalloc initial-rtx-timeout 0ms",
            "sent again for some time",
        ),
    ] {
        let notes = notes(line);
        let [note] = &notes[..] else {
            panic!("{line}: {notes:#?}");
        };
        assert!(
            note.line == 6 && note.why.contains(words),
            "{line}: {note:?}"
        );
    }
}

/// A configuration around one IPCP and its template.
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
    draft.to_toml().expect("a configuration");
    draft
}

const NORMAL: &str = r#"{ "type": "normal-ipc", "difName": "x.DIF", "difsToRegisterAt": ["110"] }"#;

/// The words of one note each.
fn assert_noted(draft: &Draft, wanted: &[&str], of: &str) {
    for words in wanted {
        let is_there = |note: &Note| note.why.contains(words) || note.what.contains(words);
        let there = draft.notes.iter().filter(|note| is_there(note)).count();
        assert!(there > 0, "{of}: {words}: {:#?}", draft.notes);
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
        (shim("shim-eth-vlan", ""), &eth, &["is the VLAN id"]),
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
        (shim("shim-dummy", ""), "{}", &["no type of IPCP"]),
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
            &["control.sock", "no wireless shims", "was `mad` meant?"],
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
    let toml = draft.to_toml().expect("a configuration");
    assert!(toml.contains("\"addresses\" = \"s.x.DIF=16\""), "{toml}");
    assert!(toml.contains("\"prefixes\" = \"\""), "{toml}");
}
