//! Tests of plans: what a changed document adds, replaces or changes.

use carina_vnet::document::Form;

use carina_vnet::host_part::HostLimits;

use super::*;
use crate::admission::Capacity;

fn room() -> AdmissionCheck {
    AdmissionCheck {
        capacity: Capacity {
            cpus: 4,
            memory_mib: 1000,
            nics: 0,
        },
        limits: HostLimits {
            member_memory_mib: 300,
            interfaces_max: 16,
            ..HostLimits::none()
        },
    }
}

fn document(text: &str) -> Document {
    let head = "[vnet]\nname = \"x\"\n";
    Document::read(&format!("{head}{text}"), Form::Toml).unwrap()
}

fn links(pairs: &[&str], rate: &str) -> String {
    let link = |pair: &&str| {
        let (one, other) = pair.split_once(' ').unwrap();
        format!("[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"{rate}\"\n")
    };
    pairs.iter().map(link).collect()
}

fn record(text: &str) -> Record {
    let document = document(text);
    let layout = Layout::of(&document, &Layout::default());
    record_of(&document, VnetId::new(7), 1, layout).unwrap()
}

fn lines(before: Option<&str>, after: &str) -> Vec<String> {
    let records: Vec<Record> = before.map(record).into_iter().collect();
    let plan = Plan::of(&document(after), &records, &room()).unwrap();
    assert_eq!((plan.refusal, plan.is_there), (None, before.is_some()));
    let line =
        |step: &PlannedStep| format!("{} {}: {}", step.action.sign(), step.subject, step.reason);
    plan.steps.iter().map(line).collect()
}

const NODES: &str = "[node.a]\n[node.b]\nkind = \"namespace\"\n[node.c]\n";

#[test]
fn new_network_is_all_additions() {
    let text = format!("{NODES}{}", links(&["a b"], "5Mbps"));
    assert_eq!(
        lines(None, &text),
        [
            "+ node a: VM, 1 processor, 128 MiB, clone",
            "+ node b: namespace",
            "+ node c: VM, 1 processor, 128 MiB, clone",
            "+ link a:eth0 -- b:eth0: 5Mbps, ipip",
        ]
    );
    assert!(lines(Some(&text), &text).is_empty());
}

#[test]
fn link_that_comes_or_goes_changes_its_ends() {
    let [one, two] = [&["a b"][..], &["a b", "b c"]];
    let one = format!("{NODES}{}", links(one, "5Mbps"));
    let two = format!("{NODES}{}", links(two, "5Mbps"));
    assert_eq!(
        lines(Some(&one), &two),
        [
            "~ node a: a route more",
            "~ node b: gets eth1 (10.0.0.5/30)",
            "~ node c: gets eth0 (10.0.0.6/30); a route more",
            "+ link b:eth1 -- c:eth0: 5Mbps, ipip",
        ]
    );
    let back = lines(Some(&two), &one);
    assert!(
        back.contains(&"~ node b: loses eth1".to_owned()),
        "{back:?}"
    );
    assert_eq!(
        back[3],
        "- link b:eth1 -- c:eth0: the document has no such link"
    );
}

#[test]
fn what_needs_a_restart_is_replaced_with_its_links() {
    let old = format!("{NODES}{}", links(&["a b"], "5Mbps"));
    let text = NODES.replacen("[node.a]\n", "[node.a]\nmemory = 256\ncpus = 2\n", 1);
    let new = format!("{text}{}", links(&["a b"], "5Mbps"));
    assert_eq!(
        lines(Some(&old), &new),
        [
            "-/+ node a: processors 1 -> 2; memory 128 MiB -> 256 MiB",
            "~ node b: the links of eth0 are recreated",
            "-/+ link a:eth0 -- b:eth0: node a is recreated",
        ]
    );
}

#[test]
fn node_that_has_ended_is_replaced_alone() {
    let text = format!("{NODES}{}", links(&["a b"], "5Mbps"));
    let ended = |name: &str| EndedNode {
        name: name.to_owned(),
        reason: "it has ended",
    };
    let planned = |after: &str| {
        let plan = Plan::of(&document(after), &[record(&text)], &room()).unwrap();
        let steps = plan.with_ended(&[ended("a"), ended("c")]).steps;
        let line =
            |step: PlannedStep| format!("{} {}: {}", step.action.sign(), step.subject, step.reason);
        steps.into_iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        planned(&text),
        ["-/+ node a: it has ended", "-/+ node c: it has ended"]
    );
    let more = format!("{text}{}", links(&["b c"], "5Mbps"));
    let steps = planned(&more);
    assert_eq!(steps[0], "-/+ node a: it has ended; a route more");
    let less = text.replace("[node.c]\n", "");
    assert_eq!(
        planned(&less),
        [
            "- node c: the document has no such node",
            "-/+ node a: it has ended"
        ]
    );
}

#[test]
fn rates_change_in_place_and_carriers_anew() {
    let old = format!("{NODES}{}", links(&["a b"], "5Mbps"));
    let new = format!("{NODES}{}as = \"gre\"\n", links(&["a b"], "9Mbps"));
    let test = "[[test]]\nping = [\"a\", \"b\"]\n";
    assert_eq!(
        lines(Some(&old), &format!("{new}{test}")),
        [
            "~ node a: MTU of eth0 1480 -> 1458; the links of eth0 are recreated",
            "~ node b: MTU of eth0 1480 -> 1458; the links of eth0 are recreated",
            "-/+ link a:eth0 -- b:eth0: rate 5Mbps -> 9Mbps; ipip -> gre",
            "~ tests: 0 -> 1",
        ]
    );
    let faster = format!("{NODES}{}", links(&["a b"], "9Mbps"));
    assert_eq!(
        lines(Some(&old), &faster),
        ["~ link a:eth0 -- b:eth0: rate 5Mbps -> 9Mbps"]
    );
    let own = format!(
        "{NODES}{}as = \"gre\"\nmtu = 9000\naddresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n\
         addresses6 = [\"2001:db8::1/64\", \"2001:db8::2/64\"]\n",
        links(&["a b"], "9Mbps")
    );
    assert_eq!(
        lines(Some(&new), &own)[1..],
        [
            "~ node b: address of eth0 10.0.0.2/30 -> 10.9.0.2/24; IPv6 address of eth0 none \
             -> 2001:db8::2/64; MTU of eth0 1458 -> 9000; the links of eth0 are recreated",
            "-/+ link a:eth0 -- b:eth0: the MTU or the addresses of its ends change",
        ]
    );
    let late = format!("{old}delay = \"10ms\"\n");
    assert_eq!(
        lines(Some(&old), &late),
        ["~ link a:eth0 -- b:eth0: impairment none -> delay=10ms"]
    );
    let new_link = lines(None, &late).pop();
    assert_eq!(
        new_link.as_deref(),
        Some("+ link a:eth0 -- b:eth0: 5Mbps, ipip, delay=10ms")
    );
    let leased = lines(Some(&old), &format!("lease = \"2h\"\n{old}"));
    assert_eq!(leased, ["~ lease: none -> 2h"]);
}

#[test]
fn what_does_not_fit_is_planned_with_the_reason() {
    let text = "[node.a]\nmemory = 2000\n";
    let plan = Plan::of(&document(text), &[], &room()).unwrap();
    let refusal = plan.refusal.unwrap();
    assert!(refusal.contains("2000 MiB"), "{refusal}");
    assert_eq!(plan.steps.len(), 1);
    // Limits that only this host knows are also checked.
    for (text, words) in [
        (
            "[node.a]\nimage = \"debian\"\n".to_owned(),
            "image \"debian\"",
        ),
        (
            format!(
                "[node.a]\n[node.b]\n{}as = \"dif\"\n",
                links(&["a b"], "5Mbps")
            ),
            "needs 300",
        ),
        (
            format!("[node.a]\n[node.b]\n{}", links(&["a b"; 20], "1Mbps")),
            "20 interfaces",
        ),
    ] {
        let refusal = Plan::of(&document(&text), &[], &room()).unwrap().refusal;
        assert!(
            refusal
                .as_ref()
                .is_some_and(|refusal| refusal.contains(words)),
            "{refusal:?}"
        );
    }
    // Resources that the network itself has now count as free.
    let records = [record("[node.a]\nmemory = 900\n")];
    let more = document("[node.a]\nmemory = 950\n");
    let plan = Plan::of(&more, &records, &room()).unwrap();
    assert_eq!(
        (plan.refusal, plan.steps[0].action),
        (None, Action::Replace)
    );
}

#[test]
fn network_without_routes_is_noted() {
    let nodes = "[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n[node.c]\n";
    let text = |pairs: &[&str]| format!("{nodes}{}", links(pairs, "1Mbps"));
    // Neighbours need no routes.
    let mut part = record(&text(&["a b", "b a"])).part;
    part.nodes.iter_mut().for_each(|node| node.routes.clear());
    assert_eq!(notes(&part), Vec::<String>::new());
    let mut part = record(&text(&["a b", "b c"])).part;
    assert_eq!(notes(&part), Vec::<String>::new());
    part.nodes.iter_mut().for_each(|node| node.routes.clear());
    assert_eq!(notes(&part), [NO_ROUTES]);
}
