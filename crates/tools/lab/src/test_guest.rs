//! A guest attached to a [`TestNode`]: a VM with the shared-memory device and, for comparison,
//! emulated network cards. Dropping the value ends it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_api::control::{VmCreate, VmpiKind};
use carina_api::qemu::escape;
use carina_api::{DifName, LocalName};
use carina_vm::{Backend, GuestImage, Nic, Output, Running};
use carina_vsock::{Device as VsockDevice, DeviceConfig};

use crate::error::{Attempt, Error, Result};
use crate::node::TestNode;
use carina_topology::{hv_dif, hv_ipcp};

/// What a guest of a benchmark or test consists of: memory, devices, cards, and the configuration
/// of its node.
#[derive(Debug, Clone)]
pub struct GuestSpec {
    /// Name of the guest.
    pub name: String,
    /// Memory of the guest, in MiB.
    pub memory_mib: u32,
    /// The guest's VMPI devices, at most one of each kind, in the order of [`VmpiKind`]. Over each
    /// device there is a DIF between guest and host: [`TestGuest::dif`].
    pub vmpi: Vec<VmpiKind>,
    /// Network cards that QEMU emulates for the guest, in addition to the VMPI devices.
    pub nics: Vec<Nic>,
    /// The bridge in the host's namespace to which the cards' taps are added; `None` to add them to
    /// no bridge.
    pub bridge: Option<String>,
    /// TOML that is appended to the configuration of the guest's node, after the hypervisor shim.
    pub node_config: String,
    /// Further words for the guest kernel's command line.
    pub parameters: Vec<String>,
    /// The vhost-user socket at which another program serves a vsock device of the guest; `None`
    /// for no such device. A guest can use one vsock device only.
    pub vsock_socket: Option<PathBuf>,
}

/// A running guest, which is killed when this value is dropped.
#[derive(Debug)]
pub struct TestGuest {
    name: String,
    vm: Running,
    /// The guest's vsock devices, which live as long as the guest.
    _vsock: Vec<VsockDevice>,
}

/// The context id of the guest. Every guest may have the same, because each has its own device.
const GUEST_CID: u64 = 3;

impl TestGuest {
    /// Creates the VM's port in the node and the taps, and boots the VM.
    ///
    /// # Errors
    /// The node refuses, a tap cannot be made, or QEMU does not start.
    pub fn start(image: &GuestImage, node: &TestNode, spec: GuestSpec) -> Result<Self> {
        let name = spec.name;
        let machine = image.machine(&name, node.path().join(format!("qemu.{name}")));
        let mut machine = machine.attempt("naming the VM")?;
        let mut config = String::new();
        let mut vsock = Vec::new();
        for (index, kind) in spec.vmpi.into_iter().enumerate() {
            let dif = Self::dif(&name, kind)?;
            let port = node.control().create_vm(&VmCreate {
                name: Self::port(&name, kind)?,
                region_bytes: None,
                dif: Some(dif.clone()),
                vmpi: Some(kind),
                socket: None,
                internet: Vec::new(),
                ip: Vec::new(),
                nat: false,
            });
            let port = port.attempt("making the VM's port")?;
            machine = machine.vmpi(kind, &port.qemu_socket);
            config += &hv_ipcp(index, dif.as_str());
            if kind == VmpiKind::Vsock {
                config += "vsock = 1110\n";
                let served = VsockDevice::start(&DeviceConfig {
                    path: port.qemu_socket.with_extension("vsock"),
                    vhost_socket: port.qemu_socket,
                    guest_cid: GUEST_CID,
                });
                vsock.push(served.attempt("serving the VM's vsock device")?);
            }
        }
        let mut machine = machine
            .node_config(&(config + &spec.node_config))
            .memory_mib(spec.memory_mib);
        for nic in spec.nics {
            if let (Backend::Tap(tap), Some(bridge)) = (&nic.backend, &spec.bridge) {
                node.add_tap(tap, bridge)?;
            }
            machine = machine.nic(nic);
        }
        for word in spec.parameters {
            machine = machine.parameter(word);
        }
        if let Some(socket) = spec.vsock_socket {
            let socket = escape(&socket);
            machine = machine
                .module("vmw_vsock_virtio_transport")
                .module("virtio_pci")
                .extra_args([
                    "-chardev".to_owned(),
                    format!("socket,id=other-vsock,path={socket}"),
                    "-device".to_owned(),
                    "vhost-user-vsock-pci,chardev=other-vsock".to_owned(),
                ]);
        }
        if let Some(namespace) = node.namespace() {
            // QEMU must not be started by a thread inside the namespace, because it would end with
            // that thread.
            machine = machine.launcher(namespace.launcher());
        }
        let vm = machine
            .dies_with_parent()
            .start(image.cache())
            .attempt("starting QEMU")?;
        Ok(Self {
            name,
            vm,
            _vsock: vsock,
        })
    }

    /// The name of the host's port for one device of the guest `name`.
    ///
    /// # Errors
    /// The name is not well formed.
    pub fn port(name: &str, kind: VmpiKind) -> Result<LocalName> {
        let port = match kind {
            VmpiKind::Ivshmem => name.to_owned(),
            VmpiKind::IvshmemPlain => format!("{name}-plain"),
            VmpiKind::Virtqueue => format!("{name}-queues"),
            VmpiKind::Vsock => format!("{name}-vsock"),
            VmpiKind::Xen => format!("{name}-xen"),
        };
        LocalName::new(port).attempt("naming the VM")
    }

    /// The DIF between the guest `name` and its host over one device.
    ///
    /// # Errors
    /// The name is not well formed.
    pub fn dif(name: &str, kind: VmpiKind) -> Result<DifName> {
        DifName::new(hv_dif(Self::port(name, kind)?.as_str())).attempt("naming the DIF")
    }

    /// The virtual machine in which the guest runs.
    pub fn machine(&self) -> &Running {
        &self.vm
    }

    /// Waits until the guest has booted.
    ///
    /// # Errors
    /// The guest has not booted within `limit`, or has ended.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        self.vm.wait_ready(limit).attempt("waiting for the guest")
    }

    /// Runs a shell command in the guest, waits until it ends, and returns its standard output.
    ///
    /// # Errors
    /// The guest does not answer, or the command fails.
    pub fn run(&self, command: &str) -> Result<String> {
        Ok(self.vm.must_run(command)?.text())
    }

    /// Runs a shell command in the guest, and waits until it ends.
    ///
    /// # Errors
    /// The guest does not answer within `limit`. A command that fails is not an error; the output
    /// has its status.
    pub fn run_within(&self, command: &str, limit: Duration) -> Result<Output> {
        let output = self.vm.run_within(command, limit);
        output.attempt(format!("running a command in guest {}", self.name))
    }

    /// Gives the card with this MAC address an IP address, as [`Running::set_address`] does.
    ///
    /// # Errors
    /// There is no such card, or the guest does not answer.
    pub fn set_address(&self, mac: [u8; 6], address: &str) -> Result<()> {
        Ok(self.vm.set_address(mac, address)?)
    }

    /// Waits until a name is in the directory of a DIF of the guest's node.
    ///
    /// # Errors
    /// The name is not there within `limit`; the error contains the guest's logs.
    pub fn wait_for_name_in(&self, dif: &str, name: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let listed = self.run("carina dif list --json || carina ipcp list --json")?;
            let is_known = serde_json::from_str::<serde_json::Value>(&listed).is_ok_and(|difs| {
                let difs = difs.as_array().cloned().unwrap_or_default();
                difs.iter().any(|d| {
                    d["name"] == dif
                        && d["names"]
                            .as_array()
                            .is_some_and(|n| n.iter().any(|n| n == name))
                })
            });
            if is_known {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!("{name} to be known in {dif}");
                let timeout = Error::Timeout { what, limit };
                return Err(timeout.with(format!(": {listed}\n{}", self.logs())));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The accelerator of QEMU, such as `kvm` or `tcg`.
    pub fn accelerator(&self) -> &str {
        &self.vm.record().accel
    }

    /// Thread ids of the guest's processors; empty if QEMU does not answer.
    pub fn processor_threads(&self) -> Vec<i32> {
        self.vm.processor_threads().unwrap_or_default()
    }

    /// The last lines of the guest's logs and of its console.
    pub fn logs(&self) -> String {
        let inside = self.vm.run_within(
            "tail -n 25 /var/log/carina.log /tmp/peer.log; carina ipcp list",
            Duration::from_secs(20),
        );
        let inside = inside.map_or_else(|error| error.to_string(), |output| output.text());
        let console = self.vm.console_text();
        let mut tail: Vec<&str> = console.lines().rev().take(10).collect();
        tail.reverse();
        format!(
            "--- guest {}\n{inside}\n--- end of the console\n{}",
            self.name,
            tail.join("\n")
        )
    }
}
