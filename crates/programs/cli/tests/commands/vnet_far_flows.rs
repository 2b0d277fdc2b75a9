//! Tests of networks of two providers, with links that are tunnels or flows of a DIF.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::providers::{Providers, is_root};

/// A document with a row of nodes: one at a provider, which creates the DIF if there is one, and
/// two at the other provider.
fn row(carrier: &str, kind: &str) -> String {
    let link =
        |ends: &str| format!("[[link]]\nends = [{ends}]\nrate = \"50Mbps\"\nas = \"{carrier}\"\n");
    format!(
        "[vnet]\nname = \"row\"\non_insufficient = \"queue 2m\"\n\
         [defaults]\nkind = \"{kind}\"\nmemory = 256\n\
         [node.a]\nlocation = [\"london\"]\n[node.b]\nlocation = [\"berlin\"]\n\
         [node.c]\nlocation = [\"berlin\"]\n{}{}\
         [[test]]\nping = [\"a\", \"c\"]\nrtt_max = \"5s\"\n\
         [[test]]\nthroughput = [\"a\", \"c\"]\nrate_min = \"500kbps\"\n",
        link("\"a\", \"b\""),
        link("\"b\", \"c\"")
    )
}

fn up(providers: &Providers, text: &str) {
    let file = providers.path("row.toml");
    std::fs::write(&file, text).unwrap();
    providers.wait("the VNO", || providers.ask(|client| client.list()).ok());
    let output = providers.command(&["up", &file]);
    assert!(output.status.success(), "{output:?}\n{}", providers.logs());
}

fn down(providers: &Providers) {
    let uids = providers.uids();
    let output = providers.command(&["down", "--all"]);
    assert!(output.status.success(), "{output:?}");
    providers.wait_until_gone("row", &uids);
}

/// Checks that hold for every carrier of links.
fn passes_the_checks(providers: &Providers, mtu: u32) {
    let tested = providers.command(&["test"]);
    assert!(tested.status.success(), "{tested:?}\n{}", providers.logs());
    let printed: Value = serde_json::from_slice(&tested.stdout).unwrap();
    assert_eq!(
        printed[0]["seen"], "probes have passed 2 links",
        "{printed}"
    );
    let tests = printed.as_array().unwrap();
    assert!(tests.iter().all(|test| test["holds"] == true), "{printed}");
    assert_eq!(tests.len(), 3, "{printed}");
    // The guest's interfaces have this MTU, and packets of this length pass both links
    // unfragmented.
    let links = inside(providers, "b", "ip link show");
    let told = format!("mtu {mtu} ");
    assert_eq!(links.matches(&told).count(), 2, "{links}");
    let bytes = mtu - 28;
    let ping = format!("busybox ping -c 2 -W 30 -s {bytes} 10.0.0.6");
    let printed = inside(providers, "a", &ping);
    assert!(printed.contains("2 packets received"), "{printed}");
}

fn inside(providers: &Providers, node: &str, command: &str) -> String {
    let output = providers.command_inside("exec", &[node, "sh", "-c", command], b"");
    assert!(output.status.success(), "{output:?}\n{}", providers.logs());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(providers: &Providers, agent: &str, words: &[&str]) -> Value {
    let output = providers.at_host(agent, words);
    // A command that fails prints its failure after the result.
    let mut printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let first = printed.next().and_then(Result::ok);
    first.unwrap_or_else(|| panic!("{words:?}: {output:?}"))
}

/// The state of the link between the providers, as reported by an agent: up, or the reason why it
/// is down.
fn far_link(providers: &Providers, agent: &str) -> Option<Result<(), String>> {
    let output = providers.at_host(agent, &["vnet", "status"]);
    let printed: Value = serde_json::from_slice(&output.stdout).ok()?;
    let mut links = printed["links"].as_array()?.iter();
    let far = links.find(|link| {
        link["ends"][1]
            .as_str()
            .is_some_and(|end| end.contains("host"))
    })?;
    match far["state"].as_str() {
        Some("up") => Some(Ok(())),
        _ => Some(Err(far["state"]["down"]["reason"].as_str()?.to_owned())),
    }
}

/// Waits until the link is down for a reason that contains one of the words. An echo that was on
/// its way may first cause another reason.
fn wait_until_down(providers: &Providers, agent: &str, words: &[&str]) {
    providers.wait(&format!("the link is down: {words:?}"), || {
        let why = far_link(providers, agent)?.err()?;
        words.iter().any(|word| why.contains(word)).then_some(())
    });
}

fn wait_until_up(providers: &Providers, agent: &str) {
    providers.wait("the link is up", || far_link(providers, agent)?.ok());
}

fn kill_process_of(lock: &Path) {
    let pid = std::fs::read_to_string(lock).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn same_file_passes_the_same_checks_over_two_providers() {
    if !is_root() {
        return;
    }
    let mut providers = Providers::start("far");
    for (carrier, mtu) in [
        ("ipip", 1480),
        ("gre", 1458),
        ("vxlan", 1450),
        ("dif", 1400),
    ] {
        up(&providers, &row(carrier, "namespace"));
        passes_the_checks(&providers, mtu);
        if carrier != "dif" {
            down(&providers);
        }
    }
    // Nodes reach each other by name, from one provider to the other.
    let printed = inside(&providers, "a", "carina ping c -c 2");
    assert!(printed.contains("PING c in row"), "{printed}");
    // The people who run a host see where the link leads, and can trace echo requests into it.
    let places = json(&providers, "agent h1", &["vnet", "where", "a"]);
    let path = places[0]["ways"]["eth0"].as_str().unwrap();
    assert!(path.starts_with("host h2 by flow link."), "{path}");
    assert!(path.ends_with(" of DIF 10.9.0.1-10.9.1.1"), "{path}");
    // On a busy machine an echo reply may arrive too late.
    let trace = providers.wait("an answer to each echo", || {
        let trace = json(&providers, "agent h1", &["vnet", "trace", "a", "10.0.0.6"]);
        (trace["answered"] == 3).then_some(trace)
    });
    let places: Vec<&str> = trace["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["end"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["a:eth0", "a:eth0"]);
    is_impaired_and_captured(&providers);
    goes_down_and_comes_back(&mut providers);
    // When the last link is removed, the nodes of both hosts end.
    down(&providers);
    for agent in ["agent h1", "agent h2"] {
        let run = providers.host_node(agent);
        let run = run.to_str().unwrap();
        providers.wait("the node of the host ends", || {
            let asked = providers.at_host(agent, &["--run", run, "ipcp", "list"]);
            (!asked.status.success()).then_some(())
        });
    }
}

fn is_impaired_and_captured(providers: &Providers) {
    let done = |words: &[&str]| {
        let output = providers.at_host("agent h1", words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    let file = providers.path("a.pcapng");
    done(&["vnet", "capture", "a:eth0", "--for", "2s", "--write", &file]);
    assert!(std::fs::metadata(&file).unwrap().len() > 100);
    // The delay applies in both directions: frames from the other host are delayed before they
    // reach the port.
    done(&["vnet", "impair", "a:eth0", "delay=50ms"]);
    let trace = providers.wait("an echo over the late link", || {
        let trace = json(providers, "agent h1", &["vnet", "trace", "a", "10.0.0.6"]);
        trace["rtt_ns"].is_u64().then_some(trace)
    });
    assert!(trace["rtt_ns"].as_u64().unwrap() > 100_000_000, "{trace}");
    done(&["vnet", "impair", "a:eth0", "--clear"]);
}

fn goes_down_and_comes_back(providers: &mut Providers) {
    // The agent of the other host is killed, and with it the member there.
    providers.kill("agent h2");
    wait_until_down(providers, "agent h1", &["10.9.1.1", "has ended"]);
    let trace = json(providers, "agent h1", &["vnet", "trace", "a", "10.0.0.6"]);
    assert_eq!(trace["answered"], 0, "{trace}");
    let found = trace["findings"].to_string();
    assert!(
        found.contains("link 0") && found.contains("flow"),
        "{found}"
    );
    providers.begin("agent h2");
    for agent in ["agent h1", "agent h2"] {
        wait_until_up(providers, agent);
    }
    // Only the Carina node of the first member is killed: the DIF is created again.
    kill_process_of(&providers.host_node("agent h1").join("lock"));
    wait_until_down(providers, "agent h1", &[""]);
    for agent in ["agent h1", "agent h2"] {
        wait_until_up(providers, agent);
    }
    passes_the_checks(providers, 1400);
}

#[test]
fn machines_of_two_providers_are_members_of_one_dif() {
    if !is_root() {
        return;
    }
    let providers = Providers::start("vms");
    up(&providers, &row("dif", "vm"));
    passes_the_checks(&providers, 1400);
    // The VM that created the DIF, of which the other provider has a member.
    let places = json(&providers, "agent h1", &["vnet", "where", "a"]);
    let pid = places[0]["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait_until_down(&providers, "agent h1", &["node a has ended"]);
    for agent in ["agent h1", "agent h2"] {
        wait_until_up(&providers, agent);
    }
    providers.wait_until("row", |seen| seen.standing.is_ready());
    passes_the_checks(&providers, 1400);
    down(&providers);
}
