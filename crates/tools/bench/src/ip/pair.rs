//! Two nodes in namespaces of their own, joined by veth pairs, with a member of `carina ip` each.
//!
//! ```text
//!   client -- tun -- member, node == n.DIF over lan1 (and lan2) == node, member -- tun -- server
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::control::{ClientError, DifCreate, DifExtend, DifRole, IpcpInfo, MemberState};
use carina_api::paths::RunDir;
use carina_api::{DifName, LocalName};
use carina_client::Node;
use carina_ip::{Address, IpSettings};
use carina_lab::{Network, TestNode};
use serde_json::json;

use super::site::{RunningMember, wait_for_members};
use crate::error::{Attempt, Error, Result};

/// What the DIF does with the PDUs between its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// Nothing: the PDUs cross the Ethernet as they are.
    None,
    /// Policy `aead` of `sdu-protection`: the PDUs are encrypted and authenticated.
    Aead,
}

/// Two nodes with their members. All of it ends when the value is dropped.
pub(super) struct Pair {
    // The members end before their nodes.
    _members: [RunningMember; 2],
    nodes: [TestNode; 2],
}

/// The links between the two nodes: veth pairs, whose ends have one name on both sides, which is
/// the name of their DIF too.
pub(super) const LINKS: [&str; 2] = ["lan1", "lan2"];

/// The server's address on the interface of its member.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 2);

impl Pair {
    /// Starts the nodes with both links. The DIF is over the first `over` of them. `label` is part
    /// of the names of the nodes, so that several pairs can exist at once.
    pub(super) fn start(label: &str, over: usize, protection: Protection) -> Result<Pair> {
        let start = |side| TestNode::start(&format!("ip-{label}-{side}"), Network::Own, None);
        let nodes = [start("a")?, start("b")?];
        for link in LINKS {
            nodes[0].connect(link, &nodes[1], link)?;
            for node in &nodes {
                node.add_eth(link, link)?;
            }
        }
        let roles = [DifRole::Create, DifRole::Join];
        for (node, role) in nodes.iter().zip(roles) {
            join(node, role, &LINKS[..over], protection)?;
        }
        for node in &nodes {
            for link in &LINKS[..over] {
                wait_for_neighbour(node, link)?;
            }
        }
        let members = [start_member(&nodes[0], 1)?, start_member(&nodes[1], 2)?];
        for node in &nodes {
            wait_for_members(&RunDir::new(node.path()), 1)?;
        }
        Ok(Pair {
            _members: members,
            nodes,
        })
    }

    /// The names of the two namespaces: the client's and the server's.
    pub(super) fn namespaces(&self) -> Result<[String; 2]> {
        let [a, b] = &self.nodes;
        Ok([namespace_of(a)?, namespace_of(b)?])
    }

    /// Takes a link down at the client's side.
    pub(super) fn take_down(&self, link: &str) -> Result<()> {
        Ok(self.nodes[0].ip(&["link", "set", link, "down"])?)
    }

    /// Moves the client from the first link to the second: adds the second to the DIF, waits until
    /// the nodes are neighbours over it, removes the first from the DIF, and takes it down.
    pub(super) fn move_client(&self) -> Result<()> {
        let extend = DifExtend {
            over: DifName::new(LINKS[1]).attempt("naming a DIF")?,
            via: None,
            ipcp: None,
        };
        for node in &self.nodes {
            let extended = node.control().extend_dif(DIF, &extend);
            answered("adding an N-1 DIF", extended)?;
        }
        for node in &self.nodes {
            wait_for_neighbour(node, LINKS[1])?;
        }
        let retracted = self.nodes[0].control().retract_dif(DIF, LINKS[0], None);
        answered("removing an N-1 DIF", retracted)?;
        self.take_down(LINKS[0])
    }
}

/// Creates or joins the DIF.
fn join(node: &TestNode, role: DifRole, over: &[&str], protection: Protection) -> Result<()> {
    let name = |text: &str| DifName::new(text).attempt("naming a DIF");
    let secret = node.path().join("password");
    let is_protected = protection == Protection::Aead;
    if is_protected {
        std::fs::write(&secret, "a password of a benchmark\n").attempt("writing a password")?;
    }
    let config = json!({"policies": {"sdu-protection": {"name": "aead"}}});
    let create = DifCreate {
        name: name(DIF)?,
        role,
        over: over.iter().map(|dif| name(dif)).collect::<Result<_>>()?,
        ipcp: Some(LocalName::new(format!("{DIF}.{}", node.name())).attempt("naming an IPCP")?),
        via: None,
        auth: is_protected.then(|| format!("password:{}", secret.display())),
        dialect: Default::default(),
        config: (is_protected && role == DifRole::Create).then_some(config),
    };
    let made = node.control().create_dif(&create);
    answered(
        &format!("making a member of {DIF} in {}", node.name()),
        made,
    )?;
    let is_enrolled = |ipcp: &IpcpInfo| {
        let state = ipcp.member.as_ref().map(|member| member.state);
        state == Some(MemberState::Enrolled)
    };
    wait_for(node, "be a member of the DIF", is_enrolled)
}

/// Waits until the other node is a neighbour over this N-1 DIF.
fn wait_for_neighbour(node: &TestNode, over: &str) -> Result<()> {
    wait_for(node, &format!("have a neighbour over {over}"), |ipcp| {
        let mut n1s = ipcp.member.iter().flat_map(|member| &member.n1);
        n1s.any(|n1| n1.dif.as_str() == over && n1.neighbour.is_some())
    })
}

/// Waits until the node's member of the DIF is as it must be.
fn wait_for(node: &TestNode, what: &str, is_it: impl Fn(&IpcpInfo) -> bool) -> Result<()> {
    let deadline = Instant::now() + START;
    loop {
        let ipcps = answered("listing IPCPs", node.control().ipcps())?;
        if ipcps
            .iter()
            .any(|ipcp| ipcp.dif.as_str() == DIF && is_it(ipcp))
        {
            return Ok(());
        }
        if Instant::now() > deadline {
            let text = format!("node {} does not {what}", node.name());
            return Err(Error::NoAnswer(text).with(node.logs()));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The answer of a node to a request, with what was requested in an error.
fn answered<T>(what: &str, answer: std::result::Result<T, ClientError>) -> Result<T> {
    answer.map_err(|error| Error::Client(format!("{what}: {error}")))
}

fn start_member(node: &TestNode, last: u8) -> Result<RunningMember> {
    let dif = DifName::new(DIF).attempt("naming a DIF")?;
    let address = Address {
        address: Ipv4Addr::new(10, 9, 9, last).into(),
        bits: 24,
    };
    let settings = IpSettings {
        tun: "ip0".to_owned(),
        netns: Some(namespace_of(node)?.into()),
        ..IpSettings::new(dif, address)
    };
    let run = RunDir::new(node.path());
    let client = Node::connect_to(run.ipc_sock()).attempt("reaching the node")?;
    RunningMember::start(client, &run, settings)
}

/// The name of a node's namespace.
fn namespace_of(node: &TestNode) -> Result<String> {
    let launcher = node.namespace().map(|namespace| namespace.launcher());
    // The second word is `--net=/run/netns/NAME`.
    let name = launcher
        .as_ref()
        .and_then(|words| Path::new(&words[1]).file_name());
    let missing = || Error::NoAnswer(format!("node {} has no namespace", node.name()));
    Ok(name.ok_or_else(missing)?.to_string_lossy().into_owned())
}

const DIF: &str = "n";
/// How long nodes and members may take to find each other.
const START: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
