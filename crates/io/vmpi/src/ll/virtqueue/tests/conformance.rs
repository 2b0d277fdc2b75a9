//! The conformance suite over virtqueues: a back end and a front end over a real socket.

use super::*;
use crate::conformance::{Device, Fixture};
use crate::hl::Side;

struct Virtqueues(Place);

impl Fixture for Virtqueues {
    fn open(&mut self, side: Side) -> Device {
        match side {
            Side::Host => back_end(self.0.port(), PIPE).unwrap(),
            Side::Guest => self.0.guest(),
        }
    }

    /// The kernel closes the sockets of a killed process, so the device is dropped.
    fn kill(&mut self, device: Device) {
        drop(device);
    }

    fn has_wake_ups(&self) -> bool {
        true
    }
}

crate::vmpi_conformance!(|| Virtqueues(Place::new()));
