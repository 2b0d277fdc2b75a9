//! The conformance suite over streams: the host's port, and a guest whose connection arrives as
//! Firecracker's device makes it, at a Unix socket.

use std::path::PathBuf;

use super::super::connector::Connector;
use super::super::device::StreamDevice;
use super::*;
use crate::conformance::{Device, Fixture};

struct Vsock {
    directory: PathBuf,
    port: HostPort,
}

impl Vsock {
    fn new() -> Vsock {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = directory(&format!("suite-{number}"));
        let port = HostPort::open(&directory, "fc", Some(&directory.join("v.sock")));
        Vsock {
            port: port.unwrap(),
            directory,
        }
    }
}

impl Fixture for Vsock {
    fn open(&mut self, side: Side) -> Device {
        match side {
            Side::Host => self.port.device().unwrap(),
            Side::Guest => {
                let connector = Connector::Path(self.directory.join("v.sock_1110"));
                Box::new(StreamDevice::new(Side::Guest, connector).unwrap())
            }
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

impl Drop for Vsock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

static NEXT: AtomicU32 = AtomicU32::new(0);

crate::vmpi_conformance!(Vsock::new);
