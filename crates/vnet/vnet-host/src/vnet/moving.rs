//! Migrates running machines to another QEMU on this host.
//!
//! The new ports are made, and opened by the engine, before the machine moves. While the machine is
//! paused, the engine's links are switched to the new ports; the old ports are removed afterwards.
//! The loss is measured by echo requests at 1 kHz from a neighbour.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use carina_frame_engine::Graph;
use carina_vm::Migration;
use carina_vnet::host_part::{HostPart, NodePart};

use super::{Vnet, lock, source_towards};
use crate::error::{Error, Result};
use crate::graph::add_port_app;
use crate::making::remove_named;
use crate::names::end_of;
use crate::node::{Move, Node, forget_move};
use crate::port_selection::PortSelection;
use crate::watch::{EchoStream, Echoes};
use carina_vnet::host_part::LinkEnd;
use carina_vnet::report::MigrationReport;

/// What a migration changes: the ends of the node's links, and the ports that they use before and
/// after.
struct Change<'a> {
    part: &'a HostPart,
    wanted: &'a NodePart,
    ends: Vec<LinkEnd>,
    before: PortSelection,
    after: PortSelection,
}

impl Vnet {
    /// Migrates a running machine from its QEMU to a new one on this host, for instance after an
    /// upgrade of QEMU.
    ///
    /// # Errors
    /// There is no such node, it is no virtual machine, or the migration fails; the machine then
    /// continues in its old QEMU.
    pub(crate) fn migrate(&self, name: &str) -> Result<MigrationReport> {
        let began = Instant::now();
        // Locked until the migration has ended, so that no other change interferes.
        let part = lock(&self.part);
        let wanted = part.node(name).ok_or_else(|| self.no_node(name))?;
        let node = self.node(name)?;
        let machine = node.machine().ok_or_else(|| Error::Unsupported {
            what: format!("moving node {name}"),
            instead: "the node is a namespace: only virtual machines can move",
        })?;
        let ends = wanted.interfaces.iter();
        let ends: Vec<LinkEnd> = ends.map(|end| end_of(&part, name, end)).collect();
        let before = lock(&self.second).clone();
        let change = Change {
            part: &part,
            wanted,
            after: before.with_others(&ends),
            ends,
            before,
        };
        self.progress.tell(format!("node {name} moves"));
        let mut moving = machine.begin_move(wanted)?;
        let prepared = self.prepare_move(&mut moving, &change);
        let watch = self.watch_of(&part, wanted);
        let sent = prepared.and_then(|()| self.hand_over(&moving, &change));
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => {
                let restored = self.take_back(moving, &change);
                self.progress.tell(match &restored {
                    Ok(()) => format!("node {name} stays where it was: {error}"),
                    Err(other) => format!("node {name} is not moved: {error}; {other}"),
                });
                return Err(error);
            }
        };
        *lock(&self.second) = change.after.clone();
        let settled = self.finish_move(moving, &change, &node);
        let echoes = watch.map(|(from, stream)| (from, stream.end(LAST_ANSWERS)));
        settled?;
        let report = report(name, sent, began.elapsed(), echoes)?;
        self.progress.tell(report.to_string());
        Ok(report)
    }

    /// Begins to send 1000 echo requests per second from a namespace node to an address.
    ///
    /// # Errors
    /// There is no such node, or it is a machine.
    pub(crate) fn watch(&self, from: &str, to: Ipv4Addr) -> Result<EchoStream> {
        let own = {
            let part = lock(&self.part);
            let wanted = part.node(from).ok_or_else(|| self.no_node(from))?;
            source_towards(wanted, to)
        };
        let node = self.node(from)?;
        let namespace = node.namespace().ok_or_else(|| Error::Unsupported {
            what: format!("watching from node {from}"),
            instead: "a virtual machine cannot send echos at this rate",
        })?;
        EchoStream::begin(namespace, own, to)
    }

    /// The link ends that use their second port.
    pub(crate) fn port_selection(&self) -> PortSelection {
        lock(&self.second).clone()
    }

    /// Makes the new ports, lets the engine open them, and starts the new QEMU.
    fn prepare_move(&self, moving: &mut Move<'_>, change: &Change<'_>) -> Result<()> {
        // The engine closes what an earlier migration that was not completed has left.
        self.plane
            .become_graph(self.graph_at(change.part, &change.before)?)?;
        moving.prepare(&self.site(change.part, &change.after), change.wanted)?;
        self.plane
            .become_graph(self.graph_with(change, &change.before)?)
    }

    fn hand_over(&self, moving: &Move<'_>, change: &Change<'_>) -> Result<Migration> {
        let joined = self.graph_with(change, &change.after)?;
        let mut switched = Err(Error::Ended("the change of the engine"));
        let sent = moving.send(|| switched = self.plane.become_graph(joined))?;
        switched?;
        self.progress.check()?;
        moving.resume(&self.dir)?;
        Ok(sent)
    }

    /// The graph with links at the given ports, and with the apps of the ports before and after.
    fn graph_with(&self, change: &Change<'_>, ports: &PortSelection) -> Result<Graph> {
        let mut graph = self.graph_at(change.part, ports)?;
        for all in [&change.before, &change.after] {
            for end in &change.ends {
                add_port_app(&mut graph, *end, all);
            }
        }
        Ok(graph)
    }

    fn finish_move(&self, moving: Move<'_>, change: &Change<'_>, node: &Node) -> Result<()> {
        let site = self.site(change.part, &change.after);
        let rejoined = moving.finish(&site, node.console())?;
        self.plane
            .become_graph(self.graph_at(change.part, &change.after)?)?;
        remove_named(change.part, &ports(change, &change.before))?;
        forget_move(&self.dir, &change.wanted.name)?;
        if !self.switched_off().is_empty() {
            self.keep_off(change.part)?;
        }
        rejoined
    }

    fn take_back(&self, moving: Move<'_>, change: &Change<'_>) -> Result<()> {
        let back = self.graph_at(change.part, &change.before);
        let joined = back.and_then(|graph| self.plane.become_graph(graph));
        // The old QEMU may have ended by itself.
        let resumed = moving.give_up();
        joined?;
        remove_named(change.part, &ports(change, &change.after))?;
        forget_move(&self.dir, &change.wanted.name)?;
        resumed
    }

    /// Starts echo requests to the node from a neighbour that is a namespace on this host. Returns
    /// the neighbour's name with them; `None` if there is no such neighbour.
    fn watch_of(&self, part: &HostPart, wanted: &NodePart) -> Option<(String, EchoStream)> {
        wanted.interfaces.iter().find_map(|interface| {
            let mut links = part.links.iter();
            let link = links.find(|link| link.number == interface.link)?;
            let from = link
                .ends()
                .find(|end| end.node != wanted.name)?
                .node
                .clone();
            let neighbour = self.node(&from).ok()?;
            let (own, peer) = (interface.peer, interface.address.address());
            let stream = EchoStream::begin(neighbour.namespace()?, own, peer).ok()?;
            Some((from, stream))
        })
    }
}

fn ports(change: &Change<'_>, of: &PortSelection) -> Vec<String> {
    change.ends.iter().map(|end| of.port(*end)).collect()
}

fn report(
    node: &str,
    sent: Migration,
    total: Duration,
    echoes: Option<(String, Result<Echoes>)>,
) -> Result<MigrationReport> {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let mut report = MigrationReport {
        node: node.to_owned(),
        to: None,
        downtime_ms: Some(ms(sent.downtime)),
        total_ms: ms(total),
        watched_from: None,
        sent: 0,
        lost: None,
        gap_ms: None,
        is_made_anew: false,
    };
    if let Some((from, echoes)) = echoes {
        let echoes = echoes?;
        report.watched_from = Some(from);
        report.sent = echoes.sent;
        report.lost = Some(echoes.sent.saturating_sub(echoes.answered));
        report.gap_ms = Some(ms(echoes.gap));
    }
    Ok(report)
}

/// How long after the migration late replies are accepted.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
