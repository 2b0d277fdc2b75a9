//! Running nodes that are sent to another host.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_vm::DiskSocket;
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::message::{MoveState, SendNode};
use carina_vnet_images::ImageStore;

use super::{Vnet, lock};
use crate::error::{Attempt, Error, Result};
use crate::guest_wire::with_disk::{Relayed, send_both};
use crate::guest_wire::{self, GuestWire, Offer, Reply, Sent};
use crate::node::{Move, arrival_notes, away, forget_arrival, forget_away, note_away, stay};

/// The result of sending a virtual machine to another host.
enum Ending {
    /// This host believes that the destination has received the node; the provider decides on which
    /// of the two hosts the node runs.
    Away,
    /// The node was not sent, and continues on this host.
    Here(Error),
}

impl Vnet {
    /// Sends a node over a connection to the agent of another host. Afterwards the node is paused
    /// on both hosts. The network's progress shows the state of the move.
    pub(crate) fn send_node(&self, vnet: VnetId, order: &SendNode, wire: Result<GuestWire>) {
        let (name, number) = (&order.node, order.number);
        self.progress
            .tell(format!("node {name} moves to host {}", order.to));
        let sent = wire.and_then(|mut wire| self.try_send(vnet, order, &mut wire));
        let error = match sent {
            Ok(Ending::Away) => return self.progress.tell(format!("node {name} was sent")),
            Ok(Ending::Here(error)) | Err(error) => error,
        };
        self.lead_back(&lock(&self.part));
        let stayed = stay(&self.dir, name);
        self.progress.tell(match stayed {
            Ok(()) => format!("node {name} stays where it was: {error}"),
            Err(other) => format!("node {name} is not sent: {error}; {other}"),
        });
        let reason = error.to_string();
        self.progress
            .set_move(number, Some(MoveState::Failed { reason }));
    }

    /// Tries to send the node. An error means that nothing was sent yet.
    fn try_send(&self, vnet: VnetId, order: &SendNode, wire: &mut GuestWire) -> Result<Ending> {
        // Locked until the node is sent, so that no other change interferes.
        let part = lock(&self.part);
        let name = &order.node;
        let wanted = part.node(name).ok_or_else(|| self.no_node(name))?;
        let node = self.node(name)?;
        let machine = node.machine().ok_or_else(|| Error::Unsupported {
            what: format!("moving node {name}"),
            instead: "the node is a namespace: only virtual machines can move",
        })?;
        let moving = machine.begin_move(wanted)?;
        let what = || format!("sending node {name} to host {}", order.to);
        let store = ImageStore::of_this_host();
        let disk = moving
            .has_disk()
            .then(|| store.moving_disk(part.vnet, wanted));
        let offer = Offer {
            vnet,
            number: order.number,
            node: name.clone(),
            hardware: moving.hardware().clone(),
            cards: moving.cards_of(wanted),
            disk: disk.transpose()?,
        };
        guest_wire::write(wire, &offer).attempt(what())?;
        answer(wire, &order.to)?;
        let ahead = self.prepare_leaving(&part, &order.part, name)?;
        note_away(&self.dir, name, order.number)?;
        let mut led = Ok(());
        let at_stop = || led = self.plane.become_graph(ahead);
        let limit = Duration::from_millis(order.limit_ms);
        let stood = if moving.has_disk() {
            let socket = moving.disk_socket(&part, order.number)?;
            send_with_disk(
                (&moving, at_stop),
                &socket,
                wire,
                limit,
                (&what(), &order.to),
            )?
        } else {
            send((&moving, at_stop), wire, limit, &what())?
        };
        if let Err(error) = led {
            // The next part does it.
            self.progress
                .tell(format!("links of node {name} are redirected late: {error}"));
        }
        let paused_us = u64::try_from(stood.as_micros()).unwrap_or(u64::MAX);
        // From here on the destination may have the complete node, whatever fails.
        let sent = guest_wire::write(wire, &Sent { paused_us });
        Ok(
            match sent.attempt(what()).and_then(|()| answer(wire, &order.to)) {
                Err(error @ Error::Peer { .. }) => Ending::Here(error),
                Ok(()) | Err(_) => Ending::Away,
            },
        )
    }

    /// Splits nodes that end into those that were sent to another host, and the others.
    pub(super) fn apart_by_sending<'a>(
        &self,
        part: &HostPart,
        ended: &'a [String],
    ) -> Result<(Vec<&'a String>, Vec<&'a String>)> {
        let sent = away(&self.dir)?;
        let is_sent = |name: &&String| {
            part.node(name).is_none() && sent.iter().any(|(node, _)| node == *name)
        };
        Ok(ended.iter().partition(is_sent))
    }

    /// Ends nodes. Removes the disks of those that `part` does not have.
    pub(super) fn end_nodes(&self, part: &HostPart, names: &[&String]) -> Result<()> {
        for name in names {
            if let Some(node) = self.take(name) {
                node.remove()?;
                if part.node(name).is_none() {
                    ImageStore::of_this_host().remove_disks(part.vnet, name, &[])?;
                }
                self.progress.tell(format!("node {name} is removed"));
            }
        }
        Ok(())
    }

    /// Ends a move, whether it was completed or given up. A node that was to be sent resumes if it
    /// is still here; an awaited node is not awaited any more. While a node is being sent this does
    /// nothing; the provider repeats the order.
    ///
    /// # Errors
    /// A QEMU cannot be ended, or refuses to resume.
    pub(crate) fn end_move(&self, number: u64) -> Result<()> {
        let Ok(part) = self.part.try_lock() else {
            return Ok(());
        };
        for (node, of) in away(&self.dir)? {
            if of == number {
                match part.node(&node) {
                    Some(_) => {
                        self.lead_back(&part);
                        stay(&self.dir, &node)?;
                    }
                    None => forget_away(&self.dir, &node)?,
                }
                self.progress.tell(format!("node {node} stays here"));
            }
        }
        self.await_no_longer(&part, number)?;
        // Notes of machines whose QEMU and agent have ended after they had arrived.
        for note in arrival_notes(&self.dir)? {
            if note.number == number {
                if part.node(&note.node).is_none() {
                    note.remove_disk(&part)?;
                }
                forget_arrival(&self.dir, &note.node)?;
            }
        }
        self.progress.set_move(number, None);
        Ok(())
    }
}

/// Sends QEMU's data, and returns how long the guest has been paused. Calls `at_stop` when the
/// guest pauses.
fn send(
    (moving, at_stop): (&Move<'_>, impl FnOnce()),
    wire: &mut GuestWire,
    limit: Duration,
    what: &str,
) -> Result<Duration> {
    let (qemu, mut near) = UnixStream::pair().attempt(what)?;
    near.set_read_timeout(Some(limit)).attempt(what)?;
    std::thread::scope(|scope| {
        // The thread ends when QEMU closes its end, or when the connection fails.
        let relay = scope.spawn(move || {
            let sent = guest_wire::send_pieces(&mut near, wire);
            drop(near);
            sent
        });
        let sent = moving.send_into(qemu, None, limit, at_stop);
        let relayed = relay.join().unwrap_or_else(|_| {
            let what = "the relay of the guest has ended";
            Err(std::io::Error::other(what))
        });
        // The error of the connection explains more than QEMU's.
        relayed.attempt(what)?;
        Ok(sent?.downtime)
    })
}

/// Like [`send`], and first sends the disk. From then on, each write of the guest goes to both
/// disks.
fn send_with_disk(
    (moving, at_stop): (&Move<'_>, impl FnOnce()),
    socket: &DiskSocket,
    wire: &mut GuestWire,
    limit: Duration,
    (what, host): (&str, &str),
) -> Result<Duration> {
    let (qemu, near) = UnixStream::pair().attempt(what)?;
    let longest = limit + MARGIN;
    near.set_read_timeout(Some(longest)).attempt(what)?;
    let until = Instant::now() + longest;
    let has_ended = AtomicBool::new(false);
    let (sent, relayed) = std::thread::scope(|scope| {
        let relay = scope.spawn(|| {
            let disk = socket.accept(limit, || has_ended.load(Ordering::Acquire))?;
            let relayed = send_both(&near, &disk, wire, until);
            socket.hang_up();
            relayed
        });
        let sent = moving.send_into(qemu, Some(socket), limit, at_stop);
        has_ended.store(true, Ordering::Release);
        if sent.is_err() {
            // A migration that goes on fails, and the relay ends. QEMU may have closed its end.
            let _ = near.shutdown(Shutdown::Both);
        }
        let relayed = relay.join().unwrap_or_else(|_| {
            let what = "the relay of the guest has ended";
            Err(std::io::Error::other(what))
        });
        (sent, relayed)
    });
    match (sent, relayed) {
        (Ok(sent), Ok(_)) => Ok(sent.downtime),
        (Err(error), Ok(Relayed::Refused)) => {
            // The reason of the other host explains more than QEMU's.
            answer(wire, host)?;
            Err(error)
        }
        (Err(error), _) => Err(error),
        (Ok(_), Err(error)) => Err(error).attempt(what),
    }
}

fn answer(wire: &mut GuestWire, host: &str) -> Result<()> {
    match guest_wire::read(wire).attempt(format!("awaiting the answer of host {host}"))? {
        Reply::Ready => Ok(()),
        Reply::Refused(reason) => Err(Error::Peer {
            host: host.to_owned(),
            reason,
        }),
    }
}

/// How much longer than the move the relay of a guest and its disk may wait for the end.
const MARGIN: Duration = Duration::from_secs(30);
