//! Reports events of the data plane to `tracing`, on the manager's thread. The data-plane thread
//! only puts them into the mailbox.
//!
//! `docs/how-to/logging.md` lists the targets.

use tracing::{debug, info};

use crate::event::Event;

/// Reports an event that the manager has read.
pub(crate) fn event(event: &Event) {
    match event {
        Event::LinkUp { ipcp, peer } => {
            info!(target: "carina::dataplane", %ipcp, at = peer, "link up");
        }
        Event::LinkDown { ipcp, reason } => {
            info!(target: "carina::dataplane", %ipcp, reason, "link down");
        }
        Event::SduMaxChanged {
            ipcp,
            sdu_bytes_max,
        } => {
            info!(target: "carina::dataplane", %ipcp, sdu_bytes_max, "longest SDU changed");
        }
        Event::Registered { ipcp, name } => {
            debug!(target: "carina::dataplane", %ipcp, %name, "name registered");
        }
        Event::PeerRegistered { ipcp, name } => {
            debug!(target: "carina::dataplane", %ipcp, %name, "name reachable");
        }
        Event::PeerUnregistered { ipcp, name } => {
            debug!(target: "carina::dataplane", %ipcp, %name, "name unreachable");
        }
        Event::IncomingFlow {
            ipcp,
            port,
            local,
            remote,
            ..
        } => {
            debug!(target: "carina::dataplane", %ipcp, %port, %local, %remote, "flow requested");
        }
        Event::AllocateResult { port, result } => match result {
            Ok(()) => debug!(target: "carina::dataplane", %port, "flow opened"),
            Err(reason) => debug!(target: "carina::dataplane", %port, reason, "flow refused"),
        },
        Event::FlowClosed { port, reason } => {
            debug!(target: "carina::dataplane", %port, reason, "flow closed");
        }
        // The IPCP's own tracer reports these events.
        Event::Member { .. } => {}
    }
}
