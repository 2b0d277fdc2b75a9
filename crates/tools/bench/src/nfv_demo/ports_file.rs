//! The demonstration's file of ports, and the process that runs it.

use std::fs;
use std::path::{Path, PathBuf};

use carina_vm::{Backend, Model, Nic};

use super::{LIMIT_MBPS, PATIENCE};
use crate::error::{Attempt, Result};
use crate::program::Program;

/// The content of the file: two ports in each of two VLANs. The demonstration changes the port
/// `red-server`.
#[derive(Debug)]
pub(super) struct PortsFile {
    directory: PathBuf,
    /// Rate limit of frames from the server, in Mb/s; `None` for no limit.
    pub(super) egress_mbps: Option<f64>,
    /// Whether TCP port 80 is blocked.
    pub(super) is_blocked: bool,
}

/// Name, VLAN and MAC address of each port.
pub(super) const PORTS: [(&str, u16, [u8; 6]); 4] = [
    ("red-client", 10, [0x52, 0x54, 0, 0, 10, 1]),
    ("blue-client", 20, [0x52, 0x54, 0, 0, 20, 1]),
    ("red-server", 10, [0x52, 0x54, 0, 0, 10, 2]),
    ("blue-server", 20, [0x52, 0x54, 0, 0, 20, 2]),
];

impl PortsFile {
    pub(super) fn new(directory: &Path) -> PortsFile {
        PortsFile {
            directory: directory.to_owned(),
            egress_mbps: Some(LIMIT_MBPS),
            is_blocked: false,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, vlan, mac) in PORTS {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            text += &format!("[[ports]]\nname = \"{name}\"\nmac = \"{mac}\"\nvlan = {vlan}\n");
            if name == "red-server" {
                let filter = if self.is_blocked {
                    "arp or icmp or (tcp and not tcp dst port 80)"
                } else {
                    "arp or icmp or tcp"
                };
                text += &format!("ingress_filter = \"{filter}\"\n");
                if let Some(rate) = self.egress_mbps {
                    text += &format!("egress_mbps = {rate}\negress_burst_bytes = {BURST}\n");
                }
            }
        }
        text
    }

    fn path(&self) -> PathBuf {
        self.directory.join("ports.toml")
    }

    /// Writes the file, replacing the earlier one at once.
    pub(super) fn write(&self) -> Result<()> {
        let (new, path) = (self.directory.join("ports.new"), self.path());
        let what = format!("writing {}", path.display());
        fs::write(&new, self.text()).attempt(what.as_str())?;
        fs::rename(&new, &path).attempt(what)
    }

    /// Starts the process, and waits until its ports exist.
    pub(super) fn run(&self) -> Result<Program> {
        let path = self.path().display().to_string();
        let words = ["--json", "nfv", "run", &path, "--every", "0"];
        let mut ports = Program::start(&self.directory, &words)?;
        ports.wait_for("+ port blue-server", PATIENCE)?;
        Ok(ports)
    }

    /// A guest's card that attaches to a port.
    pub(super) fn card(&self, name: &str, mac: [u8; 6]) -> Nic {
        Nic {
            model: Model::VirtioNet,
            backend: Backend::VhostUser {
                socket: self.directory.join(format!("nfv/{name}.sock")),
                queues: 1,
                packed: false,
            },
            mac: Some(mac),
        }
    }
}

/// Bytes that may pass at once after a pause: some 40 ms at the rate limit.
const BURST: u32 = 100_000;
