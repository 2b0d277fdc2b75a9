//! An end of a flow, as the node delivers it to an application.

use std::os::fd::OwnedFd;
use std::time::Instant;

use carina_api::ipc::{self, Flow, FlowNotice, Mode};
use carina_ring::WakeMode;
use carina_ring::channel::{Endpoint, Side};
use carina_sys::{recv_with_fds, send_with_fds};

use super::{PATIENCE, PATIENCE_MS, SLICE_MS, readable};

fn taken_from(end: &mut Endpoint) -> Option<Vec<u8>> {
    let lease = end.rx.next().unwrap()?;
    let mut sdu = vec![0; lease.len()];
    lease.copy_to(&mut sdu);
    drop(lease);
    end.release();
    Some(sdu)
}

/// An end of a flow that the node has delivered.
pub(crate) struct Taken {
    pub flow: Flow,
    /// The control socket in ring mode, the data socket in the others.
    pub socket: Option<OwnedFd>,
    pub end: Option<Endpoint>,
}

impl Taken {
    pub(crate) fn new(flow: Flow, mut fds: Vec<OwnedFd>) -> Self {
        let expected = match flow.mode {
            Mode::Ring => ipc::RING_FDS..=ipc::RING_FDS,
            Mode::Socket => ipc::SOCKET_FDS..=ipc::SOCKET_FDS,
            // Without one this end attached a socket.
            Mode::Stream => 0..=ipc::SOCKET_FDS,
        };
        assert!(expected.contains(&fds.len()), "{} descriptors", fds.len());
        let socket = (!fds.is_empty()).then(|| fds.remove(0));
        let end = (flow.mode == Mode::Ring).then(|| {
            let side = Side::from_tx_ring(flow.tx_ring.into()).unwrap();
            let wake = if flow.light_wake {
                WakeMode::Light
            } else {
                WakeMode::Fence
            };
            let fds: [OwnedFd; 5] = fds.try_into().unwrap();
            Endpoint::from_fds(flow.ring_bytes as usize, side, wake, fds).unwrap()
        });
        Self { flow, socket, end }
    }

    pub(crate) fn send(&mut self, sdu: &[u8]) {
        match &mut self.end {
            Some(end) => {
                end.tx.push(&[sdu], false).unwrap();
                end.publish();
            }
            None => send_with_fds(self.socket.as_ref().unwrap(), sdu, &[]).unwrap(),
        }
    }

    /// The next SDU, which is one piece; `None` at the end of the flow.
    pub(crate) fn recv(&mut self) -> Option<Vec<u8>> {
        let Some(end) = &mut self.end else {
            let socket = self.socket.as_ref().unwrap();
            assert!(readable(socket, PATIENCE_MS), "no SDU for two minutes");
            let mut buffer = vec![0; 65536];
            let bytes = recv_with_fds(socket, &mut buffer).ok()?.bytes;
            return (bytes > 0).then(|| buffer[..bytes].to_vec());
        };
        let mut silence_ms = 0;
        loop {
            if let Some(sdu) = taken_from(end) {
                return Some(sdu);
            }
            if end.rx.ended().unwrap().is_some() {
                return None;
            }
            assert!(silence_ms < PATIENCE_MS, "no SDU for two minutes");
            if end.rx.arm() {
                if !readable(&end.my_rx_doorbell, SLICE_MS) {
                    silence_ms += SLICE_MS;
                }
                end.my_rx_doorbell.drain();
            }
            end.rx.disarm();
        }
    }

    /// The next SDU of one piece, if it is already in the ring.
    pub(crate) fn recv_now(&mut self) -> Option<Vec<u8>> {
        taken_from(self.end.as_mut().expect("a ring"))
    }

    /// Sends an SDU as soon as the ring has room for it.
    pub(crate) fn send_patiently(&mut self, sdu: &[u8]) {
        let end = self.end.as_mut().expect("a ring");
        let patience = Instant::now() + PATIENCE;
        while end.tx.push(&[sdu], false).is_err() {
            end.publish();
            assert!(Instant::now() < patience, "no room for two minutes");
            std::thread::yield_now();
        }
        end.publish();
    }

    /// Sends an SDU of any length, in pieces of at most `piece` bytes.
    pub(crate) fn send_in_pieces(&mut self, sdu: &[u8], piece: usize) {
        let end = self.end.as_mut().expect("a ring");
        let patience = Instant::now() + PATIENCE;
        let mut rest = sdu;
        loop {
            let (now, later) = rest.split_at(rest.len().min(piece));
            while end.tx.push(&[now], !later.is_empty()).is_err() {
                end.publish();
                assert!(Instant::now() < patience, "no room for two minutes");
                std::thread::yield_now();
            }
            if later.is_empty() {
                return end.publish();
            }
            rest = later;
        }
    }

    /// The next SDU, of any number of pieces; `None` at the end of the flow.
    pub(crate) fn recv_whole(&mut self) -> Option<Vec<u8>> {
        let mut sdu = Vec::new();
        loop {
            let end = self.end.as_mut().expect("a ring");
            match end.rx.next().unwrap() {
                Some(lease) => {
                    let more = lease.more();
                    sdu.extend_from_slice(&lease.to_vec());
                    drop(lease);
                    end.release();
                    if !more {
                        return Some(sdu);
                    }
                }
                None if end.rx.ended().unwrap().is_some() => return None,
                None => self.wait_for_piece(),
            }
        }
    }

    fn wait_for_piece(&mut self) {
        let end = self.end.as_mut().expect("a ring");
        if end.rx.arm() {
            assert!(
                readable(&end.my_rx_doorbell, PATIENCE_MS),
                "no piece for two minutes"
            );
            end.my_rx_doorbell.drain();
        }
        end.rx.disarm();
    }

    /// Closes as an application should: first its stream, then its descriptors.
    pub(crate) fn close(mut self) {
        if let Some(end) = &mut self.end {
            end.close(carina_ring::State::Closed);
        }
    }

    /// The node's notice of the flow's end; `None` when the node just closed the socket.
    pub(crate) fn notice(&self) -> Option<(String, bool)> {
        let socket = self.socket.as_ref().unwrap();
        assert!(
            readable(socket, PATIENCE_MS),
            "the node said nothing of the flow for two minutes"
        );
        let mut buffer = vec![0; 4096];
        let datagram = recv_with_fds(socket, &mut buffer).ok()?;
        if datagram.bytes == 0 {
            return None;
        }
        let FlowNotice::Closed { reason, graceful } =
            ipc::decode(&buffer[..datagram.bytes]).unwrap();
        Some((reason, graceful))
    }
}
