//! Makes a node a member of its network's DIF: runs a Carina node inside it, with a shim IPCP for
//! each link that is a flow.
//!
//! ```text
//!   node left                            node right
//!   +------------------+                 +------------------+
//!   | echo server left |                 | echo server right|
//!   | member left  ----|---- DIF NAME ---|---- member right |
//!   | shim link.0      |   DIF link.0    |      shim link.0 |
//!   | eth0             |==== link 0 =====|             eth0 |
//!   +------------------+                 +------------------+
//! ```
//!
//! All of this is done by commands inside the node, which are the same in a virtual machine and in
//! a namespace. For a namespace, `CARINA_RUN` names the directory of the Carina node's sockets; in
//! a machine they are at the default place.

use std::fmt::Write;
use std::time::Duration;

use carina_api::control::{DifRole, IpcpInfo, MemberInfo, MemberState, N1State};
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{Far, HostPart, InterfacePart, NodePart};
use carina_vnet_access::passage::SHIM_PORT;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::node::{Arrived, Node, Output};

/// Name of the shim DIF over a link. It has one member at each end.
pub(crate) fn link_dif(link: u32) -> String {
    format!("link.{link}")
}

/// The links of a node with carrier `dif`, each with the node's interface.
fn flows<'a>(whole: &'a HostPart, node: &'a NodePart) -> impl Iterator<Item = (u32, &'a str)> {
    let is_flow = |link: u32| {
        let mut links = whole.links.iter();
        links.any(|candidate| candidate.number == link && candidate.carrier == Carrier::Dif)
    };
    let interfaces = node.interfaces.iter();
    interfaces
        .filter(move |interface| is_flow(interface.link))
        .map(|interface| (interface.link, interface.name.as_str()))
}

/// Name of the shim DIF for an access point's users: over UDP, through their tunnels.
fn users_dif(access: &str) -> String {
    format!("users.{access}")
}

/// The access points at a node, each with the node's interface.
fn access_points<'a>(
    whole: &'a HostPart,
    node: &'a NodePart,
) -> impl Iterator<Item = (&'a str, &'a InterfacePart)> {
    let access_of = |link: u32| {
        let found = whole.link(link);
        match &found?.far {
            Far::Users(users) => Some(users.access.as_str()),
            _ => None,
        }
    };
    let interfaces = node.interfaces.iter();
    interfaces.filter_map(move |interface| Some((access_of(interface.link)?, interface)))
}

/// The configuration file of a node's Carina node. Without a role the Carina node has no IPCPs.
pub(crate) fn configuration(whole: &HostPart, node: &NodePart, role: Option<DifRole>) -> String {
    let mut text = format!("[node]\nname = \"{}\"\nloopback = false\n", node.name);
    let word = match role {
        None => return text,
        Some(DifRole::Create) => "create",
        Some(DifRole::Join) => "join",
    };
    let mut over = Vec::new();
    for (link, interface) in flows(whole, node) {
        let dif = link_dif(link);
        let _ = write!(
            text,
            "\n[[ipcp]]\nname = \"{dif}\"\ntype = \"eth\"\ndif = \"{dif}\"\n\
             interface = \"{interface}\"\nvlan = 0\n"
        );
        over.push(format!("\"{dif}\""));
    }
    for (access, interface) in access_points(whole, node) {
        let (dif, address) = (users_dif(access), interface.address.address());
        let _ = write!(
            text,
            "\n[[ipcp]]\nname = \"{dif}\"\ntype = \"udp\"\ndif = \"{dif}\"\n\
             listen = \"{address}:{SHIM_PORT}\"\nsdu_max = {USERS_SDU_MAX}\n"
        );
        over.push(format!("\"{dif}\""));
    }
    let _ = write!(
        text,
        "\n[[dif]]\nname = \"{}\"\nrole = \"{word}\"\nover = [{}]\nipcp = \"{}\"\n",
        whole.name,
        over.join(", "),
        node.name
    );
    text
}

/// Starts the Carina node inside a node, or applies the configuration if it already runs.
///
/// # Errors
/// The Carina node refuses, or does not start within [`START`].
pub(crate) fn configure(node: &Node, configuration: &str) -> Result<()> {
    let seconds = START.as_secs();
    let script = format!(
        "d=${{CARINA_RUN:-/run/carina}}\n\
         mkdir -p \"$d\" && cat >\"$d/vnet.toml\" <<'END' || exit 1\n{configuration}END\n\
         if carina ipcp list >/dev/null 2>&1; then\n\
         exec carina apply \"$d/vnet.toml\" >/dev/null; fi\n\
         setsid carina node --config \"$d/vnet.toml\" >\"$d/node.log\" 2>&1 </dev/null &\n\
         carina --wait {seconds}s ipcp list >/dev/null 2>&1 && exit 0\n\
         tail -n 5 \"$d/node.log\" >&2; exit 1\n"
    );
    done(node, "making a member of the DIF", &script, START + ANSWER).map(drop)
}

/// The state of a node's member in `dif`; `None` if no Carina node answers or it has no such
/// member.
///
/// # Errors
/// The node does not answer.
pub(crate) fn member_info(node: &Node, dif: &str) -> Result<Option<MemberInfo>> {
    read(&node.run("carina --json ipcp list", LOOK)?, dif)
}

/// Like [`member_info`]; also starts the echo server under the node's name in the DIF, unless it
/// runs already.
///
/// # Errors
/// The node does not answer.
pub(crate) fn look_and_serve(node: &Node, dif: &str) -> Result<Option<MemberInfo>> {
    let name = node.name();
    let script = format!(
        "carina --json ipcp list || exit 1\n\
         e=${{CARINA_RUN:-/run/carina}}/echo\n\
         [ -f \"$e.pid\" ] && kill -0 \"$(cat \"$e.pid\")\" 2>/dev/null && exit 0\n\
         setsid carina ping --listen {name} --dif {dif} -q >\"$e.log\" 2>&1 </dev/null &\n\
         echo $! >\"$e.pid\"\n"
    );
    read(&node.run(&script, LOOK)?, dif)
}

/// Ends the Carina node inside a node that no longer needs a member, and waits for its end; kills
/// it if that takes more than some seconds.
///
/// # Errors
/// The node does not answer within `limit`.
pub(crate) fn end(node: &Node, limit: Duration) -> Result<()> {
    let script = "d=${CARINA_RUN:-/run/carina}\n\
                  for f in \"$d/echo.pid\" \"$d/lock\"; do\n\
                  [ -f \"$f\" ] || continue\n\
                  p=$(cat \"$f\"); kill \"$p\" 2>/dev/null || continue\n\
                  n=0; while kill -0 \"$p\" 2>/dev/null; do\n\
                  [ $n -lt 50 ] || { kill -9 \"$p\" 2>/dev/null; break; }\n\
                  n=$((n + 1)); sleep 0.1; done; done; exit 0\n";
    node.run(script, limit).map(drop)
}

/// Round trip of an echo to an application name in the DIF.
///
/// # Errors
/// No reply comes within `limit`.
pub(crate) fn ping(from: &Node, to: &str, dif: &str, limit: Duration) -> Result<Duration> {
    let wait = limit.as_millis().max(1);
    let script = format!("carina --json --wait {wait}ms ping {to} --dif {dif} -c 1 -q -W {wait}ms");
    let output = from.run(&script, limit + ANSWER)?;
    let round_trip = output.is_success().then(|| round_trip_in(&output.stdout));
    round_trip.flatten().ok_or_else(|| Error::NoEcho {
        to: to.to_owned(),
        from: from.name().to_owned(),
        dif: dif.to_owned(),
        output: output.error_text(),
    })
}

/// Sends SDUs from one node to another over a flow of the DIF for some time, and returns what
/// arrived.
///
/// # Errors
/// No flow is allocated within `limit`, or it breaks.
pub(crate) fn stream(
    [from, to]: [&Node; 2],
    dif: &str,
    time: Duration,
    limit: Duration,
) -> Result<Arrived> {
    let name = format!("{}.perf", to.name());
    let seconds = (time + limit).as_secs().max(1);
    let serving = format!("exec timeout {seconds} carina perf --listen {name} --dif {dif} --once");
    let sending = format!(
        "carina --json --wait {}s perf {name} --dif {dif} -t {}ms",
        limit.as_secs(),
        time.as_millis()
    );
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| to.run(&serving, time + limit + ANSWER));
        let sent = from.run(&sending, time + limit + ANSWER)?;
        let served = serves
            .join()
            .unwrap_or(Err(Error::Ended("who takes the SDUs")))?;
        arrived_in(&sent.stdout).ok_or_else(|| Error::NodeCommand {
            node: from.name().to_owned(),
            command: sending.clone(),
            status: sent.status,
            output: format!("{} {}", sent.error_text(), served.error_text()),
        })
    })
}

/// The neighbour that a member has over the shim DIF of a link: the node at the link's other end.
///
/// # Errors
/// Why there is no such neighbour.
pub(crate) fn neighbour(
    member: Option<&MemberInfo>,
    link: u32,
) -> std::result::Result<String, String> {
    let member = member.ok_or("no Carina node answers in the node")?;
    if member.state != MemberState::Enrolled {
        let why = member.last_error.clone().unwrap_or_default();
        return Err(format!(
            "it is no member of the DIF yet: {} {why}",
            member.step
        ));
    }
    let dif = link_dif(link);
    let flows = member.n1.iter().filter(|flow| flow.dif.as_str() == dif);
    let mut reason = "there is no flow of it yet".to_owned();
    for flow in flows {
        match &flow.neighbour {
            Some(neighbour) if flow.state == N1State::Up => return Ok(neighbour.to_string()),
            _ => reason = flow.reason.clone().unwrap_or(reason),
        }
    }
    Err(reason)
}

fn read(output: &Output, dif: &str) -> Result<Option<MemberInfo>> {
    if !output.is_success() {
        return Ok(None);
    }
    let ipcps: Vec<IpcpInfo> = serde_json::from_slice(&output.stdout).map_err(|source| {
        let what = "reading what a Carina node says".to_owned();
        Error::Json { what, source }
    })?;
    let found = ipcps.into_iter().find(|ipcp| ipcp.dif.as_str() == dif);
    Ok(found.and_then(|ipcp| ipcp.member))
}

fn done(node: &Node, what: &str, script: &str, limit: Duration) -> Result<Output> {
    let output = node.run(script, limit)?;
    if output.is_success() {
        Ok(output)
    } else {
        Err(Error::NodeCommand {
            node: node.name().to_owned(),
            command: what.to_owned(),
            status: output.status,
            output: output.error_text(),
        })
    }
}

/// The round trip in the output of `carina --json ping` with one echo; `None` if there is no valid
/// one.
fn round_trip_in(json: &[u8]) -> Option<Duration> {
    let report: Value = serde_json::from_slice(json).ok()?;
    let us = report.get("rtt_us")?.get("min")?.as_f64()?;
    let is_possible = (0.0..=MICROSECONDS_MAX).contains(&us);
    is_possible.then(|| Duration::from_secs_f64(us / 1e6))
}

/// What the receiver got, in the output of `carina --json perf` with one measurement.
fn arrived_in(json: &[u8]) -> Option<Arrived> {
    let report: Value = serde_json::from_slice(json).ok()?;
    let seen = report.get("results")?.get(0)?.get("server")?;
    let bytes = seen.get("timed_bytes")?.as_u64()?;
    let time = Duration::from_nanos(seen.get("elapsed_ns")?.as_u64()?);
    (bytes > 0 && !time.is_zero()).then_some(Arrived { bytes, time })
}

/// Largest SDU of the users' shim, bytes: the same as for a link's shim, so that an access point
/// can be added to an existing DIF. Longer packets than a tunnel carries are fragmented by IP.
const USERS_SDU_MAX: u32 = 1500;
/// Longest time for a Carina node to start; emulation is slow.
const START: Duration = Duration::from_secs(60);
/// Longest time for a running Carina node to answer.
pub(crate) const LOOK: Duration = Duration::from_secs(30);
/// Time after its own limit within which a command in a node must return.
const ANSWER: Duration = Duration::from_secs(30);
const MICROSECONDS_MAX: f64 = 3.6e9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn member_is_over_the_links_that_are_flows() {
        let part = part(&["a b dif", "b c gre", "a b dif"]);
        let node = part.node("b").unwrap();
        assert_eq!(node.founder.as_deref(), Some("a"));
        let text = configuration(&part, node, Some(DifRole::Join));
        for want in [
            "dif = \"link.0\"\ninterface = \"eth0\"\nvlan = 0\n",
            "dif = \"link.2\"\ninterface = \"eth2\"\nvlan = 0\n",
            "name = \"x\"\nrole = \"join\"\nover = [\"link.0\", \"link.2\"]\nipcp = \"b\"\n",
        ] {
            assert!(text.contains(want), "{want} is not in {text}");
        }
        assert!(!text.contains("link.1"), "{text}");
        assert!(!configuration(&part, node, None).contains("[["));
        assert_eq!(part.node("c").unwrap().founder, None);
    }

    #[test]
    fn what_commands_in_a_node_say_is_read() {
        let report = br#"{"name":"b","sent":1,"rtt_us":{"min":1500.0,"max":2000.0}}"#;
        assert_eq!(round_trip_in(report), Some(Duration::from_micros(1500)));
        let report = br#"{"results":[{"server":{"timed_bytes":1250000,"elapsed_ns":1000000000}}]}"#;
        assert_eq!(arrived_in(report).unwrap().bps(), 1e7);
        for wrong in [&b""[..], b"{}", br#"{"rtt_us":{"min":-1}}"#] {
            assert_eq!((round_trip_in(wrong), arrived_in(wrong)), (None, None));
        }
    }

    #[test]
    fn link_without_a_flow_says_why() {
        assert!(neighbour(None, 0).unwrap_err().contains("no Carina node"));
        let mut member: MemberInfo = serde_json::from_str(
            r#"{"role": "join", "over": [], "state": "joining", "step": "it asks", "failures": 0,
                "neighbours": [], "n1": [{"dif": "link.3", "remote": "x", "neighbour": "a",
                "state": "up"}]}"#,
        )
        .unwrap();
        assert!(neighbour(Some(&member), 3).unwrap_err().contains("it asks"));
        member.state = MemberState::Enrolled;
        assert_eq!(neighbour(Some(&member), 3), Ok("a".to_owned()));
        assert!(neighbour(Some(&member), 4).unwrap_err().contains("no flow"));
        member.n1[0].state = N1State::Wanted;
        member.n1[0].reason = Some("the link is down".to_owned());
        assert!(neighbour(Some(&member), 3).unwrap_err().contains("is down"));
    }
}
