//! Tests that every command of a script of rlite is translated, or noted with a reason.

use super::*;

/// A script with one member that yields no notes.
const FRAME: &str = "ipcp-create e shim-eth e.DIF\nipcp-config e netdev eth0\n\
                     ipcp-create a normal n.DIF\nipcp-register a e.DIF\nipcp-enroller-enable a\n";

/// The notes of the frame with further lines.
fn notes(lines: &str) -> Vec<Note> {
    let draft = rlite::read("init", &format!("{FRAME}{lines}"));
    draft
        .to_toml(carina_node::Config::check_text)
        .expect("a configuration");
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
        "dif-policy-mod n.DIF enrollment default",
        "dif-policy-mod n.DIF ribd default",
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
fn address_is_carried_over_where_addresses_are_configured() {
    for (lines, is_static) in [
        (
            "dif-policy-mod n.DIF addralloc static\nipcp-config a address 7",
            true,
        ),
        (
            "ipcp-config a address 7\ndif-policy-mod n.DIF addralloc static",
            true,
        ),
        ("ipcp-config a address 7", false),
    ] {
        let draft = rlite::read("init", &format!("{FRAME}{lines}"));
        draft.to_toml(carina_node::Config::check_text).unwrap();
        let config = &draft.members[0].config;
        let address = config
            .get("policies")
            .map(|all| &all["address-assignment"]["params"]);
        let wanted = serde_json::json!({ "address": "7" });
        assert_eq!(address, is_static.then_some(&wanted), "{lines}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn what_rlite_ctl_can_and_a_node_cannot_is_named() {
    for (line, words) in [
        ("ipcp-create x shim-wifi x.DIF", "no shim for wireless"),
        ("ipcp-create x normal-fat x.DIF", "flavour normal-fat"),
        ("ipcp-create x shim-hv x.DIF", "not a type of IPCP"),
        ("ipcp-config a address 7", "addresses are assigned"),
        ("ipcp-config a flow-del-wait-ms 4000", "timers of EFCP"),
        ("ipcp-config e flow-del-wait-ms 4000", "timers of EFCP"),
        ("ipcp-config a txhdroom 120", "room for headers"),
        ("ipcp-config e rxhdroom 35", "room for headers"),
        ("ipcp-config a mss 1800", "`max_pdu` in its `config`"),
        ("ipcp-config a txhdroom much", "not a number"),
        ("ipcp-config a sched pfifo", "ipcp-sched-config NAME"),
        (
            "ipcp-config a csum crc",
            "csum crc is unknown; valid values are none and inet",
        ),
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
            "quantum is 200 bytes, which was changed to 256",
        ),
        (
            "ipcp-sched-config a pfifo qsize 100",
            "qsize is 100 bytes, which was changed to 4096",
        ),
        (
            "dif-policy-param-mod n.DIF routing age-max 90000s",
            "must be at most a day",
        ),
        ("ipcp-sched-config a wrr quantum", "quantum has no value"),
        (
            "ipcp-sched-config a none levels 3",
            "levels is not a parameter",
        ),
        ("ipcp-sched-config a red", "scheduler red is unknown"),
        ("ipcp-enroller-disable a", "every member admits others"),
        ("ipcp-neigh-disconnect a b", "no neighbour to leave"),
        ("ipcp-route-add a b c", "routing policy of a DIF"),
        ("ipcp-route-del a b", "routing policy of a DIF"),
        (
            "dif-policy-mod n.DIF addralloc centralized-fault-tolerant",
            "available: distributed, static",
        ),
        ("dif-policy-mod n.DIF routing static", "link-state-lfa"),
        ("dif-policy-mod n.DIF rooting static", "is not a component"),
        ("dif-policy-mod n.DIF ribd fast", "only one policy"),
        ("dif-policy-mod n.DIF enrollment slow", "only one policy"),
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
            "not a number",
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
